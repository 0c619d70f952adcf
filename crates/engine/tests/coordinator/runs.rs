//! Runs of the planner, one after another or at the same time.

use crate::builders::*;
use starling_engine::coordinator::{Coordinator, Effect, Event};
use starling_protocol::{Body, CallReport, OutcomeStatus, PlanEnd, PlanRequest, TaskSpec};
use std::time::Duration;

struct Planned(Coordinator, i64);

impl Planned {
    fn new() -> Self {
        let mut coordinator = coordinator(settings());
        coordinator.step(START, received(1, intent("a", "llm", 5)));
        Self(coordinator, 1)
    }

    fn fragment(
        &mut self,
        plan_attempt: i32,
        run_number: u128,
        seq: i32,
        tasks: Vec<TaskSpec>,
        end: Option<PlanEnd>,
    ) -> Vec<Effect> {
        self.1 += 1;
        let fragment = fragment("a", plan_attempt, &run(run_number), seq, tasks, end);
        self.0.step(START, received(self.1, fragment))
    }
}

fn request(effects: &[Effect]) -> Option<PlanRequest> {
    sent(effects).find_map(|envelope| match &envelope.body {
        Body::PlanRequest(request) => Some(request.clone()),
        _ => None,
    })
}

#[test]
fn tasks_start_before_the_plan_is_complete() {
    let mut planned = Planned::new();
    let effects = planned.fragment(1, 1, 0, vec![spec(0, "a", &[]), spec(1, "c", &["b"])], None);
    assert_eq!(titles(&effects), ["a"]);
    let effects = planned.fragment(1, 1, 1, vec![spec(2, "b", &[])], None);
    assert_eq!(titles(&effects), ["b"]);
    let done = verdict(&tasks(&effects)[0], scored(0.9));
    assert_eq!(titles(&planned.0.step(START, received(50, done))), ["c"]);
}

#[test]
fn an_unseen_run_supersedes_one_that_is_open() {
    let mut planned = Planned::new();
    let old = tasks(&planned.fragment(1, 1, 0, vec![spec(0, "a", &[])], None)).remove(0);
    let new = tasks(&planned.fragment(1, 2, 0, vec![spec(0, "a", &[])], plan_end())).remove(0);
    assert_ne!(job(&old).task_id, job(&new).task_id);
    for late in [verdict(&old, scored(0.9)), fragment("a", 1, &run(1), 1, vec![], plan_end())] {
        assert!(planned.0.step(START, received(60, late)).is_empty());
    }
    assert_eq!(planned.0.counters().superseded_abandoned, 2);
    assert_eq!(planned.0.load().outstanding, 1);
    // Now the plan is complete: a third run comes too late, and a repeated fragment is a duplicate.
    assert!(planned.fragment(1, 3, 0, vec![spec(0, "z", &[])], plan_end()).is_empty());
    assert!(planned.fragment(1, 2, 0, vec![spec(0, "a", &[])], plan_end()).is_empty());
    assert_eq!((planned.0.counters().superseded_abandoned, planned.0.counters().duplicates), (3, 1));
}

#[test]
fn a_gap_makes_a_run_useless() {
    let mut planned = Planned::new();
    planned.fragment(1, 1, 0, vec![spec(0, "a", &[])], None);
    let effects = planned.fragment(1, 1, 2, vec![spec(1, "b", &[])], plan_end());
    assert_eq!(request(&effects).map(|request| request.plan_attempt), Some(2));
    assert!(planned.fragment(1, 1, 1, vec![], None).is_empty(), "it is given up for good");
    let effects = planned.fragment(2, 7, 1, vec![spec(1, "b", &[])], plan_end());
    assert_eq!(request(&effects).map(|request| request.plan_attempt), Some(3), "its beginning is missing");
}

#[test]
fn what_a_run_cost_that_was_given_up_before_its_end_is_not_known_and_the_outcome_says_so() {
    for (end, note) in [(None, vec!["uncounted_plan_calls".to_owned()]), (plan_end(), vec![])] {
        let mut planned = Planned::new();
        let twice = || vec![spec(0, "a", &[]), spec(1, "a", &[])];
        planned.fragment(1, 1, 0, twice(), end.clone());
        let effects = planned.fragment(2, 2, 0, twice(), end);
        assert_eq!(outcome(&effects).map(|outcome| outcome.degraded.clone()), Some(note));
    }
}

#[test]
fn an_outcome_tells_how_many_calls_had_no_price() {
    let end = PlanEnd { report: CallReport { unpriced_calls: 2, ..report(3) }, failure: None, answer: None };
    let mut planned = Planned::new();
    let twice = || vec![spec(0, "a", &[]), spec(1, "a", &[])];
    planned.fragment(1, 1, 0, twice(), Some(end.clone()));
    let effects = planned.fragment(2, 2, 0, twice(), Some(end));
    let outcome = outcome(&effects).unwrap();
    assert_eq!((outcome.calls, outcome.unpriced_calls, outcome.known_cost()), (6, 4, None));
}

#[test]
fn a_refused_plan_is_asked_for_again_with_the_reasons_and_then_the_intent_fails() {
    let mut planned = Planned::new();
    let circle = || vec![spec(0, "a", &["b"]), spec(1, "b", &["a"])];
    let again = request(&planned.fragment(1, 1, 0, circle(), plan_end())).unwrap();
    assert_eq!(again.plan_attempt, 2);
    assert!(again.feedback.unwrap().contains("in a circle: a, b"));
    let effects = planned.fragment(2, 2, 0, circle(), plan_end());
    let outcome = outcome(&effects).unwrap();
    assert_eq!((outcome.status, outcome.calls), (OutcomeStatus::Failed, 2));
    assert!(outcome.reason.starts_with("no usable plan in 2 attempts: these tasks depend"));
}

#[test]
fn a_fault_is_seen_as_soon_as_it_can_be() {
    let mut planned = Planned::new();
    planned.fragment(1, 1, 0, vec![spec(0, "a", &[])], None);
    let effects = planned.fragment(1, 1, 1, vec![spec(1, "a", &[])], None);
    assert!(request(&effects).unwrap().feedback.unwrap().contains("more than one task has the key"));
    assert_eq!(planned.0.load().outstanding, 0);
}

#[test]
fn a_planner_that_cannot_plan_is_believed() {
    for (retryable, again) in [(true, true), (false, false)] {
        let mut planned = Planned::new();
        let end = PlanEnd { report: report(1), failure: Some(failure(retryable)), answer: None };
        let effects = planned.fragment(1, 1, 0, vec![], Some(end));
        assert_eq!(request(&effects).is_some(), again);
        assert_eq!(outcome(&effects).is_some(), !again);
    }
}

#[test]
fn silence_is_bounded() {
    let mut planned = Planned::new();
    let mut now = START;
    for plan_attempt in [2, 3] {
        now = planned.0.next_timer().unwrap();
        let effects = planned.0.step(now, Event::Tick);
        assert_eq!(request(&effects).map(|request| request.plan_attempt), Some(plan_attempt));
    }
    let effects = planned.0.step(now.plus(Duration::from_secs(120)), Event::Tick);
    assert!(outcome(&effects).unwrap().reason.starts_with("the plan stopped coming, 3 times"));
    assert_eq!(kinds(&effects), ["Cancel", "Outcome"]);
}

#[test]
fn a_planner_that_crashes_again_and_again_fails_the_intent() {
    let mut planned = Planned::new();
    let ended = (0..100).position(|number| {
        let effects = planned.fragment(1, number, 0, vec![spec(0, "a", &[])], None);
        outcome(&effects).is_some()
    });
    assert_eq!(ended, Some(16));
}
