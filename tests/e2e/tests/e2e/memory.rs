//! What a worker process takes when it has nothing to do.

use anyhow::Result;
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_at_rest_is_small() -> Result<()> {
    let swarm = Swarm::start(SwarmOptions::new(Scripted::new(Plan::new()).options(), 1)).await?;
    let rss = swarm.workers[0].rss_mib().unwrap();
    // Code that is not optimised takes more.
    let limit = if cfg!(debug_assertions) { 100 } else { 60 };
    println!("a worker at rest takes {rss} MiB, a planner {} MiB", swarm.planners[0].rss_mib().unwrap());
    assert!(rss <= limit, "{rss} MiB, at most {limit} are allowed");
    Ok(())
}
