//! What can be said about a bare goal without knowing anything: its parts, terms, limits and order.

use super::DISCLAIMER;
use super::plan::parts;
use super::words::{shorten, words};
use std::fmt::Write as _;

/// The result for an instruction about a bare goal; `None` for another instruction.
pub(super) fn work(goal: &str, instruction: &str) -> Option<String> {
    let lines = if let Some(part) = instruction.strip_prefix("Work on this part of the goal: ") {
        part_of(part)
    } else {
        let aspect = instruction.strip_prefix("Consider the aspect \"")?;
        match aspect.split('"').next()? {
            "Terms and scope" => terms(goal),
            "Criteria" => criteria(goal),
            "Information needed" => information(goal),
            "Risks" => risks(goal),
            "Next steps" => steps(goal),
            _ => return None,
        }
    };
    let mut text = format!("{}\n", shorten(instruction, 300));
    for line in lines {
        let _ = write!(text, "\n- {line}");
    }
    let _ = write!(
        text,
        "\n\n(This is the {DISCLAIMER}: it takes the goal apart and knows nothing beyond its words.)"
    );
    Some(text)
}

fn part_of(part: &str) -> Vec<String> {
    let terms = words(part);
    let (action, objects) = match terms.split_first() {
        Some((action, objects)) if !objects.is_empty() => (action.clone(), objects.join(", ")),
        _ => (shorten(part, 60), "what the goal is about".to_owned()),
    };
    let mut lines = vec![format!("What is to be done: {action}; with what: {objects}")];
    let limits = limits(part);
    if !limits.is_empty() {
        lines.push(format!("Limits named: {}", limits.join(", ")));
    }
    lines.push(format!(
        "To be answered for it: what is known about {objects}, who decides, and when it is done"
    ));
    lines
}

fn terms(goal: &str) -> Vec<String> {
    let terms = words(goal);
    let mut lines: Vec<String> = terms
        .iter()
        .take(8)
        .map(|term| format!("\"{term}\": to be defined; in scope as far as the goal names it"))
        .collect();
    if lines.is_empty() {
        lines.push("The goal has no telling words".to_owned());
    }
    lines
}

fn criteria(goal: &str) -> Vec<String> {
    let limits = limits(goal);
    let mut lines: Vec<String> = limits.iter().map(|limit| format!("Named in the goal: {limit}")).collect();
    if limits.is_empty() {
        lines.push("The goal names no limit on money, time or number".to_owned());
    }
    lines.extend(parts(goal).iter().take(8).map(|part| format!("The answer covers: {}", shorten(part, 120))));
    lines
}

fn information(goal: &str) -> Vec<String> {
    parts(goal)
        .iter()
        .take(8)
        .map(|part| {
            let about = words(part).join(", ");
            format!("For \"{}\": facts about {about}, and where they are from", shorten(part, 120))
        })
        .collect()
}

fn risks(goal: &str) -> Vec<String> {
    let parts = parts(goal);
    let mut lines: Vec<String> = parts
        .iter()
        .take(8)
        .map(|part| format!("\"{}\" turns out not to be possible as it is worded", shorten(part, 120)))
        .collect();
    if parts.len() > 1 {
        lines.push(format!("The {} parts get in each other's way", parts.len()));
    }
    if limits(goal).is_empty() {
        lines.push("Without limits it is open when the goal is reached".to_owned());
    }
    lines
}

fn steps(goal: &str) -> Vec<String> {
    let mut lines = vec!["Step 1: collect the information that is missing".to_owned()];
    for part in parts(goal).iter().take(8) {
        lines.push(format!("Step {}: {}", lines.len() + 1, shorten(part, 120)));
    }
    lines.push(format!("Step {}: compare the outcome with the goal", lines.len() + 1));
    lines
}

/// Numbers with what follows them, and words that limit money or time.
fn limits(text: &str) -> Vec<String> {
    const LIMITING: [&str; 16] = [
        "cheap", "budget", "free", "fast", "quickly", "soon", "today", "tomorrow", "week", "month", "year",
        "maximum", "minimum", "under", "within", "before",
    ];
    const NUMBERS: [&str; 9] = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    let all: Vec<&str> = text
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '$' | '€' | '%')))
        .collect();
    all.iter()
        .enumerate()
        .filter_map(|(at, word)| {
            let lower = word.to_lowercase();
            let counts = lower.chars().any(|c| c.is_ascii_digit()) || NUMBERS.contains(&lower.as_str());
            if counts || matches!(lower.as_str(), "under" | "within" | "before") {
                Some(match all.get(at + 1) {
                    Some(next) => format!("{word} {next}"),
                    None => (*word).to_owned(),
                })
            } else {
                LIMITING.contains(&lower.as_str()).then(|| (*word).to_owned())
            }
        })
        .take(8)
        .collect()
}
