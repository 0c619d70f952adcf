//! Reads a critic's reply. Pure.

use serde_json::Value;
use starling_llm::json_text;
use starling_protocol::Scored;

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
