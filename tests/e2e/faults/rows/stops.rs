//! Processes that stand still until their group has forgotten them, and then go on.

use super::{SOON, members, shared_brokers};
use crate::{
    judge::Judge,
    row::{Figures, World},
};
use anyhow::{Result, ensure};
use starling_e2e::{Api, Frames, Plan, Proxy, Scripted, Swarm, SwarmOptions, eventually, until};
use starling_llm::Purpose;
use starling_protocol::Topic;
use std::collections::HashMap;

/// A worker stands still with its results on the way; others take over and do its tasks again; then its results
/// arrive. They are recognised as duplicates.
pub(super) async fn worker_beyond_its_session(world: World) -> Result<Figures> {
    let model = Scripted::new(Plan::independent(12));
    let proxy = Proxy::before(&shared_brokers()?).await?;
    let mut swarm = Swarm::start(world.options(&model, 1)).await?;
    let victim = swarm.spawn_behind(&proxy, "starling-worker")?;
    members(&swarm, "worker", 2).await?;
    let results = proxy.hold(Frames::requests(Api::Produce).of(&swarm.names.name(&Topic::Critic)));
    let mut judge = Judge::new(&model);
    let id = judge.publish(&swarm, "worker beyond its session").await?;
    results.until_held(1).await?;
    // What it has asked has reached the model, else the books would not know of it.
    until("all tasks are begun", SOON, || async {
        Ok(model.calls.all().iter().filter(|call| call.purpose == Purpose::Work).count() == 12)
    })
    .await?;
    victim.signal("STOP")?;
    let allowed = judge.died(&swarm.logs, &[&victim.name]).await?;
    ensure!(allowed > 0, "the victim had no call that was not committed");
    judge.settle(&swarm, SOON).await?; // the others do what it does not
    let before = swarm.logs.envelopes(&Topic::Critic, &id).await?.len();
    ensure!(before == 12, "each result is there once, but there are {before}");
    results.release();
    until("its results arrive late", SOON, || async {
        Ok(swarm.logs.envelopes(&Topic::Critic, &id).await?.len() > before)
    })
    .await?;
    victim.signal("CONT")?;
    members(&swarm, "worker", 2).await?; // it joins again
    // It serves on: another intent finds it among the workers.
    judge.publish(&swarm, "after the worker has come back").await?;
    judge.settle(&swarm, SOON).await?;
    // A late result may be judged again, also one that it sent only after it had gone on.
    let results = swarm.logs.envelopes(&Topic::Critic, &id).await?;
    judge.allow(results.len() - before);
    let known = results.iter().fold(HashMap::new(), |mut known: HashMap<_, usize>, result| {
        *known.entry(result.id.clone()).or_default() += 1;
        known
    });
    ensure!(
        known.len() == 12,
        "a late result has the id of the result that was there, but there are {known:?}"
    );
    judge.conclude(&swarm, SOON).await?.all_succeeded()
}

/// A coordinator stands still in the middle of its work until another has taken over; what it then still writes does
/// not count.
pub(super) async fn coordinator_beyond_its_session(world: World) -> Result<Figures> {
    const INTENTS: usize = 3;
    let model = Scripted::new(Plan::independent(60));
    let proxy = Proxy::before(&shared_brokers()?).await?;
    let options = world.options(&model, 3).one_planner_at_a_time().set("processor.slots.worker=32");
    let mut swarm = Swarm::start(SwarmOptions { planners: 0, ..options }).await?;
    let victim = swarm.spawn_behind(&proxy, "starling-planner")?;
    members(&swarm, "coordinator", 1).await?;
    let standby = swarm.spawn("starling-planner")?;
    swarm.planners.push(standby);
    members(&swarm, "coordinator", 2).await?;
    let mut judge = Judge::new(&model);
    for n in 0..INTENTS {
        judge.publish(&swarm, &format!("coordinator beyond its session {n}")).await?;
    }
    eventually("results come in", SOON, || model.calls.of(Purpose::Judge).len() >= 30).await;
    // The last thing that it says to its log stays on the way until the successor has announced itself.
    let state = swarm.names.name(&Topic::State);
    let last = proxy.hold(Frames::requests(Api::Produce).of(&state));
    last.until_held(1).await?;
    victim.signal("STOP")?;
    until("another one takes over", SOON, || async { Ok(swarm.logs.epochs().await?.len() >= 2) }).await?;
    judge.coordinator_died(&swarm.logs).await?;
    last.release();
    victim.signal("CONT")?;
    let found = judge.conclude(&swarm, SOON).await?;

    ensure!(
        swarm.logs.owners().await?.stale > 0,
        "the late record of the coordinator that stood still is not in the log"
    );
    swarm.logs.decided_once().await?;
    found.all_succeeded()
}
