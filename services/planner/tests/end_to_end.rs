//! The whole path in one process, on the bus in memory: one record in, one outcome out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use starling_agents::AgentCatalogue;
use starling_llm::{Model, OfflineModel, Purpose};
use starling_protocol::{Body, Outcome, OutcomeStatus, Topic};
use starling_runtime::Node;
use starling_service::{
    Parts,
    testing::{Answer, Ear, ScriptedModel, memory_node, publish_raw},
};
use std::sync::Arc;

/// All services on one node.
async fn swarm(model: Arc<dyn Model>) -> (Node, Ear) {
    let node = memory_node(&[
        ("topics.partitions.coordinator", "2"),
        ("topics.partitions.worker", "8"),
        ("topics.partitions.critic", "2"),
        ("fleet.interval", "100ms"),
    ])
    .await;
    let parts = Parts { model, catalogue: Arc::new(AgentCatalogue::load(None).unwrap()) };
    tokio::spawn(starling_planner::serve(node.clone(), parts.clone()));
    tokio::spawn(starling_worker::serve(node.clone(), parts.clone(), None));
    tokio::spawn(starling_critic::serve(node.clone(), parts));
    let outcomes = Ear::on(&node, &Topic::Outcomes).await;
    (node, outcomes)
}

async fn outcome(ear: &Ear) -> (String, Outcome) {
    let heard = ear.next().await.envelope;
    match heard.body {
        Body::Outcome(outcome) => (heard.intent_id.as_str().to_owned(), outcome),
        other => panic!("expected an outcome, found {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_becomes_an_answer_without_kafka_and_without_a_key() {
    let (node, outcomes) = swarm(Arc::new(OfflineModel::new())).await;
    let intent = r#"{
        "id": "laptops-1",
        "goal": "Compare the laptops and recommend two",
        "inputs": [{"name": "laptops.csv", "media_type": "text/csv",
                    "content": "name,price,battery_hours\nAir,999,15\nPro,1999,18\nBook,499,8\n"}]
    }"#;
    publish_raw(&node, &Topic::Intents, intent).await;
    let (id, outcome) = outcome(&outcomes).await;
    assert_eq!(id, "laptops-1");
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{outcome:#?}");
    assert!(outcome.offline && !outcome.answer.is_empty(), "{outcome:#?}");
    assert!(outcome.tasks.total >= 1 && outcome.tasks.succeeded == outcome.tasks.total, "{outcome:#?}");
    assert!(outcome.calls > i64::from(outcome.tasks.total), "{outcome:#?}");
    node.shutdown.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_result_is_tried_again_with_the_critics_words_and_invalid_intents_are_answered() {
    let plan = r#"{"tasks":[
        {"key":"a","title":"First","instruction":"do a","agent":"worker","depends_on":[],"critic":true},
        {"key":"b","title":"Second","instruction":"do b","agent":"analyst","depends_on":["a"],"critic":false}]}"#;
    let model = ScriptedModel::new(move |request| {
        let user = &request.messages[1].text;
        Answer::Say(match request.purpose {
            Purpose::Plan => plan.to_owned(),
            Purpose::Work if user.contains("do b") => "b is done".to_owned(),
            Purpose::Work if user.contains("name the prices") => "second try".to_owned(),
            Purpose::Work => "first try".to_owned(),
            Purpose::Judge if user.contains("second try") => r#"{"score":0.9,"feedback":""}"#.to_owned(),
            Purpose::Judge => r#"{"score":0.2,"feedback":"name the prices"}"#.to_owned(),
            Purpose::Synthesize => "all together".to_owned(),
        })
    });
    let (node, outcomes) = swarm(model.clone()).await;

    publish_raw(&node, &Topic::Intents, r#"{"id":"bad","goal":""}"#).await;
    let (id, rejected) = outcome(&outcomes).await;
    assert_eq!((id.as_str(), rejected.status), ("bad", OutcomeStatus::Rejected));
    assert!(rejected.reason.contains("goal"), "{}", rejected.reason);

    publish_raw(&node, &Topic::Intents, r#"{"id":"good","goal":"g"}"#).await;
    let (_, outcome) = outcome(&outcomes).await;
    assert_eq!((outcome.status, outcome.answer.as_str()), (OutcomeStatus::Succeeded, "all together"));
    let reports: Vec<_> =
        outcome.task_reports.iter().map(|r| (r.title.as_str(), r.attempts, r.score)).take(2).collect();
    assert_eq!(reports, [("First", 2, Some(0.9)), ("Second", 1, None)]);
    // plan, a, judge, a again, judge, b, synthesis
    assert_eq!((outcome.calls, model.asked().len()), (7, 7), "{outcome:#?}");
    let second = model.asked().iter().find(|r| r.messages[1].text.contains("do b")).unwrap().clone();
    assert!(second.messages[1].text.contains("### First\nsecond try\n"));
    let metrics = node.metrics.encode();
    for line in [
        "starling_outcomes_total{status=\"rejected\"} 1",
        "starling_outcomes_total{status=\"succeeded\"} 1",
        "starling_outcomes_total{status=\"failed\"} 0",
        "starling_task_retries_total 1",
        "starling_orch_split_latency_count 1",
        "starling_intent_seconds_count 1",
    ] {
        assert!(metrics.contains(line), "{line} is missing: {metrics}");
    }
    node.shutdown.cancel();
}
