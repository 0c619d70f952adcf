//! A batch in which the same comes again, and what its records say about calls that were not made.

use crate::history::World;
use futures::future::join_all;
use starling_audit::Standing;
use starling_llm::{
    Purpose,
    mock::{MockAction, MockOptions, MockServer, scripts},
};
use starling_protocol::{IntentId, Outcome};
use std::sync::Arc;

const INTENTS: usize = 20;
/// Of twenty intents thirteen repeat one of the others.
const GOALS: usize = 7;
/// A plan, three tasks and their verdicts, and the answer.
const CALLS: i64 = 8;

/// Settings with which all replies are kept, or none.
fn keeping<'s>(url: &'s str, on: &'s str, folder: &'s str) -> [(&'s str, &'s str); 6] {
    [
        ("model.base_url", url),
        ("model.cache.plan", on),
        ("model.cache.work", on),
        ("model.cache.judge", on),
        ("model.cache.synthesize", on),
        ("model.cache.folder", folder),
    ]
}

/// A model that never says the same twice, except in plans and verdicts.
fn endpoint() -> MockServer {
    let script = |call: &starling_llm::mock::MockCall| {
        MockAction::reply(match call.purpose {
            Purpose::Plan => scripts::plan_reply(call, 1, 3),
            Purpose::Work => format!("result {}", call.number),
            Purpose::Judge => scripts::verdict(0.9, "fine"),
            Purpose::Synthesize => format!("answer {}", call.number),
        })
    };
    MockServer::start(MockOptions::new(Arc::new(script))).unwrap()
}

/// Runs the batch, all at once but for the last few.
async fn batch(world: &World) -> Vec<Outcome> {
    let ids: Vec<(IntentId, String)> = (0..INTENTS)
        .map(|number| (IntentId::from_string(format!("i{number}")), format!("goal {}", number % GOALS)))
        .collect();
    let mut outcomes = Vec::new();
    for part in ids.chunks(15) {
        outcomes.extend(join_all(part.iter().map(|(id, goal)| world.succeed(id, goal))).await);
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_in_which_65_in_a_hundred_intents_repeat_others_takes_65_in_a_hundred_fewer_calls() {
    let mut calls = Vec::new();
    for on in ["false", "true"] {
        let server = endpoint();
        let world = World::asking(None, &keeping(&server.base_url(), on, "")).await;
        let outcomes = batch(&world).await;
        let sum = |figure: fn(&Outcome) -> i64| outcomes.iter().map(figure).sum::<i64>();
        let made = i64::try_from(server.stats().calls).unwrap();
        assert_eq!(sum(|outcome| outcome.calls), made, "what is told is what the endpoint counted");
        assert_eq!(sum(|outcome| outcome.calls + outcome.cached_calls), INTENTS as i64 * CALLS);
        if on == "true" {
            for (number, outcome) in outcomes.iter().enumerate() {
                assert_eq!(outcome.answer, outcomes[number % GOALS].answer, "the same goal, the same answer");
            }
            let repeated = &outcomes[GOALS..];
            let context: Vec<f64> = repeated.iter().map(Outcome::context_reuse).collect();
            assert!(context.iter().any(|reuse| *reuse > 0.99), "{context:?}");
            assert!(repeated.iter().any(|outcome| outcome.calls == 0 && outcome.usage.prompt_tokens == 0));
        }
        for number in 0..INTENTS {
            let account = world.settled(&IntentId::from_string(format!("i{number}"))).await;
            assert_eq!(account.standing, Standing::Clean, "{}", starling_audit::tree_of(&account));
        }
        world.stop().await;
        calls.push(made);
    }
    let [without, with] = calls[..] else { unreachable!() };
    assert_eq!(without, INTENTS as i64 * CALLS);
    assert!(with * 100 <= without * 35, "{with} of {without} calls");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_process_has_kept_on_disk_answers_the_next_without_any_call() {
    let server = endpoint();
    let folder = tempfile::tempdir().unwrap();
    let mut answers = Vec::new();
    for id in ["before", "after"] {
        let url = server.base_url();
        let settings = keeping(&url, "true", folder.path().to_str().unwrap());
        let world = World::asking(None, &settings).await;
        let outcome = world.succeed(&IntentId::from_string(id), "the goal").await;
        world.stop().await;
        answers.push((outcome.answer.clone(), outcome.calls, outcome.cached_calls, outcome.context_reuse()));
    }
    let said = answers[0].0.clone();
    assert_eq!(answers, [(said.clone(), CALLS, 0, 0.0), (said, 0, CALLS, 1.0)]);
    assert_eq!(i64::try_from(server.stats().calls).unwrap(), CALLS);
}
