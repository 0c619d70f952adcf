//! Whether another row may be submitted now.

use super::budget::{Budget, Covers};
use serde::Serialize;
use std::fmt;

/// What bounds the rows under way.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    concurrency: usize,
    /// Rows that may still be submitted.
    left: Option<u64>,
    budget: Option<Budget>,
    stopped: Option<Stop>,
}

/// Why nothing more is submitted, though rows are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// As many were submitted as were wanted.
    Limit,
    /// The budget does not cover another row.
    Budget,
    /// There is a budget, and calls without a price.
    Unpriced,
    /// The batch's deadline has come.
    Deadline,
    /// Somebody wants it to end.
    Interrupted,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stop::Limit => "as many rows were submitted as --limit says",
            Stop::Budget => "the budget does not cover another row",
            Stop::Unpriced => {
                "the budget cannot be kept: model.prices has no price for a model that was asked"
            }
            Stop::Deadline => "the deadline has come",
            Stop::Interrupted => "interrupted",
        })
    }
}

/// What the gate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    /// The next row may be looked at.
    Open,
    /// Something has to end first.
    Wait,
    Closed,
}

impl Gate {
    pub(super) fn new(concurrency: usize, limit: Option<u64>, budget: Option<Budget>) -> Self {
        Self { concurrency: concurrency.max(1), left: limit, budget, stopped: None }
    }

    /// Nothing more is to be submitted. The first reason counts.
    pub(super) fn stop(&mut self, stop: Stop) {
        self.stopped.get_or_insert(stop);
    }

    pub(super) fn stopped(&self) -> Option<Stop> {
        self.stopped
    }

    /// Whether the next row may be read while so many are under way, and `ordered` says whether the order of lines allows
    /// it. Whether it can be submitted as well is asked once it is known that it has to be.
    pub(super) fn passage(&self, under_way: usize, ordered: bool) -> Passage {
        let unclear =
            || self.budget.as_ref().is_some_and(|budget| budget.covers(under_way) == Covers::Unclear);
        match self.stopped {
            Some(_) => Passage::Closed,
            None if under_way >= self.concurrency || !ordered || unclear() => Passage::Wait,
            None => Passage::Open,
        }
    }

    /// A row is to be submitted. If it must not, nothing more is.
    pub(super) fn admit(&mut self, under_way: usize) -> bool {
        if self.left == Some(0) {
            self.stop(Stop::Limit);
        } else if self.budget.as_ref().is_some_and(|budget| budget.covers(under_way) == Covers::No) {
            self.stop(Stop::Budget);
        }
        if self.stopped.is_some() {
            return false;
        }
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
        }
        true
    }

    /// A row that was submitted has ended.
    pub(super) fn ended(&mut self, cost_usd: f64, unpriced_calls: i64) {
        let Some(budget) = &mut self.budget else { return };
        budget.spend(cost_usd);
        if unpriced_calls > 0 {
            self.stop(Stop::Unpriced);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::Spent;
    use super::*;

    #[test]
    fn it_opens_as_rows_end_and_closes_for_the_row_that_is_too_many() {
        let mut gate = Gate::new(2, Some(3), None);
        assert_eq!(gate.passage(1, true), Passage::Open);
        assert_eq!((gate.passage(2, true), gate.passage(1, false)), (Passage::Wait, Passage::Wait));
        assert!((0..3).all(|_| gate.admit(0)));
        assert_eq!(gate.passage(0, true), Passage::Open, "there may be no more rows");
        assert!(!gate.admit(0));
        gate.stop(Stop::Interrupted);
        assert_eq!((gate.stopped(), gate.passage(0, true)), (Some(Stop::Limit), Passage::Closed));
    }

    #[test]
    fn a_budget_is_kept_and_one_without_prices_is_none() {
        let budget = || Some(Budget::new(1.0, Some(0.6), Spent::default()));
        let mut gate = Gate::new(9, None, budget());
        assert!(gate.admit(0));
        assert_eq!(gate.passage(1, true), Passage::Wait, "it may turn out to cost less");
        gate.ended(0.6, 0);
        assert_eq!(gate.passage(0, true), Passage::Open, "there may be no more rows");
        assert!(!gate.admit(0));
        assert_eq!(gate.stopped(), Some(Stop::Budget));

        let mut gate = Gate::new(2, None, budget());
        gate.ended(0.0, 1);
        assert_eq!(gate.stopped(), Some(Stop::Unpriced));
    }
}
