//! The answer, made of results.

use super::DISCLAIMER;
use super::ranking::{self, RECOMMENDED};
use super::table::Table;
use super::words::shorten;
use crate::prompt::{Dependency, Prompt};
use std::fmt::Write as _;

/// Results that are shown one by one.
const MAX_SHOWN: usize = 40;

/// Characters of one result in the answer.
const MAX_RESULT_CHARS: usize = 3_000;

/// Characters of all results in a digest.
const DIGEST_CHARS: usize = 4_000;

/// The answer, as Markdown.
pub(super) fn answer(prompt: &Prompt<'_>) -> String {
    let goal = prompt.goal();
    let results = prompt.results();
    let (good, failed): (Vec<_>, Vec<_>) = results.iter().partition(|result| !result.failed());
    let inputs = prompt.inputs();

    let mut text = format!("# {}\n\n", shorten(goal, 200));
    let body = match ranked_body(&good, Table::first(&inputs).as_ref(), goal) {
        Some(body) => {
            let _ = write!(
                text,
                "> Made by the {DISCLAIMER}. It compares figures by rule and knows nothing about the things behind them.\n\n"
            );
            body
        }
        None => {
            let _ = write!(
                text,
                "> Made by the {DISCLAIMER}. It only puts in order what it was given; for an answer with knowledge of the matter, connect a model.\n\n"
            );
            collected_body(&good)
        }
    };
    text.push_str(&body);
    if !failed.is_empty() {
        let _ =
            write!(text, "\n\n## What is missing\n\n{} of {} tasks failed:\n", failed.len(), results.len());
        for result in failed.iter().take(MAX_SHOWN) {
            let _ = write!(text, "\n- {}: {}", shorten(result.title, 100), shorten(result.text, 200));
        }
    }
    text.trim_end().to_owned()
}

/// Results in short, one after the other.
pub(super) fn digest(prompt: &Prompt<'_>) -> String {
    let results = prompt.results();
    if results.is_empty() {
        return "There are no results to condense.".to_owned();
    }
    let chars = DIGEST_CHARS / results.len().max(1);
    let parts = results.iter().map(|result| {
        let said = result.text.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("- {}: {}{}", shorten(result.title, 100), shorten(&said, chars), mark(result))
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// By which a result is cited, with a space before it.
fn mark(result: &Dependency<'_>) -> String {
    result.number.map_or(String::new(), |number| format!(" [{number}]"))
}

/// For results that are about the rows of a table.
fn ranked_body(good: &[&Dependency<'_>], table: Option<&Table>, goal: &str) -> Option<String> {
    let begins = |prefix: &str| good.iter().find(|result| result.text.starts_with(prefix));
    let ranking = good.iter().find(|result| result.text.contains(RECOMMENDED));
    let ranking = ranking.filter(|result| !result.text.starts_with("The recommended rows"));
    let cited = ranking.map(|result| mark(result)).unwrap_or_default();
    let ranking = match ranking {
        Some(result) => result.text.to_owned(),
        None => {
            // The ranking was lost; the scores of the assessments still make one.
            let owned: Vec<Dependency<'_>> = good.iter().map(|result| **result).collect();
            if !ranking::has_scores(&owned) {
                return None;
            }
            let again = ranking::rank(table, &owned, goal);
            if !again.contains(RECOMMENDED) {
                return None;
            }
            again
        }
    };
    let mut text = format!("## Recommendation{cited}\n\n{}", ranking.trim());
    if let Some(check) = begins("The recommended rows") {
        let _ = write!(text, "\n\n## Check{}\n\n{}", mark(check), check.text.trim());
    }
    if let Some(profile) = begins("The table ") {
        let _ = write!(text, "\n\n## The data{}\n\n{}", mark(profile), profile.text.trim());
    }
    Some(text)
}

/// For all others: the conclusions first, then what they rest on.
fn collected_body(good: &[&Dependency<'_>]) -> String {
    if good.is_empty() {
        return "No task brought a result, so there is nothing to put together.".to_owned();
    }
    let concludes = |result: &&&Dependency<'_>| {
        result.title.starts_with("Bring the ") || result.title.starts_with("Order the ")
    };
    let mut text = String::new();
    let ordered = good.iter().filter(concludes).chain(good.iter().filter(|result| !concludes(result)));
    for result in ordered.take(MAX_SHOWN) {
        let said = result.text.trim();
        let cut = match said.char_indices().nth(MAX_RESULT_CHARS) {
            Some((at, _)) => format!("{}…", said.get(..at).unwrap_or_default()),
            None => said.to_owned(),
        };
        let _ = write!(text, "## {}{}\n\n{cut}\n\n", shorten(result.title, 100), mark(result));
    }
    if good.len() > MAX_SHOWN {
        let _ = write!(text, "{} more results are not shown.", good.len() - MAX_SHOWN);
    }
    text.trim_end().to_owned()
}
