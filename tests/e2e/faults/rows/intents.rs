//! What is said twice, too late or in the wrong order.

use super::SOON;
use crate::{
    judge::{Judge, id_of},
    row::{Figures, World},
};
use anyhow::{Context as _, Result, ensure};
use starling_bus::OutRecord;
use starling_e2e::{Plan, Scripted, Swarm, eventually, until};
use starling_llm::Purpose;
use starling_protocol::{OutcomeStatus, Topic};
use std::time::Duration;
use tokio::time::sleep;

/// The same id again: while its intent runs, and when it has ended. And one that comes to be read so late that nobody
/// could know any more whether it has run.
pub(super) async fn duplicate_ids(world: World) -> Result<Figures> {
    const HORIZON: Duration = Duration::from_secs(20);
    let model = Scripted::new(Plan::independent(4)).holding(|call| call.purpose == Purpose::Work);
    let options = world.options(&model, 1).set(&format!("coordinator.dedup_horizon={}s", HORIZON.as_secs()));
    let mut swarm = Swarm::start(options).await?;
    let mut judge = Judge::new(&model);
    let id = judge.publish(&swarm, "said twice").await?;
    eventually("it runs", SOON, || swarm.model.stats().open_by_purpose.work == 4).await;
    for _ in 0..3 {
        swarm.submit(id.as_str(), "said twice").await?;
    }
    model.stop_holding();
    swarm.model.release();
    judge.settle(&swarm, SOON).await?;
    for _ in 0..3 {
        swarm.submit(id.as_str(), "said twice").await?;
    }
    judge.settle(&swarm, SOON).await?;
    swarm.planners.remove(0).kill()?;
    swarm.submit("said-long-ago", "said long ago").await?;
    judge.bury(1);
    judge.audit_has_to_object();
    sleep(HORIZON + Duration::from_secs(1)).await; // the fault itself
    let planner = swarm.spawn("starling-planner")?;
    swarm.planners.push(planner);
    until("what is too old is a dead letter", SOON, || async {
        Ok(swarm.logs.topic(&Topic::Dlq).await?.len() == 1)
    })
    .await?;
    let found = judge.conclude(&swarm, SOON).await?;
    ensure!(model.calls.of(Purpose::Plan).len() == 1, "it was planned once");
    found.all_succeeded()
}

/// Results, verdicts and fragments of plans are said again, backwards: while the intent runs and after its end.
pub(super) async fn results_twice_and_out_of_order(world: World) -> Result<Figures> {
    let is_last = |title: &str| title == "t7";
    let model = Scripted::new(Plan::independent(8))
        .holding(move |call| call.purpose == Purpose::Work && call.section("Task").is_some_and(is_last));
    let swarm = Swarm::start(world.options(&model, 1)).await?;
    let mut judge = Judge::new(&model);
    judge.publish(&swarm, "results twice").await?;
    eventually("all but one are judged", SOON, || model.calls.of(Purpose::Judge).len() == 7).await;
    until("all of it is committed", SOON, || async {
        Ok(swarm.logs.uncommitted(&Topic::Critic, "critic").await?.is_empty())
    })
    .await?;
    let again = backwards(&swarm).await?;
    model.stop_holding();
    swarm.model.release();
    judge.settle(&swarm, SOON).await?;
    let afterwards = backwards(&swarm).await?;
    println!("{again} records were said again in the middle, {afterwards} at the end");
    // A critic does not know what it has judged before; each result that is said again is a call.
    judge.allow(again.min(7) + afterwards.min(15));
    let found = judge.conclude(&swarm, SOON).await?;
    ensure!(model.calls.of(Purpose::Work).len() == 8, "work is done once");
    ensure!(model.calls.of(Purpose::Synthesize).len() == 1, "the answer is made once");
    found.all_succeeded()
}

/// Sends everything again that lies in the inboxes of critics and coordinators, from its end to its beginning.
async fn backwards(swarm: &Swarm) -> Result<usize> {
    let mut sent = 0;
    for topic in [Topic::Critic, Topic::Coordinator] {
        for record in swarm.logs.topic(&topic).await?.into_iter().rev() {
            let again = OutRecord {
                to: record.at.clone(),
                key: record.key.clone(),
                headers: record.headers.clone(),
                payload: record.payload.clone(),
            };
            swarm.bus.send(again).await?;
            sent += 1;
        }
    }
    Ok(sent)
}

/// A cancellation that comes before its intent.
pub(super) async fn cancelled_before_it_comes(world: World) -> Result<Figures> {
    let model = Scripted::new(Plan::independent(1));
    let swarm = Swarm::start(world.options(&model, 1)).await?;
    let mut judge = Judge::new(&model);
    swarm.client.cancel(&id_of("cancelled early"), "test", "not wanted").await?;
    let id = judge.publish(&swarm, "cancelled early").await?;
    let found = judge.conclude(&swarm, SOON).await?;
    let outcome = found.outcomes.get(&id).context("its outcome")?;
    ensure!(outcome.status == OutcomeStatus::Cancelled, "{:?}", outcome.status);
    ensure!(model.calls.of(Purpose::Plan).is_empty(), "it was planned");
    Ok(found.figures)
}
