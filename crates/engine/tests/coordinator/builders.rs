//! Envelopes as the other services would send them.

use starling_engine::coordinator::{Coordinator, CoordinatorSettings, Effect, Event, TokenPrice};
use starling_protocol::{
    Body, CallReport, Cancel, Envelope, EnvelopeId, Failure, Intent, IntentId, Judgement, Limits, Outcome,
    PlanEnd, PlanFragment, RecordRef, Role, RunId, Scored, Tag, Task, TaskResult, TaskSpec, TaskTerms,
    Timestamp, Unavailable, Unparseable, Usage, Verdict,
};
use std::sync::Arc;

pub(crate) const START: Timestamp = Timestamp(1_000_000);

pub(crate) fn settings() -> CoordinatorSettings {
    CoordinatorSettings { coordinator_partitions: 1, ..CoordinatorSettings::default() }
}

/// With prices at which no report of [`report`] costs more than was reserved for it.
pub(crate) fn priced() -> CoordinatorSettings {
    let mut settings = settings();
    let price = Some(TokenPrice { input: 0.0, output: 1_000.0 });
    let costs = &mut settings.costs;
    for agent in [&mut costs.planner, &mut costs.critic, &mut costs.synthesizer]
        .into_iter()
        .chain(costs.workers.values_mut())
    {
        agent.price = price;
    }
    settings
}

pub(crate) fn coordinator(settings: CoordinatorSettings) -> Coordinator {
    Coordinator::new(Arc::new(settings), 0, 8)
}

pub(crate) fn id(name: &str) -> IntentId {
    IntentId::from_string(name)
}

pub(crate) fn trace(span: u64) -> String {
    format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{span:016x}-01")
}

pub(crate) fn record(offset: i64, envelope: &Envelope) -> RecordRef {
    RecordRef {
        topic: "starling.coordinator".into(),
        partition: 0,
        offset,
        envelope_id: envelope.id.clone(),
        bytes: 100,
        tokens: 25,
        digest: String::new(),
    }
}

pub(crate) fn envelope(intent: &IntentId, hop: i32, body: Body) -> Envelope {
    Envelope {
        id: EnvelopeId::derive(body.kind(), &[intent.as_str(), &hop.to_string()]),
        intent_id: intent.clone(),
        tag: Tag::role(Role::Coordinator),
        hop,
        created_at: START,
        deadline: Timestamp::MAX,
        tenant: "acme".into(),
        body,
    }
}

pub(crate) fn intent(name: &str, strategy: &str, priority: i32) -> Envelope {
    let body =
        Intent { goal: format!("goal of {name}"), strategy: strategy.into(), priority, ..Intent::default() };
    envelope(&id(name), 0, Body::Intent(body))
}

pub(crate) fn intent_within(name: &str, strategy: &str, limits: Limits) -> Envelope {
    let mut envelope = intent(name, strategy, 5);
    if let Body::Intent(intent) = &mut envelope.body {
        intent.limits = limits;
    }
    envelope
}

pub(crate) fn cancel(name: &str) -> Envelope {
    envelope(&id(name), 0, Body::Cancel(Cancel { reason: "no longer needed".into() }))
}

pub(crate) fn received(offset: i64, envelope: Envelope) -> Event {
    let at = record(offset, &envelope);
    Event::Received { at, envelope, trace: trace(offset.unsigned_abs()) }
}

pub(crate) fn spec(ordinal: i32, key: &str, depends_on: &[&str]) -> TaskSpec {
    TaskSpec {
        ordinal,
        key: key.into(),
        title: format!("title {key}"),
        instruction: format!("do {key}"),
        agent: "worker".into(),
        depends_on: depends_on.iter().map(|&key| key.into()).collect(),
        critic: true,
        terms: TaskTerms::default(),
    }
}

pub(crate) fn run(number: u128) -> RunId {
    RunId::from_random(number)
}

pub(crate) fn report(calls: i64) -> CallReport {
    CallReport {
        model: "m".into(),
        offline: false,
        calls,
        usage: Usage { prompt_tokens: 10 * calls, completion_tokens: calls, cached_tokens: 4 * calls },
        cost_usd: 0.5,
        latency_ms: 20,
        unpriced_calls: 0,
        cached_calls: calls,
        cached_prompt_tokens: 2 * calls,
    }
}

pub(crate) fn plan_end() -> Option<PlanEnd> {
    Some(PlanEnd { report: report(1), failure: None, answer: None })
}

pub(crate) fn fragment(
    name: &str,
    plan_attempt: i32,
    run: &RunId,
    seq: i32,
    tasks: Vec<TaskSpec>,
    end: Option<PlanEnd>,
) -> Envelope {
    let body = PlanFragment { plan_attempt, run: run.clone(), seq, tasks, end };
    envelope(&id(name), 2, Body::PlanFragment(body))
}

pub(crate) fn failure(retryable: bool) -> Failure {
    Failure { code: "model_error".into(), message: "it broke".into(), retryable }
}

pub(crate) fn scored(score: f64) -> Judgement {
    Judgement::Scored(Scored { score, feedback: format!("better than {score}") })
}

pub(crate) fn unparseable() -> Judgement {
    Judgement::Unparseable(Unparseable { excerpt: "?".into() })
}

pub(crate) fn unavailable() -> Judgement {
    Judgement::Unavailable(Unavailable { reason: "down".into() })
}

/// What a worker makes of a task.
pub(crate) fn result(task: &Envelope, failure: Option<Failure>) -> Envelope {
    let job = job(task);
    let output = if failure.is_some() { String::new() } else { format!("output of {}", job.title) };
    let body = TaskResult {
        task_id: job.task_id.clone(),
        run: job.run.clone(),
        kind: job.kind,
        attempt: job.attempt,
        step: job.step,
        title: job.title.clone(),
        agent: job.agent.clone(),
        goal: job.goal.clone(),
        instruction: job.instruction.clone(),
        min_score: job.min_score,
        output,
        failure,
        report: report(1),
        worker: "w1".into(),
        critic_allowance: job.critic_allowance,
        rule_based: false,
        sources: 0,
    };
    envelope(&task.intent_id, task.hop + 1, Body::TaskResult(body))
}

/// What a critic makes of a good result of a task.
pub(crate) fn verdict(task: &Envelope, judgement: Judgement) -> Envelope {
    let job = job(task);
    let mut result = record(i64::from(job.attempt), task);
    result.topic = "starling.critic".into();
    let body = Verdict {
        task_id: job.task_id.clone(),
        run: job.run.clone(),
        attempt: job.attempt,
        step: job.step,
        judgement,
        result,
        work: report(1),
        worker: "w1".into(),
        report: report(1),
    };
    envelope(&task.intent_id, task.hop + 2, Body::Verdict(body))
}

pub(crate) fn job(task: &Envelope) -> &Task {
    match &task.body {
        Body::Task(task) => task,
        other => panic!("{} is no task", other.kind()),
    }
}

/// The tasks among effects.
pub(crate) fn tasks(effects: &[Effect]) -> Vec<Envelope> {
    sent(effects).filter(|e| matches!(e.body, Body::Task(_))).cloned().collect()
}

pub(crate) fn titles(effects: &[Effect]) -> Vec<String> {
    tasks(effects).iter().map(|task| job(task).title.replace("title ", "")).collect()
}

pub(crate) fn outcome(effects: &[Effect]) -> Option<&Outcome> {
    sent(effects).find_map(|envelope| match &envelope.body {
        Body::Outcome(outcome) => Some(outcome),
        _ => None,
    })
}

/// Kinds of what is sent and of dead letters, in order.
pub(crate) fn kinds(effects: &[Effect]) -> Vec<&'static str> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Send { envelope, .. } => Some(envelope.body.kind()),
            Effect::DeadLetter { .. } => Some("dead letter"),
            Effect::Notify { .. } => None,
        })
        .collect()
}

pub(crate) fn sent(effects: &[Effect]) -> impl Iterator<Item = &Envelope> {
    effects.iter().filter_map(|effect| match effect {
        Effect::Send { envelope, .. } => Some(envelope),
        _ => None,
    })
}
