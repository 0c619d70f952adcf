//! The rows under way.

use super::{identity::Instance, line::RowName};
use std::collections::HashMap;
use tokio::time::Instant;

/// A row whose intent has not ended.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) name: RowName,
    /// Its place among the lines to be written.
    pub(super) place: u64,
    /// When nothing more is to be expected of it.
    pub(super) give_up: Instant,
}

/// All of them; the gate bounds how many.
#[derive(Debug, Default)]
pub(super) struct Flight {
    rows: HashMap<Instance, UnderWay>,
}

impl Flight {
    pub(super) fn begin(&mut self, row: UnderWay) {
        self.rows.insert(row.name.instance, row);
    }

    pub(super) fn end(&mut self, instance: Instance) -> Option<UnderWay> {
        self.rows.remove(&instance)
    }

    pub(super) fn contains(&self, instance: Instance) -> bool {
        self.rows.contains_key(&instance)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes out the rows that should have ended by now.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<UnderWay> {
        self.rows.extract_if(|_, row| row.give_up <= now).map(|(_, row)| row).collect()
    }
}
