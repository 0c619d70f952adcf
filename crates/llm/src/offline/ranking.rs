//! The ranking of a table's rows, and the check of it.

use super::DISCLAIMER;
use super::scoring::{Scale, ranked, read_score_line};
use super::table::{Better, Row, Table};
use super::words::{shorten, wanted_count};
use crate::prompt::Dependency;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Rows shown in the comparison.
const SHOWN: usize = 10;

/// Begins the list of recommended rows; by it the ranking is found among other results.
pub(super) const RECOMMENDED: &str = "Recommended:";

/// Scores by row, as the tasks before gave them, with the name of the row.
fn scores<'a>(results: &[Dependency<'a>]) -> BTreeMap<usize, (f64, &'a str)> {
    results
        .iter()
        .flat_map(|result| result.text.lines())
        .filter_map(read_score_line)
        .map(|(score, row, name)| (row, (score, name)))
        .collect()
}

/// Whether any of the results scores a row.
pub(super) fn has_scores(results: &[Dependency<'_>]) -> bool {
    !scores(results).is_empty()
}

/// Ranks by the scores of the tasks before; by the table itself where there are none.
pub(super) fn rank(table: Option<&Table>, results: &[Dependency<'_>], goal: &str) -> String {
    let given = scores(results);
    let Some(table) = table else {
        return rank_without_table(&given, goal);
    };
    let scale = Scale::new(table, goal);
    let mut rows: Vec<(f64, &Row)> = if given.is_empty() {
        ranked(table, &scale)
    } else {
        given.iter().filter_map(|(number, (score, _))| Some((*score, table.row(*number)?))).collect()
    };
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.number.cmp(&b.1.number)));

    let wanted = wanted_count(goal).unwrap_or(3);
    let mut text = format!(
        "{} of {} rows of {} are ranked by their figures, for the goal: {}\n\n{RECOMMENDED}\n",
        rows.len(),
        table.rows.len(),
        table.source,
        shorten(goal, 160)
    );
    for (place, (score, row)) in rows.iter().take(wanted).enumerate() {
        let (pros, cons) = scale.reasons(table, row);
        let _ = write!(
            text,
            "\n{}. **{}** (row {}, score {score:.2})",
            place + 1,
            table.name_of(row),
            row.number
        );
        if !pros.is_empty() {
            let _ = write!(text, ": {}", pros.join(", "));
        }
        if !cons.is_empty() {
            let _ = write!(text, ". Against it: {}", cons.join(", "));
        }
        text.push('.');
    }
    text.push_str("\n\nComparison of the best:\n\n");
    comparison(&mut text, table, &rows);
    if rows.len() > SHOWN {
        let _ = write!(text, "\n{} more rows are ranked below these.\n", rows.len() - SHOWN);
    }
    if scale.is_empty() {
        text.push_str("\nNo column has numbers whose meaning is known, so the order is that of the table.");
    } else {
        let _ = write!(
            text,
            "\nHow rows are scored: each figure counts by where it stands between the worst (0) and the best (1) of its column. Used are {}.",
            scale.describe(table)
        );
    }
    if table.shortened {
        text.push_str(
            "\n\nThe table is longer than what fits in a prompt; the rows at its end are not compared.",
        );
    }
    let missing: Vec<String> = table
        .rows
        .iter()
        .filter(|row| !rows.iter().any(|(_, other)| other.number == row.number))
        .map(|row| table.name_of(row))
        .collect();
    if !missing.is_empty() {
        let _ = write!(
            text,
            "\n\nNot ranked, because nothing came of their assessment: {}.",
            shorten(&missing.join(", "), 400)
        );
    }
    text
}

fn comparison(text: &mut String, table: &Table, rows: &[(f64, &Row)]) {
    let name = table.name_column();
    let others: Vec<usize> = (0..table.columns.len()).filter(|at| *at != name).collect();
    let heads: Vec<String> =
        others.iter().filter_map(|at| table.columns.get(*at)).map(|column| escape(&column.label())).collect();
    let _ = writeln!(text, "| place | name | score | {} |", heads.join(" | "));
    let _ = writeln!(text, "|---|---|---|{}", "---|".repeat(heads.len()));
    for (place, (score, row)) in rows.iter().take(SHOWN).enumerate() {
        let cells: Vec<String> =
            others.iter().filter_map(|at| row.cells.get(*at)).map(|cell| escape(cell)).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {score:.2} | {} |",
            place + 1,
            escape(&table.name_of(row)),
            cells.join(" | ")
        );
    }
}

/// A cell must not break its line of the table.
fn escape(cell: &str) -> String {
    cell.replace('|', "\\|").replace(['\n', '\r'], " ")
}

fn rank_without_table(given: &BTreeMap<usize, (f64, &str)>, goal: &str) -> String {
    if given.is_empty() {
        return format!(
            "({DISCLAIMER}) There is nothing to rank: neither the table nor any score is in the inputs that came with this task."
        );
    }
    let mut rows: Vec<(usize, f64, &str)> =
        given.iter().map(|(row, (score, name))| (*row, *score, *name)).collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let wanted = wanted_count(goal).unwrap_or(3);
    let mut text = format!("{} rows are ranked by their scores.\n\n{RECOMMENDED}\n", rows.len());
    for (place, (row, score, name)) in rows.iter().take(wanted).enumerate() {
        let _ = write!(text, "\n{}. **{name}** (row {row}, score {score:.2}).", place + 1);
    }
    text.push_str("\n\n| place | name | score |\n|---|---|---|\n");
    for (place, (_, score, name)) in rows.iter().take(SHOWN).enumerate() {
        let _ = writeln!(text, "| {} | {} | {score:.2} |", place + 1, escape(name));
    }
    text
}

/// Compares the recommended rows with the table.
pub(super) fn check(table: Option<&Table>, results: &[Dependency<'_>], goal: &str) -> String {
    let Some(table) = table else {
        return format!(
            "({DISCLAIMER}) The table is not in the inputs that came with this task, so the ranking could not be checked."
        );
    };
    let ranking = results.iter().find_map(|r| r.text.split_once(RECOMMENDED));
    let Some((_, list)) = ranking else {
        return format!(
            "({DISCLAIMER}) There is no ranking among the results before, so nothing was checked."
        );
    };
    let scale = Scale::new(table, goal);
    let mut text = format!("The recommended rows, checked against {}:\n", table.source);
    let mut checked = 0;
    for line in list.lines() {
        let Some((name, number, score)) = recommended(line) else {
            continue;
        };
        checked += 1;
        let finding = match table.row(number) {
            Some(row) if table.name_of(row) == name => judge(table, &scale, row, score),
            _ => "is not in that row of the table".to_owned(),
        };
        let _ = write!(text, "\n- {name} {finding}.");
    }
    if checked == 0 {
        text.push_str("\nThe ranking recommends nothing.");
    }
    text
}

fn judge(table: &Table, scale: &Scale, row: &Row, score: f64) -> String {
    let again = scale.score(table, row);
    let agrees = if (again - score).abs() < 0.011 {
        format!("is in the table and its score of {score:.2} holds")
    } else {
        format!("is in the table, but its score comes out as {again:.2}, not {score:.2}")
    };
    let better: Vec<String> = table
        .rows
        .iter()
        .filter(|other| dominates(table, other, row))
        .map(|other| table.name_of(other))
        .collect();
    if better.is_empty() {
        format!("{agrees}; no other row is at least as good in every scored figure")
    } else {
        let names = shorten(&better.join(", "), 120);
        format!("{agrees}; at least as good in every scored figure: {names}")
    }
}

/// At least as good in every scored column, and better in one.
fn dominates(table: &Table, other: &Row, row: &Row) -> bool {
    let mut better = false;
    for (at, column) in table.columns.iter().enumerate() {
        let Some(way) = column.better else { continue };
        let (Some(theirs), Some(ours)) = (other.number_at(at), row.number_at(at)) else {
            return false;
        };
        let lead = match way {
            Better::High => theirs - ours,
            Better::Low => ours - theirs,
        };
        if lead < 0.0 {
            return false;
        }
        better |= lead > 0.0;
    }
    better
}

/// Reads `1. **Name** (row 3, score 0.87)…`.
fn recommended(line: &str) -> Option<(&str, usize, f64)> {
    let (place, rest) = line.split_once(". **")?;
    place.parse::<usize>().ok()?;
    let (name, rest) = rest.split_once("** (row ")?;
    let (row, rest) = rest.split_once(", score ")?;
    let (score, _) = rest.split_once(')')?;
    Some((name, row.parse().ok()?, score.parse().ok()?))
}
