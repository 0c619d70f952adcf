//! Scores of table rows, and the reasons for them in figures.

use super::table::{Better, Row, Table};
use super::words::{mentions, words};

/// How much each column counts, by what the goal asks for.
pub(super) struct Scale {
    /// Column and weight.
    weights: Vec<(usize, f64)>,
}

impl Scale {
    /// Columns of known meaning count 1; what the goal mentions counts 3.
    pub(super) fn new(table: &Table, goal: &str) -> Scale {
        let goal = words(goal);
        let weights = table
            .columns
            .iter()
            .enumerate()
            .filter(|(_, column)| {
                column.better.is_some() && column.range.is_some_and(|(low, high)| low < high)
            })
            .map(|(at, column)| {
                let asked = column.name.split('_').any(|part| mentions(&goal, part))
                    || wishes(&column.name).iter().any(|wish| mentions(&goal, wish));
                (at, if asked { 3.0 } else { 1.0 })
            })
            .collect();
        Scale { weights }
    }

    /// 0 to 1: the weighted mean of where the row stands between worst and best of each column.
    pub(super) fn score(&self, table: &Table, row: &Row) -> f64 {
        let mut sum = 0.0;
        let mut total = 0.0;
        for (at, weight) in &self.weights {
            let Some(share) = standing(table, row, *at) else {
                continue;
            };
            sum += weight * share;
            total += weight;
        }
        if total > 0.0 { sum / total } else { 0.5 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// "price (usd) (x3), rating, …"
    pub(super) fn describe(&self, table: &Table) -> String {
        self.weights
            .iter()
            .filter_map(|(at, weight)| {
                let column = table.columns.get(*at)?;
                let way = match column.better? {
                    Better::High => "more is better",
                    Better::Low => "less is better",
                };
                let times = if *weight > 1.0 { ", counts three times" } else { "" };
                Some(format!("{} ({way}{times})", column.label()))
            })
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// What speaks for a row and what against it: the columns in which it is among the better or the
    /// worse two fifths of the rows, the most telling first.
    pub(super) fn reasons(&self, table: &Table, row: &Row) -> (Vec<String>, Vec<String>) {
        let of = table.rows.len();
        let mut places: Vec<(f64, usize, String)> = self
            .weights
            .iter()
            .filter_map(|(at, weight)| {
                let column = table.columns.get(*at)?;
                let place = table.place(row, *at)?;
                let value = row.cells.get(*at)?;
                // From 0.5 for the best place to about -0.5 for the last one.
                let lead = 0.5 - fraction(place - 1, of);
                let told = format!("{} {value} ({} of {of})", column.label(), ordinal(place));
                Some((lead * weight, *at, told)).filter(|_| lead.abs() >= 0.1)
            })
            .collect();
        places.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let told = |place: &(f64, usize, String)| place.2.clone();
        let pros = places.iter().filter(|place| place.0 > 0.0).take(3).map(told).collect();
        let cons = places.iter().rev().filter(|place| place.0 < 0.0).take(2).map(told).collect();
        (pros, cons)
    }
}

fn fraction(part: usize, all: usize) -> f64 {
    let number = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    number(part) / number(all.max(1))
}

fn standing(table: &Table, row: &Row, at: usize) -> Option<f64> {
    let column = table.columns.get(at)?;
    let (low, high) = column.range?;
    let share = (row.number_at(at)? - low) / (high - low);
    Some(match column.better? {
        Better::High => share,
        Better::Low => 1.0 - share,
    })
}

/// Words by which people ask for a column without naming it.
fn wishes(column: &str) -> &'static [&'static str] {
    let column = column.to_lowercase();
    if column.contains("price") || column.contains("cost") {
        &["cheap", "cheapest", "budget", "affordable", "inexpensive", "money"]
    } else if column.contains("weight") {
        &["light", "lightest", "portable", "travel", "commute"]
    } else if column.contains("battery") {
        &["unplugged", "endurance", "travel"]
    } else if column.contains("ram") || column.contains("memory") {
        &["developer", "development", "programming", "compile", "performance"]
    } else if column.contains("rating") {
        &["popular", "reviews", "quality"]
    } else {
        &[]
    }
}

fn ordinal(place: usize) -> String {
    let ending = match (place % 10, place % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    match place {
        1 => "best".to_owned(),
        _ => format!("{place}{ending} best"),
    }
}

/// Rows with their scores, best first; equal scores in the order of the table.
pub(super) fn ranked<'a>(table: &'a Table, scale: &Scale) -> Vec<(f64, &'a Row)> {
    let mut rows: Vec<(f64, &Row)> = table.rows.iter().map(|row| (scale.score(table, row), row)).collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.number.cmp(&b.1.number)));
    rows
}

/// The line by which scores travel from task to task.
pub(super) fn score_line(score: f64, row: usize, name: &str) -> String {
    format!("score: {score:.2} | row {row} | {name}")
}

/// Reads back [`score_line`].
pub(super) fn read_score_line(line: &str) -> Option<(f64, usize, &str)> {
    let rest = line.trim().strip_prefix("score:")?;
    let mut parts = rest.splitn(3, '|');
    let score = parts.next()?.trim().parse::<f64>().ok()?;
    let row = parts.next()?.trim().strip_prefix("row ")?.parse().ok()?;
    let name = parts.next()?.trim();
    (0.0..=1.0).contains(&score).then_some((score, row, name))
}
