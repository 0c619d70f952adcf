//! Plans that models get wrong: what has a meaning is done, the rest ends with the reason.

use super::{outcome, swarm};
use starling_llm::{Purpose, mock::scripts};
use starling_protocol::{OutcomeStatus, Topic};
use starling_service::testing::{Answer, ScriptedModel, publish_raw};

/// A plan that is of no use as it is, by number: what models get wrong, in all combinations that the number draws.
fn malformed(number: u64) -> String {
    let mut dice = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut roll = |sides: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % sides
    };
    let task = |key: &str, on: &[&str]| serde_json::json!({"key": key, "title": key, "instruction": "do it", "agent": "worker", "depends_on": on, "critic": false});
    let many = |count: u64| (0..count).map(|at| task(&format!("t{at}"), &[])).collect::<Vec<_>>();
    let mut tasks = many(1 + roll(4));
    match number % 20 {
        0 => tasks.extend([task("a", &["b"]), task("b", &["a"])]),
        1 => tasks.push(task("a", &["a"])),
        2 => tasks.push(task("a", &["nowhere"])),
        3 => tasks.push(task("t0", &[])),
        4 => tasks = many(500),
        5 => tasks.clear(),
        6 => return "I would first think about it, and then plan.".to_owned(),
        7 => return String::new(),
        8 => return "{\"tasks\": [".to_owned(),
        9 => return serde_json::json!({"plan": tasks}).to_string(),
        10 => return serde_json::json!(tasks).to_string(),
        11 => return format!("```json\n{}\n```", serde_json::json!({"tasks": tasks})),
        12 => tasks[0]["agent"] = "wizard".into(),
        13 => tasks[0]["instruction"] = " ".into(),
        14 => tasks[0]["instruction"] = "x".repeat(20_000).into(),
        15 => tasks[0]["depends_on"] = serde_json::json!({"t1": true}),
        16 => tasks = (0..40).map(|at| task(&format!("t{at}"), &[&format!("t{}", at + 1)])).collect(),
        17 => tasks[0]["key"] = "k".repeat(300).into(),
        18 => tasks[0] = serde_json::json!("do it"),
        _ => tasks[0] = serde_json::json!({"instruction": "only that"}),
    }
    // Cut somewhere, for some of them.
    let text = serde_json::json!({"tasks": tasks}).to_string();
    match roll(4) {
        0 => text.chars().take(usize::try_from(roll(text.len() as u64)).unwrap()).collect(),
        _ => text,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_malformed_plans_are_each_repaired_or_failed_with_the_reason() {
    const PLANS: u64 = 200;
    let model = ScriptedModel::new(|request| {
        let text = &request.messages[1].text;
        match request.purpose {
            Purpose::Plan => {
                let number = text.split("plan number ").nth(1).unwrap().split_whitespace().next().unwrap();
                Answer::Say(malformed(number.parse().unwrap()))
            }
            Purpose::Judge => Answer::Say(scripts::verdict(0.9, "fine")),
            _ => Answer::Say("done".to_owned()),
        }
    });
    let (node, outcomes) = swarm(model).await;
    for number in 0..PLANS {
        let intent =
            format!(r#"{{"id":"p{number}","goal":"plan number {number} of many","strategy":"llm"}}"#);
        publish_raw(&node, &Topic::Intents, intent).await;
    }
    let (mut repaired, mut failed) = (0, 0);
    for _ in 0..PLANS {
        let (id, outcome) = outcome(&outcomes).await;
        match outcome.status {
            OutcomeStatus::Succeeded => {
                repaired += 1;
                assert!(!outcome.answer.is_empty() && outcome.tasks.failed == 0, "{id}: {outcome:#?}");
            }
            OutcomeStatus::Failed => {
                failed += 1;
                assert!(
                    outcome.reason.starts_with("no usable plan in 2 attempts: "),
                    "{id}: {}",
                    outcome.reason
                );
            }
            _ => panic!("{id}: {outcome:#?}"),
        }
    }
    // What has a meaning is done, the rest says why not.
    assert!(repaired >= 30 && failed >= 100, "{repaired} repaired, {failed} failed");
    node.shutdown.cancel();
    node.shutdown.cancel();
}
