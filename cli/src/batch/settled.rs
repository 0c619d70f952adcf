//! Which rows have come to an end, in this run or in earlier ones: some 20 bytes for each.

use super::identity::{Instance, RowId};
use std::collections::HashMap;

/// What the output says of the rows.
#[derive(Debug, Default)]
pub(super) struct Settled {
    last: HashMap<RowId, Last>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    generation: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Succeeded,
    NotSucceeded,
    /// It was read from the input and has not ended.
    UnderWay,
    /// It has ended, and was read from the input in this run.
    Met,
}

/// What is to become of a row that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It is in the output already.
    Settled,
    /// It is to run.
    Run(Instance),
    /// Another row with the same key was read before.
    Repeated,
}

impl Settled {
    /// The output says so.
    pub(super) fn found(&mut self, Instance { row, generation }: Instance, succeeded: bool) {
        let state = if succeeded { State::Succeeded } else { State::NotSucceeded };
        self.last.insert(row, Last { generation, state });
    }

    /// A row was read from the input.
    pub(super) fn meet(&mut self, row: RowId, retry_failed: bool) -> Due {
        let (due, generation, state) = match self.last.get(&row) {
            None => (Due::Run(Instance { row, generation: 0 }), 0, State::UnderWay),
            Some(Last { state: State::UnderWay | State::Met, .. }) => return Due::Repeated,
            Some(Last { generation, state: State::NotSucceeded }) if retry_failed => {
                let generation = generation.saturating_add(1);
                (Due::Run(Instance { row, generation }), generation, State::UnderWay)
            }
            Some(Last { generation, .. }) => (Due::Settled, *generation, State::Met),
        };
        self.last.insert(row, Last { generation, state });
        due
    }

    /// A row that was read has ended.
    pub(super) fn ended(&mut self, instance: Instance) {
        self.last.insert(instance.row, Last { generation: instance.generation, state: State::Met });
    }

    /// Whether the outcome of this instance may be one that a row to come has to find.
    pub(super) fn may_be_wanted(&self, Instance { row, generation }: Instance, retry_failed: bool) -> bool {
        match self.last.get(&row) {
            None => generation == 0,
            Some(last) => match last.state {
                State::NotSucceeded => retry_failed && generation == last.generation.saturating_add(1),
                State::Succeeded | State::UnderWay | State::Met => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_output_is_run_again_only_if_that_is_wanted() {
        let row = |name| RowId::of_key(name);
        let first = |name| Instance { row: row(name), generation: 0 };
        let again = |name| Instance { row: row(name), generation: 1 };
        let output = || {
            let mut settled = Settled::default();
            settled.found(first("good"), true);
            settled.found(first("bad"), false);
            settled
        };
        let mut settled = output();
        assert!(settled.may_be_wanted(first("new"), false) && !settled.may_be_wanted(again("new"), true));
        assert!(!settled.may_be_wanted(again("bad"), false));
        assert_eq!(settled.meet(row("good"), false), Due::Settled);
        assert_eq!(settled.meet(row("bad"), false), Due::Settled);
        assert_eq!(settled.meet(row("new"), false), Due::Run(first("new")));
        assert!(!settled.may_be_wanted(first("new"), false), "it is under way");
        assert_eq!(settled.meet(row("new"), false), Due::Repeated);
        settled.ended(first("new"));
        assert_eq!(settled.meet(row("new"), false), Due::Repeated);
        assert_eq!(settled.meet(row("good"), false), Due::Repeated);

        let mut settled = output();
        assert!(settled.may_be_wanted(again("bad"), true) && !settled.may_be_wanted(first("bad"), true));
        assert_eq!(settled.meet(row("good"), true), Due::Settled);
        assert_eq!(settled.meet(row("bad"), true), Due::Run(again("bad")));
    }
}
