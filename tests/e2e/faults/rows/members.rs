//! Many workers that come and go while there is work.

use super::{SOON, members};
use crate::{
    judge::Judge,
    row::{Figures, World},
};
use anyhow::{Result, ensure};
use starling_e2e::{Plan, Proc, Scripted, Swarm, SwarmOptions};
use starling_llm::{
    Purpose,
    mock::{MockAction, scripts::work_reply},
};
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// How long a call takes, if the row does not say otherwise.
const CALL: Duration = Duration::from_millis(500);
/// How long the killing goes on, and the storm.
const MINUTE: Duration = Duration::from_secs(60);

/// A tenth of the workers is killed every second, for a minute; others are started in their place.
pub(super) async fn a_tenth_killed_every_second(world: World) -> Result<Figures> {
    let (model, mut swarm) = crowd(&world, world.members, CALL).await?;
    let mut judge = Judge::new(&model);
    let each = (world.members / 10).max(1);
    let (until, mut ticks) = (Instant::now() + MINUTE, seconds());
    let mut killed = 0;
    while Instant::now() < until {
        ticks.tick().await;
        judge.publish(&swarm, &format!("killed every second {killed}")).await?;
        let mut names = Vec::new();
        for _ in 0..each {
            let victim = rand::random_range(0..swarm.workers.len());
            let mut victim = swarm.workers.swap_remove(victim);
            victim.kill()?;
            names.push(victim.name.clone());
        }
        killed += names.len();
        judge.died(&swarm.logs, &names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        for _ in 0..each {
            let worker = swarm.spawn("starling-worker")?;
            swarm.workers.push(worker);
        }
    }
    println!("{killed} workers were killed");
    finish(judge, &swarm, &model).await
}

/// Every worker is told to stop and replaced, a twentieth of them at a time.
pub(super) async fn rolling_restart(world: World) -> Result<Figures> {
    let (model, mut swarm) = crowd(&world, world.members, CALL).await?;
    let mut judge = Judge::new(&model);
    let each = world.members.div_ceil(20);
    let mut old = std::mem::take(&mut swarm.workers);
    while !old.is_empty() {
        judge.publish(&swarm, &format!("rolling restart {}", old.len())).await?;
        let mut leaving: Vec<Proc> = old.drain(..each.min(old.len())).collect();
        for process in &leaving {
            process.signal("TERM")?;
        }
        for process in &mut leaving {
            let status = process.wait(SOON).await?;
            ensure!(status.success(), "{} ended with {status}:\n{}", process.name, process.last_lines());
        }
        for _ in &leaving {
            let worker = swarm.spawn_ready("starling-worker").await?;
            swarm.workers.push(worker);
        }
    }
    finish(judge, &swarm, &model).await
}

/// Every second a worker joins and another one leaves.
pub(super) async fn rebalance_storm(world: World) -> Result<Figures> {
    const MEMBERS: usize = 6;
    // So long that nobody has done and committed again what a leaver left before the books are looked at.
    let (model, mut swarm) = crowd(&world, MEMBERS, 6 * CALL).await?;
    let mut judge = Judge::new(&model);
    let (until, mut ticks) = (Instant::now() + MINUTE / 2, seconds());
    let (mut leaving, mut rounds): (Vec<Proc>, usize) = (Vec::new(), 0);
    while Instant::now() < until || !leaving.is_empty() {
        ticks.tick().await;
        if Instant::now() < until {
            rounds += 1;
            if rounds % 3 == 1 {
                judge.publish(&swarm, &format!("in a storm {rounds}")).await?;
            }
            let worker = swarm.spawn("starling-worker")?;
            swarm.workers.push(worker);
            let leaver = swarm.workers.remove(0);
            leaver.signal("TERM")?;
            leaving.push(leaver);
        }
        let mut gone = Vec::new();
        for leaver in &mut leaving {
            if let Some(status) = leaver.ended()? {
                ensure!(status.success(), "{} ended with {status}:\n{}", leaver.name, leaver.last_lines());
                gone.push(leaver.name.clone());
            }
        }
        // In the middle of a rebalance the group may not take a leaver's last commit.
        judge.died(&swarm.logs, &gone.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        leaving.retain(|leaver| !gone.contains(&leaver.name));
    }
    members(&swarm, "worker", MEMBERS).await?;
    finish(judge, &swarm, &model).await
}

/// A swarm of so many workers, whose calls take so long.
async fn crowd(world: &World, workers: usize, call_takes: Duration) -> Result<(Scripted, Swarm)> {
    let model = Scripted::new(Plan::independent(40)).but(move |call| {
        (call.purpose == Purpose::Work).then(|| MockAction::reply_after(call_takes, work_reply(call)))
    });
    let options = SwarmOptions { critics: 1, ..world.options(&model, workers) };
    let partitions = if workers > 12 { 128 } else { 16 };
    let swarm = Swarm::start(options.set(&format!("topics.partitions.worker={partitions}"))).await?;
    Ok((model, swarm))
}

async fn finish(mut judge: Judge, swarm: &Swarm, model: &Scripted) -> Result<Figures> {
    judge.settle(swarm, 3 * SOON).await?;
    // Members that live on lose partitions to those that join. Calls that they give up for it are closed.
    judge.allow(usize::try_from(swarm.model.stats().closed_by_client)?);
    println!(
        "{} calls in all, {} were closed",
        model.calls.all().len(),
        swarm.model.stats().closed_by_client
    );
    judge.conclude(swarm, SOON).await?.all_succeeded()
}

fn seconds() -> tokio::time::Interval {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
