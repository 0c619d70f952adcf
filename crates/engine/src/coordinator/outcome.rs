//! The ends of intents. Each way to end passes through here, so that there is exactly one outcome.

use super::admission::Header;
use super::citations::{cited, number_of};
use super::live::{Live, has_ended};
use super::message::public_tag;
use super::{Coordinator, Destination, Effect, Milestone};
use starling_protocol::state::{EndedEntity, Phase, TaskEntity};
use starling_protocol::{
    Body, Cancel, Envelope, EnvelopeId, IntentId, Latency, Outcome, OutcomeStatus, Progress, TaskCounts,
    TaskKind, TaskReport, TaskState, Timestamp, Usage,
};
use std::collections::BTreeSet;

impl Coordinator {
    /// Ends a live intent.
    pub(super) fn end(
        &mut self,
        id: &IntentId,
        status: OutcomeStatus,
        answer: String,
        reason: String,
        trace: &str,
    ) {
        let Some(live) = self.store.live(id) else { return };
        let under_way = live.run.phase == Phase::Planning || live.running() > 0;
        let outcome = report(live, status, answer, reason, self.now);
        let took = Some(self.now.since(live.intent.accepted_at));
        let header = Header {
            intent_id: id.clone(),
            hop: live.run.hop,
            created_at: live.intent.created_at,
            deadline: live.intent.deadline,
            tenant: live.intent.tenant.clone(),
        };
        self.close_charges(id);
        self.leases.forget(&header.tenant, id);
        self.store.remove_intent(id);
        self.touched.remove(id);
        self.untold.forget(id);
        self.lanes.iter_mut().for_each(|lane| lane.queue.forget(id));
        if under_way {
            let body = Body::Cancel(Cancel { reason: format!("the intent {}", ending(status)) });
            self.publish(Destination::Control, "control", &header, body, trace);
        }
        self.milestones.push(Milestone::Ended { status, took });
        self.publish_outcome(&header, outcome, trace);
    }

    /// Tells whoever cancels an intent that has ended, or has not come yet, how things stand: there is no second
    /// outcome that would tell.
    pub(super) fn answer_cancel(&mut self, header: &Header, status: OutcomeStatus) {
        let (phase, tasks) = (status.name().to_owned(), TaskCounts::default());
        let progress = Body::Progress(Progress { phase, tasks, changed: Vec::new() });
        let envelope = self.public_envelope("progress_cancel", header, progress);
        self.effects.push(Effect::Notify { envelope });
    }

    /// Ends an intent that was never worked on.
    pub(super) fn end_unseen(&mut self, header: &Header, status: OutcomeStatus, reason: String, trace: &str) {
        self.store.remove_cancelled(&header.intent_id);
        self.milestones.push(Milestone::Ended { status, took: None });
        self.publish_outcome(header, empty_outcome(status, reason, trace), trace);
    }

    fn publish_outcome(&mut self, header: &Header, outcome: Outcome, trace: &str) {
        self.counters.outcome(outcome.status);
        self.store.insert_ended(EndedEntity {
            intent_id: header.intent_id.clone(),
            tenant: header.tenant.clone(),
            status: outcome.status,
            forget_at: self.forget_at(header.created_at),
        });
        let progress = Body::Progress(Progress {
            phase: outcome.status.name().into(),
            tasks: outcome.tasks,
            changed: Vec::new(),
        });
        let envelope = self.public_envelope("progress_end", header, progress);
        self.effects.push(Effect::Notify { envelope });
        self.publish(Destination::Outcomes, OUTCOME, header, Body::Outcome(outcome), trace);
    }

    pub(super) fn publish(&mut self, to: Destination, kind: &str, header: &Header, body: Body, trace: &str) {
        let envelope = self.public_envelope(kind, header, body);
        self.send(to, envelope, trace.to_owned());
    }

    fn public_envelope(&self, kind: &str, header: &Header, body: Body) -> Envelope {
        Envelope {
            id: EnvelopeId::derive(kind, &[header.intent_id.as_str()]),
            intent_id: header.intent_id.clone(),
            tag: public_tag(&header.intent_id),
            hop: header.hop.saturating_add(1),
            created_at: self.now,
            deadline: Timestamp::MAX, // what is over stays true
            tenant: header.tenant.clone(),
            body,
        }
    }
}

/// The kind of an outcome's envelope id.
pub(super) const OUTCOME: &str = "outcome";

/// Of the numbers that an answer cites and no task has, so many are named.
const UNKNOWN_SHOWN: usize = 5;

/// An outcome without tasks.
pub(super) fn empty_outcome(status: OutcomeStatus, reason: String, trace: &str) -> Outcome {
    Outcome {
        status,
        answer: String::new(),
        reason,
        model: String::new(),
        offline: false,
        tasks: TaskCounts::default(),
        calls: 0,
        usage: Usage::default(),
        cost_usd: 0.0,
        latency_ms: Latency::default(),
        trace_id: trace_id(trace),
        degraded: Vec::new(),
        task_reports: Vec::new(),
        unpriced_calls: 0,
        cached_calls: 0,
        cached_prompt_tokens: 0,
        strategy: String::new(),
    }
}

/// Everything that is known of a live intent, as its outcome.
fn report(live: &Live, status: OutcomeStatus, answer: String, reason: String, now: Timestamp) -> Outcome {
    let mut times: Vec<i64> = live
        .plan_tasks()
        .filter(|task| task.attempt > 0 && has_ended(task.state))
        .map(|t| t.latency_ms)
        .collect();
    times.sort_unstable();
    let counts = live.counts();
    // What one task says is its own, and rests on no other.
    let cited = if live.is_single() { BTreeSet::new() } else { cited(&answer) };
    let unknown = cited.iter().filter(|number| !(1..=counts.total).contains(*number));
    let unknown = unknown.map(|number| format!("unknown_citation:{number}"));
    let unjudged = live.steps().filter(|task| task.unjudged && task.state == TaskState::Succeeded).count();
    let unjudged = (unjudged > 0).then(|| format!("unjudged:{unjudged}"));
    let degraded =
        live.run.degraded.iter().cloned().chain(unjudged).chain(unknown.take(UNKNOWN_SHOWN)).collect();
    Outcome {
        status,
        answer,
        reason,
        model: live.run.model.clone(),
        offline: live.run.offline,
        // What was under way gets no result any more.
        tasks: TaskCounts { failed: counts.total - counts.succeeded, ..counts },
        calls: live.run.calls,
        usage: live.run.usage,
        cost_usd: live.run.cost_usd,
        latency_ms: Latency {
            wall: now.0.saturating_sub(live.intent.accepted_at.0),
            p50: percentile(&times, 50),
            p99: percentile(&times, 99),
            serial_sum: live.run.serial_ms,
        },
        trace_id: trace_id(&live.intent.trace),
        degraded,
        task_reports: live.tasks().map(|task| task_report(live, task, status, &cited, now)).collect(),
        unpriced_calls: live.run.unpriced_calls,
        cached_calls: live.run.cached_calls,
        cached_prompt_tokens: live.run.cached_prompt_tokens,
        strategy: live.intent.strategy.clone(),
    }
}

fn task_report(
    live: &Live,
    task: &TaskEntity,
    status: OutcomeStatus,
    cited: &BTreeSet<i32>,
    now: Timestamp,
) -> TaskReport {
    let ended = has_ended(task.state);
    let error = match &task.failure {
        _ if task.state == TaskState::Succeeded => String::new(),
        Some(failure) if ended => format!("{}: {}", failure.code, failure.message),
        _ => format!("the intent {} first", ending(status)),
    };
    TaskReport {
        task_id: task.task_id.clone(),
        title: task.title.clone(),
        agent: task.agent.clone(),
        status: if ended { task.state } else { TaskState::Skipped },
        attempts: task.attempt,
        score: task.best.as_ref().and_then(|best| best.score),
        latency_ms: match task.state {
            _ if ended => task.latency_ms,
            TaskState::Running => now.0.saturating_sub(task.started_at.0),
            _ => 0,
        },
        depends_on: live.dependencies(task).map(|on| on.task_id.clone()).collect(),
        error,
        cited: cited.contains(&number_of(task)) && task.kind == TaskKind::Work,
    }
}

/// How an intent ended, as the end of a sentence.
fn ending(status: OutcomeStatus) -> &'static str {
    match status {
        OutcomeStatus::Cancelled => "was cancelled",
        OutcomeStatus::Expired => "passed its deadline",
        OutcomeStatus::OverBudget => "used up its budget",
        OutcomeStatus::Rejected => "was rejected",
        OutcomeStatus::Failed => "failed",
        OutcomeStatus::Succeeded | OutcomeStatus::Partial => "ended",
    }
}

/// Nearest rank: the smallest value that `percent` of all values do not exceed.
fn percentile(sorted: &[i64], percent: usize) -> i64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// The trace id in a W3C traceparent; empty if there is none.
fn trace_id(traceparent: &str) -> String {
    let id = traceparent.split('-').nth(1).unwrap_or_default();
    let valid = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if valid { id.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let hundred: Vec<i64> = (1..=100).collect();
        for (values, percent, expected) in
            [(&[][..], 50, 0), (&[7], 99, 7), (&[1, 2], 50, 1), (&hundred, 50, 50), (&hundred, 99, 99)]
        {
            assert_eq!(percentile(values, percent), expected, "{percent} of {values:?}");
        }
    }

    #[test]
    fn the_trace_id_is_the_second_field() {
        assert_eq!(
            trace_id("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
        for none in ["", "x", "00-short-1-01", "00-zzf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"] {
            assert_eq!(trace_id(none), "");
        }
    }
}
