//! Coordinators that are killed in the middle of what they do with their log. The proxy keeps them there.

use super::{SOON, members, number, shared_brokers};
use crate::{
    judge::Judge,
    row::{Figures, World},
};
use anyhow::{Result, ensure};
use starling_e2e::{Api, Frames, Plan, Proxy, Scripted, Swarm, SwarmOptions, eventually, until};
use starling_llm::{Purpose, mock::MockAction};
use starling_protocol::{Topic, state::StateRecord};
use std::time::Duration;

/// A decision is in the log, and what follows from it is not sent.
pub(super) async fn between_append_and_effects(world: World) -> Result<Figures> {
    let figures = with_dispatches_held(world, Frames::requests(Api::Produce)).await?;
    ensure!(figures.repeated == 0, "nothing had been sent, but {} calls were repeated", figures.repeated);
    Ok(figures)
}

/// What follows from a decision is sent, and the log does not know.
pub(super) async fn between_effects_and_mark(world: World) -> Result<Figures> {
    with_dispatches_held(world, Frames::answers(Api::Produce)).await
}

async fn with_dispatches_held(world: World, frames: Frames) -> Result<Figures> {
    let model = Scripted::new(Plan::independent(12));
    let proxy = Proxy::before(&shared_brokers()?).await?;
    let options = SwarmOptions { planners: 0, ..world.options(&model, 2).one_planner_at_a_time() };
    let mut swarm = Swarm::start(options).await?;
    let mut victim = swarm.spawn_behind(&proxy, "starling-planner")?;
    members(&swarm, "coordinator", 1).await?;
    let standby = swarm.spawn("starling-planner")?;
    swarm.planners.push(standby);
    members(&swarm, "coordinator", 2).await?;

    let held = proxy.hold(frames.of(&swarm.names.name(&Topic::Worker(None))));
    let mut judge = Judge::new(&model);
    judge.publish(&swarm, "between decision and effects").await?;
    held.until_held(1).await?;
    until("the decision is in the log", SOON, || async {
        Ok(swarm.logs.undone_effects(&Topic::Worker(None)).await? > 0)
    })
    .await?;
    victim.kill()?;
    judge.coordinator_died(&swarm.logs).await?;
    judge.conclude(&swarm, SOON).await?.all_succeeded()
}

/// A successor that has read a part of the log is killed; the next one reads it again.
pub(super) async fn in_mid_replay(world: World) -> Result<Figures> {
    let (model, mut swarm) = half_done(&world, &[]).await?;
    let mut judge = Judge::new(&model);
    judge.publish(&swarm, "in mid-replay").await?;
    half_judged(&swarm, &model, 1).await;

    let proxy = Proxy::before(&shared_brokers()?).await?;
    // Little is fetched at a time, and only the first of it arrives.
    let state = swarm.names.name(&Topic::State);
    let held = proxy.hold_after(1, Frames::answers(Api::Fetch).of(&state));
    let mut victim = swarm.spawn_with(
        "starling-planner",
        &[
            ("STARLING__KAFKA__BROKERS".to_owned(), proxy.address().to_owned()),
            ("STARLING__KAFKA__PROPERTIES__MAX_PARTITION_FETCH_BYTES".to_owned(), "2048".to_owned()),
        ],
    )?;
    members(&swarm, "coordinator", 2).await?;
    let before = swarm.logs.epochs().await?.len();
    swarm.planners.remove(0).kill()?;
    judge.coordinator_died(&swarm.logs).await?;
    held.until_held(1).await?;
    ensure!(swarm.logs.epochs().await?.len() == before + 1, "the successor has announced itself");
    victim.kill()?;

    let planner = swarm.spawn("starling-planner")?;
    swarm.planners.push(planner);
    model.stop_holding();
    swarm.model.release();
    let found = judge.conclude(&swarm, SOON).await?;
    ensure!(swarm.logs.epochs().await?.len() >= before + 2, "another one has taken over");
    found.all_succeeded()
}

/// A coordinator that has written a part of a snapshot is killed; the part counts for nothing.
pub(super) async fn in_mid_snapshot(world: World) -> Result<Figures> {
    const INTENTS: usize = 2;
    // Small records, so that a snapshot takes several.
    let (model, mut swarm) =
        half_done(&world, &["statelog.max_record=32KiB", "statelog.snapshot_every=1000000"]).await?;
    let mut judge = Judge::new(&model);
    for n in 0..INTENTS {
        judge.publish(&swarm, &format!("in mid-snapshot {n}")).await?;
    }
    half_judged(&swarm, &model, INTENTS).await;

    let proxy = Proxy::before(&shared_brokers()?).await?;
    swarm.also_set("statelog.snapshot_every=1");
    let mut victim = swarm.spawn_behind(&proxy, "starling-planner")?;
    members(&swarm, "coordinator", 2).await?;
    let held = proxy.hold(Frames::requests(Api::Produce).of(&swarm.names.name(&Topic::State)));
    swarm.planners.remove(0).kill()?;
    judge.coordinator_died(&swarm.logs).await?;
    // From now on the log grows record by record.
    model.stop_holding();
    swarm.model.release();
    until("a snapshot is half written", SOON, || async {
        let state = swarm.logs.state(0).await?;
        if let Some((_, StateRecord::SnapshotChunk(chunk))) = state.last()
            && chunk.part + 1 < chunk.parts
        {
            return Ok(true);
        }
        let records = state.len();
        held.until_held(1).await?;
        held.pass(1);
        until("the log has grown", SOON, || async { Ok(swarm.logs.state(0).await?.len() > records) }).await?;
        Ok(false)
    })
    .await?;
    victim.kill()?;
    judge.coordinator_died(&swarm.logs).await?;
    drop(held);
    let planner = swarm.spawn("starling-planner")?;
    swarm.planners.push(planner);
    judge.conclude(&swarm, SOON).await?.all_succeeded()
}

const TASKS: usize = 60;

/// A swarm whose model holds the second half of the tasks.
async fn half_done(world: &World, settings: &[&str]) -> Result<(Scripted, Swarm)> {
    let is_late = |title: &str| number(title).is_some_and(|n| n >= TASKS / 2);
    let plan = Plan::independent(TASKS);
    let pieces = plan.pieces();
    // Plans come task by task, so that no decision is large.
    let model = Scripted::new(plan)
        .but(move |call| {
            let delays = std::iter::repeat(Duration::from_millis(5));
            let chunks = || delays.zip(pieces.clone()).collect();
            (call.purpose == Purpose::Plan).then(|| MockAction::Stream { chunks: chunks() })
        })
        .holding(move |call| call.purpose == Purpose::Work && call.section("Task").is_some_and(is_late));
    let options = world.options(&model, 2).one_planner_at_a_time().set("processor.slots.worker=128");
    let options = settings.iter().fold(options, |options, setting| options.set(setting));
    Ok((model, Swarm::start(options).await?))
}

async fn half_judged(swarm: &Swarm, model: &Scripted, intents: usize) {
    let half = intents * TASKS / 2;
    eventually("half of the tasks are judged, the others are held", SOON, || {
        swarm.model.stats().open_by_purpose.work == half as u64
            && model.calls.of(Purpose::Judge).len() == half
    })
    .await;
}
