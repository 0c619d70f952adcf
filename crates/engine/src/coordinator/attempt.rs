//! What follows from one attempt at a task. This is the place where results are accepted, tried again or
//! given up; [`judge_attempt`] decides it from facts alone.

use super::settings::CoordinatorSettings;
use starling_protocol::state::TaskEntity;
use starling_protocol::{Failure, Judgement, TaskId, Timestamp, topic::partition_of};
use std::time::Duration;

/// The note about a task whose result is its fallback.
pub(super) const RULE_BASED: &str = "rule_based";

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum AttemptReport {
    /// There is a result, and nobody was asked to score it.
    Done,
    /// There is the result that stands in where the model gives none.
    RuleBased,
    /// There is a result, and a critic spoke of it.
    Judged(Judgement),
    /// There is no result.
    Failed(Failure),
}

/// The rules that hold for the attempts of one intent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttemptRules {
    /// Most attempts for one task.
    pub max_attempts: i32,
    /// Score below which a result is tried again.
    pub min_score: f64,
    /// Whether a result is taken as it is, whatever its score: there is no time for a better one.
    pub hurried: bool,
    /// See [`CoordinatorSettings::plateau_delta`].
    pub plateau_delta: f64,
    /// See [`CoordinatorSettings::retry_backoff`].
    pub retry_backoff: Duration,
    /// See [`CoordinatorSettings::max_retry_backoff`].
    pub max_retry_backoff: Duration,
}

impl AttemptRules {
    /// The rules for an intent with these limits.
    #[must_use]
    pub fn new(settings: &CoordinatorSettings, max_attempts: i32, min_score: f64) -> Self {
        Self {
            max_attempts,
            min_score,
            hurried: false,
            plateau_delta: settings.plateau_delta,
            retry_backoff: settings.retry_backoff,
            max_retry_backoff: settings.max_retry_backoff,
        }
    }
}

/// What to do with a task after an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum AttemptDecision {
    /// The attempt's result is the task's result.
    Accept {
        /// Its score; absent if nobody scored it.
        score: Option<f64>,
        /// What was done more cheaply than asked, such as `critic_unavailable`.
        note: Option<&'static str>,
    },
    /// Another attempt.
    Retry {
        /// What the critic wants done better; absent after a failure.
        feedback: Option<String>,
        /// When; 0 for at once.
        not_before: Timestamp,
    },
    /// No further attempt: the best one so far, this one included, is the task's result.
    KeepBest,
    /// No further attempt, and none had a result.
    Fail,
}

/// Decides what follows from an attempt. `task` is as it was before the report.
#[must_use]
pub fn judge_attempt(
    task: &TaskEntity,
    report: &AttemptReport,
    rules: &AttemptRules,
    now: Timestamp,
) -> AttemptDecision {
    let attempts_left = task.attempt < rules.max_attempts;
    match report {
        AttemptReport::Done => AttemptDecision::Accept { score: None, note: None },
        // Of an earlier attempt there is what a model said, if not well enough.
        AttemptReport::RuleBased if task.best.is_some() => AttemptDecision::KeepBest,
        AttemptReport::RuleBased => AttemptDecision::Accept { score: None, note: Some(RULE_BASED) },
        AttemptReport::Judged(judgement) => match readable_score(judgement) {
            // A judge that is down or unreadable is never a bad score.
            Err(note) => AttemptDecision::Accept { score: None, note: Some(note) },
            Ok((score, _)) if score >= rules.min_score => {
                AttemptDecision::Accept { score: Some(score), note: None }
            }
            Ok((score, _)) if !attempts_left || rules.hurried || is_plateau(task, score, rules) => {
                AttemptDecision::KeepBest
            }
            Ok((_, feedback)) => {
                AttemptDecision::Retry { feedback: Some(feedback.to_owned()), not_before: Timestamp(0) }
            }
        },
        AttemptReport::Failed(failure) if failure.retryable && attempts_left => {
            AttemptDecision::Retry { feedback: None, not_before: now.plus(backoff(task, rules)) }
        }
        AttemptReport::Failed(_) if task.best.is_some() => AttemptDecision::KeepBest,
        AttemptReport::Failed(_) => AttemptDecision::Fail,
    }
}

/// Whether a critic scores the results of a task, of a share `rate` of all tasks. It follows from the id alone, so that
/// whoever decides it decides the same, and all attempts at a task are scored or none.
#[must_use]
pub fn is_judged(task: &TaskId, rate: f64) -> bool {
    const PARTS: i32 = 1_000_000;
    f64::from(partition_of(task.as_str(), PARTS)) < rate * f64::from(PARTS)
}

/// The score and advice in a judgement, or the name of what is missing.
pub(super) fn readable_score(judgement: &Judgement) -> Result<(f64, &str), &'static str> {
    match judgement {
        Judgement::Scored(scored) if scored.score.is_finite() => {
            Ok((scored.score.clamp(0.0, 1.0), &scored.feedback))
        }
        Judgement::Scored(_) | Judgement::Unparseable(_) => Err("critic_unparseable"),
        Judgement::Unavailable(_) => Err("critic_unavailable"),
    }
}

/// Whether the attempts stopped getting better: two are needed to see a slope, so never before the third.
fn is_plateau(task: &TaskEntity, score: f64, rules: &AttemptRules) -> bool {
    let best = task.best.as_ref().and_then(|best| best.score);
    task.attempt >= 3 && best.is_some_and(|best| score - best < rules.plateau_delta)
}

fn backoff(task: &TaskEntity, rules: &AttemptRules) -> Duration {
    let doublings = u32::try_from(task.attempt.saturating_sub(1)).unwrap_or(0).min(20);
    rules.retry_backoff.saturating_mul(1 << doublings).min(rules.max_retry_backoff)
}
