//! Cancellation: wherever an intent is, work for it ends within a second, it has one outcome, and whoever cancels is
//! told how things stand.

use crate::SOON;
use anyhow::Result;
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions, eventually};
use starling_llm::{
    Purpose,
    mock::{MockAction, MockCall, MockStats},
};
use starling_protocol::{IntentId, OutcomeStatus, Topic};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// The claim is a second. Machines that run other tests beside get more; what it took is printed.
const CLAIM: Duration = Duration::from_secs(3);

fn open(stats: &MockStats, purpose: Purpose) -> u64 {
    match purpose {
        Purpose::Plan => stats.open_by_purpose.plan,
        Purpose::Work => stats.open_by_purpose.work,
        Purpose::Judge => stats.open_by_purpose.judge,
        Purpose::Synthesize => stats.open_by_purpose.synthesize,
    }
}

/// Which calls the model keeps open; those for plans while they are streamed, after the first task.
#[derive(Clone, Default)]
struct Stage(Arc<Mutex<Option<Purpose>>>);

impl Stage {
    fn set(&self, purpose: Option<Purpose>) {
        *self.0.lock().unwrap() = purpose;
    }

    fn is_at(&self, call: &MockCall) -> bool {
        *self.0.lock().unwrap() == Some(call.purpose)
    }
}

fn staged(stage: &Stage, plan: Plan) -> Scripted {
    let (streaming, holding, pieces) = (stage.clone(), stage.clone(), plan.pieces());
    Scripted::new(plan)
        .but(move |call| {
            if call.purpose != Purpose::Plan || !streaming.is_at(call) {
                return None;
            }
            let delays = [0, 600].map(Duration::from_secs).into_iter().chain([Duration::ZERO; 8]);
            Some(MockAction::Stream { chunks: delays.zip(pieces.clone()).collect() })
        })
        .holding(move |call| call.purpose != Purpose::Plan && holding.is_at(call))
}

/// Cancels and waits until the model has no open call any more.
async fn cancel_and_time(swarm: &Swarm, id: &IntentId, what: &str) -> Result<()> {
    let (before, asked) = (swarm.model.stats().closed_by_client, Instant::now());
    swarm.client.cancel(id, "test", &format!("enough of {what}")).await?;
    eventually(what, CLAIM, || swarm.model.stats().open == 0).await;
    let (took, closed) = (asked.elapsed(), swarm.model.stats().closed_by_client - before);
    println!(
        "{what}: {closed} open calls were closed {} ms after the cancellation was sent",
        took.as_millis()
    );
    assert!(closed > 0, "closed by the services, not answered");
    let outcome = swarm.outcome(id, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Cancelled, "{what}: {}", outcome.reason);
    assert!(outcome.reason.contains(&format!("enough of {what}")), "{what}: {}", outcome.reason);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_closed_wherever_the_intent_is() -> Result<()> {
    let stage = Stage::default();
    let model = staged(&stage, Plan::independent(8));
    let swarm = Swarm::start(SwarmOptions::new(model.options(), 2)).await?;
    let mut ids = Vec::new();
    for (purpose, name, calls) in [
        (Purpose::Plan, "planning", 1),
        (Purpose::Work, "working", 8),
        (Purpose::Judge, "judging", 8),
        (Purpose::Synthesize, "summing-up", 1),
    ] {
        stage.set(Some(purpose));
        let id = swarm.submit(name, &format!("Never mind {name}")).await?;
        // A plan that is streamed has its first task done meanwhile.
        eventually(name, SOON, || {
            let stats = swarm.model.stats();
            open(&stats, purpose) == calls && stats.open == calls
        })
        .await;
        cancel_and_time(&swarm, &id, name).await?;
        ids.push(id);
    }
    // The swarm has room for another one, and those that ended stay as they ended.
    stage.set(None);
    let next = swarm.submit("next", "Go on").await?;
    assert_eq!(swarm.outcome(&next, SOON).await?.status, OutcomeStatus::Succeeded);
    for id in &ids {
        swarm.logs.one_outcome(id).await?;
    }
    assert!(swarm.logs.topic(&Topic::Dlq).await?.is_empty());
    swarm.all_audited(SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_never_reaches_a_model() -> Result<()> {
    let plan = Plan::independent(3);
    let model = Scripted::new(plan).holding(|call| {
        call.purpose == Purpose::Work && call.section("Goal").is_some_and(|goal| goal.starts_with("Block"))
    });
    // Two intents at a time, one task at a time.
    let options = SwarmOptions::new(model.options(), 1)
        .one_planner_at_a_time()
        .set("coordinator.max_live=2")
        .set("coordinator.window_factor=20") // tasks of both lie in the inbox
        .set("processor.slots.worker=1");
    let mut swarm = Swarm::start(options).await?;
    let blocker = swarm.submit("blocker", "Block the worker").await?;
    eventually("the only slot is taken", SOON, || swarm.model.stats().open_by_purpose.work == 1).await;
    // Its tasks lie in the worker's inbox, behind the one that is held.
    let queued = swarm.submit("queued", "Stand in line").await?;
    let has_tasks = async {
        while swarm.logs.envelopes(&Topic::Worker(None), &queued).await?.len() < 3 {
            tokio::time::sleep(Duration::from_millis(50)).await; // polls the topic
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(SOON, has_tasks).await??;
    // And this one is not even planned.
    let waiting = swarm.submit("waiting", "Wait for the others").await?;
    let plans = || model.calls.of(Purpose::Plan).len();
    for (id, word) in [(&waiting, "waiting"), (&queued, "queued")] {
        let asked = Instant::now();
        let (code, cancel) = swarm.cli(&["cancel", word]).await?;
        assert_eq!(code, Some(0), "{}", cancel.last_lines());
        assert!(cancel.stdout().contains(&format!("{word} is cancelled")), "{}", cancel.stdout());
        println!("{word}: the command took {} ms", asked.elapsed().as_millis());
        assert_eq!(swarm.logs.one_outcome(id).await?.status, OutcomeStatus::Cancelled);
    }
    model.stop_holding();
    swarm.model.release();
    assert_eq!(swarm.outcome(&blocker, SOON).await?.status, OutcomeStatus::Succeeded);
    let next = swarm.submit("next", "Go on").await?;
    assert_eq!(swarm.outcome(&next, SOON).await?.status, OutcomeStatus::Succeeded);
    assert_eq!(plans(), 3, "the one that waited was never planned");
    let of = |goal: &str| {
        let calls = model.calls.of(Purpose::Work);
        calls.iter().filter(|call| call.prompt.contains(goal)).count()
    };
    assert_eq!((of("Block the worker"), of("Stand in line"), of("Go on")), (3, 0, 3));
    for id in [&waiting, &queued] {
        swarm.logs.one_outcome(id).await?;
    }
    swarm.all_audited(SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_cancels_is_told_how_things_stand() -> Result<()> {
    let model = Scripted::new(Plan::independent(1));
    let mut swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    // An id that nobody knows. Should it come, it is cancelled.
    for _ in 0..2 {
        let (code, cancel) = swarm.cli(&["cancel", "early", "--reason", "not wanted"]).await?;
        assert_eq!(code, Some(0), "{}", cancel.last_lines());
        assert!(cancel.stdout().contains("nothing is known of early yet"), "{}", cancel.stdout());
    }
    assert!(swarm.logs.topic(&Topic::Outcomes).await?.is_empty());
    let early = swarm.submit("early", "Too late").await?;
    let outcome = swarm.outcome(&early, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Cancelled, "{}", outcome.reason);
    assert!(outcome.reason.contains("not wanted"), "{}", outcome.reason);
    assert!(model.calls.of(Purpose::Plan).is_empty());
    let (code, cancel) = swarm.cli(&["cancel", "early"]).await?;
    assert_eq!(code, Some(0), "{}", cancel.last_lines());
    assert!(cancel.stdout().contains("early is cancelled already"), "{}", cancel.stdout());

    // One that has ended.
    let done = swarm.submit("done", "Be quick").await?;
    let outcome = swarm.outcome(&done, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded);
    let (code, cancel) = swarm.cli(&["cancel", "done"]).await?;
    assert_eq!(code, Some(1), "{}", cancel.last_lines());
    let told = "done has ended already, nothing was cancelled: succeeded";
    assert!(cancel.stderr().contains(told), "{}", cancel.stderr());
    // Also to the coordinator: who does not look first.
    swarm.client.cancel(&done, "test", "too late").await?;
    let next = swarm.submit("next", "Go on").await?;
    assert_eq!(swarm.outcome(&next, SOON).await?.status, OutcomeStatus::Succeeded);
    assert_eq!(swarm.logs.one_outcome(&done).await?, outcome);
    assert!(swarm.logs.topic(&Topic::Control).await?.is_empty(), "nobody had to be stopped");
    assert!(swarm.logs.topic(&Topic::Dlq).await?.is_empty());

    // Nobody is there to answer.
    swarm.planners.clear();
    let (code, cancel) = swarm.cli(&["cancel", "other", "--wait", "1"]).await?;
    assert_eq!(code, Some(69), "{}", cancel.last_lines());
    assert!(cancel.stderr().contains("is published"), "{}", cancel.stderr());
    Ok(())
}
