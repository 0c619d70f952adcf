//! `judge_attempt`, by table.

use crate::builders::{failure, scored, settings, unavailable, unparseable};
use starling_engine::coordinator::{AttemptDecision, AttemptReport, AttemptRules, judge_attempt};
use starling_protocol::state::{BestAttempt, TaskEntity};
use starling_protocol::{EnvelopeId, IntentId, RecordRef, TaskId, TaskKind, TaskState, TaskTerms, Timestamp};

const NOW: Timestamp = Timestamp(50_000);

fn task(attempt: i32, best: Option<f64>) -> TaskEntity {
    let result = RecordRef {
        topic: "t".into(),
        partition: 0,
        offset: 1,
        envelope_id: EnvelopeId::from_string("e"),
        bytes: 1,
        tokens: 1,
        digest: String::new(),
    };
    TaskEntity {
        intent_id: IntentId::from_string("i"),
        task_id: TaskId::from_string("t"),
        kind: TaskKind::Work,
        ordinal: 0,
        key: "a".into(),
        title: "A".into(),
        instruction: "do".into(),
        agent: "worker".into(),
        depends_on: Vec::new(),
        critic: true,
        state: TaskState::Running,
        attempt,
        step: 0,
        partition: 0,
        started_at: Timestamp(1),
        attempt_deadline: Timestamp(2),
        not_before: Timestamp(0),
        best: best.map(|score| BestAttempt { attempt: 1, score: Some(score), result }),
        last_score: best,
        feedback: String::new(),
        failure: None,
        latency_ms: 0,
        trace: String::new(),
        reserved: None,
        charged: None,
        terms: TaskTerms::default(),
        pool: String::new(),
        unjudged: false,
    }
}

#[test]
fn every_report_has_its_decision() {
    use AttemptDecision::{Accept, Fail, KeepBest, Retry};
    let accept = |score: Option<f64>, note| Accept { score, note };
    let feedback =
        |score: f64| Retry { feedback: Some(format!("better than {score}")), not_before: Timestamp(0) };
    let again_after = |ms| Retry { feedback: None, not_before: Timestamp(NOW.0 + ms) };
    let judged = AttemptReport::Judged;
    let failed = |retryable| AttemptReport::Failed(failure(retryable));
    // Up to 5 attempts, 0.6 is enough, 0.02 is progress, 200 ms doubling up to 30 s.
    let cases = [
        ("nobody scored", 1, None, AttemptReport::Done, accept(None, None)),
        ("good", 1, None, judged(scored(0.9)), accept(Some(0.9), None)),
        ("just enough", 1, None, judged(scored(0.6)), accept(Some(0.6), None)),
        ("low: again with the feedback", 1, None, judged(scored(0.59)), feedback(0.59)),
        ("worse than the best: again", 2, Some(0.5), judged(scored(0.1)), feedback(0.1)),
        ("two attempts are no plateau", 2, Some(0.5), judged(scored(0.5)), feedback(0.5)),
        ("third without progress", 3, Some(0.5), judged(scored(0.51)), KeepBest),
        ("third with progress", 3, Some(0.5), judged(scored(0.53)), feedback(0.53)),
        ("no attempts left", 5, None, judged(scored(0.3)), KeepBest),
        ("last attempt good", 5, Some(0.5), judged(scored(0.7)), accept(Some(0.7), None)),
        ("out of range", 1, None, judged(scored(7.0)), accept(Some(1.0), None)),
        ("unreadable is not bad", 1, None, judged(unparseable()), accept(None, Some("critic_unparseable"))),
        ("no number", 1, None, judged(scored(f64::NAN)), accept(None, Some("critic_unparseable"))),
        ("down is not bad", 5, Some(0.1), judged(unavailable()), accept(None, Some("critic_unavailable"))),
        ("failed: again after a pause", 1, None, failed(true), again_after(200)),
        ("the pause doubles", 4, Some(0.2), failed(true), again_after(1_600)),
        ("failed for good", 1, None, failed(false), Fail),
        ("failed for good, but there is one", 2, Some(0.2), failed(false), KeepBest),
        ("failed too often", 5, None, failed(true), Fail),
        ("failed too often, but there is one", 5, Some(0.2), failed(true), KeepBest),
    ];
    let rules = AttemptRules::new(&settings(), 5, 0.6);
    for (name, attempt, best, report, expected) in cases {
        assert_eq!(judge_attempt(&task(attempt, best), &report, &rules, NOW), expected, "{name}");
    }
}

#[test]
fn the_pause_has_a_limit() {
    let rules = AttemptRules::new(&settings(), i32::MAX, 0.6);
    let report = AttemptReport::Failed(failure(true));
    let decision = judge_attempt(&task(i32::MAX - 1, None), &report, &rules, NOW);
    let expected = AttemptDecision::Retry { feedback: None, not_before: Timestamp(NOW.0 + 30_000) };
    assert_eq!(decision, expected);
}
