//! What an intent may take, and what becomes of it when that is gone.

use crate::builders::*;
use crate::invariants::i49_budgets_are_kept;
use starling_engine::coordinator::{AgentCost, Coordinator, CoordinatorSettings, Event};
use starling_protocol::state::{Entity, RunEntity};
use starling_protocol::{
    Allowance, Body, CallReport, Envelope, Failure, Judgement, Limits, Outcome, OutcomeStatus, PartRange,
    PlanEnd, PlanRequest, TaskKind, TaskSpec, TaskState, Timestamp, Unavailable, Usage,
};
use std::collections::VecDeque;
use std::time::Duration;

/// US dollars for a token received.
const PRICE: f64 = 0.001;
/// What a call that succeeds takes.
const CALL: Usage = Usage { prompt_tokens: 300, completion_tokens: 700, cached_tokens: 0 };

/// Services that honour their allowances, and a model that counts what is asked of it.
struct Swarm {
    coordinator: Coordinator,
    now: Timestamp,
    offset: i64,
    on_the_way: VecDeque<Envelope>,
    plan: Vec<TaskSpec>,
    /// Of ten calls, so many fail.
    failing: i64,
    calls: i64,
    usage: Usage,
    cost_usd: f64,
    /// Most tasks at once.
    most_running: usize,
    allowances: Vec<Allowance>,
    outcome: Option<Outcome>,
}

impl Swarm {
    fn new(limits: Limits, tasks: usize, failing: i64) -> Self {
        let plan = (0..tasks).map(|at| spec(i32::try_from(at).unwrap(), &format!("k{at}"), &[])).collect();
        Self {
            coordinator: coordinator(CoordinatorSettings { min_window: 1_000, ..priced() }),
            now: START,
            offset: 0,
            on_the_way: VecDeque::from([intent_within("a", "llm", limits)]),
            plan,
            failing,
            calls: 0,
            usage: Usage::default(),
            cost_usd: 0.0,
            most_running: 0,
            allowances: Vec::new(),
            outcome: None,
        }
    }

    fn run(mut self) -> Self {
        for _ in 0..10_000 {
            if self.outcome.is_some() {
                return self;
            }
            let effects = match self.on_the_way.pop_front() {
                Some(envelope) => {
                    self.offset += 1;
                    self.coordinator.step(self.now, received(self.offset, envelope))
                }
                None => {
                    self.now = self
                        .coordinator
                        .next_timer()
                        .expect("nothing is under way, and no timer runs")
                        .max(self.now);
                    self.coordinator.step(self.now, Event::Tick)
                }
            };
            i49_budgets_are_kept(&self.coordinator);
            self.most_running = self.most_running.max(self.coordinator.load().outstanding);
            self.outcome = outcome(&effects).cloned();
            for envelope in sent(&effects).cloned().collect::<Vec<_>>() {
                match &envelope.body {
                    Body::PlanRequest(request) => self.make_plan(&envelope, request),
                    Body::Task(_) => self.work(&envelope),
                    _ => {}
                }
            }
        }
        panic!("it never ends: {:#?}", self.coordinator.entities());
    }

    /// One question: tries as far as the allowance goes, four at most.
    fn ask(&mut self, allowance: Option<Allowance>, reply: i64) -> (Option<Failure>, CallReport) {
        let mut report = CallReport { model: "m".into(), ..CallReport::default() };
        let allowance = allowance.expect("every step has an allowance");
        self.allowances.push(allowance);
        for _ in 0..4 {
            let taken = report.usage.prompt_tokens + report.usage.completion_tokens;
            let fits = report.calls < allowance.calls
                && allowance.tokens.is_none_or(|most| taken + 300 + reply <= most)
                && allowance
                    .cost_usd
                    .is_none_or(|most| report.cost_usd + reply as f64 * PRICE <= most + 1e-9);
            if !fits {
                break;
            }
            self.calls += 1;
            report.calls += 1;
            if self.calls * 7 % 10 >= self.failing {
                self.usage.prompt_tokens += CALL.prompt_tokens;
                self.usage.completion_tokens += CALL.completion_tokens;
                report.usage.prompt_tokens += CALL.prompt_tokens;
                report.usage.completion_tokens += CALL.completion_tokens;
                report.cost_usd += CALL.completion_tokens as f64 * PRICE;
                self.cost_usd += CALL.completion_tokens as f64 * PRICE;
                return (None, report);
            }
        }
        assert!(report.calls > 0, "an allowance covers the first call: {allowance:?}");
        (Some(Failure { code: "over_allowance".into(), message: "no more".into(), retryable: true }), report)
    }

    fn make_plan(&mut self, envelope: &Envelope, request: &PlanRequest) {
        let (failure, report) = self.ask(request.allowance, 8_000);
        let tasks = if failure.is_some() { Vec::new() } else { self.plan.clone() };
        let end = PlanEnd { report, failure, answer: None };
        let run = run(u128::from(request.plan_attempt.unsigned_abs()));
        let fragment = fragment(envelope.intent_id.as_str(), request.plan_attempt, &run, 0, tasks, Some(end));
        self.on_the_way.push_back(fragment);
    }

    fn work(&mut self, task: &Envelope) {
        let reply = if job(task).kind == TaskKind::Synthesis { 8_000 } else { 4_000 };
        let (failure, work) = self.ask(job(task).allowance, reply);
        if failure.is_some() || job(task).next_tag.role != starling_protocol::Role::Critic {
            let mut envelope = result(task, failure);
            if let Body::TaskResult(result) = &mut envelope.body {
                result.report = work;
            }
            return self.on_the_way.push_back(envelope);
        }
        let (judgement, report) = match self.ask(job(task).critic_allowance, 800) {
            (None, report) => (scored(0.9), report),
            (Some(failure), report) => (Judgement::Unavailable(Unavailable { reason: failure.code }), report),
        };
        let mut envelope = verdict(task, judgement);
        if let Body::Verdict(verdict) = &mut envelope.body {
            (verdict.work, verdict.report) = (work, report);
        }
        self.on_the_way.push_back(envelope);
    }

    fn ended(&self) -> &Outcome {
        self.outcome.as_ref().unwrap()
    }
}

fn calls(most: i64) -> Limits {
    Limits { max_calls: Some(most), ..Limits::default() }
}

fn tokens(most: i64) -> Limits {
    Limits { max_tokens: Some(most), ..Limits::default() }
}

fn money(most: f64) -> Limits {
    Limits { max_cost_usd: Some(most), ..Limits::default() }
}

#[test]
fn a_hundred_tasks_at_once_stay_within_what_half_of_them_would_take() {
    for limits in [calls(50), tokens(100_000), money(75.0)] {
        for failing in [0, 3] {
            let swarm = Swarm::new(limits.clone(), 100, failing).run();
            let outcome = swarm.ended();
            let name = format!("{limits:?}, {failing} of ten calls fail: {outcome:#?}");
            assert_eq!(outcome.status, OutcomeStatus::OverBudget, "{name}");
            assert!(!outcome.answer.is_empty(), "{name}");
            assert!(outcome.reason.starts_with("the budget of"), "{name}");
            assert!(outcome.degraded.iter().any(|note| note.starts_with("over_budget:")), "{name}");
            let spent = (swarm.calls, swarm.usage, swarm.cost_usd);
            assert_eq!(
                (outcome.calls, outcome.usage),
                (spent.0, spent.1),
                "what is reported is what was asked: {name}"
            );
            assert!(limits.max_calls.is_none_or(|most| spent.0 <= most), "{name}");
            let used = spent.1.prompt_tokens + spent.1.completion_tokens;
            assert!(limits.max_tokens.is_none_or(|most| used <= most), "{name}");
            assert!(limits.max_cost_usd.is_none_or(|most| spent.2 <= most), "{name}");
            let enough = if failing == 0 { 15 } else { 8 };
            assert!(outcome.tasks.succeeded >= enough, "{} succeeded, {name}", outcome.tasks.succeeded);
        }
    }
}

#[test]
fn a_scarce_budget_runs_as_much_at_once_as_it_covers_and_an_ample_one_tries_again() {
    let scarce = Swarm::new(calls(50), 100, 0).run();
    assert_eq!(scarce.most_running, 22, "(50 - 1 for the plan - 4 kept for the answer) / 2");
    let tries =
        |swarm: &Swarm| swarm.allowances.iter().skip(1).map(|allowance| allowance.calls).collect::<Vec<_>>();
    let (answer, work) = tries(&scarce).split_last().map(|(last, rest)| (*last, rest.to_vec())).unwrap();
    assert!(work.iter().all(|calls| *calls == 1) && answer >= 4, "{work:?}, {answer}");

    let ample = Swarm::new(calls(1_000), 100, 3).run();
    assert_eq!(ample.ended().status, OutcomeStatus::Succeeded);
    assert_eq!(ample.most_running, 100);
    assert!(tries(&ample).iter().all(|calls| *calls == 4), "{:?}", tries(&ample));
}

#[test]
fn without_a_budget_nothing_is_reserved_and_nothing_allowed() {
    let mut coordinator = coordinator(priced());
    let effects = coordinator.step(START, received(1, intent("a", "llm", 5)));
    let effects = [effects, coordinator.step(START, received(2, plan(2)))].concat();
    for envelope in sent(&effects) {
        match &envelope.body {
            Body::PlanRequest(request) => assert_eq!(request.allowance, None),
            Body::Task(task) => assert_eq!((task.allowance, task.critic_allowance), (None, None)),
            _ => {}
        }
    }
    assert_eq!((run_of(&coordinator).plan_reserved, run_of(&coordinator).written_off), (None, None));
}

#[test]
fn what_a_budget_cannot_cover_is_told_before_anything_is_spent() {
    let unpriced = || {
        let mut settings = priced();
        settings.costs.critic = AgentCost { model: "judge-1".into(), ..AgentCost::default() };
        settings
    };
    let table: [(CoordinatorSettings, &str, Limits, OutcomeStatus, &str); 10] = [
        (
            priced(),
            "llm",
            calls(3),
            OutcomeStatus::OverBudget,
            "the budget of 3 calls does not cover a plan, a task and an answer",
        ),
        (
            priced(),
            "llm",
            tokens(20_000),
            OutcomeStatus::OverBudget,
            "the budget of 20000 tokens does not cover",
        ),
        (priced(), "llm", money(10.0), OutcomeStatus::OverBudget, "they take up to 4 calls, "),
        (priced(), "single", money(1.0), OutcomeStatus::OverBudget, "does not cover one task"),
        (priced(), "llm", calls(0), OutcomeStatus::Rejected, "limits.max_calls is 0"),
        (priced(), "llm", tokens(-1), OutcomeStatus::Rejected, "limits.max_tokens is -1"),
        (priced(), "llm", money(f64::NAN), OutcomeStatus::Rejected, "limits.max_cost_usd is NaN"),
        (priced(), "llm", money(f64::INFINITY), OutcomeStatus::Rejected, "limits.max_cost_usd is inf"),
        (unpriced(), "llm", money(90.0), OutcomeStatus::Rejected, "model.prices has no price for judge-1"),
        (
            CoordinatorSettings { max_calls: Some(2), ..priced() },
            "llm",
            Limits::default(),
            OutcomeStatus::OverBudget,
            "the budget of 2 calls",
        ),
    ];
    for (settings, strategy, limits, status, reason) in table {
        let mut coordinator = coordinator(settings);
        let effects = coordinator.step(START, received(1, intent_within("a", strategy, limits)));
        let ended = outcome(&effects).unwrap();
        assert_eq!(ended.status, status, "{ended:?}");
        assert!(ended.reason.contains(reason), "{}", ended.reason);
        assert_eq!(kinds(&effects), ["Outcome"]);
    }
    // What is not asked needs no price.
    let mut coordinator = coordinator(unpriced());
    let effects = coordinator.step(START, received(1, intent_within("a", "single", money(90.0))));
    assert_eq!(tasks(&effects).len(), 1);
}

#[test]
fn what_says_nothing_counts_in_full_until_it_does() {
    let mut coordinator = coordinator(priced());
    coordinator.step(START, received(1, intent_within("a", "llm", calls(9))));
    let first = tasks(&coordinator.step(START, received(2, plan(3))));
    assert_eq!(first.len(), 3, "1 is spent, 1 kept for the answer, 7 are for tasks of 2");
    // All three fall silent: everything counts as spent.
    let late = START.plus(Duration::from_secs(303));
    let effects = coordinator.step(late, Event::Tick);
    assert_eq!(run_of(&coordinator).unsettled.len(), 3);
    assert!(outcome(&effects).is_none(), "they wait to be tried again");
    let effects = coordinator.step(late.plus(Duration::from_secs(1)), Event::Tick);
    let ended = outcome(&effects).expect("nothing is left for a second attempt");
    assert_eq!((ended.status, ended.answer.as_str()), (OutcomeStatus::OverBudget, ""));
    assert_eq!(ended.calls, 1, "reports are of what was said");
}

#[test]
fn a_late_report_gives_back_what_was_not_spent() {
    let mut coordinator = coordinator(priced());
    coordinator.step(START, received(1, intent_within("a", "llm", calls(9))));
    let first = tasks(&coordinator.step(START, received(2, plan(3))));
    let late = START.plus(Duration::from_secs(303));
    coordinator.step(late, Event::Tick);
    // One says after all that its call failed: its critic was not asked.
    let failed = result(&first[1], Some(failure(true)));
    coordinator.step(late, received(3, failed.clone()));
    let run = run_of(&coordinator);
    assert_eq!((run.unsettled.len(), run.calls), (2, 2));
    coordinator.step(late, received(4, failed));
    assert_eq!(run_of(&coordinator).calls, 2, "once");
    i49_budgets_are_kept(&coordinator);
    // 2 spent, 4 given up, 1 kept: 2 are left for one more attempt.
    let again = tasks(&coordinator.step(late.plus(Duration::from_secs(1)), Event::Tick));
    assert_eq!(again.len(), 1);
}

#[test]
fn results_that_were_to_become_better_are_kept_when_the_budget_is_gone() {
    let mut coordinator = coordinator(priced());
    coordinator.step(START, received(1, intent_within("a", "llm", calls(7))));
    let first = tasks(&coordinator.step(START, received(2, plan(4))));
    assert_eq!(first.len(), 2);
    coordinator.step(START, received(3, verdict(&first[0], scored(0.5))));
    let effects = coordinator.step(START, received(4, verdict(&first[1], scored(0.1))));
    let answer = tasks(&effects);
    assert_eq!(answer.len(), 1, "{effects:#?}");
    assert_eq!(job(&answer[0]).kind, TaskKind::Synthesis);
    let results = job(&answer[0]).dependencies.iter().filter(|on| on.result.is_some()).count();
    assert_eq!(results, 2);
    let effects = coordinator.step(START, received(5, result(&answer[0], None)));
    let ended = outcome(&effects).unwrap();
    assert_eq!(ended.status, OutcomeStatus::OverBudget);
    assert_eq!(ended.reason, "the budget of 7 calls was used up: 2 of 4 tasks were left out");
    let states: Vec<TaskState> = ended.task_reports.iter().map(|report| report.status).collect();
    use TaskState::{Skipped, Succeeded};
    assert_eq!(states, [Succeeded, Succeeded, Skipped, Skipped, Succeeded]);
    assert_eq!(ended.degraded.len(), 4, "{:?}", ended.degraded);
}

#[test]
fn a_plan_that_falls_silent_counts_in_full() {
    let mut coordinator = coordinator(priced());
    coordinator.step(START, received(1, intent_within("a", "llm", calls(5))));
    let late = START.plus(Duration::from_secs(121));
    let effects = coordinator.step(late, Event::Tick);
    assert_eq!(kinds(&effects), ["PlanRequest"], "5 - 1 - 1 for the answer");
    let effects = coordinator.step(late.plus(Duration::from_secs(121)), Event::Tick);
    assert_eq!(kinds(&effects), ["PlanRequest"]);
    let later = late.plus(Duration::from_secs(122));
    let tasks = tasks(
        &coordinator.step(later, received(3, fragment("a", 3, &run(3), 0, vec![spec(0, "a", &[])], None))),
    );
    assert!(tasks.is_empty(), "3 plans and the answer leave 1 of the 2 that a task with its critic takes");
    // The plan ends, and nothing is open that could bring something back.
    let effects = coordinator.step(later, received(4, fragment("a", 3, &run(3), 1, vec![], plan_end())));
    let ended = outcome(&effects).unwrap();
    assert_eq!((ended.status, ended.tasks.succeeded), (OutcomeStatus::OverBudget, 0));
}

#[test]
fn a_plan_of_which_nobody_says_how_long_it_was_counts_in_full() {
    let mut coordinator = coordinator(priced());
    coordinator.step(START, received(1, intent_within("a", "llm", tokens(60_000))));
    let reserved = run_of(&coordinator).plan_reserved.unwrap().tokens;
    let unread = CallReport { calls: 1, unpriced_calls: 1, ..CallReport::default() };
    let refused = Failure { code: "invalid_plan".into(), ..failure(true) };
    let end = PlanEnd { report: unread, failure: Some(refused), answer: None };
    let effects = coordinator.step(START, received(2, fragment("a", 1, &run(1), 0, vec![], Some(end))));
    assert_eq!(kinds(&effects), ["PlanRequest"]);
    let run = run_of(&coordinator);
    assert_eq!((run.calls, run.written_off.unwrap().tokens, run.unsettled.len()), (1, reserved, 0));
}

#[test]
fn a_task_that_is_the_answer_has_what_there_is() {
    let mut coordinator = coordinator(priced());
    let effects = coordinator.step(START, received(1, intent_within("a", "single", calls(3))));
    let task = tasks(&effects).remove(0);
    assert_eq!(job(&task).allowance, Some(Allowance { calls: 3, tokens: None, cost_usd: None }));
    let mut failed = result(&task, Some(failure(true)));
    if let Body::TaskResult(result) = &mut failed.body {
        result.report = report(3);
    }
    coordinator.step(START, received(2, failed));
    let effects = coordinator.step(START.plus(Duration::from_secs(1)), Event::Tick);
    let ended = outcome(&effects).unwrap();
    assert_eq!(ended.status, OutcomeStatus::OverBudget);
    assert_eq!(ended.reason, "the budget of 3 calls was used up before there was an answer: it broke");
}

#[test]
fn a_critic_that_cannot_work_counts_in_full() {
    let mut coordinator = coordinator(priced());
    coordinator.step(START, received(1, intent_within("a", "llm", calls(9))));
    let first = tasks(&coordinator.step(START, received(2, plan(1))));
    let allowed = job(&first[0]).critic_allowance.unwrap().calls;
    coordinator.step(START, received(3, result(&first[0], None)));
    let run = run_of(&coordinator);
    assert_eq!((run.calls, run.written_off.unwrap().calls), (2, allowed));
}

#[test]
fn what_a_plan_takes_is_told_before() {
    let costs = priced().costs;
    let tasks = [spec(0, "a", &[]), TaskSpec { critic: false, ..spec(1, "b", &["a"]) }];
    let expected = costs.expected("the goal", 0, &tasks, "worker");
    assert_eq!(expected.calls, 4, "a, its critic, b, the answer");
    assert!(expected.tokens > 4_000 + 800 + 4_000 + 8_000 && expected.tokens < 40_000, "{expected:?}");
    assert!(
        (expected.cost_usd - 16.8).abs() < 1e-9,
        "what is received costs $1 for a thousand: {expected:?}"
    );
    let alone = costs.expected("the goal", 1_000, &[], "worker");
    assert_eq!(alone.calls, 1);
    assert!(alone.tokens > 5_000 && alone.tokens < 5_600, "{alone:?}");

    let mut about_parts = spec(0, "a", &[]);
    about_parts.terms.parts = Some(PartRange { from: 3, to: 5, tokens: 500 });
    let of = |task: TaskSpec| costs.expected("the goal", 10_000, &[task], "worker").tokens;
    assert_eq!(of(spec(0, "a", &[])) - of(about_parts), 9_500, "it reads its parts and nothing else");
}

fn plan(tasks: i32) -> Envelope {
    let tasks = (0..tasks).map(|at| spec(at, &format!("k{at}"), &[])).collect();
    fragment("a", 1, &run(1), 0, tasks, plan_end())
}

fn run_of(coordinator: &Coordinator) -> RunEntity {
    let mut entities = coordinator.entities().into_iter();
    entities
        .find_map(|entity| match entity {
            Entity::Run(run) => Some(run),
            _ => None,
        })
        .unwrap()
}
