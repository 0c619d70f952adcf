//! Schemas that became known while the process runs.

use super::Origin;
use std::collections::{BTreeMap, VecDeque};

/// A bounded table of what ids of a schema registry stand for.
#[derive(Debug, Default)]
pub(super) struct Learned {
    by_id: BTreeMap<i32, Origin>,
    /// In the order in which they were learned.
    order: VecDeque<i32>,
}

impl Learned {
    /// What `id` stands for.
    pub(super) fn get(&self, id: i32) -> Option<Origin> {
        self.by_id.get(&id).cloned()
    }

    /// Remembers `id`, and forgets the first ones so that at most `limit` are left.
    pub(super) fn insert(&mut self, id: i32, origin: Origin, limit: usize) {
        if self.by_id.insert(id, origin).is_none() {
            self.order.push_back(id);
        }
        while self.order.len() > limit.max(1) {
            if let Some(first) = self.order.pop_front() {
                self.by_id.remove(&first);
            }
        }
    }
}
