//! What is no valid intent, and what is no valid plan: each is answered with the reason, and the next intent
//! is served.

use crate::SOON;
use anyhow::Result;
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions};
use starling_llm::{Purpose, mock::MockAction};
use starling_protocol::{IntentId, OutcomeStatus, Topic};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn invalid_intents_are_answered_with_the_reason_and_the_next_one_is_served() -> Result<()> {
    let model = Scripted::new(Plan::independent(1));
    let swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    let large = format!(r#"{{"id": "large", "goal": "{}"}}"#, "x".repeat(2 << 20));
    let cases: [(&str, &[u8], &[&str]); 8] = [
        ("broken", br#"{"id": "broken", "goal": "#, &["JSON"]),
        ("unknown", br#"{"id": "unknown", "goal": "g", "gaol": 1}"#, &["gaol", "goal"]),
        ("type", br#"{"id": "type", "goal": 7}"#, &["goal", "text", "7"]),
        ("range", br#"{"id": "range", "goal": "g", "priority": 10}"#, &["priority", "0 to 9", "10"]),
        ("none", br#"{"id": "none"}"#, &["goal", "missing"]),
        ("empty", br#"{"id": "empty", "goal": "  "}"#, &["goal", "empty"]),
        ("large", large.as_bytes(), &["at most", "bytes"]),
        ("", b"   ", &["empty"]), // bare text
    ];
    for (id, value, reasons) in cases {
        let derived = swarm.publish(value, &[]).await?;
        let id = if id.is_empty() { derived } else { IntentId::from_string(id) };
        let outcome = swarm.outcome(&id, SOON).await?;
        assert_eq!(outcome.status, OutcomeStatus::Rejected, "{id}: {}", outcome.reason);
        for reason in reasons {
            assert!(outcome.reason.contains(reason), "{id} should say {reason:?}: {}", outcome.reason);
        }
    }
    // Nobody can be told of this one.
    let garbage = [0xff, 0xfe, 0x00, 0x80, 0x81];
    swarm.publish(&garbage, &[("who", "me")]).await?;
    let next = swarm.publish(b"What comes next is served", &[]).await?;
    let outcome = swarm.outcome(&next, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
    let letter = dead_letter(&swarm, &garbage).await?;
    assert!(
        letter.iter().any(|(name, value)| name == "who" && value == "me"),
        "headers are kept: {letter:?}"
    );
    assert!(letter.iter().any(|(_, value)| value.contains("UTF-8")), "the reason is there: {letter:?}");
    assert_eq!(model.calls.of(Purpose::Plan).len(), 1, "no model is asked about what is invalid");
    swarm.all_audited(SOON).await?;
    Ok(())
}

/// The headers of the dead letter with that value.
async fn dead_letter(swarm: &Swarm, value: &[u8]) -> Result<Vec<(String, String)>> {
    let until = Instant::now() + SOON;
    loop {
        let letters = swarm.logs.topic(&Topic::Dlq).await?;
        if let Some(letter) = letters.into_iter().find(|letter| letter.value() == value) {
            let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
            return Ok(letter.headers.iter().map(|(name, value)| (name.clone(), text(value))).collect());
        }
        anyhow::ensure!(Instant::now() < until, "it is not among the dead letters");
        tokio::time::sleep(Duration::from_millis(100)).await; // polls the topic
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_cannot_be_carried_out_fails_its_intent_with_the_reason() -> Result<()> {
    let circle = Plan::new().task("A", &["B"]).task("B", &["A"]);
    let stranger = Plan::new().task("A", &["nobody"]);
    let many = Plan::independent(101);
    let model = Scripted::new(Plan::independent(1)).but(move |call| {
        if call.purpose != Purpose::Plan {
            return None;
        }
        Some(MockAction::reply(match call.section("Goal")? {
            "circle" => circle.text(),
            "stranger" => stranger.text(),
            "many" => many.text(),
            "prose" => "I would rather not.".to_owned(),
            _ => return None,
        }))
    });
    let swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    let mut ids = Vec::new();
    for goal in ["circle", "stranger", "many", "prose", "sound"] {
        ids.push(swarm.submit(goal, goal).await?);
    }
    for (id, reasons) in ids.iter().zip([
        &["circle", "A", "B"][..],
        &["nobody", "not in the plan"],
        &["more than 100 tasks"],
        &["JSON"],
    ]) {
        let outcome = swarm.outcome(id, SOON).await?;
        assert_eq!(outcome.status, OutcomeStatus::Failed, "{id}: {}", outcome.reason);
        for reason in reasons {
            assert!(outcome.reason.contains(reason), "{id} should say {reason:?}: {}", outcome.reason);
        }
    }
    let outcome = swarm.outcome(&ids[4], SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
    let asked = model.calls.of(Purpose::Plan);
    let told = asked.iter().filter(|call| call.prompt.contains("## Goal\ncircle")).collect::<Vec<_>>();
    assert_eq!(told.len(), 2, "the planner gets a second chance");
    assert!(
        told[1].prompt.contains("## Feedback") && told[1].prompt.contains("in a circle"),
        "{}",
        told[1].prompt
    );
    swarm.all_audited(SOON).await?;
    Ok(())
}
