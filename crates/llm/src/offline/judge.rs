//! Verdicts: checks that need no understanding.

use super::scoring::read_score_line;
use super::words::{mentions, words};
use crate::prompt::Prompt;
use serde_json::json;

/// The verdict as JSON.
pub(super) fn verdict(prompt: &Prompt<'_>) -> String {
    let result = prompt.section("Result").unwrap_or_default();
    let task = prompt.section("Task").unwrap_or_default();
    let instruction = prompt.section("Instruction").unwrap_or_default();
    let (score, feedback) = judge(result, task, instruction);
    json!({ "score": score, "feedback": feedback }).to_string()
}

fn judge(result: &str, task: &str, instruction: &str) -> (f64, String) {
    if !result.chars().any(char::is_alphanumeric) {
        return (0.0, "The result is empty.".to_owned());
    }
    if result.starts_with("(failed") {
        return (0.1, "The task failed, there is no result.".to_owned());
    }
    if result.contains("not in the inputs that came with this task") {
        let text = "The result says that what it needs was not in its inputs.";
        return (0.3, text.to_owned());
    }
    if result.chars().count() < 40 {
        return (0.5, "The result is too short to say much; give figures or reasons.".to_owned());
    }
    if instruction.contains("`score:`") && !result.lines().any(|l| read_score_line(l).is_some()) {
        return (0.45, "A line `score: <0 to 1> | row <number> | <name>` is missing.".to_owned());
    }

    let asked = words(&format!("{task} {instruction}"));
    let said = words(result);
    let missing: Vec<&str> = asked.iter().filter(|word| !mentions(&said, word)).map(String::as_str).collect();
    let share = match asked.len() {
        0 => 1.0,
        all => 1.0 - ratio(missing.len(), all),
    };
    let has_figures = result.chars().any(|c| c.is_ascii_digit());
    let is_ordered = result.lines().filter(|line| line.starts_with(['-', '|', '1', '2', '3'])).count() >= 2;
    let bonus = |yes: bool| if yes { 0.05 } else { 0.0 };
    let score = 0.6 + 0.25 * share + bonus(has_figures) + bonus(is_ordered);
    let score = (score * 100.0).round() / 100.0;
    let feedback = if missing.is_empty() {
        "Everything that was asked for is mentioned.".to_owned()
    } else {
        let few: Vec<&str> = missing.iter().take(6).copied().collect();
        format!("Not mentioned, though asked for: {}.", few.join(", "))
    };
    (score, feedback)
}

fn ratio(part: usize, all: usize) -> f64 {
    let number = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    number(part) / number(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_results_score_higher() {
        let task = "Assess Alpha";
        let instruction = "Assess row 1 of x.csv (Alpha): price, battery, and a `score:` line.";
        let judged = |result: &str| judge(result, task, instruction).0;
        let empty = judged(" \n- ");
        let failed = judged("(failed: no worker)");
        let unscored = judged("Alpha is row 1 of x.csv. Its price is 100 and its battery lasts.");
        let vague = judged(
            "This is a very fine product that everybody should consider.\nscore: 0.50 | row 1 | Alpha",
        );
        let good =
            judged("**Alpha** is row 1 of x.csv.\n- price: 100\n- battery: 9\nscore: 0.50 | row 1 | Alpha");
        assert!(empty < failed && failed < unscored && unscored < 0.6);
        assert!((0.6..good).contains(&vague), "{vague} {good}");
        assert!(good <= 0.95);
    }
}
