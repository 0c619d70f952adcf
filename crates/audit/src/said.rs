//! What a record says, as far as its account needs it.

use starling_protocol::{Body, EnvelopeId, OutcomeStatus, RecordRef, RunId, TaskId, TaskKind, Timestamp};

/// Names one step of one attempt of a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StepName {
    pub(crate) task: TaskId,
    pub(crate) attempt: i32,
    pub(crate) step: i32,
}

impl StepName {
    fn new(task: &TaskId, attempt: i32, step: i32) -> Self {
        Self { task: task.clone(), attempt, step }
    }
}

/// A body, condensed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// What a user published.
    Published,
    Intent,
    Rejection,
    Cancel,
    PlanRequest {
        attempt: i32,
    },
    Fragment {
        attempt: i32,
        run: RunId,
        seq: i32,
        ordinals: Vec<i32>,
        ends: bool,
        calls: i64,
    },
    Task {
        name: StepName,
        run: RunId,
        kind: TaskKind,
        title: String,
    },
    Result {
        name: StepName,
        run: RunId,
        title: String,
        worker: String,
        failure: Option<String>,
        calls: i64,
    },
    Turn {
        name: StepName,
        run: RunId,
        calls: i64,
    },
    Verdict {
        name: StepName,
        run: RunId,
        result: RecordRef,
        worker: String,
        work_calls: i64,
        calls: i64,
    },
    Progress,
    Outcome {
        status: OutcomeStatus,
        calls: i64,
        refused: Vec<TaskId>,
        plan_refused: bool,
    },
    /// A kind that nobody is sent.
    Other(&'static str),
    /// A dead letter; what it was is said by the record that it comes from.
    Letter {
        reason: String,
    },
    /// No envelope, or none that this version can read.
    Unreadable {
        why: String,
        newer: bool,
    },
}

impl Said {
    pub(crate) fn of(body: &Body) -> Self {
        match body {
            Body::Intent(_) => Said::Intent,
            Body::Rejection(_) => Said::Rejection,
            Body::Cancel(_) => Said::Cancel,
            Body::PlanRequest(request) => Said::PlanRequest { attempt: request.plan_attempt },
            Body::PlanFragment(fragment) => Said::Fragment {
                attempt: fragment.plan_attempt,
                run: fragment.run.clone(),
                seq: fragment.seq,
                ordinals: fragment.tasks.iter().map(|task| task.ordinal).collect(),
                ends: fragment.end.is_some(),
                calls: fragment.end.as_ref().map_or(0, |end| end.report.calls),
            },
            Body::Task(task) => Said::Task {
                name: StepName::new(&task.task_id, task.attempt, task.step),
                run: task.run.clone(),
                kind: task.kind,
                title: excerpt(&task.title),
            },
            Body::TaskResult(result) => Said::Result {
                name: StepName::new(&result.task_id, result.attempt, result.step),
                run: result.run.clone(),
                title: excerpt(&result.title),
                worker: result.worker.clone(),
                failure: result.failure.as_ref().map(|failure| failure.code.clone()),
                calls: result.report.calls,
            },
            Body::TaskTurn(turn) => Said::Turn {
                name: StepName::new(&turn.task_id, turn.attempt, turn.step),
                run: turn.run.clone(),
                calls: turn.report.calls,
            },
            Body::Verdict(verdict) => Said::Verdict {
                name: StepName::new(&verdict.task_id, verdict.attempt, verdict.step),
                run: verdict.run.clone(),
                result: verdict.result.clone(),
                worker: verdict.worker.clone(),
                work_calls: verdict.work.calls,
                calls: verdict.report.calls,
            },
            Body::Progress(_) => Said::Progress,
            Body::Outcome(outcome) => Said::Outcome {
                status: outcome.status,
                calls: outcome.calls,
                refused: (outcome.task_reports.iter())
                    .filter(|report| report.error.starts_with("undeliverable"))
                    .map(|report| report.task_id.clone())
                    .collect(),
                plan_refused: outcome.reason.starts_with("the plan could not be asked for"),
            },
            Body::ToolRequest(_)
            | Body::ToolReply(_)
            | Body::LeaseRequest(_)
            | Body::LeaseGrant(_)
            | Body::Content(_) => Said::Other(body.kind()),
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Said::Published => "Published",
            Said::Intent => "Intent",
            Said::Rejection => "Rejection",
            Said::Cancel => "Cancel",
            Said::PlanRequest { .. } => "PlanRequest",
            Said::Fragment { .. } => "PlanFragment",
            Said::Task { .. } => "Task",
            Said::Result { .. } => "TaskResult",
            Said::Turn { .. } => "TaskTurn",
            Said::Verdict { .. } => "Verdict",
            Said::Progress => "Progress",
            Said::Outcome { .. } => "Outcome",
            Said::Other(kind) => kind,
            Said::Letter { .. } => "DeadLetter",
            Said::Unreadable { .. } => "unreadable",
        }
    }

    /// What it is about, in a few words.
    pub(crate) fn about(&self) -> String {
        let step = |name: &StepName| match name.step {
            0 => format!("attempt {}", name.attempt),
            step => format!("attempt {}, step {step}", name.attempt),
        };
        let short = |run: &RunId| run.as_str().chars().take(8).collect::<String>();
        match self {
            Said::PlanRequest { attempt } => format!("plan {attempt}"),
            Said::Fragment { attempt, run, seq, ordinals, ends, .. } => {
                let end = if *ends { ", the end" } else { "" };
                format!("plan {attempt}, run {}, part {seq}, {} tasks{end}", short(run), ordinals.len())
            }
            Said::Task { name, title, .. } => format!("{title:?}, {}", step(name)),
            Said::Result { name, title, worker, failure, .. } => {
                let failed = failure.as_ref().map(|code| format!(", failed: {code}")).unwrap_or_default();
                let by = if worker.is_empty() { String::new() } else { format!(", by {worker}") };
                format!("{title:?}, {}{failed}{by}", step(name))
            }
            Said::Turn { name, .. } => step(name),
            Said::Verdict { name, result, .. } => {
                format!("{} of {}[{}]@{}", step(name), result.topic, result.partition, result.offset)
            }
            Said::Outcome { status, .. } => status.name().to_owned(),
            Said::Letter { reason } | Said::Unreadable { why: reason, .. } => excerpt(reason),
            _ => String::new(),
        }
    }

    /// The step that it is about, for what workers and critics are told and say.
    pub(crate) fn step(&self) -> Option<&StepName> {
        match self {
            Said::Task { name, .. }
            | Said::Result { name, .. }
            | Said::Turn { name, .. }
            | Said::Verdict { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The run that it belongs to.
    pub(crate) fn run(&self) -> Option<&RunId> {
        match self {
            Said::Fragment { run, .. }
            | Said::Task { run, .. }
            | Said::Result { run, .. }
            | Said::Turn { run, .. }
            | Said::Verdict { run, .. } => Some(run),
            _ => None,
        }
    }
}

/// What is kept of an envelope beside its body.
#[derive(Clone, Debug)]
pub(crate) struct Stamp {
    pub(crate) id: EnvelopeId,
    pub(crate) created_at: Timestamp,
}

/// The records that a body refers to: a reader will look for them.
pub(crate) fn references(body: &Body) -> Vec<RecordRef> {
    match body {
        Body::Intent(intent) => intent.inputs.iter().flat_map(|input| &input.chunks).cloned().collect(),
        Body::PlanRequest(request) => request.intent_ref.iter().cloned().collect(),
        Body::Task(task) => {
            let results = task.dependencies.iter().filter_map(|on| on.result.as_ref());
            let earlier = task.feedback.iter().filter_map(|feedback| feedback.result.as_ref());
            task.intent_ref.iter().chain(results).chain(earlier).cloned().collect()
        }
        Body::Verdict(verdict) => vec![verdict.result.clone()],
        Body::ToolRequest(request) => vec![request.turn.clone()],
        _ => Vec::new(),
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(80).collect()
}
