//! Deadlines, and more intents than there is room for.

use crate::SOON;
use anyhow::Result;
use starling_bus::OutRecord;
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions, eventually};
use starling_llm::Purpose;
use starling_protocol::{Body, Codec, Envelope, IntentId, OutcomeStatus, Topic};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_expires_at_its_deadline() -> Result<()> {
    let model = Scripted::new(Plan::independent(2)).holding(|call| call.purpose == Purpose::Work);
    let swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    let began = Instant::now();
    let id = swarm
        .publish(br#"{"id": "late", "goal": "Hurry", "deadline_ms": 3000}"#, &[])
        .await
        .map(|_| IntentId::from_string("late"))?;
    let outcome = swarm.outcome(&id, SOON).await?;
    let took = began.elapsed();
    assert_eq!(outcome.status, OutcomeStatus::Expired, "{}", outcome.reason);
    assert!(took >= Duration::from_millis(2900), "after {took:?}");
    assert!(took <= Duration::from_secs(5), "after {took:?}");
    eventually("open calls are closed", Duration::from_secs(3), || swarm.model.stats().open == 0).await;
    swarm.logs.one_outcome(&id).await?;
    swarm.all_audited(SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn more_intents_than_a_coordinator_can_remember_wait_in_the_input_topic() -> Result<()> {
    const INTENTS: usize = 300;
    let model = Scripted::new(Plan::independent(1));
    // Room for 2 that run and 64 that wait, in the only partition.
    let options = SwarmOptions::new(model.options(), 1)
        .one_planner_at_a_time()
        .set("coordinator.max_live=2")
        .set("coordinator.max_waiting=64");
    let swarm = Swarm::start(options).await?;
    let send = |n| {
        let value = format!(r#"{{"id": "many-{n}", "goal": "Answer", "strategy": "single"}}"#);
        swarm.bus.send(OutRecord {
            to: swarm.logs.partition(&Topic::Intents, 0),
            key: None,
            headers: Vec::new(),
            payload: Some(value.into()),
        })
    };
    let sent: Vec<_> = (0..INTENTS).map(send).collect(); // all are under way
    for delivery in sent {
        delivery.await?;
    }
    let until = Instant::now() + SOON;
    let outcomes = loop {
        let outcomes = swarm.logs.topic(&Topic::Outcomes).await?;
        let letters = swarm.logs.topic(&Topic::Dlq).await?;
        assert!(letters.is_empty(), "{} dead letters", letters.len());
        if outcomes.len() >= INTENTS {
            break outcomes;
        }
        assert!(Instant::now() < until, "{} of {INTENTS} outcomes", outcomes.len());
        sleep(Duration::from_millis(200)).await;
    };
    let codec = Codec::default();
    let mut ended = BTreeSet::new();
    for record in &outcomes {
        let envelope: Envelope = codec.decode(record.value())?;
        let Body::Outcome(outcome) = envelope.body else {
            anyhow::bail!("no outcome: {}", envelope.body.kind())
        };
        assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}: {}", envelope.intent_id, outcome.reason);
        ended.insert(envelope.intent_id);
    }
    assert_eq!(ended.len(), INTENTS);
    swarm.all_audited(SOON).await?;
    Ok(())
}
