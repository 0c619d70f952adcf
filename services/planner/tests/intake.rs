//! What the intake makes of records in every form.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::json;
use starling_bus::OutRecord;
use starling_planner::{INTENT_TOO_LARGE, INVALID_INTENT, IntakeHandler, Strategies};
use starling_playbooks::Playbooks;
use starling_protocol::{
    Body, Envelope, Intent, IntentId, Rejection, Role, Tag, Timestamp, Topic, incoming::IntentLimits,
};
use starling_runtime::{Clock, Node};
use starling_service::testing::{Ear, envelope, memory_node, publish_raw, serve_records};
use std::sync::Arc;

async fn intake() -> (Node, Ear) {
    let node = memory_node(&[]).await;
    let limits = IntentLimits { max_bytes: 100_000, ..IntentLimits::default() };
    let playbooks = Arc::new(Playbooks::load(None, |_| true).unwrap());
    let strategies = Strategies::new(playbooks, &node.settings.coordinator, node.settings.agents_prompt);
    let handler = IntakeHandler::new(node.codec.clone(), limits, strategies, Clock::system());
    serve_records(&node, Topic::Intents, Arc::new(handler));
    let ear = Ear::on(&node, &Topic::Coordinator).await;
    (node, ear)
}

fn intent(heard: &Envelope) -> &Intent {
    match &heard.body {
        Body::Intent(intent) => intent,
        other => panic!("expected an intent, found {other:?}"),
    }
}

fn rejection(heard: &Envelope) -> &Rejection {
    match &heard.body {
        Body::Rejection(rejection) => rejection,
        other => panic!("expected a rejection, found {other:?}"),
    }
}

#[tokio::test]
async fn text_json_and_avro_become_intents() {
    let (node, ear) = intake().await;

    publish_raw(&node, &Topic::Intents, "Compare the laptops").await;
    let heard = ear.next().await.envelope;
    assert_eq!(intent(&heard).goal, "Compare the laptops");
    assert_eq!(heard.intent_id, IntentId::of_record("starling.intents", 0, 0));
    assert_eq!(heard.tag, Tag::role(Role::Coordinator).with_lane(heard.intent_id.as_str()));
    assert_eq!((heard.hop, heard.deadline), (0, Timestamp::MAX));

    let json = r#"{"id":"mine","goal":"g","deadline_ms":5000,"items":["a"],"limits":{"max_tasks":3}}"#;
    publish_raw(&node, &Topic::Intents, json).await;
    let heard = ear.next().await.envelope;
    assert_eq!(heard.intent_id.as_str(), "mine");
    assert_eq!(heard.deadline.0, heard.created_at.0 + 5000);
    assert_eq!((intent(&heard).items.len(), intent(&heard).limits.max_tasks), (1, Some(3)));

    let wish = Intent { goal: "in Avro".into(), priority: 7, ..Intent::default() };
    let sent = envelope("avro-1", Tag::role(Role::Intake), Body::Intent(wish));
    publish_raw(&node, &Topic::Intents, node.codec.encode(&sent).unwrap()).await;
    let heard = ear.next().await.envelope;
    assert_eq!((heard.intent_id.as_str(), intent(&heard).priority), ("avro-1", 7));
    node.shutdown.cancel();
}

#[tokio::test]
async fn what_is_invalid_is_rejected_with_all_faults_under_its_own_id() {
    let (node, ear) = intake().await;

    publish_raw(&node, &Topic::Intents, r#"{"id":"bad-1","gaol":"g","priority":11}"#).await;
    let heard = ear.next().await.envelope;
    assert_eq!(heard.intent_id.as_str(), "bad-1");
    let told = rejection(&heard);
    assert_eq!(told.code, INVALID_INTENT);
    for fault in ["gaol", "priority", "goal: missing"] {
        assert!(told.message.contains(fault), "{fault}: {}", told.message);
    }

    publish_raw(&node, &Topic::Intents, r#"{"goal": "#).await;
    let heard = ear.next().await.envelope;
    assert_eq!(heard.intent_id, IntentId::of_record("starling.intents", 0, 1));
    assert!(rejection(&heard).message.contains("JSON"));

    publish_raw(&node, &Topic::Intents, "").await;
    assert_eq!(rejection(&ear.next().await.envelope).code, INVALID_INTENT);

    let large = format!(r#"{{"id":"large-1","goal":"{}"}}"#, "x".repeat(200_000));
    publish_raw(&node, &Topic::Intents, large).await;
    let heard = ear.next().await.envelope;
    assert_eq!((heard.intent_id.as_str(), rejection(&heard).code.as_str()), ("large-1", INTENT_TOO_LARGE));

    // And the next one is served.
    publish_raw(&node, &Topic::Intents, "fine").await;
    assert_eq!(intent(&ear.next().await.envelope).goal, "fine");
    node.shutdown.cancel();
}

#[tokio::test]
async fn garbage_is_rejected_and_kept_for_people_as_it_came() {
    let (node, ear) = intake().await;
    let dead = Ear::on(&node, &Topic::Dlq).await;
    let garbage: &[u8] = &[0xff, 0xfe, 0x00, 0x80, 0x81];
    publish_raw(&node, &Topic::Intents, garbage).await;
    assert_eq!(rejection(&ear.next().await.envelope).code, INVALID_INTENT);
    assert_eq!(dead.next_record().await.value(), garbage);
    node.shutdown.cancel();
}

#[tokio::test]
async fn a_replayed_record_that_names_no_intent_is_the_intent_that_it_was() {
    let (node, ear) = intake().await;
    let publish = async |value: &str, id: &str| {
        let record = OutRecord {
            to: node.router.route(&Topic::Intents, None, Some(0)).unwrap(),
            key: None,
            headers: vec![("starling-intent-id".to_owned(), id.to_owned().into())],
            payload: Some(value.to_owned().into()),
        };
        node.bus.send(record).await.unwrap();
        ear.next().await.envelope
    };
    let heard = publish("A goal", "it-was").await;
    assert_eq!((heard.intent_id.as_str(), intent(&heard).goal.as_str()), ("it-was", "A goal"));
    let heard = publish("{\"goal\": ", "it-was").await;
    assert_eq!((heard.intent_id.as_str(), rejection(&heard).code.as_str()), ("it-was", INVALID_INTENT));
    // What the value says counts more, and what is no id counts nothing.
    let heard = publish("{\"id\": \"mine\", \"goal\": \"g\"}", "it-was").await;
    assert_eq!(heard.intent_id.as_str(), "mine");
    let heard = publish("A goal", "no id at all").await;
    assert_eq!(heard.intent_id, IntentId::of_record("starling.intents", 0, 3));
    node.shutdown.cancel();
}

#[tokio::test]
async fn how_it_is_planned_is_settled_before_anybody_plans() {
    let (node, ear) = intake().await;
    let say = async |json: serde_json::Value| {
        publish_raw(&node, &Topic::Intents, json.to_string()).await;
        ear.next().await.envelope
    };
    for (json, strategy) in [
        (json!({"goal": "Name a bird"}), "single"),
        (json!({"goal": "Name a bird", "items": ["a"]}), "map"),
        (json!({"goal": "Name a bird, and another one"}), "llm"),
        (json!({"goal": "Name a bird", "inputs": [{"name": "birds.txt", "content": "owl"}]}), "llm"),
        (json!({"goal": "Choose", "parameters": {"options": ["owl", "lark"]}}), "playbook:compare"),
        // One option is no choice, and then its parameters are of no use.
        (json!({"goal": "Choose", "parameters": {"options": ["owl"]}}), "single"),
        (
            json!({"goal": "Answer", "parameters": {"order_id": 7, "message": "where?"}}),
            "playbook:order-inquiry",
        ),
    ] {
        let mut json = json;
        json["strategy"] = "auto".into();
        assert_eq!(intent(&say(json.clone()).await).strategy, strategy, "{json}");
    }

    let heard = say(json!({"strategy": "playbook:compare", "parameters": {"options": "owl, lark"}})).await;
    assert_eq!(intent(&heard).goal, r#"Compare "owl", "lark" and recommend one."#);

    let wrong = json!({"id": "mine", "tenant": "acme", "strategy": "playbook:product-copy",
        "parameters": {"words": "many", "langauges": ["de"]}});
    let heard = say(wrong).await;
    assert_eq!((heard.intent_id.as_str(), heard.tenant.as_str()), ("mine", "acme"));
    assert_eq!(rejection(&heard).code, INVALID_INTENT);
    let message = &rejection(&heard).message;
    for fault in [
        "parameters.words: expected a number, found \"many\"",
        "parameters.langauges: unknown parameter, the playbook has languages, style, words",
    ] {
        assert!(message.contains(fault), "{message}");
    }
    for (strategy, fault) in [
        ("playbook:product-copy", "items: missing, the playbook product-copy has a task for each of them"),
        (
            "playbook:unknown",
            "strategy: there is no playbook \"unknown\", there are compare, document-review,",
        ),
    ] {
        let heard = say(json!({"goal": "g", "strategy": strategy})).await;
        assert!(rejection(&heard).message.contains(fault), "{}", rejection(&heard).message);
    }
}
