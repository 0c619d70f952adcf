//! Tasks: what an instruction of [`super::plan`] asks for, and an honest try at any other.

use super::DISCLAIMER;
use super::prose;
use super::ranking;
use super::scoring::{Scale, score_line};
use super::table::{Better, Row, Table};
use super::words::shorten;
use crate::prompt::Prompt;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

/// The result of a task.
pub(super) fn work(prompt: &Prompt<'_>) -> String {
    let instruction = prompt.section("Instruction").unwrap_or_default();
    let inputs = prompt.inputs();
    let goal = prompt.goal();
    let table = Table::first(&inputs);
    let mut text = if instruction.starts_with("Profile the table") {
        match &table {
            Some(table) => profile(table, goal),
            None => no_table(),
        }
    } else if let Some(rows) = rows_named(instruction) {
        match &table {
            Some(table) => assess(table, rows, goal),
            None => no_table(),
        }
    } else if instruction.starts_with("Rank all rows") {
        ranking::rank(table.as_ref(), &prompt.results(), goal)
    } else if instruction.starts_with("Check the ranking") {
        ranking::check(table.as_ref(), &prompt.results(), goal)
    } else {
        prose::work(prompt, instruction)
    };
    if let Some(feedback) = prompt.section("Feedback").filter(|text| !text.is_empty()) {
        // No rule can act on advice in prose, so the least is to say which advice there was.
        let _ = write!(text, "\n\nAfter the feedback: {}", shorten(feedback, 200));
        if let Some(asked) = prompt.section("Task") {
            let _ = write!(text, "\nThis result is for: {}", shorten(asked, 120));
        }
    }
    text
}

fn no_table() -> String {
    format!("({DISCLAIMER}) The table is not in the inputs that came with this task.")
}

/// `Assess row 3 of …` or `Assess rows 3 to 7 of …`.
fn rows_named(instruction: &str) -> Option<RangeInclusive<usize>> {
    let rest = instruction.strip_prefix("Assess row")?;
    let mut words = rest.trim_start_matches('s').split_whitespace();
    let first: usize = words.next()?.parse().ok()?;
    let last = match words.next()? {
        "to" => words.next()?.parse().ok()?,
        _ => first,
    };
    Some(first..=last)
}

fn profile(table: &Table, goal: &str) -> String {
    let mut text = format!(
        "The table {} has {} rows and {} columns.",
        table.source,
        table.rows.len(),
        table.columns.len()
    );
    if table.skipped > 0 {
        let _ = write!(text, " {} lines do not fit its header and are left out.", table.skipped);
    }
    if table.shortened {
        text.push_str(" It is longer than what fits in a prompt; the rows at its end are left out.");
    }
    text.push('\n');
    for (at, column) in table.columns.iter().enumerate() {
        let label = column.label();
        let _ = match (column.range, column.better) {
            (Some((low, high)), Some(Better::High)) => {
                write!(text, "\n- {label}: {low} to {high}; a good value is a high one")
            }
            (Some((low, high)), Some(Better::Low)) => {
                write!(text, "\n- {label}: {low} to {high}; a good value is a low one")
            }
            (Some((low, high)), None) => {
                write!(text, "\n- {label}: {low} to {high}; a matter of taste, not scored")
            }
            (None, _) => {
                let distinct: std::collections::BTreeSet<&String> =
                    table.rows.iter().filter_map(|row| row.cells.get(at)).collect();
                write!(text, "\n- {label}: text, {} different values", distinct.len())
            }
        };
    }
    let scale = Scale::new(table, goal);
    if scale.is_empty() {
        text.push_str(
            "\n\nNo column has numbers whose meaning is known, so rows cannot be scored by figures.",
        );
    } else {
        let _ = write!(text, "\n\nScores use: {}.", scale.describe(table));
    }
    text
}

fn assess(table: &Table, rows: RangeInclusive<usize>, goal: &str) -> String {
    let scale = Scale::new(table, goal);
    let assessed: Vec<String> = rows
        .clone()
        .take(table.rows.len())
        .filter_map(|number| table.row(number))
        .map(|row| assess_row(table, &scale, row))
        .collect();
    if assessed.is_empty() {
        return format!(
            "({DISCLAIMER}) Row {} of {} is not in the inputs that came with this task.",
            rows.start(),
            table.source
        );
    }
    assessed.join("\n\n")
}

fn assess_row(table: &Table, scale: &Scale, row: &Row) -> String {
    let name = table.name_of(row);
    let mut text = format!(
        "**{name}** is row {} of {}. Its figures against the other rows:\n",
        row.number, table.source
    );
    for (at, column) in table.columns.iter().enumerate() {
        let Some(cell) = row.cells.get(at) else {
            continue;
        };
        if at == table.name_column() {
            continue;
        }
        let _ = match table.place(row, at) {
            Some(place) => {
                write!(text, "\n- {}: {cell} (place {place} of {})", column.label(), table.rows.len())
            }
            None => write!(text, "\n- {}: {cell}", column.label()),
        };
    }
    let (pros, cons) = scale.reasons(table, row);
    let list = |reasons: Vec<String>| {
        if reasons.is_empty() { "nothing in the figures".to_owned() } else { reasons.join(", ") }
    };
    let _ = write!(
        text,
        "\n\nWhat speaks for it: {}.\nWhat speaks against it: {}.\n\n{}",
        list(pros),
        list(cons),
        score_line(scale.score(table, row), row.number, &name)
    );
    text
}
