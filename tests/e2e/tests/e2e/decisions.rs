//! What the coordinator decides while the broker is slow with what it decided before.

use crate::SOON;
use anyhow::{Result, ensure};
use starling_e2e::{Api, Frames, Plan, Proxy, Scripted, Swarm, SwarmOptions, brokers};
use starling_protocol::{OutcomeStatus, Topic};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// An idempotent producer has at most so many requests under way.
const UNDER_WAY: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn decisions_do_not_wait_behind_what_earlier_ones_caused() -> Result<()> {
    let model = Scripted::new(Plan::independent(40));
    let proxy = Proxy::before(&brokers()?).await?;
    let options = SwarmOptions { planners: 0, ..SwarmOptions::new(model.options(), 2) };
    let options = options.one_planner_at_a_time().set("kafka.producers=1");
    let mut swarm = Swarm::start(options).await?;
    let dispatches = proxy.hold(Frames::requests(Api::Produce).of(&swarm.names.name(&Topic::Worker(None))));
    let planner = swarm.spawn_behind(&proxy, "starling-planner")?;
    swarm.planners.push(planner);
    let id = swarm.submit("stuck", "Go to all partitions").await?;
    dispatches.until_held(UNDER_WAY).await;

    swarm.client.cancel(&id, "test", "nothing moves").await?;
    // Its outcome waits behind the dispatches; that it was decided does not.
    let give_up = Instant::now() + SOON;
    while swarm.logs.undone_effects(&Topic::Outcomes).await? == 0 {
        ensure!(Instant::now() < give_up, "nothing is decided while dispatches wait for the broker");
        sleep(Duration::from_millis(100)).await; // polls what has no event
    }
    dispatches.release();
    let outcome = swarm.outcome(&id, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Cancelled, "{}", outcome.reason);
    swarm.logs.one_outcome(&id).await?;
    Ok(())
}
