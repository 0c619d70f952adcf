//! Processes that are killed at an unfortunate moment.

use super::{SOON, members, number, shared_brokers};
use crate::{
    judge::Judge,
    row::{Figures, World},
};
use anyhow::{Context as _, Result};
use starling_e2e::{Api, Frames, OwnBroker, Plan, Proxy, Scripted, Swarm, SwarmOptions, eventually, until};
use starling_llm::{Purpose, mock::MockAction};
use starling_protocol::Topic;
use std::{collections::HashSet, sync::Mutex, time::Duration};

/// Every second call is open when the worker that has most of them is killed.
pub(super) async fn worker_in_mid_call(world: World) -> Result<Figures> {
    const TASKS: usize = 18;
    let is_held = |title: &str| number(title).is_some_and(|n| n % 2 == 0);
    let model = Scripted::new(Plan::independent(TASKS))
        .holding(move |call| call.purpose == Purpose::Work && call.section("Task").is_some_and(is_held));
    let options = world.options(&model, 3).set("processor.slots.worker=16");
    let mut swarm = Swarm::start(options).await?;
    let mut judge = Judge::new(&model);
    judge.publish(&swarm, "in mid-call").await?;
    eventually("only the held calls are open, the others are judged", SOON, || {
        swarm.model.stats().open_by_purpose.work == TASKS as u64 / 2
            && model.calls.of(Purpose::Judge).len() == TASKS / 2
    })
    .await;
    until("what is done is committed", SOON, || async {
        Ok(swarm.logs.uncommitted(&Topic::Worker(None), "worker").await?.len() == TASKS / 2)
    })
    .await?;

    let mut held = model.calls.of(Purpose::Work);
    held.retain(|call| is_held(&call.title));
    let victim = held.last().context("calls are held")?.model.clone();
    let open = held.iter().filter(|call| call.model == victim).count();
    kill(&mut swarm, &victim)?;
    judge.allow(open);
    model.stop_holding();
    eventually("the dead worker's calls are closed", SOON, || {
        swarm.model.stats().closed_by_client == open as u64
    })
    .await;
    swarm.model.release();
    judge.conclude(&swarm, SOON).await?.all_succeeded()
}

/// A worker whose results are written and whose commits are not, because the network keeps them back.
pub(super) async fn worker_between_produce_and_commit(world: World) -> Result<Figures> {
    between_produce_and_commit(world, "worker").await
}

/// A critic whose verdicts are written and whose commits are not.
pub(super) async fn critic_between_produce_and_commit(world: World) -> Result<Figures> {
    between_produce_and_commit(world, "critic").await
}

async fn between_produce_and_commit(world: World, role: &str) -> Result<Figures> {
    const TASKS: usize = 12;
    let model = Scripted::new(Plan::independent(TASKS));
    let proxy = Proxy::before(&shared_brokers()?).await?;
    let (binary, is_worker) = (format!("starling-{role}"), role == "worker");
    let options = SwarmOptions { critics: 1, ..world.options(&model, 1) };
    let mut swarm = Swarm::start(options).await?;
    let held = proxy.hold(Frames::requests(Api::OffsetCommit));
    let mut victim = swarm.spawn_behind(&proxy, &binary)?;
    members(&swarm, role, 2).await?;
    let mut judge = Judge::new(&model);
    // Whose the work is the coordinator decides, so there is more of it until the victim has some. Nothing is slow: all
    // is done, and the outcomes are there, while the victim cannot commit.
    let purpose = if is_worker { Purpose::Work } else { Purpose::Judge };
    let mut intents = 0;
    while held.held() == 0 {
        intents += 1;
        judge.publish(&swarm, &format!("{role} between produce and commit, {intents}")).await?;
        until("everything else is done", SOON, || async {
            Ok(swarm.logs.outcomes().await?.len() >= intents)
        })
        .await?;
    }
    eventually("the victim has made calls, and all are made", SOON, || {
        let calls = model.calls.of(purpose);
        calls.len() >= TASKS * intents && calls.iter().any(|call| call.model == victim.name)
    })
    .await;
    victim.kill()?;
    let allowed = judge.died(&swarm.logs, &[&victim.name]).await?;
    anyhow::ensure!(allowed > 0, "the victim had committed everything: the fault did not happen");
    drop(held);
    let found = judge.conclude(&swarm, SOON).await?;
    anyhow::ensure!(found.figures.repeated > 0, "nobody has done again what the victim had not committed");
    found.all_succeeded()
}

/// The model stops in the middle of a plan, and the planner is killed; another one plans anew.
pub(super) async fn planner_in_mid_stream(world: World) -> Result<Figures> {
    let plan = Plan::independent(6);
    let pieces = plan.pieces();
    let asked = Mutex::new(HashSet::new());
    // The first plan of a goal stops after two tasks.
    let model = Scripted::new(plan).but(move |call| {
        let goal = call.section("Goal")?;
        let first = call.purpose == Purpose::Plan && asked.lock().unwrap().insert(goal.to_owned());
        let delays = [0, 0, 600].map(Duration::from_secs);
        first.then(|| MockAction::Stream { chunks: delays.into_iter().zip(pieces.clone()).collect() })
    });
    let mut swarm = Swarm::start(world.options(&model, 2).one_planner_at_a_time()).await?;
    let standby = swarm.spawn("starling-planner")?;
    swarm.planners.push(standby);
    members(&swarm, "coordinator", 2).await?;
    let mut judge = Judge::new(&model);
    judge.publish(&swarm, "in mid-stream").await?;
    eventually("the first two tasks are judged while the planner speaks", SOON, || {
        swarm.model.stats().open_by_purpose.plan == 1 && model.calls.of(Purpose::Judge).len() == 2
    })
    .await;
    let mut victim = swarm.planners.remove(0);
    victim.kill()?;
    judge.died(&swarm.logs, &[&victim.name]).await?;
    judge.coordinator_died(&swarm.logs).await?;
    // What the abandoned plan has cost is not known.
    judge.conclude(&swarm, SOON).await?.all_succeeded_but(&["uncounted_plan_calls"])
}

/// A worker is killed whose commits cannot say all that is done above its slow tasks: its broker keeps little beside an
/// offset.
pub(super) async fn worker_at_the_limit_of_metadata(world: World) -> Result<Figures> {
    const TASKS: usize = 60;
    const LIMIT: usize = 20;
    let broker = OwnBroker::start_with(&["--set", &format!("offset.metadata.max.bytes={LIMIT}")]).await?;
    let model = Scripted::new(Plan::independent(TASKS)).holding(|call| {
        call.purpose == Purpose::Work
            && call.section("Task").and_then(number).is_some_and(|task| task % 3 == 0)
    });
    let options = SwarmOptions { brokers: Some(broker.address.clone()), ..world.options(&model, 1) };
    let options = options.set("processor.slots.worker=60").set("topics.partitions.worker=1");
    let mut swarm = Swarm::start(options).await?;
    let mut judge = Judge::new(&model);
    judge.publish(&swarm, "at the limit of metadata").await?;
    eventually("the worker is told that it says too much", SOON, || {
        swarm.workers[0].stderr().contains("offset.metadata.max.bytes")
    })
    .await;
    let (group, inbox) = (swarm.names.group("worker"), swarm.logs.partition(&Topic::Worker(None), 0));
    until("what fits is committed", SOON, || async {
        let committed = swarm.bus.committed(&group, &inbox).await?;
        Ok(committed.is_some_and(|committed| (1..=LIMIT).contains(&committed.metadata.len())))
    })
    .await?;
    let mut victim = swarm.workers.remove(0);
    victim.kill()?;
    judge.died(&swarm.logs, &[&victim.name]).await?;
    model.stop_holding();
    let successor = swarm.spawn("starling-worker")?;
    swarm.workers.push(successor);
    swarm.model.release();
    judge.conclude(&swarm, SOON).await?.all_succeeded()
}

/// Kills the worker with that name.
fn kill(swarm: &mut Swarm, name: &str) -> Result<()> {
    let at = swarm.workers.iter().position(|worker| worker.name == name).context("it is a worker")?;
    swarm.workers.swap_remove(at).kill()
}
