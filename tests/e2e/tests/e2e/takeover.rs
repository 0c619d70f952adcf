//! Planner processes, and with them coordinators, that die or stand still: another one takes over.

use crate::{SOON, repetitions};
use anyhow::Result;
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions, eventually};
use starling_llm::{Purpose, mock::MockAction};
use starling_protocol::{OutcomeStatus, Topic};
use std::{
    collections::HashSet,
    sync::Mutex,
    time::{Duration, Instant},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_planner_killed_in_the_middle_of_its_plan_is_replaced() -> Result<()> {
    let plan = Plan::independent(6);
    let pieces = plan.pieces();
    let asked = Mutex::new(HashSet::new());
    // The first plan of each round stops after two tasks.
    let model = Scripted::new(plan).but(move |call| {
        let goal = call.section("Goal").filter(|goal| goal.starts_with("Plan it"))?;
        let first = call.purpose == Purpose::Plan && asked.lock().unwrap().insert(goal.to_owned());
        let delays = [0, 0, 600].map(Duration::from_secs);
        first.then(|| MockAction::Stream { chunks: delays.into_iter().zip(pieces.clone()).collect() })
    });
    let options = SwarmOptions::new(model.options(), 2).one_planner_at_a_time();
    let mut swarm = Swarm::start(options).await?;
    for round in 0..repetitions() {
        let standby = swarm.spawn("starling-planner")?;
        swarm.planners.push(standby);
        let (plans, judged) = (model.calls.of(Purpose::Plan).len(), model.calls.of(Purpose::Judge).len());
        let work = model.calls.repeated(Purpose::Work);
        let id = swarm.submit(&format!("plan-{round}"), &format!("Plan it, round {round}")).await?;
        eventually("the first two tasks are done while the planner speaks", SOON, || {
            swarm.model.stats().open_by_purpose.plan == 1
                && model.calls.of(Purpose::Judge).len() == judged + 2
        })
        .await;
        swarm.planners.remove(0).kill()?;
        let unfinished = swarm.logs.undone_effects(&Topic::Worker(None)).await?;
        let outcome = swarm.outcome(&id, SOON).await?;
        assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
        assert_eq!((outcome.tasks.total, outcome.tasks.succeeded), (6, 6));
        assert_eq!(model.calls.of(Purpose::Plan).len() - plans, 2, "one plan was lost, one was made");
        let repeated = model.calls.repeated(Purpose::Work) - work;
        println!(
            "round {round}: {repeated} calls were repeated; 2 belonged to the abandoned run, {unfinished} \
             dispatches were not marked done"
        );
        assert!(repeated <= 2 + unfinished, "{repeated} calls were repeated");
        serves_on(&swarm, &format!("after-plan-{round}")).await?;
        swarm.logs.one_outcome(&id).await?;
    }
    let report = swarm.all_audited(SOON).await?;
    assert_eq!(
        report.repeated_calls.plan,
        repetitions(),
        "each plan that was lost had begun: {}",
        report.text()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_killed_in_the_middle_of_an_intent_is_replaced() -> Result<()> {
    const TASKS: usize = 12;
    let is_late =
        |title: &str| title.strip_prefix('t').and_then(|n| n.parse::<usize>().ok()).is_some_and(|n| n >= 6);
    let model = Scripted::new(Plan::independent(TASKS))
        .holding(move |call| call.purpose == Purpose::Work && call.section("Task").is_some_and(is_late));
    let options =
        SwarmOptions::new(model.options(), 2).one_planner_at_a_time().set("processor.slots.worker=16");
    let mut swarm = Swarm::start(options).await?;
    for round in 0..repetitions() {
        let standby = swarm.spawn("starling-planner")?;
        swarm.planners.push(standby);
        model.hold();
        let judged = model.calls.of(Purpose::Judge).len();
        let (plans, work) = (model.calls.of(Purpose::Plan).len(), model.calls.repeated(Purpose::Work));
        let id = swarm.submit(&format!("intent-{round}"), &format!("Go on, round {round}")).await?;
        eventually("half of the tasks are judged, the others are held", SOON, || {
            swarm.model.stats().open_by_purpose.work == 6
                && model.calls.of(Purpose::Judge).len() == judged + 6
        })
        .await;
        swarm.planners.remove(0).kill()?;
        let unfinished = swarm.logs.undone_effects(&Topic::Worker(None)).await?;
        model.stop_holding();
        swarm.model.release(); // results come in while nobody coordinates
        let outcome = swarm.outcome(&id, SOON).await?;
        assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
        assert_eq!(outcome.tasks.succeeded as usize, TASKS);
        let repeated = model.calls.repeated(Purpose::Work) - work;
        println!(
            "round {round}: {repeated} calls were repeated, {unfinished} dispatches were not marked done"
        );
        assert!(
            repeated <= unfinished,
            "{repeated} calls were repeated, {unfinished} dispatches were not marked done"
        );
        assert_eq!(model.calls.of(Purpose::Plan).len() - plans, 1, "the plan was complete");
        serves_on(&swarm, &format!("after-intent-{round}")).await?;
        swarm.logs.one_outcome(&id).await?;
    }
    let report = swarm.all_audited(SOON).await?;
    let known = report.repeated_calls.work + report.moved;
    assert!(known >= model.calls.repeated(Purpose::Work), "the audit knows of them: {}", report.text());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_stood_still_decides_nothing_more() -> Result<()> {
    const INTENTS: usize = 4;
    // So much to decide that there is hardly a moment at which no decision is on its way to the log.
    let model = Scripted::new(Plan::independent(100));
    let options =
        SwarmOptions::new(model.options(), 3).one_planner_at_a_time().set("processor.slots.worker=32");
    let mut swarm = Swarm::start(options).await?;
    let standby = swarm.spawn("starling-planner")?;
    let mut ids = Vec::new();
    for n in 0..INTENTS {
        ids.push(swarm.submit(&format!("still-{n}"), &format!("Carry on, number {n}")).await?);
    }
    eventually("results come in", SOON, || model.calls.of(Purpose::Judge).len() >= 50).await;
    swarm.planners[0].signal("STOP")?;
    let until = Instant::now() + SOON;
    while swarm.logs.epochs().await?.len() < 2 {
        anyhow::ensure!(Instant::now() < until, "nobody takes over:\n{}", standby.last_lines());
        tokio::time::sleep(Duration::from_millis(100)).await; // polls the state log
    }
    let judged = model.calls.of(Purpose::Judge).len();
    swarm.planners[0].signal("CONT")?;
    println!("{judged} of {} results were judged when it went on", INTENTS * 100);
    for id in &ids {
        let outcome = swarm.outcome(id, SOON).await?;
        assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{id}: {}", outcome.reason);
        assert_eq!(outcome.tasks.succeeded, 100);
    }
    serves_on(&swarm, "after-still").await?;

    let owners = swarm.logs.owners().await?;
    println!(
        "{} epochs; {} records of an ended epoch came too late and do not count",
        owners.epochs, owners.stale
    );
    assert!(owners.epochs >= 2);
    swarm.logs.decided_once().await?;
    for id in &ids {
        swarm.logs.one_outcome(id).await?;
    }
    drop(standby);
    swarm.all_audited(SOON).await?;
    Ok(())
}

/// Another intent is served: whoever was replaced has been replaced for good.
async fn serves_on(swarm: &Swarm, name: &str) -> Result<()> {
    let id = swarm.submit(name, name).await?;
    let outcome = swarm.outcome(&id, SOON).await?;
    anyhow::ensure!(outcome.status == OutcomeStatus::Succeeded, "{name}: {}", outcome.reason);
    Ok(())
}
