//! A provider that takes far fewer requests than the swarm could send.

use anyhow::Result;
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions};
use starling_llm::{
    Purpose,
    mock::{MockLimits, MockOptions},
};
use starling_protocol::OutcomeStatus;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn no_task_fails_because_a_provider_says_too_many() -> Result<()> {
    let tasks = 80;
    let model = Scripted::new(Plan::independent(tasks));
    let limits = MockLimits { requests_per_s: 20.0, burst: 4.0, tokens_per_minute: None };
    let provider = MockOptions { limits: Some(limits), ..model.options() };
    let swarm = Swarm::start(SwarmOptions::new(provider, 3).set("processor.slots.worker=16")).await?;
    let id = swarm.submit("limited", "Do more than may be asked for").await?;
    let outcome = swarm.outcome(&id, Duration::from_secs(180)).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
    assert!(outcome.degraded.is_empty(), "{:?}", outcome.degraded);
    let stats = swarm.model.stats();
    println!("{} calls, and {} refused", stats.calls, stats.refused);
    // The workers begin with 48 calls at once, since nobody knows better yet.
    assert!(stats.refused < stats.calls, "{} were refused", stats.refused);
    assert_eq!(model.calls.of(Purpose::Work).len(), tasks, "no task needed a second attempt");
    assert_eq!(model.calls.of(Purpose::Judge).len(), tasks);
    swarm.all_audited(Duration::from_secs(60)).await?;
    Ok(())
}
