//! The table that the suite prints in the end.

use crate::row::{Figures, Row};
use std::{fmt::Write as _, time::Duration};

/// What became of a row.
pub(crate) struct Tally {
    pub(crate) name: &'static str,
    pub(crate) invariants: &'static str,
    pub(crate) passed: usize,
    pub(crate) ran: usize,
    pub(crate) figures: Figures,
    pub(crate) took: Duration,
    /// Why it did not run on this machine.
    pub(crate) skipped: Option<String>,
    /// What it failed with, each time that it did.
    pub(crate) failures: Vec<String>,
}

impl Tally {
    pub(crate) fn of(row: &Row) -> Self {
        Self {
            name: row.name,
            invariants: row.invariants,
            passed: 0,
            ran: 0,
            figures: Figures::default(),
            took: Duration::ZERO,
            skipped: None,
            failures: Vec::new(),
        }
    }

    fn line(&self) -> String {
        let Figures { intents, outcomes, calls, repeated, allowed, dead_letters } = self.figures;
        let passed = match &self.skipped {
            Some(_) if self.ran == 0 => "skipped".to_owned(),
            _ => format!("{}/{}", self.passed, self.ran),
        };
        format!(
            "{:<52} {:<13} {passed:>7} {intents:>7} {outcomes:>8} {calls:>7} {repeated:>8} {allowed:>7} {dead_letters:>4} {:>7.1}",
            self.name,
            self.invariants,
            self.took.as_secs_f64()
        )
    }
}

/// All rows and their sum; then what failed and what was left out.
pub(crate) fn table(tallies: &[Tally]) -> String {
    let mut text = format!(
        "{:<52} {:<13} {:>7} {:>7} {:>8} {:>7} {:>8} {:>7} {:>4} {:>7}\n",
        "fault",
        "invariants",
        "passed",
        "intents",
        "outcomes",
        "calls",
        "repeated",
        "allowed",
        "dead",
        "seconds"
    );
    let mut sum = Figures::default();
    let (mut passed, mut ran, mut took) = (0, 0, Duration::ZERO);
    for tally in tallies {
        let _ = writeln!(text, "{}", tally.line()); // a String takes everything
        sum += tally.figures;
        passed += tally.passed;
        ran += tally.ran;
        took += tally.took;
    }
    let sum = Tally {
        name: "all",
        invariants: "",
        passed,
        ran,
        figures: sum,
        took,
        skipped: None,
        failures: Vec::new(),
    };
    let _ = writeln!(text, "{}", sum.line());
    for tally in tallies {
        if let Some(why) = &tally.skipped {
            let _ = writeln!(text, "skipped: {}: {why}", tally.name);
        }
        for failure in &tally.failures {
            let _ = writeln!(text, "failed: {}: {failure}", tally.name);
        }
    }
    text
}
