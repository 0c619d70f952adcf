//! What the coordinator decides while the broker is slow with what it decided before.

use crate::SOON;
use anyhow::Result;
use starling_e2e::{Api, Frames, Plan, Proxy, Scripted, Swarm, SwarmOptions, brokers, until};
use starling_protocol::{IntentId, OutcomeStatus, Topic};
use std::time::Duration;

/// An idempotent producer has at most so many requests under way.
const UNDER_WAY: usize = 5;

/// Requests without an answer are given up after half a minute, and others get their turn.
const BEFORE_THEY_GIVE_UP: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn decisions_do_not_wait_behind_what_earlier_ones_caused() -> Result<()> {
    let model = Scripted::new(Plan::independent(3));
    let proxy = Proxy::before(&brokers()?).await?;
    let options = SwarmOptions { planners: 0, ..SwarmOptions::new(model.options(), 2) };
    let options = options.one_planner_at_a_time().set("kafka.producers=1");
    let mut swarm = Swarm::start(options).await?;
    let dispatches = proxy.hold(Frames::requests(Api::Produce).of(&swarm.names.name(&Topic::Worker(None))));
    let planner = swarm.spawn_behind(&proxy, "starling-planner")?;
    swarm.planners.push(planner);
    // Each is dispatched while the dispatches of those before it wait, with at least one request of its own.
    for stuck in 1..=UNDER_WAY {
        swarm.submit(&format!("stuck-{stuck}"), "Go no further").await?;
        dispatches.until_held(stuck).await?;
    }

    let id = IntentId::from_string("stuck-1");
    swarm.client.cancel(&id, "test", "nothing moves").await?;
    // Its outcome waits behind the dispatches; that it was decided does not.
    until("something is decided while dispatches wait for the broker", BEFORE_THEY_GIVE_UP, || async {
        Ok(swarm.logs.undone_effects(&Topic::Outcomes).await? > 0)
    })
    .await?;
    dispatches.release();
    let outcome = swarm.outcome(&id, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Cancelled, "{}", outcome.reason);
    swarm.logs.one_outcome(&id).await?;
    Ok(())
}
