//! Intents, rejections and cancellations as they come in.

use crate::builders::*;
use starling_engine::coordinator::{Coordinator, CoordinatorSettings, Effect, Event};
use starling_protocol::state::Entity;
use starling_protocol::{Body, Input, Intent, Limits, OutcomeStatus, Rejection, Timestamp};
use std::time::Duration;

fn send(coordinator: &mut Coordinator, envelope: starling_protocol::Envelope) -> Vec<Effect> {
    coordinator.step(START, received(1, envelope))
}

#[test]
fn an_intent_is_planned_and_a_duplicate_is_not() {
    let mut coordinator = coordinator(settings());
    let effects = send(&mut coordinator, intent("a", "llm", 5));
    assert_eq!(kinds(&effects), ["PlanRequest"]);
    let Some(Effect::Send { envelope, trace: parent, .. }) = effects.first() else { panic!("{effects:?}") };
    assert_eq!((envelope.hop, envelope.tag.to_string().as_str()), (1, "role:planner#a"));
    assert_eq!(*parent, trace(1));
    assert!(kinds(&send(&mut coordinator, intent("a", "llm", 5))).is_empty());
    assert_eq!(coordinator.counters().duplicates, 1);
}

#[test]
fn the_record_is_kept_as_reference_only_if_there_is_something_in_it() {
    let mut coordinator = coordinator(settings());
    let mut with_input = intent("b", "llm", 5);
    if let Body::Intent(body) = &mut with_input.body {
        body.inputs = vec![Input {
            name: "f".into(),
            media_type: "text/csv".into(),
            content: "1".into(),
            chunks: Vec::new(),
        }];
    }
    for (envelope, expected) in [(intent("a", "llm", 5), None), (with_input, Some(1))] {
        let effects = send(&mut coordinator, envelope);
        let request = sent(&effects).find_map(|envelope| match &envelope.body {
            Body::PlanRequest(request) => Some(request.intent_ref.as_ref().map(|at| at.offset)),
            _ => None,
        });
        assert_eq!(request, Some(expected));
    }
}

#[test]
fn what_cannot_run_is_rejected_with_the_reason() {
    type Change = fn(&mut Intent);
    let cases: [(&str, Change); 7] = [
        ("goal is empty", |i| i.goal = " \n".into()),
        ("strategy is \"magic\": expected \"llm\", \"single\", \"map\"", |i| i.strategy = "magic".into()),
        ("strategy is \"auto\": expected is one that the intake has chosen", |i| i.strategy = "auto".into()),
        ("priority is 10: expected is 0 to 9", |i| i.priority = 10),
        ("limits.max_tasks is 101", |i| i.limits = Limits { max_tasks: Some(101), ..Limits::default() }),
        ("limits.max_attempts is 0", |i| i.limits = Limits { max_attempts: Some(0), ..Limits::default() }),
        ("limits.min_score is NaN", |i| i.limits = Limits { min_score: Some(f64::NAN), ..Limits::default() }),
    ];
    for (reason, change) in cases {
        let mut coordinator = coordinator(settings());
        let mut envelope = intent("a", "llm", 5);
        if let Body::Intent(body) = &mut envelope.body {
            change(body);
        }
        let effects = send(&mut coordinator, envelope.clone());
        let outcome = outcome(&effects).expect(reason);
        assert_eq!(outcome.status, OutcomeStatus::Rejected);
        assert!(outcome.reason.starts_with(reason), "{}", outcome.reason);
        assert!(kinds(&send(&mut coordinator, envelope)).is_empty(), "a duplicate is recognised");
    }
}

#[test]
fn a_rejection_becomes_an_outcome_once() {
    let mut coordinator = coordinator(settings());
    let rejection = Rejection { code: "invalid_intent".into(), message: "line 1: no goal".into() };
    let rejection = envelope(&id("a"), 0, Body::Rejection(rejection));
    let effects = send(&mut coordinator, rejection.clone());
    assert_eq!(outcome(&effects).map(|o| o.reason.as_str()), Some("invalid_intent: line 1: no goal"));
    assert!(kinds(&send(&mut coordinator, rejection)).is_empty());
}

#[test]
fn a_cancellation_may_come_first() {
    let mut coordinator = coordinator(settings());
    assert!(kinds(&send(&mut coordinator, cancel("a"))).is_empty());
    assert!(kinds(&send(&mut coordinator, cancel("a"))).is_empty());
    let effects = send(&mut coordinator, intent("a", "llm", 5));
    assert_eq!(kinds(&effects), ["Outcome"]);
    assert_eq!(outcome(&effects).map(|o| o.status), Some(OutcomeStatus::Cancelled));
    assert!(matches!(coordinator.entities()[..], [Entity::Ended(_)]));
}

#[test]
fn cancelling_a_live_intent_stops_its_workers_and_ends_it() {
    let mut coordinator = coordinator(settings());
    let tasks = tasks(&send(&mut coordinator, intent("a", "single", 5)));
    assert_eq!(kinds(&send(&mut coordinator, cancel("a"))), ["Cancel", "Outcome"]);
    assert!(send(&mut coordinator, result(&tasks[0], None)).is_empty());
    assert!(kinds(&send(&mut coordinator, cancel("a"))).is_empty());
    assert_eq!(coordinator.counters().superseded_cancelled, 1);
    assert_eq!(coordinator.load().outstanding, 0);
}

#[test]
fn whoever_cancels_too_late_or_too_early_is_told_and_there_is_no_second_outcome() {
    let mut coordinator = coordinator(settings());
    let told = |effects: &[Effect]| match effects {
        [Effect::Notify { envelope }] => match &envelope.body {
            Body::Progress(progress) => progress.phase.clone(),
            other => panic!("{}", other.kind()),
        },
        other => panic!("{other:?}"),
    };
    let tasks = tasks(&send(&mut coordinator, intent("a", "single", 5)));
    assert!(outcome(&send(&mut coordinator, result(&tasks[0], None))).is_some());
    assert_eq!(told(&send(&mut coordinator, cancel("a"))), "succeeded");
    for _ in 0..2 {
        assert_eq!(told(&send(&mut coordinator, cancel("b"))), "cancelled", "it has not come yet");
    }
    let ended = send(&mut coordinator, intent("b", "single", 5));
    assert_eq!(outcome(&ended).map(|outcome| outcome.status), Some(OutcomeStatus::Cancelled));
    assert_eq!(told(&send(&mut coordinator, cancel("b"))), "cancelled");
}

#[test]
fn memory_is_bounded_and_nothing_is_forgotten_early() {
    let settings = CoordinatorSettings { max_remembered: 8, max_cancelled_per_tenant: 2, ..settings() };
    let mut coordinator = coordinator(settings);
    for name in ["c1", "c2"] {
        assert!(kinds(&send(&mut coordinator, cancel(name))).is_empty());
    }
    assert_eq!(kinds(&send(&mut coordinator, cancel("c3"))), ["dead letter"]);
    for number in 0..6 {
        assert_eq!(coordinator.load().room, 5 - number, "none at seven of eight");
        send(&mut coordinator, intent(&format!("i{number}"), "single", 5));
    }
    assert_eq!(kinds(&send(&mut coordinator, intent("more", "single", 5))), ["dead letter"]);
    assert_eq!(outcome(&send(&mut coordinator, intent("c1", "llm", 5))).map(|o| o.status), {
        Some(OutcomeStatus::Cancelled)
    });
    // After the horizon there is room, but an intent that old may have run before.
    let later = START.plus(Duration::from_secs(9 * 24 * 60 * 60));
    coordinator.step(later, Event::Tick);
    coordinator.step(later.plus(Duration::from_secs(8 * 24 * 60 * 60)), Event::Tick);
    assert!(coordinator.entities().is_empty());
    assert_eq!(kinds(&send(&mut coordinator, intent("i0", "llm", 5))), ["dead letter"]);
}

#[test]
fn what_is_beyond_the_live_limit_waits_by_priority_then_age() {
    let mut coordinator = coordinator(CoordinatorSettings { max_live: 1, ..settings() });
    let first = tasks(&send(&mut coordinator, intent("a", "single", 0)));
    for (name, priority) in [("b", 5), ("c", 5), ("d", 9)] {
        assert!(kinds(&send(&mut coordinator, intent(name, "single", priority))).is_empty());
    }
    assert_eq!((coordinator.load().live, coordinator.load().waiting), (1, 3));
    let mut order = Vec::new();
    let mut task = first[0].clone();
    loop {
        let effects = send(&mut coordinator, result(&task, None));
        let Some(next) = tasks(&effects).pop() else { break };
        order.push(next.intent_id.to_string());
        task = next;
    }
    assert_eq!(order, ["d", "b", "c"]);
}

#[test]
fn deadlines_are_effective_for_everybody() {
    let minute = Duration::from_secs(60);
    let mut coordinator = coordinator(settings());
    let mut hurried = intent("hurried", "single", 5);
    hurried.deadline = START.plus(minute);
    let mut late = intent("late", "single", 5);
    late.deadline = START;
    let mut endless = intent("endless", "single", 5);
    endless.deadline = Timestamp(i64::MAX - 1);
    let effects = send(&mut coordinator, late);
    assert_eq!(outcome(&effects).map(|o| o.status), Some(OutcomeStatus::Expired));
    for envelope in [hurried, endless, intent("default", "single", 5)] {
        send(&mut coordinator, envelope);
    }
    for (after, ended) in [(1, "hurried"), (15, "default"), (24 * 60, "endless")] {
        let mut effects = Vec::new();
        let now = START.plus(minute * after);
        while coordinator.next_timer().is_some_and(|at| at <= now) {
            effects.extend(coordinator.step(now, Event::Tick));
        }
        let ends: Vec<_> = sent(&effects)
            .filter_map(|e| match &e.body {
                Body::Outcome(o) => Some((e.intent_id.as_str(), o.status.name())),
                _ => None,
            })
            .collect();
        // Without answers, attempts time out and the shorter intents may fail before their deadline.
        assert!(ends.iter().any(|(name, _)| *name == ended) || ended != "hurried", "{ends:?}");
        if ended == "hurried" {
            assert_eq!(ends, [("hurried", "expired")]);
            assert!(kinds(&effects).contains(&"Cancel"));
        }
    }
    assert_eq!(coordinator.load().live, 0);
}

#[test]
fn what_does_not_belong_here_is_a_dead_letter() {
    let mut sharded = coordinator(CoordinatorSettings { coordinator_partitions: 1_000, ..settings() });
    assert_eq!(kinds(&send(&mut sharded, intent("a", "llm", 5))), ["dead letter"]);
    let mut coordinator = coordinator(settings());
    let task = tasks(&send(&mut coordinator, intent("a", "single", 5))).remove(0);
    assert_eq!(kinds(&send(&mut coordinator, task)), ["dead letter"]);
    let broken = Event::Undecodable { at_partition: 0, at_offset: 9, reason: "no magic".into() };
    assert_eq!(kinds(&coordinator.step(START, broken)), ["dead letter"]);
    assert_eq!(coordinator.counters().dead_letters, 2);
}
