//! What a run of a batch came to.

use super::{gate::Stop, line::Line};
use serde::Serialize;
use std::{fmt::Write as _, process::ExitCode};

/// Counts of one run, and what was there before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The batch's name.
    pub name: String,
    /// Rows that were read.
    pub rows: u64,
    /// Those of them that the output had already.
    pub skipped: u64,
    /// Rows that have ended in this run.
    pub ended: u64,
    /// Those of them that succeeded.
    pub succeeded: u64,
    /// Those of them that have an answer with work left out.
    pub partial: u64,
    /// The others.
    pub failed: u64,
    /// Those of the failed ones that could not be submitted.
    pub bad: u64,
    /// Those of the ended ones whose outcome was there from an earlier run.
    pub found: u64,
    /// Rows that were under way when the run ended.
    pub left_under_way: usize,
    /// Model calls of this run's rows.
    pub calls: i64,
    /// Their tokens.
    pub tokens: i64,
    /// Their cost in US dollars, without calls that have no price.
    pub cost_usd: f64,
    /// Those calls.
    pub unpriced_calls: i64,
    /// Whether the offline model, which is no LLM, answered any of it.
    pub offline: bool,
    /// How long it took.
    pub seconds: f64,
    /// Why not all rows were submitted; `null` if all were.
    pub stopped: Option<Stop>,
}

impl Summary {
    /// A row has ended so.
    pub(super) fn count(&mut self, line: &Line) {
        self.ended += 1;
        if line.succeeded() {
            self.succeeded += 1;
        } else if line.has_answer() {
            self.partial += 1;
        } else {
            self.failed += 1;
        }
        self.calls = self.calls.saturating_add(line.calls);
        self.tokens = self.tokens.saturating_add(line.tokens);
        self.cost_usd += line.cost_usd;
        self.unpriced_calls = self.unpriced_calls.saturating_add(line.unpriced_calls);
    }

    /// 0: every row that was read has succeeded. 2: all have ended, and some have not succeeded. 3: rows are left. 130: so
    /// they are because somebody pressed Ctrl-C.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.stopped {
            Some(Stop::Interrupted) => 130,
            Some(_) => 3,
            None if self.left_under_way > 0 => 3,
            None if self.succeeded < self.ended => 2,
            None => 0,
        })
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "rows      {} ended in {:.1} s: {} succeeded, {} partial, {} failed ({} bad rows); {} were there already",
            self.ended, self.seconds, self.succeeded, self.partial, self.failed, self.bad, self.skipped
        );
        if self.found > 0 {
            let _ = writeln!(out, "found     {} of them had ended since an earlier run", self.found);
        }
        let unpriced = match self.unpriced_calls {
            0 => String::new(),
            calls => format!(" and {calls} calls without a price (model.prices)"),
        };
        let _ = writeln!(
            out,
            "model     {} calls, {} tokens, ${:.4}{unpriced}",
            self.calls, self.tokens, self.cost_usd
        );
        if let Some(stop) = self.stopped {
            let _ = writeln!(out, "stopped   {stop}; the same command goes on from here");
        }
        if self.left_under_way > 0 {
            let _ = writeln!(
                out,
                "under way {} rows; the same command finds what becomes of them",
                self.left_under_way
            );
        }
        out
    }
}
