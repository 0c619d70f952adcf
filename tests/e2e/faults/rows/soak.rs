//! A long time under load, with one fault after the other.

use super::{SOON, shared_brokers};
use crate::{
    judge::Judge,
    row::{Figures, World},
};
use anyhow::{Context as _, Result, ensure};
use starling_e2e::{Plan, Proc, Proxy, Scripted, Swarm};
use starling_llm::{
    Purpose,
    mock::{MockAction, scripts::work_reply},
};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Time between two faults, and between two intents.
const FAULT_EVERY: Duration = Duration::from_secs(15);
const INTENT_EVERY: Duration = Duration::from_secs(1);
/// How long a call takes: so long that there are always some open.
const CALL: Duration = Duration::from_millis(1500);
/// Longer than a session.
const AWAY: Duration = Duration::from_secs(9);
/// What was read and written is remembered up to a bound. A small one, or half an hour is spent on filling it.
const CACHE: &str = "content.cache=1MiB";
/// Memory at the end, as a multiple of what it was after the first tenth: tables of ended intents may still fill.
const GROWTH: f64 = 1.5;

/// Processes are killed, stopped and cut off at random, while intents come all the time. Three that are spared show
/// that memory stays flat.
pub(super) async fn soak(world: World) -> Result<Figures> {
    let model = Scripted::new(Plan::independent(20))
        .but(|call| (call.purpose == Purpose::Work).then(|| MockAction::reply_after(CALL, work_reply(call))));
    let mut swarm = Swarm::start(world.options(&model, 4).set(CACHE)).await?;
    // One worker that is cut off now and then, and that nothing else happens to.
    let proxy = Proxy::before(&shared_brokers()?).await?;
    let mut far = swarm.spawn_behind(&proxy, "starling-worker")?;
    for binary in ["starling-planner", "starling-critic"] {
        let process = swarm.spawn(binary)?;
        list(&mut swarm, binary).push(process);
    }
    let mut judge = Judge::new(&model);
    let began = Instant::now();
    let (mut next_fault, mut intents, mut faults) = (began + FAULT_EVERY, 0, 0);
    let mut early = None;
    while began.elapsed() < world.soak {
        judge.publish(&swarm, &format!("soak {intents}")).await?;
        intents += 1;
        sleep(INTENT_EVERY).await; // the pace of the load
        if early.is_none() && began.elapsed() > world.soak / 10 {
            early = Some(memory(&swarm)?);
        }
        if Instant::now() >= next_fault {
            next_fault = Instant::now() + FAULT_EVERY;
            faults += 1;
            strike(&mut swarm, &mut judge, &proxy, faults).await?;
        }
    }
    println!("{faults} faults, {intents} intents");
    judge.settle(&swarm, 3 * SOON).await?;
    judge.allow(usize::try_from(swarm.model.stats().closed_by_client)?);
    let (early, late) = (early.context("memory was looked at")?, memory(&swarm)?);
    println!("MiB of those that were spared: {early:?}, in the end {late:?}");
    for (early, late) in early.iter().zip(&late) {
        ensure!(*late as f64 <= GROWTH * *early as f64, "memory has grown: {early} MiB, then {late} MiB");
    }
    ensure!(far.ended()?.is_none(), "the worker that was cut off has ended:\n{}", far.last_lines());
    judge.conclude(&swarm, SOON).await?.all_succeeded_but(&["uncounted_plan_calls"])
}

/// One fault. The first process of each kind is spared.
async fn strike(swarm: &mut Swarm, judge: &mut Judge, proxy: &Proxy, number: usize) -> Result<()> {
    // Members that come and go move partitions of others, too.
    judge.all_lost(&swarm.logs).await?;
    let what = ["killed", "stopped", "told to stop", "cut off"][rand::random_range(0..4)];
    if what == "cut off" {
        println!("{number}: a worker is cut off");
        proxy.cut_off();
        sleep(AWAY).await; // the fault itself
        judge.all_lost(&swarm.logs).await?;
        proxy.mend();
        return Ok(());
    }
    let binary = ["starling-worker", "starling-planner", "starling-critic"][rand::random_range(0..3)];
    let all = list(swarm, binary);
    let at = rand::random_range(1..all.len());
    let mut victim = all.swap_remove(at);
    println!("{number}: {} is {what}", victim.name);
    match what {
        "killed" => victim.kill()?,
        "stopped" => {
            victim.signal("STOP")?;
            sleep(AWAY).await; // the fault itself
            judge.all_lost(&swarm.logs).await?;
            victim.signal("CONT")?;
            list(swarm, binary).push(victim);
            return Ok(());
        }
        _ => {
            victim.signal("TERM")?;
            let status = victim.wait(SOON).await?;
            ensure!(status.success(), "{} ended with {status}:\n{}", victim.name, victim.last_lines());
        }
    }
    let process = swarm.spawn(binary)?;
    list(swarm, binary).push(process);
    Ok(())
}

fn list<'s>(swarm: &'s mut Swarm, binary: &str) -> &'s mut Vec<Proc> {
    match binary {
        "starling-worker" => &mut swarm.workers,
        "starling-planner" => &mut swarm.planners,
        _ => &mut swarm.critics,
    }
}

/// What the first process of each kind holds, in MiB.
fn memory(swarm: &Swarm) -> Result<Vec<u64>> {
    let first = [swarm.planners.first(), swarm.workers.first(), swarm.critics.first()];
    first.into_iter().map(|process| process.and_then(Proc::rss_mib).context("it lives")).collect()
}
