//! Whose turn it is. Deficit round robin over intents: each turn allows as many tasks as the intent has
//! weight, so that an intent of a hundred tasks does not hold up an intent of one.

use starling_protocol::IntentId;
use std::collections::{HashSet, VecDeque};

/// A ring of intents that may have tasks to dispatch. Soft state: after a take-over it starts anew.
#[derive(Clone, Debug, Default)]
pub(super) struct FairQueue {
    ring: VecDeque<IntentId>,
    members: HashSet<IntentId>,
    /// What is left of the first intent's turn; 0 before it begins.
    credit: u32,
}

impl FairQueue {
    /// Puts an intent at the end of the ring, if it is not in it.
    pub(super) fn wake(&mut self, id: &IntentId) {
        if self.members.insert(id.clone()) {
            self.ring.push_back(id.clone());
        }
    }

    /// Takes an intent that ended out of the ring.
    pub(super) fn forget(&mut self, id: &IntentId) {
        if self.members.remove(id) {
            if self.ring.front() == Some(id) {
                self.credit = 0;
            }
            self.ring.retain(|member| member != id);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// The intent that may dispatch one task now. `weight` gives an intent's weight, or nothing if it
    /// cannot dispatch: then it leaves the ring until it is woken.
    pub(super) fn next(&mut self, mut weight: impl FnMut(&IntentId) -> Option<u32>) -> Option<IntentId> {
        loop {
            let id = self.ring.front()?.clone();
            let Some(weight) = weight(&id) else {
                self.ring.pop_front();
                self.members.remove(&id);
                self.credit = 0;
                continue;
            };
            if self.credit == 0 {
                self.credit = weight.max(1);
            }
            self.credit -= 1;
            if self.credit == 0 {
                self.ring.rotate_left(1);
            }
            return Some(id);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::{cell::RefCell, collections::HashMap};

    #[test]
    fn turns_follow_weights_and_nobody_starves() {
        let (big, small, urgent) = (id("big"), id("small"), id("urgent"));
        let left = RefCell::new(HashMap::from([(&big, 100), (&small, 1), (&urgent, 4)]));
        let mut queue = FairQueue::default();
        for intent in [&big, &small, &urgent, &big] {
            queue.wake(intent);
        }
        let mut order = Vec::new();
        while let Some(next) = queue.next(|id| {
            let weight = if *id == urgent { 3 } else { 1 };
            (left.borrow()[id] > 0).then_some(weight)
        }) {
            *left.borrow_mut().get_mut(&next).unwrap() -= 1;
            order.push(next.as_str().to_owned());
        }
        assert_eq!(order[..8], ["big", "small", "urgent", "urgent", "urgent", "big", "urgent", "big"]);
        assert_eq!(order.len(), 105);
        queue.wake(&big);
        queue.wake(&small);
        queue.forget(&big);
        assert_eq!(queue.next(|_| Some(1)), Some(small));
        queue.next(|_| None);
        assert!(queue.is_empty());
    }

    fn id(name: &str) -> IntentId {
        IntentId::from_string(name)
    }
}
