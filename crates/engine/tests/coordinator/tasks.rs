//! Tasks from dispatch to outcome.

use crate::builders::*;
use starling_engine::coordinator::{Coordinator, CoordinatorSettings, Destination, Effect, Event};
use starling_engine::coordinator::{FleetView, Milestone, WorkerMember};
use starling_protocol::{
    Body, Envelope, EnvelopeId, Fallback, IndexRange, Limits, OutcomeStatus, TaskKind, TaskSpec, TaskState,
    TaskTerms, TaskTurn, Timestamp,
};
use std::collections::HashMap;
use std::time::Duration;

/// A coordinator with an intent "a" that has this plan, and its first tasks.
fn planned(settings: CoordinatorSettings, specs: Vec<TaskSpec>) -> (Coordinator, Vec<Envelope>) {
    let mut coordinator = coordinator(settings);
    coordinator.step(START, received(1, intent("a", "llm", 5)));
    let effects = coordinator.step(START, received(2, fragment("a", 1, &run(1), 0, specs, plan_end())));
    (coordinator, tasks(&effects))
}

fn step(coordinator: &mut Coordinator, envelope: Envelope) -> Vec<Effect> {
    let now = Timestamp(coordinator.now().0 + 10);
    coordinator.step(now, received(100, envelope))
}

#[test]
fn an_intent_goes_its_whole_way() {
    let (mut coordinator, first) = planned(settings(), vec![spec(0, "a", &[]), spec(1, "b", &["a"])]);
    assert_eq!(job(&first[0]).next_tag.to_string(), format!("role:critic#{}", job(&first[0]).task_id));
    let second = tasks(&step(&mut coordinator, verdict(&first[0], scored(0.8))));
    let dependencies = &job(&second[0]).dependencies;
    assert_eq!(dependencies.len(), 1);
    assert_eq!(dependencies[0].result.as_ref().unwrap().topic, "starling.critic");
    let effects = step(&mut coordinator, verdict(&second[0], scored(0.7)));
    let last = tasks(&effects).remove(0);
    assert_eq!(job(&last).kind, TaskKind::Synthesis);
    assert_eq!((job(&last).dependencies.len(), job(&last).agent.as_str()), (2, "synthesizer"));
    assert_eq!(job(&last).next_tag.to_string(), "role:coordinator#a");
    assert_eq!(last.hop, 9, "plan 1-2, then each task is three messages");
    let effects = step(&mut coordinator, result(&last, None));
    let outcome = outcome(&effects).unwrap();
    assert_eq!((outcome.status, outcome.answer.as_str()), (OutcomeStatus::Succeeded, "output of Answer"));
    assert_eq!((outcome.tasks.total, outcome.tasks.succeeded, outcome.tasks.failed), (2, 2, 0));
    assert_eq!((outcome.calls, outcome.usage.prompt_tokens, outcome.cost_usd), (6, 60, 3.0));
    assert_eq!(
        (outcome.cached_calls, outcome.cached_prompt_tokens, outcome.usage.cached_tokens),
        (6, 12, 24)
    );
    assert_eq!(outcome.context_reuse(), 0.5);
    assert_eq!(
        (outcome.latency_ms.wall, outcome.latency_ms.p99, outcome.latency_ms.serial_sum),
        (30, 10, 120)
    );
    assert_eq!(outcome.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    let scores: Vec<_> = outcome.task_reports.iter().map(|report| report.score).collect();
    assert_eq!(scores, [Some(0.8), Some(0.7), None]);
    assert_eq!(outcome.task_reports[1].depends_on, [job(&first[0]).task_id.clone()]);
    assert_eq!(coordinator.entities().len(), 1, "only the end is remembered");
    assert_eq!(coordinator.next_timer(), Some(Timestamp(START.0 + 30).plus(Duration::from_secs(604_800))));
}

#[test]
fn what_a_step_brings_to_its_end_is_told_once() {
    let mut coordinator = coordinator(settings());
    coordinator.step(START, received(1, intent("a", "llm", 5)));
    assert!(coordinator.take_milestones().is_empty());
    let plan = fragment("a", 1, &run(1), 0, vec![spec(0, "a", &[])], plan_end());
    let task = tasks(&coordinator.step(START.plus(Duration::from_millis(250)), received(2, plan))).remove(0);
    assert_eq!(coordinator.take_milestones(), [Milestone::Planned { took: Duration::from_millis(250) }]);
    step(&mut coordinator, verdict(&task, scored(0.1)));
    assert_eq!(coordinator.take_milestones(), [Milestone::Retried]);
    step(&mut coordinator, cancel("a"));
    let cancelled =
        Milestone::Ended { status: OutcomeStatus::Cancelled, took: Some(Duration::from_millis(270)) };
    assert_eq!(coordinator.take_milestones(), [cancelled]);
    // What nobody asked for is not kept.
    step(&mut coordinator, cancel("a"));
    assert!(coordinator.take_milestones().is_empty());
}

#[test]
fn a_low_score_is_tried_again_with_the_feedback_and_the_best_is_kept() {
    let (mut coordinator, mut task) = planned(settings(), vec![spec(0, "a", &[])]);
    for (score, expected) in [(0.5, 0.5), (0.3, 0.3)] {
        task = tasks(&step(&mut coordinator, verdict(&task[0], scored(score))));
        let feedback = job(&task[0]).feedback.clone().unwrap();
        assert_eq!((feedback.score, feedback.text), (expected, format!("better than {expected}")));
        assert_eq!(feedback.result.is_some(), score == 0.5, "the reference is to what the advice speaks of");
    }
    assert_eq!(job(&task[0]).attempt, 3);
    let synthesis = tasks(&step(&mut coordinator, verdict(&task[0], scored(0.4))));
    assert_eq!(job(&synthesis[0]).dependencies[0].result.as_ref().unwrap().offset, 1, "attempt 1 was best");
    let effects = step(&mut coordinator, result(&synthesis[0], None));
    let outcome = outcome(&effects).unwrap();
    assert_eq!(
        (outcome.status, outcome.degraded.clone()),
        (OutcomeStatus::Succeeded, vec!["low_score:title a".into()])
    );
    assert_eq!((outcome.task_reports[0].attempts, outcome.task_reports[0].score), (3, Some(0.5)));
    assert_eq!(coordinator.counters().retries, 2);
}

#[test]
fn only_the_first_word_about_the_present_attempt_counts() {
    let (mut coordinator, first) = planned(settings(), vec![spec(0, "a", &[])]);
    let low = verdict(&first[0], scored(0.1));
    let second = tasks(&step(&mut coordinator, low.clone()));
    assert!(step(&mut coordinator, low).is_empty());
    assert_eq!(coordinator.counters().superseded_late, 1);
    let good = verdict(&second[0], scored(0.9));
    assert_eq!(tasks(&step(&mut coordinator, good.clone())).len(), 1);
    assert!(step(&mut coordinator, good).is_empty());
    assert_eq!(coordinator.counters().duplicates, 1);
}

#[test]
fn failures_are_passed_on_and_the_outcome_is_partial() {
    let specs = vec![
        spec(0, "good", &[]),
        spec(1, "bad", &[]),
        spec(2, "either", &["good", "bad"]),
        spec(3, "hopeless", &["bad"]),
        spec(4, "behind", &["hopeless"]),
    ];
    let (mut coordinator, first) = planned(settings(), specs);
    assert!(kinds(&step(&mut coordinator, result(&first[1], Some(failure(false))))).is_empty());
    let either = tasks(&step(&mut coordinator, verdict(&first[0], scored(0.9))));
    let dependencies = &job(&either[0]).dependencies;
    assert!(dependencies[0].result.is_some() && dependencies[1].result.is_none());
    assert_eq!(dependencies[1].failure.as_ref().unwrap().code, "model_error");
    let synthesis = tasks(&step(&mut coordinator, verdict(&either[0], scored(0.9))));
    let effects = step(&mut coordinator, result(&synthesis[0], None));
    let outcome = outcome(&effects).unwrap();
    assert_eq!(outcome.status, OutcomeStatus::Partial);
    assert_eq!(outcome.reason, "3 of 5 tasks have no result: title bad: it broke");
    let states: Vec<_> = outcome.task_reports.iter().map(|report| report.status).collect();
    use TaskState::{Failed, Skipped, Succeeded};
    assert_eq!(states, [Succeeded, Failed, Succeeded, Skipped, Skipped, Succeeded]);
}

#[test]
fn an_intent_without_any_result_fails() {
    let (mut coordinator, first) = planned(settings(), vec![spec(0, "a", &[]), spec(1, "b", &["a"])]);
    let effects = step(&mut coordinator, result(&first[0], Some(failure(false))));
    let outcome = outcome(&effects).unwrap();
    assert_eq!((outcome.status, outcome.tasks.failed), (OutcomeStatus::Failed, 2));
    assert_eq!(outcome.reason, "no task succeeded: title a: it broke");
}

#[test]
fn a_failed_attempt_waits_for_its_timer() {
    let (mut coordinator, first) = planned(settings(), vec![spec(0, "a", &[])]);
    assert!(kinds(&step(&mut coordinator, result(&first[0], Some(failure(true))))).is_empty());
    assert_eq!((coordinator.load().outstanding, coordinator.load().ready), (0, 0));
    let at = coordinator.next_timer().unwrap();
    assert_eq!(at.since(coordinator.now()), Duration::from_millis(200));
    assert!(kinds(&coordinator.step(Timestamp(at.0 - 1), Event::Tick)).is_empty());
    assert_eq!(job(&tasks(&coordinator.step(at, Event::Tick))[0]).attempt, 2);
}

#[test]
fn an_attempt_without_an_answer_times_out() {
    let (mut coordinator, first) = planned(settings(), vec![spec(0, "a", &[])]);
    assert_eq!(first[0].deadline, START.plus(Duration::from_secs(300)));
    let at = coordinator.next_timer().unwrap();
    assert_eq!(at, START.plus(Duration::from_secs(302)), "with grace for the worker's own word");
    coordinator.step(at, Event::Tick);
    let again = coordinator.step(coordinator.next_timer().unwrap(), Event::Tick);
    assert_eq!(job(&tasks(&again)[0]).attempt, 2);
}

#[test]
fn a_single_task_is_its_own_answer() {
    let mut coordinator = coordinator(settings());
    let task = tasks(&coordinator.step(START, received(1, intent("a", "single", 5)))).remove(0);
    assert_eq!((job(&task).instruction.as_str(), job(&task).kind), ("goal of a", TaskKind::Work));
    let effects = step(&mut coordinator, result(&task, None));
    let outcome = outcome(&effects).unwrap();
    assert_eq!((outcome.status, outcome.answer.as_str()), (OutcomeStatus::Succeeded, "output of goal of a"));
    assert_eq!(outcome.tasks.total, 1);
}

#[test]
fn a_critic_that_is_down_is_noted_and_tools_fail_the_attempt() {
    let (mut coordinator, first) = planned(settings(), vec![spec(0, "a", &[]), spec(1, "b", &[])]);
    step(&mut coordinator, verdict(&first[0], unavailable()));
    let turn = TaskTurn {
        task_id: job(&first[1]).task_id.clone(),
        run: run(1),
        attempt: 1,
        step: 0,
        text: String::new(),
        calls: Vec::new(),
        report: report(1),
    };
    let synthesis = tasks(&step(&mut coordinator, envelope(&id("a"), 4, Body::TaskTurn(turn))));
    let failure = job(&synthesis[0]).dependencies[1].failure.clone().unwrap();
    assert_eq!(failure.code, "tools_unavailable");
    let effects = step(&mut coordinator, result(&synthesis[0], None));
    assert_eq!(outcome(&effects).unwrap().degraded, ["critic_unavailable:title a"]);
}

#[test]
fn the_terms_of_a_task_reach_the_worker_and_it_knows_the_last_attempt() {
    let terms = TaskTerms {
        items: Some(IndexRange { from: 2, to: 4 }),
        timeout_ms: Some(5_000),
        fallback: Some(Fallback { text: "later".into(), with_results: false }),
        ..TaskTerms::default()
    };
    let task = TaskSpec { terms: terms.clone(), ..spec(0, "a", &[]) };
    let limits = CoordinatorSettings { max_attempts: 2, ..settings() };
    let (mut coordinator, first) = planned(limits, vec![task]);
    assert_eq!((&job(&first[0]).terms, job(&first[0]).last_attempt), (&terms, false));
    let second = tasks(&step(&mut coordinator, verdict(&first[0], scored(0.1))));
    assert_eq!((&job(&second[0]).terms, job(&second[0]).last_attempt), (&terms, true));
}

#[test]
fn an_unknown_agent_is_replaced() {
    let task = TaskSpec { agent: "wizard".into(), ..spec(0, "a", &[]) };
    let (coordinator, first) = planned(settings(), vec![task]);
    assert_eq!(job(&first[0]).agent, "worker");
    assert!(format!("{:?}", coordinator.entities()).contains("unknown_agent:wizard"));
}

#[test]
fn runaways_and_refused_effects_end_what_they_belong_to() {
    let (mut coordinator, first) = planned(settings(), vec![spec(0, "a", &[])]);
    let refused = |envelope: &Envelope, task: bool| Event::EffectRefused {
        envelope_id: envelope.id.clone(),
        intent_id: envelope.intent_id.clone(),
        task_id: task.then(|| job(envelope).task_id.clone()),
        reason: "record too large".into(),
    };
    let effects = coordinator.step(START, refused(&first[0], true));
    let failed = outcome(&effects).unwrap();
    assert_eq!((failed.status, failed.tasks.failed), (OutcomeStatus::Failed, 1));
    let sent_outcome = sent(&effects).find(|e| matches!(e.body, Body::Outcome(_))).unwrap().clone();
    // The outcome itself is refused: a smaller one takes its place, once.
    let effects = coordinator.step(START, refused(&sent_outcome, false));
    let replacement = sent(&effects).next().unwrap().clone();
    assert!(replacement.id != sent_outcome.id && replacement.id != EnvelopeId::from_string(""));
    assert!(coordinator.step(START, refused(&replacement, false)).is_empty());

    let (mut coordinator, first) = planned(settings(), vec![spec(0, "a", &[])]);
    let mut runaway = verdict(&first[0], scored(0.9));
    runaway.hop = 1_001;
    let effects = step(&mut coordinator, runaway);
    assert_eq!(kinds(&effects), ["Cancel", "Outcome"]);
    assert_eq!(outcome(&effects).unwrap().reason, "more than 1000 messages in a row");
}

#[test]
fn a_big_intent_does_not_starve_a_small_one() {
    let settings = CoordinatorSettings { min_window: 10, ..settings() };
    let big = (0..100).map(|at| spec(at, &format!("t{at}"), &[])).collect();
    let (mut coordinator, mut running) = planned(settings, big);
    assert_eq!(running.len(), 10, "the window");
    coordinator.step(START, received(3, intent("small", "single", 5)));
    let mut ended = 0;
    while coordinator.counters().outcomes.is_empty() {
        let task = running.remove(0);
        let reply = if job(&task).title.starts_with("title") {
            verdict(&task, scored(1.0))
        } else {
            result(&task, None)
        };
        running.extend(tasks(&step(&mut coordinator, reply)));
        assert!(coordinator.load().outstanding <= 10);
        ended += 1;
    }
    assert!(ended <= 10 + 6 + 1, "the window, then one turn of the big one: {ended}");
}

#[test]
fn windows_follow_the_fleet_and_tasks_spread_over_members() {
    let members = (0..50).map(|at| WorkerMember {
        process: format!("w{at:02}"),
        pool: None,
        slots: 2,
        partitions: vec![at, at + 50],
    });
    let view = FleetView { workers: members.collect(), active_coordinators: 3 };
    let mut coordinator = Coordinator::new(std::sync::Arc::new(settings()), 0, 100);
    coordinator.step(START, Event::Fleet(view));
    coordinator.step(START, received(1, intent("a", "llm", 5)));
    let specs = (0..100).map(|at| spec(at, &format!("t{at}"), &[])).collect();
    let effects = coordinator.step(START, received(2, fragment("a", 1, &run(1), 0, specs, plan_end())));
    assert_eq!(tasks(&effects).len(), 100, "3 x 100 slots / 3 coordinators");
    let mut per_member: HashMap<i32, usize> = HashMap::new();
    for effect in &effects {
        if let Effect::Send { to: Destination::Worker { partition, .. }, .. } = effect {
            *per_member.entry(partition % 50).or_default() += 1;
        }
    }
    assert_eq!((per_member.len(), per_member.values().max()), (50, Some(&2)));
}

#[test]
fn the_parent_is_the_trigger_and_the_others_are_linked() {
    let specs = vec![spec(0, "a", &[]), spec(1, "b", &[])];
    let (mut coordinator, first) = planned(settings(), specs);
    coordinator.step(START, received(71, verdict(&first[0], scored(0.9))));
    let effects = coordinator.step(START, received(72, verdict(&first[1], scored(0.9))));
    let Some(Effect::Send { trace: parent, links, .. }) = effects.first() else { panic!("{effects:?}") };
    assert_eq!((parent, links), (&trace(72), &vec![trace(71)]));
}

#[test]
fn watchers_are_told_at_once_and_then_together_after_a_while() {
    let notices = |effects: &[Effect]| -> Vec<usize> {
        let progress = effects.iter().filter_map(|effect| match effect {
            Effect::Notify { envelope } => match &envelope.body {
                Body::Progress(progress) => Some(progress.changed.len()),
                _ => None,
            },
            _ => None,
        });
        progress.collect()
    };
    let plan = vec![spec(0, "a", &[]), spec(1, "b", &[]), spec(2, "c", &[])];
    let (mut coordinator, running) = planned(settings(), plan);
    let told = coordinator.now();
    for task in &running[..2] {
        let effects = step(&mut coordinator, verdict(task, scored(1.0)));
        assert_eq!(notices(&effects), [0; 0], "too soon");
    }
    let due = coordinator.next_report().unwrap();
    assert_eq!(due.since(told), settings().progress_interval);
    assert_eq!(notices(&coordinator.step(due, Event::Tick)), [2]);
    assert_eq!(coordinator.next_report(), None);
}

#[test]
fn a_small_fleet_gets_no_more_than_it_can_run_soon() {
    // Alone, or one of two that do not know what the other one sends: half of three times the slots, and some more.
    for (active_coordinators, outstanding) in [(1, 12), (2, 11)] {
        let settings = CoordinatorSettings { min_window: 64, window_factor: 3.0, ..settings() };
        let plan = (0..50).map(|at| spec(at, &format!("t{at}"), &[])).collect();
        let mut coordinator = coordinator(settings);
        let member = WorkerMember { process: "w".into(), pool: None, slots: 4, partitions: vec![0, 1] };
        coordinator.step(START, Event::Fleet(FleetView { workers: vec![member], active_coordinators }));
        coordinator.step(START, received(1, intent("a", "llm", 5)));
        coordinator.step(START, received(2, fragment("a", 1, &run(1), 0, plan, plan_end())));
        assert_eq!(coordinator.load().outstanding, outstanding);
    }
}

/// Five tasks whose results have 25 tokens each, and prompts with room for `texts_tokens`.
fn five_results(texts_tokens: i64) -> (Coordinator, Vec<Effect>) {
    let mut settings = settings();
    settings.costs.texts_tokens = texts_tokens;
    let specs = (0..5).map(|n| TaskSpec { critic: n == 0, ..spec(n, &format!("k{n}"), &[]) }).collect();
    let (mut coordinator, first) = planned(settings, specs);
    let mut effects = Vec::new();
    for task in &first {
        let reply = if job(task).next_tag.to_string().starts_with("role:critic") {
            verdict(task, scored(0.9))
        } else {
            result(task, None)
        };
        effects = step(&mut coordinator, reply);
    }
    (coordinator, effects)
}

#[test]
fn results_that_outgrow_the_prompt_are_condensed_level_by_level() {
    // 60 tokens less those of the goal and the instruction: two results.
    let (mut coordinator, effects) = five_results(90);
    let digests = tasks(&effects);
    let parts = |task: &Envelope| -> Vec<(String, i32)> {
        let on = job(task).dependencies.iter();
        on.map(|on| (on.title.replace("title ", ""), on.number)).collect()
    };
    let name = |n: i32| (format!("k{}", n - 1), n);
    assert_eq!(
        digests.iter().map(&parts).collect::<Vec<_>>(),
        [vec![name(1), name(2)], vec![name(3), name(4)]]
    );
    assert!(digests.iter().all(|task| job(task).kind == TaskKind::Reduce && job(task).agent == "reducer"));
    let judged = |task: &Envelope| job(task).next_tag.to_string().starts_with("role:critic");
    assert_eq!(digests.iter().map(judged).collect::<Vec<_>>(), [true, false], "as one of its results was");
    assert!(
        tasks(&step(&mut coordinator, verdict(&digests[0], scored(0.9)))).is_empty(),
        "one level after the other"
    );
    let answer = tasks(&step(&mut coordinator, result(&digests[1], None))).remove(0);
    assert_eq!(job(&answer).kind, TaskKind::Synthesis);
    let digest = |n: usize| ("Condense 2 results".to_owned(), i32::try_from(n).unwrap());
    assert_eq!(
        parts(&answer),
        [digest(0), digest(0), name(5)],
        "what is condensed bears its numbers in its text"
    );
    let mut last = result(&answer, None);
    if let Body::TaskResult(result) = &mut last.body {
        result.output = "The third [3], not the first [1] or the ninth [9].".into();
    }
    let effects = step(&mut coordinator, last);
    let outcome = outcome(&effects).unwrap();
    assert_eq!((outcome.status, outcome.tasks.total), (OutcomeStatus::Succeeded, 5));
    let cited: Vec<_> = outcome.task_reports.iter().map(|report| report.cited).collect();
    assert_eq!(cited, [true, false, true, false, false, false, false, false]);
    assert_eq!(outcome.degraded, ["unknown_citation:9"]);
}

#[test]
fn an_answer_is_made_of_shortened_results_where_they_cannot_be_condensed() {
    let note = ["results_shortened".to_owned()];
    let answered = |coordinator: &mut Coordinator, effects: &[Effect]| {
        let answer = tasks(effects).remove(0);
        assert_eq!(job(&answer).kind, TaskKind::Synthesis);
        let effects = step(coordinator, result(&answer, None));
        (job(&answer).dependencies.len(), outcome(&effects).unwrap().degraded.clone())
    };
    // No two of them fit into one prompt.
    let (mut coordinator, effects) = five_results(45);
    assert_eq!(answered(&mut coordinator, &effects), (5, note.to_vec()));

    // One of those that condense fails for good.
    let (mut coordinator, effects) = five_results(90);
    let digests = tasks(&effects);
    step(&mut coordinator, verdict(&digests[0], scored(0.9)));
    let effects = step(&mut coordinator, result(&digests[1], Some(failure(false))));
    assert_eq!(answered(&mut coordinator, &effects), (4, note.to_vec()));

    // All fit.
    let (mut coordinator, effects) = five_results(200);
    assert_eq!(answered(&mut coordinator, &effects), (5, vec![]));
}

#[test]
fn an_intent_that_takes_too_long_takes_results_as_they_come() {
    let mut coordinator = coordinator(settings());
    let limits = Limits { degrade_after_ms: Some(25), ..Limits::default() };
    coordinator.step(START, received(1, intent_within("a", "llm", limits)));
    let specs = vec![spec(0, "a", &[]), spec(1, "b", &["a"]), spec(2, "c", &["b"])];
    let first = tasks(&coordinator.step(START, received(2, fragment("a", 1, &run(1), 0, specs, plan_end()))));
    let is_judged = |task: &Envelope| job(task).next_tag.role == starling_protocol::Role::Critic;

    // There is time: a poor result is tried again.
    let again = tasks(&step(&mut coordinator, verdict(&first[0], scored(0.1))));
    assert_eq!((job(&again[0]).attempt, is_judged(&again[0])), (2, true));
    let second = tasks(&step(&mut coordinator, verdict(&again[0], scored(0.9))));
    assert!(is_judged(&second[0]), "20 ms have passed");

    // There is none any more: a poor result stays, and nobody is asked about the next one.
    let third = tasks(&step(&mut coordinator, verdict(&second[0], scored(0.1))));
    assert_eq!((job(&third[0]).title.as_str(), is_judged(&third[0])), ("title c", false));
    let last = tasks(&step(&mut coordinator, result(&third[0], None)));
    let effects = step(&mut coordinator, result(&last[0], None));
    let outcome = outcome(&effects).unwrap();
    assert_eq!(outcome.status, OutcomeStatus::Succeeded);
    assert_eq!(outcome.degraded, ["low_score:title b", "critics_skipped"]);
}
