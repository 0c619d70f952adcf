//! SIGTERM: a service finishes what it can within its grace, hands over the rest, and leaves.

use crate::SOON;
use anyhow::Result;
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions, eventually};
use starling_llm::{
    Purpose,
    mock::{MockAction, scripts::work_reply},
};
use starling_protocol::OutcomeStatus;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_told_to_stop_finishes_its_calls() -> Result<()> {
    let model = Scripted::new(Plan::independent(8)).but(|call| {
        let slow = Duration::from_millis(1500);
        (call.purpose == Purpose::Work).then(|| MockAction::reply_after(slow, work_reply(call)))
    });
    let mut swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    let id = swarm.submit("finish", "Finish it").await?;
    eventually("four calls are open", SOON, || swarm.model.stats().open_by_purpose.work == 4).await;
    let mut leaving = swarm.workers.remove(0);
    leaving.signal("TERM")?;
    let status = leaving.wait(SOON).await?;
    assert!(status.success(), "{status}: {}", leaving.last_lines());
    assert_eq!(swarm.model.stats().closed_by_client, 0, "no call was given up");
    let worker = swarm.spawn("starling-worker")?;
    swarm.workers.push(worker);
    let outcome = swarm.outcome(&id, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
    assert_eq!(model.calls.repeated(Purpose::Work), 0, "what was finished was committed");
    swarm.all_audited(SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_service_leaves_within_its_grace_though_a_call_is_open() -> Result<()> {
    let held = std::sync::Arc::new(std::sync::Mutex::new(Purpose::Plan));
    let which = held.clone();
    let model =
        Scripted::new(Plan::independent(2)).holding(move |call| call.purpose == *which.lock().unwrap());
    let options = SwarmOptions::new(model.options(), 1).one_planner_at_a_time().set("processor.grace=2s");
    let mut swarm = Swarm::start(options).await?;
    for (purpose, binary) in [
        (Purpose::Plan, "starling-planner"),
        (Purpose::Work, "starling-worker"),
        (Purpose::Judge, "starling-critic"),
    ] {
        *held.lock().unwrap() = purpose;
        model.hold();
        let id = swarm.submit(binary, binary).await?;
        eventually("a call is open", SOON, || swarm.model.stats().open > 0).await;
        let processes = match purpose {
            Purpose::Plan => &mut swarm.planners,
            Purpose::Work => &mut swarm.workers,
            _ => &mut swarm.critics,
        };
        let mut leaving = processes.remove(0);
        leaving.signal("TERM")?;
        let began = Instant::now();
        let status = leaving.wait(SOON).await?;
        println!("{binary} left after {:.1} s, the grace being 2 s", began.elapsed().as_secs_f64());
        assert!(status.success(), "{status}: {}", leaving.last_lines());
        assert!(began.elapsed() < Duration::from_secs(6), "{binary} took {:?}", began.elapsed());
        model.stop_holding();
        swarm.model.release();
        let successor = swarm.spawn(binary)?;
        match purpose {
            Purpose::Plan => swarm.planners.push(successor),
            Purpose::Work => swarm.workers.push(successor),
            _ => swarm.critics.push(successor),
        }
        let outcome = swarm.outcome(&id, SOON).await?;
        assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{binary}: {}", outcome.reason);
        assert!(outcome.degraded.is_empty(), "{binary}: {:?}", outcome.degraded);
        swarm.logs.one_outcome(&id).await?;
    }
    Ok(())
}
