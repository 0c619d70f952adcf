//! Many tasks at once: members share them, layers wait for what they need and for nothing else, and work
//! begins before the plan is complete.

use crate::SOON;
use anyhow::Result;
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions};
use starling_llm::{
    Purpose,
    mock::{
        MockAction,
        scripts::{plan_tasks, work_reply},
    },
};
use starling_protocol::{Body, OutcomeStatus, Topic};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_members_of_one_group_share_a_hundred_tasks() -> Result<()> {
    let model = Scripted::new(Plan::independent(100)).but(|call| {
        let busy = Duration::from_millis(500);
        (call.purpose == Purpose::Work).then(|| MockAction::reply_after(busy, work_reply(call)))
    });
    let mut options = SwarmOptions::new(model.options(), 100)
        .set("processor.slots.worker=1")
        .set("topics.partitions.worker=128")
        // A hundred processes on two cores are slow to speak, and slow is not dead.
        .set("kafka.session_timeout=30s")
        // Each process hears each other one.
        .set("fleet.interval=5s")
        .set("fleet.forget_after=30s");
    options.alone = true;
    let began = Instant::now();
    let swarm = Swarm::start(options).await?;
    println!("100 workers are ready after {:.1} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let id = swarm.submit("hundred", "Do a hundred things").await?;
    let outcome = swarm.outcome(&id, Duration::from_secs(120)).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
    assert_eq!((outcome.tasks.total, outcome.tasks.succeeded), (100, 100));
    let results = swarm.logs.envelopes(&Topic::Critic, &id).await?;
    let members: BTreeSet<&str> = results
        .iter()
        .filter_map(|envelope| match &envelope.body {
            Body::TaskResult(result) => Some(result.worker.as_str()),
            _ => None,
        })
        .collect();
    println!(
        "{} of 100 members worked on one intent of 100 tasks, in {:.1} s",
        members.len(),
        began.elapsed().as_secs_f64()
    );
    assert!(members.len() >= 75, "{} members worked", members.len());
    assert_eq!(model.calls.of(Purpose::Work).len(), 100, "nobody died, so nothing is done twice");
    swarm.all_audited(SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_wait_for_all_of_the_layer_before() -> Result<()> {
    let (layers, width) = (5, 20);
    let plan = serde_json::json!({ "tasks": plan_tasks("worker", layers, width) }).to_string();
    let model = Scripted::new(Plan::new())
        .but(move |call| (call.purpose == Purpose::Plan).then(|| MockAction::reply(plan.clone())));
    let swarm = Swarm::start(SwarmOptions::new(model.options(), 3)).await?;
    let id = swarm.submit("layers", "Build it layer by layer").await?;
    let outcome = swarm.outcome(&id, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
    assert_eq!((outcome.tasks.total, outcome.tasks.succeeded), (100, 100));
    assert_eq!(outcome.answer, "The answer.");
    let work = model.calls.of(Purpose::Work);
    assert_eq!(work.len(), layers * width);
    for call in &work {
        let layer: usize = call.title.rsplit(' ').next().unwrap().parse()?;
        let results = call.prompt.matches("ok: Task ").count();
        assert_eq!(
            results,
            if layer == 0 { 0 } else { width },
            "{} builds on all of the layer before",
            call.title
        );
    }
    assert!(
        outcome.task_reports.iter().filter(|report| report.depends_on.len() == width).count()
            >= (layers - 1) * width
    );
    swarm.logs.one_outcome(&id).await?;
    swarm.all_audited(SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_starts_when_its_own_dependencies_end_and_no_later() -> Result<()> {
    let plan = Plan::new().task("A", &[]).task("B", &[]).task("C", &["A"]).task("D", &["B"]);
    let model = Scripted::new(plan)
        .holding(|call| call.purpose == Purpose::Work && call.section("Task") == Some("B"));
    let swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    let id = swarm.submit("no-barrier", "Go ahead").await?;
    starling_e2e::eventually("C starts while B is held", SOON, || {
        !model.calls.about(Purpose::Work, "C").is_empty()
    })
    .await;
    assert!(swarm.model.stats().open_by_purpose.work >= 1, "B is held");
    assert!(model.calls.about(Purpose::Work, "D").is_empty(), "D needs B");
    model.stop_holding();
    swarm.model.release();
    let outcome = swarm.outcome(&id, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
    let started = |title: &str| model.calls.about(Purpose::Work, title)[0].at;
    assert!(started("C") < started("D"));
    swarm.all_audited(SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn work_begins_before_the_plan_is_complete() -> Result<()> {
    let plan = Plan::independent(5);
    let pieces = plan.pieces();
    let model = Scripted::new(plan).but(move |call| {
        (call.purpose == Purpose::Plan).then(|| MockAction::Stream {
            chunks: pieces.iter().map(|piece| (Duration::from_millis(700), piece.clone())).collect(),
        })
    });
    let swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    let id = swarm.submit("streamed", "Start at once").await?;
    starling_e2e::eventually("a task starts", SOON, || !model.calls.of(Purpose::Work).is_empty()).await;
    let stats = swarm.model.stats();
    assert_eq!(stats.open_by_purpose.plan, 1, "the planner still speaks when the first task starts");
    let outcome = swarm.outcome(&id, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
    let asked = model.calls.of(Purpose::Plan)[0].at;
    let last_piece = asked + Duration::from_millis(5 * 700);
    let before = model.calls.of(Purpose::Work).iter().filter(|call| call.at < last_piece).count();
    assert!((3..5).contains(&before), "{before} of 5 tasks started before the last piece of the plan");
    swarm.all_audited(SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_may_be_shared_out_by_the_broker() -> Result<()> {
    let model = Scripted::new(Plan::independent(20));
    let options = SwarmOptions::new(model.options(), 3).set("kafka.group_protocol=consumer");
    let swarm = Swarm::start(options).await?;
    let id = swarm.submit("by-the-broker", "Do it the new way").await?;
    let outcome = swarm.outcome(&id, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
    assert_eq!(model.calls.of(Purpose::Work).len(), 20, "nothing is done twice");
    swarm.all_audited(SOON).await?;
    Ok(())
}
