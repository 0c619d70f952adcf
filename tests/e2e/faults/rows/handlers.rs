//! Calls that take long, or for ever; processes that are told to stop meanwhile.

use super::{SOON, number};
use crate::{
    judge::Judge,
    row::{Figures, World},
};
use anyhow::{Context as _, Result, ensure};
use starling_e2e::{OwnBroker, Plan, Proc, Scripted, Swarm, SwarmOptions, eventually, until};
use starling_llm::{
    Purpose,
    mock::{MockAction, scripts::work_reply},
};
use starling_protocol::Topic;
use std::time::{Duration, Instant};

/// What a process may take beyond its grace: leaving its groups, sending what is left, the end of the runtime.
const BEYOND_GRACE: Duration = Duration::from_secs(20);

/// Calls that take longer than a member may be silent towards its own client: the group keeps it all the same.
pub(super) async fn longer_than_max_poll_interval(world: World) -> Result<Figures> {
    let model = Scripted::new(Plan::independent(4)).but(|call| {
        (call.purpose == Purpose::Work)
            .then(|| MockAction::reply_after(Duration::from_secs(15), work_reply(call)))
    });
    let mut swarm = Swarm::start(SwarmOptions { workers: 0, ..world.options(&model, 0) }).await?;
    let property = |name: &str| (format!("STARLING__KAFKA__PROPERTIES__{name}"), "6000".to_owned());
    for _ in 0..2 {
        let short = [property("MAX_POLL_INTERVAL_MS"), property("SESSION_TIMEOUT_MS")]; // the client wants both
        let worker = swarm.spawn_with("starling-worker", &short)?;
        swarm.workers.push(worker);
    }
    swarm.ready().await?;
    let mut judge = Judge::new(&model);
    judge.publish(&swarm, "longer than max.poll.interval").await?;
    judge.conclude(&swarm, SOON).await?.all_succeeded()
}

/// One call is never answered; its deadline frees the slot, and what waits behind it in the same partition goes on
/// meanwhile.
pub(super) async fn never_returns(world: World) -> Result<Figures> {
    let hangs = std::sync::atomic::AtomicBool::new(true);
    let model = Scripted::new(Plan::independent(8)).but(move |call| {
        let first = call.purpose == Purpose::Work
            && call.section("Task") == Some("t0")
            && hangs.swap(false, std::sync::atomic::Ordering::SeqCst);
        first.then(|| MockAction::hold_then_reply("too late"))
    });
    // One slot more than hangs, one partition.
    let options = world
        .options(&model, 1)
        .set("processor.slots.worker=2")
        .set("topics.partitions.worker=1")
        .set("coordinator.attempt_timeout=8s");
    let swarm = Swarm::start(options).await?;
    let mut judge = Judge::new(&model);
    judge.publish(&swarm, "never returns").await?;
    eventually("its siblings are judged while it hangs", Duration::from_secs(7), || {
        swarm.model.stats().open_by_purpose.work == 1 && model.calls.of(Purpose::Judge).len() == 7
    })
    .await;
    judge.allow(1); // another attempt is another call
    let found = judge.conclude(&swarm, SOON).await?;
    ensure!(swarm.model.stats().open == 0, "the call that hung is still open");
    let attempts: Vec<_> = found.outcomes.values().flat_map(|outcome| &outcome.task_reports).collect();
    let tried_again = attempts.iter().filter(|report| report.attempts > 1).count();
    ensure!(tried_again == 1, "{tried_again} tasks were tried again");
    found.all_succeeded()
}

/// A worker is told to stop in the middle of a call of 120 s, which its grace does not allow for: it hands the task over.
pub(super) async fn sigterm_in_a_long_call(world: World) -> Result<Figures> {
    const GRACE: Duration = Duration::from_secs(5);
    let long = std::sync::atomic::AtomicBool::new(true);
    let model = Scripted::new(Plan::independent(4)).but(move |call| {
        let is_long = call.purpose == Purpose::Work
            && call.section("Task") == Some("t0")
            && long.swap(false, std::sync::atomic::Ordering::SeqCst);
        let short = call.purpose == Purpose::Work;
        match (is_long, short) {
            (true, _) => Some(MockAction::reply_after(Duration::from_secs(120), work_reply(call))),
            (_, true) => Some(MockAction::reply_after(Duration::from_secs(3), work_reply(call))),
            _ => None,
        }
    });
    let mut swarm = Swarm::start(world.options(&model, 1).set("processor.grace=5s")).await?;
    let mut judge = Judge::new(&model);
    judge.publish(&swarm, "told to stop in a long call").await?;
    eventually("four calls are open", SOON, || swarm.model.stats().open_by_purpose.work == 4).await;
    let mut leaving = swarm.workers.remove(0);
    leaving.signal("TERM")?;
    ends_in_time(&mut leaving, GRACE).await?;
    ensure!(swarm.model.stats().closed_by_client == 1, "only the long call was given up");
    judge.allow(1);
    let worker = swarm.spawn("starling-worker")?;
    swarm.workers.push(worker);
    judge.conclude(&swarm, SOON).await?.all_succeeded()
}

/// All services are told to stop while the broker hangs, with calls open; and then it has died, too.
pub(super) async fn sigterm_without_broker(world: World) -> Result<Figures> {
    const GRACE: Duration = Duration::from_secs(3);
    let broker = OwnBroker::start().await?;
    let is_late = |title: &str| number(title).is_some_and(|n| n >= 6);
    let model = Scripted::new(Plan::independent(12))
        .holding(move |call| call.purpose == Purpose::Work && call.section("Task").is_some_and(is_late));
    let options = SwarmOptions { brokers: Some(broker.address.clone()), ..world.options(&model, 2) };
    let mut swarm = Swarm::start(options.set("processor.grace=3s")).await?;
    let mut judge = Judge::new(&model);
    judge.publish(&swarm, "told to stop without a broker").await?;
    eventually("half of the tasks are judged, the others are held", SOON, || {
        swarm.model.stats().open_by_purpose.work == 6 && model.calls.of(Purpose::Judge).len() == 6
    })
    .await;
    until("what is done is committed", SOON, || async {
        Ok(swarm.logs.uncommitted(&Topic::Worker(None), "worker").await?.len() == 6
            && swarm.logs.uncommitted(&Topic::Critic, "critic").await?.is_empty())
    })
    .await?;
    judge.all_lost(&swarm.logs).await?;
    let mut halves = [Vec::new(), Vec::new()];
    halves[0].append(&mut swarm.critics);
    halves[0].extend(swarm.workers.pop());
    halves[1].append(&mut swarm.planners);
    halves[1].append(&mut swarm.workers);
    let [hung, dead] = halves;
    broker.signal("STOP")?;
    all_end_in_time(hung, GRACE).await?;
    broker.signal("CONT")?;
    broker.signal("KILL")?;
    until("the broker is gone", SOON, || async { Ok(!broker.runs()) }).await?;
    all_end_in_time(dead, GRACE).await?;

    broker.start_again().await?;
    model.stop_holding();
    swarm.model.release();
    for binary in ["starling-planner", "starling-critic", "starling-worker"] {
        let process = swarm.spawn(binary)?;
        swarm.workers.push(process); // only kept
    }
    judge.conclude(&swarm, 2 * SOON).await?.all_succeeded()
}

/// A producer that takes hardly any record at a time: what it does not take is sent again.
pub(super) async fn producer_queue_full(world: World) -> Result<Figures> {
    let model = Scripted::new(Plan::independent(100));
    let options = SwarmOptions { planners: 0, ..world.options(&model, 2).set("processor.slots.worker=64") };
    let mut swarm = Swarm::start(options).await?;
    let narrow = ("STARLING__KAFKA__PROPERTIES__QUEUE_BUFFERING_MAX_MESSAGES".to_owned(), "16".to_owned());
    let planner = swarm.spawn_with("starling-planner", &[narrow])?;
    swarm.planners.push(planner);
    swarm.ready().await?;
    let mut judge = Judge::new(&model);
    for n in 0..3 {
        judge.publish(&swarm, &format!("with a full queue {n}")).await?;
    }
    let found = judge.conclude(&swarm, SOON).await?;
    let resent = swarm.planners.first().context("a planner")?.stderr();
    ensure!(resent.contains("again"), "the queue was never full: the fault did not happen");
    found.all_succeeded()
}

async fn all_end_in_time(mut leaving: Vec<Proc>, grace: Duration) -> Result<()> {
    for process in &leaving {
        process.signal("TERM")?;
    }
    for process in &mut leaving {
        ends_in_time(process, grace).await?;
    }
    Ok(())
}

/// It ends by itself, and not by a crash.
async fn ends_in_time(process: &mut Proc, grace: Duration) -> Result<()> {
    let began = Instant::now();
    let status = process.wait(grace + BEYOND_GRACE).await?;
    println!("{} ended after {:.1} s with {status}", process.name, began.elapsed().as_secs_f64());
    ensure!(status.code().is_some(), "{} ended with {status}:\n{}", process.name, process.last_lines());
    Ok(())
}
