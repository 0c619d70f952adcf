//! Reads a critic's reply. Pure.

use serde_json::Value;
use starling_llm::json_text;
use starling_protocol::{CallReport, Judgement, Scored, Unavailable};

/// The longest excerpt of an unreadable reply, in characters.
const MAX_EXCERPT_CHARS: usize = 500;
/// The longest beginning of a wrong score that is quoted, in characters.
const MAX_GIVEN_CHARS: usize = 50;

/// What a critic's reply is.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A verdict.
    Scored(Scored),
    /// No verdict.
    Unparseable {
        /// The beginning of the reply.
        excerpt: String,
    },
}

/// Reads a reply. It is a verdict if it has a JSON object with a `score` from 0 to 1. Nothing is bent into
/// shape: 7 may be meant as 0.7, or as a bad joke, and only a real score can reject a result.
#[must_use]
pub fn read_verdict(reply: &str) -> Reply {
    let excerpt = || reply.chars().take(MAX_EXCERPT_CHARS).collect();
    match json_text::extract(reply, '{').map_err(|reason| reason.to_string()).and_then(|json| scored(&json)) {
        Ok(scored) => Reply::Scored(scored),
        Err(_) => Reply::Unparseable { excerpt: excerpt() },
    }
}

/// Whether a JSON text is a verdict.
///
/// # Errors
/// What is wrong with it, for the model.
pub fn check_verdict(json: &str) -> Result<(), String> {
    scored(json).map(drop)
}

/// One verdict out of those of a panel, and what they took together: the median of the scores, with the words of whoever
/// gave it. Those that are no score do not matter as long as there is one.
#[must_use]
pub fn together(panel: Vec<(Judgement, CallReport)>) -> (Judgement, CallReport) {
    let longest = panel.iter().map(|(_, report)| report.latency_ms).max().unwrap_or(0);
    let mut sum: Option<CallReport> = None;
    let (mut scores, mut others) = (Vec::new(), Vec::new());
    for (judgement, report) in panel {
        sum = Some(match sum {
            Some(earlier) => report.after(&earlier),
            None => report,
        });
        match judgement {
            Judgement::Scored(scored) => scores.push(scored),
            other => others.push(other),
        }
    }
    // They ran at the same time.
    let report = CallReport { latency_ms: longest, ..sum.unwrap_or_default() };
    // A reply that cannot be read says more than none at all.
    others.sort_by_key(|other| matches!(other, Judgement::Unavailable(_)));
    let nobody = || Judgement::Unavailable(Unavailable { reason: "nobody was asked".to_owned() });
    let judgement = match median(scores) {
        Some(scored) => Judgement::Scored(scored),
        None => others.into_iter().next().unwrap_or_else(nobody),
    };
    (judgement, report)
}

/// Of an even number, the mean of the two in the middle, with the words of the stricter one.
fn median(mut scores: Vec<Scored>) -> Option<Scored> {
    scores.sort_by(|a, b| a.score.total_cmp(&b.score));
    let (lower, upper) = (scores.len().checked_sub(1)? / 2, scores.len() / 2);
    let score = (scores.get(lower)?.score + scores.get(upper)?.score) / 2.0;
    let feedback = std::mem::take(&mut scores.get_mut(lower)?.feedback);
    Some(Scored { score, feedback })
}

fn scored(json: &str) -> Result<Scored, String> {
    let verdict: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let given = verdict.get("score").ok_or("`score` is missing.")?;
    let score = score(given).ok_or_else(|| {
        let given: String = given.to_string().chars().take(MAX_GIVEN_CHARS).collect();
        format!("`score` must be a number from 0 to 1, and is {given}.")
    })?;
    let feedback = verdict.get("feedback").and_then(Value::as_str).unwrap_or_default();
    Ok(Scored { score, feedback: feedback.trim().to_owned() })
}

fn score(value: &Value) -> Option<f64> {
    let score = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse().ok()?, // some models quote their numbers
        _ => return None,
    };
    (0.0..=1.0).contains(&score).then_some(score) // NaN is in no range
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_protocol::Unparseable;

    fn scored(reply: &str) -> Option<(f64, String)> {
        match read_verdict(reply) {
            Reply::Scored(scored) => Some((scored.score, scored.feedback)),
            Reply::Unparseable { .. } => None,
        }
    }

    #[test]
    fn verdicts_are_found_in_prose() {
        for reply in [
            "{\"score\": 0.5, \"feedback\": \"more\"}",
            "Here:\n```json\n{\"feedback\": \" more \", \"score\": \"0.5\", \"extra\": 1}\n```",
        ] {
            assert_eq!(scored(reply), Some((0.5, "more".to_owned())), "{reply}");
        }
        assert_eq!(scored("{\"score\": 1}"), Some((1.0, String::new())));
    }

    #[test]
    fn the_median_of_a_panel_counts_with_its_own_words() {
        let score = |score: f64| Judgement::Scored(Scored { score, feedback: format!("of {score}") });
        let silent = || Judgement::Unavailable(Unavailable { reason: "down".to_owned() });
        let odd = || Judgement::Unparseable(Unparseable { excerpt: "?".to_owned() });
        for (panel, expected) in [
            (vec![score(0.4)], score(0.4)),
            (vec![score(0.9), score(0.1), score(0.8)], score(0.8)),
            (vec![score(0.9), odd(), score(0.8), score(0.1)], score(0.8)),
            (vec![silent(), score(0.3), odd()], score(0.3)),
            (
                vec![score(0.5), silent(), score(1.0)],
                Judgement::Scored(Scored { score: 0.75, feedback: "of 0.5".to_owned() }),
            ),
            (vec![silent(), odd()], odd()),
            (vec![silent(), silent()], silent()),
        ] {
            let reports = [30, 10, 20, 5].map(|latency_ms| CallReport {
                calls: 1,
                latency_ms,
                ..CallReport::default()
            });
            let calls = panel.len() as i64;
            let (judgement, report) = together(panel.into_iter().zip(reports).collect());
            assert_eq!(judgement, expected);
            assert_eq!((report.calls, report.latency_ms), (calls, 30), "they run at the same time");
        }
    }

    #[test]
    fn what_is_no_score_is_unparseable() {
        for reply in [
            "",
            "fine!",
            "0.8",
            "{\"score\": 7}",
            "{\"score\": -0.1}",
            "{\"score\": \"NaN\"}",
            "{\"score\": null}",
            "{\"score\": [1]}",
            "{\"feedback\": \"x\"}",
            "{\"score\": 0.5",
        ] {
            assert_eq!(scored(reply), None, "{reply}");
        }
        let Reply::Unparseable { excerpt } = read_verdict(&"é".repeat(1_000)) else { panic!("no verdict") };
        assert_eq!(excerpt.chars().count(), MAX_EXCERPT_CHARS);
    }
}
