//! Workers that are killed with calls open: nothing is lost, and little is done twice.

use crate::{SOON, repetitions};
use anyhow::{Context, Result};
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions, eventually};
use starling_llm::Purpose;
use starling_protocol::OutcomeStatus;
use std::time::Duration;

const TASKS: usize = 24;

const HELD: usize = TASKS / 2;

/// Every second task is held; of three workers, each has some of them.
fn is_held(title: &str) -> bool {
    title.strip_prefix('t').and_then(|n| n.parse::<usize>().ok()).is_some_and(|n| n % 2 == 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_with_calls_open_costs_no_more_than_these_calls() -> Result<()> {
    let model = Scripted::new(Plan::independent(TASKS))
        .holding(|call| call.purpose == Purpose::Work && call.section("Task").is_some_and(is_held));
    let options = SwarmOptions::new(model.options(), 3).set("processor.slots.worker=16");
    let mut swarm = Swarm::start(options).await?;
    for round in 0..repetitions() {
        model.hold();
        let before = model.calls.of(Purpose::Judge).len();
        let id = swarm.submit(&format!("kill-{round}"), &format!("Survive, round {round}")).await?;
        eventually("only the held calls are open, the others are judged", SOON, || {
            let stats = swarm.model.stats();
            stats.open == HELD as u64
                && stats.open_by_purpose.work == HELD as u64
                && model.calls.of(Purpose::Judge).len() == before + TASKS - HELD
        })
        .await;
        // What is promised not to be repeated is what was committed, and commits come a moment later.
        tokio::time::sleep(Duration::from_millis(1000)).await;
        let (work, judge) = (model.calls.repeated(Purpose::Work), model.calls.repeated(Purpose::Judge));
        let closed = swarm.model.stats().closed_by_client;

        let goal = format!("## Goal\nSurvive, round {round}\n");
        let mut held_calls = model.calls.of(Purpose::Work);
        held_calls.retain(|call| is_held(&call.title) && call.prompt.contains(&goal));
        let victim = held_calls.last().context("calls are held")?.model.clone();
        let open = held_calls.iter().filter(|call| call.model == victim).count();
        let victim =
            swarm.workers.iter().position(|worker| worker.name == victim).context("a worker made them")?;
        let mut victim = swarm.workers.swap_remove(victim);
        victim.kill()?;
        model.stop_holding();
        eventually("the dead worker's calls are closed", SOON, || {
            swarm.model.stats().closed_by_client - closed == open as u64
        })
        .await;
        swarm.model.release();

        let outcome = swarm.outcome(&id, SOON).await?;
        assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
        assert_eq!(outcome.tasks.succeeded as usize, TASKS);
        let repeated = model.calls.repeated(Purpose::Work) - work;
        println!("round {round}: {open} calls were open at the kill, {repeated} were repeated");
        assert!(repeated <= open, "{repeated} calls were repeated, {open} were open");
        assert_eq!(model.calls.repeated(Purpose::Judge) - judge, 0, "no critic died");
        assert!(outcome.task_reports.iter().all(|report| report.attempts == 1), "a crash is no attempt");
        swarm.logs.one_outcome(&id).await?;
        let worker = swarm.spawn_ready("starling-worker").await?;
        swarm.workers.push(worker);
    }
    swarm.all_audited(SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_critic_killed_with_calls_open_loses_no_verdict() -> Result<()> {
    let model = Scripted::new(Plan::independent(4)).holding(|call| call.purpose == Purpose::Judge);
    let mut swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    let id = swarm.submit("critic", "Judge it").await?;
    eventually("all verdicts are asked for", SOON, || swarm.model.stats().open_by_purpose.judge == 4).await;
    swarm.critics.remove(0).kill()?;
    model.stop_holding();
    let critic = swarm.spawn("starling-critic")?;
    swarm.critics.push(critic);
    let outcome = swarm.outcome(&id, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
    assert!(outcome.degraded.is_empty(), "{:?}", outcome.degraded);
    assert!(model.calls.repeated(Purpose::Judge) <= 4);
    assert_eq!(model.calls.repeated(Purpose::Work), 0, "no worker died");
    swarm.all_audited(SOON).await?;
    Ok(())
}
