//! What a batch may spend: what was spent, and what is under way.

/// Rows that are under way at first, as long as nobody knows what one costs.
const PROBES: usize = 4;

/// A bound in US dollars for all rows together, those of earlier runs included.
///
/// A row is taken to cost what it may at most, if that is bounded (`--max-cost`): then the budget is kept. Otherwise it is
/// taken to cost what the dearest so far did, and the budget is exceeded by as much as those under way are dearer.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    limit: f64,
    most_of_a_row: Option<f64>,
    spent: Spent,
}

/// What rows have cost, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spent {
    total: f64,
    dearest: f64,
    rows: u64,
}

impl Spent {
    /// A row has cost that much.
    pub(super) fn add(&mut self, cost: f64) {
        self.total += cost;
        self.dearest = self.dearest.max(cost);
        self.rows += 1;
    }
}

/// Whether the budget covers one row more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Covers {
    Yes,
    /// It depends on what those under way cost.
    Unclear,
    No,
}

impl Budget {
    /// A budget of which that much is spent; `most_of_a_row` is what a row may cost at most, if that is bounded.
    pub(super) fn new(limit: f64, most_of_a_row: Option<f64>, spent: Spent) -> Self {
        Self { limit, most_of_a_row, spent }
    }

    /// A row has cost that much.
    pub(super) fn spend(&mut self, cost: f64) {
        self.spent.add(cost);
    }

    pub(super) fn covers(&self, under_way: usize) -> Covers {
        let each = match self.most_of_a_row {
            Some(most) => most,
            None if self.spent.rows == 0 && under_way >= PROBES => return Covers::Unclear,
            None => self.spent.dearest,
        };
        if self.spent.total + each * (under_way + 1) as f64 <= self.limit {
            Covers::Yes
        } else if under_way > 0 {
            Covers::Unclear
        } else {
            Covers::No
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_row_keeps_the_budget_to_the_last_one() {
        let mut budget = Budget::new(1.0, Some(0.25), Spent::default());
        assert_eq!((budget.covers(3), budget.covers(4)), (Covers::Yes, Covers::Unclear));
        for cost in [0.25, 0.1, 0.25] {
            budget.spend(cost);
        }
        assert_eq!(budget.covers(0), Covers::Yes);
        budget.spend(0.2);
        assert_eq!(budget.covers(0), Covers::No);
    }

    #[test]
    fn without_a_bound_a_few_rows_tell_what_one_costs() {
        let mut budget = Budget::new(1.0, None, Spent::default());
        assert_eq!((budget.covers(PROBES - 1), budget.covers(PROBES)), (Covers::Yes, Covers::Unclear));
        budget.spend(0.3);
        assert_eq!((budget.covers(1), budget.covers(2)), (Covers::Yes, Covers::Unclear));
        budget.spend(0.5);
        assert_eq!(budget.covers(0), Covers::No);
    }
}
