//! The three forms of an intent on the input topic: bare text, JSON, Avro.

use crate::SOON;
use anyhow::Result;
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions};
use starling_llm::Purpose;
use starling_protocol::{
    Body, Envelope, EnvelopeId, Input, Intent, IntentId, OutcomeStatus, Role, Tag, Timestamp, codec::Codec,
    headers::headers_of,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_may_be_text_json_or_avro() -> Result<()> {
    let model = Scripted::new(Plan::independent(2));
    let swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;

    let text = swarm.publish("Weißt du, wie viel Sternlein stehen?".as_bytes(), &[]).await?;
    let json = r#"{"id": "json-1", "goal": "Count them", "priority": 9, "limits": {"max_tasks": 3},
        "inputs": [{"name": "sky.txt", "content": "seven stars"}], "items": ["north", "south"]}"#;
    swarm.publish(json.as_bytes(), &[("content-type", "application/json")]).await?;
    let avro = avro_intent();
    let headers = headers_of(&avro, None, None);
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), std::str::from_utf8(value).unwrap())).collect();
    let value = Codec::default().encode(&avro)?;
    swarm.publish(&value, &headers).await?;
    swarm.publish(&value, &[]).await?; // the same again, and without a word on what it is

    for id in [text.as_str(), "json-1", "avro-1"] {
        let outcome = swarm.outcome(&IntentId::from_string(id), SOON).await?;
        assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{id}: {}", outcome.reason);
        assert_eq!(outcome.answer, "The answer.");
    }
    let plans = model.calls.of(Purpose::Plan);
    assert_eq!(plans.len(), 3, "the repeated intent is the same intent");
    let prompt_of = |goal: &str| plans.iter().find(|call| call.prompt.contains(goal)).unwrap().prompt.clone();
    assert!(prompt_of("Sternlein").contains("max_tasks: 100"));
    let json = prompt_of("Count them");
    for part in ["max_tasks: 3", "sky.txt", "seven stars", "- north"] {
        assert!(json.contains(part), "{part} is missing: {json}");
    }
    assert!(prompt_of("Fly").contains("wind from the west"));
    for id in [text.as_str(), "json-1", "avro-1"] {
        swarm.logs.one_outcome(&IntentId::from_string(id)).await?;
    }
    swarm.all_audited(SOON).await?;
    Ok(())
}

fn avro_intent() -> Envelope {
    let intent_id = IntentId::from_string("avro-1");
    let input = Input {
        name: "wind.txt".to_owned(),
        media_type: "text/plain".to_owned(),
        content: "wind from the west".to_owned(),
        chunks: Vec::new(),
    };
    Envelope {
        id: EnvelopeId::derive("intent", &[intent_id.as_str()]),
        intent_id,
        tag: Tag::role(Role::Intake),
        hop: 0,
        created_at: starling_runtime::Clock::system().now(),
        deadline: Timestamp::MAX,
        tenant: "birds".to_owned(),
        body: Body::Intent(Intent {
            goal: "Fly".to_owned(),
            strategy: "llm".to_owned(),
            priority: 5,
            inputs: vec![input],
            ..Intent::default()
        }),
    }
}
