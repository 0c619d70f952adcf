//! An answer says what it lacks, whether its model thought of that or not.

use starling_agents::TaskOutput;
use std::fmt::Write as _;

/// So many failed tasks are named one by one.
const MAX_NAMED: usize = 20;
/// Characters of a reason.
const MAX_REASON_CHARS: usize = 200;

/// The answer, with those failed tasks named behind it that it does not name itself. A JSON object stays as it is: whoever
/// reads it by program reads the outcome's reports as well.
pub(crate) fn with_failures_named(mut answer: String, results: &[TaskOutput]) -> String {
    let is_json = answer.trim_start().starts_with('{') && answer.trim_end().ends_with('}');
    let said = answer.to_lowercase();
    let failed = results.iter().filter_map(|result| Some((result, result.output.as_ref().err()?)));
    let unsaid: Vec<_> =
        failed.filter(|(result, _)| !said.contains(&result.title.trim().to_lowercase())).collect();
    if unsaid.is_empty() || is_json {
        return answer;
    }
    answer.truncate(answer.trim_end().len());
    answer.push_str("\n\nNot in this answer, because it failed:\n");
    for (result, failure) in unsaid.iter().take(MAX_NAMED) {
        let reason: String = failure.message.chars().take(MAX_REASON_CHARS).collect();
        let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = write!(answer, "\n- {}: {reason}", result.title.trim()); // writing to a String does not fail
    }
    if unsaid.len() > MAX_NAMED {
        let _ = write!(answer, "\n- and {} more", unsaid.len() - MAX_NAMED);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_protocol::Failure;

    fn result(title: &str, failure: Option<&str>) -> TaskOutput {
        let output = match failure {
            None => Ok("fine".to_owned()),
            Some(message) => Err(Failure { code: "x".into(), message: message.into(), retryable: false }),
        };
        TaskOutput { number: 1, title: title.into(), output }
    }

    #[test]
    fn what_failed_is_named_once() {
        let results = [
            result("Prices", None),
            result("Battery life", Some("no\nanswer")),
            result("Weight", Some("gone")),
        ];
        assert_eq!(
            with_failures_named("Buy A. The battery life is unknown.\n".into(), &results),
            "Buy A. The battery life is unknown.\n\nNot in this answer, because it failed:\n\n- Weight: gone"
        );
        assert_eq!(with_failures_named("Buy A.".into(), &results[..1]), "Buy A.");
        assert_eq!(with_failures_named("{\"buy\": \"A\"}".into(), &results), "{\"buy\": \"A\"}");
    }

    #[test]
    fn there_are_not_more_names_than_can_be_read() {
        let results: Vec<_> = (0..30).map(|n| result(&format!("Task number {n}."), Some("gone"))).collect();
        let answer = with_failures_named("All in all, yes.".into(), &results);
        assert!(answer.contains("Task number 19.") && !answer.contains("Task number 20."), "{answer}");
        assert!(answer.ends_with("- and 10 more"), "{answer}");
    }
}
