//! Whose turn it is. Intents of one priority take turns, a task each, so that an intent of a hundred tasks does not hold up
//! an intent of one. Between priorities the higher has many turns for one of the lower, and begins at once when it comes;
//! but the lower has its turns, too, so that nobody starves.

use starling_protocol::{IntentId, Priority};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, VecDeque},
};

/// A ring of intents for each priority. Soft state: after a take-over it starts anew.
///
/// The rings share turns by strides: each turn moves a ring on by a step that is the shorter, the higher its priority, and
/// the ring that is least far has the next turn. One that comes to life begins where the others are.
#[derive(Clone, Debug, Default)]
pub(super) struct FairQueue {
    rings: BTreeMap<Priority, Ring>,
    members: HashMap<IntentId, Priority>,
    /// How far the ring was that had the last turn.
    passed: u64,
}

#[derive(Clone, Debug, Default)]
struct Ring {
    intents: VecDeque<IntentId>,
    /// How far it is.
    passed: u64,
}

/// A step of the lowest priority. Divisible by the squares of the first ten numbers.
const STEP: u64 = 6_350_400;

fn step(priority: Priority) -> u64 {
    // The default priority has 36 turns for one of a batch.
    let weight = u64::from(priority.level()) + 1;
    STEP / (weight * weight)
}

impl FairQueue {
    /// Puts an intent at the end of the ring of its priority, if it is not in it.
    pub(super) fn wake(&mut self, id: &IntentId, priority: Priority) {
        if self.members.contains_key(id) {
            return;
        }
        self.members.insert(id.clone(), priority);
        let ring = self.rings.entry(priority).or_default();
        if ring.intents.is_empty() {
            ring.passed = ring.passed.max(self.passed);
        }
        ring.intents.push_back(id.clone());
    }

    /// Takes an intent that ended out of its ring.
    pub(super) fn forget(&mut self, id: &IntentId) {
        let ring = self.members.remove(id).and_then(|priority| self.rings.get_mut(&priority));
        if let Some(ring) = ring {
            ring.intents.retain(|member| member != id);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The intent that may dispatch one task now: of a priority for which there is `room`, and if `may` says so; otherwise it
    /// leaves its ring until it is woken.
    pub(super) fn next(
        &mut self,
        room: impl Fn(Priority) -> bool,
        mut may: impl FnMut(&IntentId) -> bool,
    ) -> Option<IntentId> {
        loop {
            let living =
                self.rings.iter_mut().filter(|(priority, ring)| !ring.intents.is_empty() && room(**priority));
            let (priority, ring) =
                living.min_by_key(|(priority, ring)| (ring.passed, Reverse(**priority)))?;
            let id = ring.intents.pop_front()?;
            if may(&id) {
                self.passed = ring.passed;
                ring.passed += step(*priority);
                ring.intents.push_back(id.clone());
                return Some(id);
            }
            self.members.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NORMAL: i32 = 5;

    fn id(name: &str) -> IntentId {
        IntentId::from_string(name)
    }

    /// Who has the next turns, each intent with so many tasks left.
    fn turns(queue: &mut FairQueue, left: &mut HashMap<&str, u32>, turns: usize) -> Vec<String> {
        let mut order = Vec::new();
        while order.len() < turns
            && let Some(next) = queue.next(|_| true, |id| left.get(id.as_str()).is_some_and(|left| *left > 0))
        {
            *left.get_mut(next.as_str()).unwrap() -= 1;
            order.push(next.as_str().to_owned());
        }
        order
    }

    fn wake(queue: &mut FairQueue, name: &str, level: i32) {
        queue.wake(&id(name), Priority::of_level(level));
    }

    #[test]
    fn intents_of_one_priority_take_turns() {
        let mut queue = FairQueue::default();
        for name in ["big", "small", "other", "big"] {
            wake(&mut queue, name, NORMAL);
        }
        let mut left = HashMap::from([("big", 100), ("small", 1), ("other", 2)]);
        let order = turns(&mut queue, &mut left, 1_000);
        assert_eq!(order[..6], ["big", "small", "other", "big", "other", "big"]);
        assert_eq!(order.len(), 103);
        assert!(queue.is_empty());
        wake(&mut queue, "big", NORMAL);
        wake(&mut queue, "small", NORMAL);
        queue.forget(&id("big"));
        assert_eq!(queue.next(|_| false, |_| true), None, "there is no room");
        assert_eq!(queue.next(|_| true, |_| true), Some(id("small")));
    }

    #[test]
    fn who_is_urgent_goes_at_once_and_a_batch_goes_on() {
        let mut queue = FairQueue::default();
        for batch in ["a", "b", "c"] {
            wake(&mut queue, batch, 0);
        }
        let mut left = HashMap::from([("a", 1_000), ("b", 1_000), ("c", 1_000), ("urgent", 100)]);
        assert_eq!(turns(&mut queue, &mut left, 4), ["a", "b", "c", "a"]);
        wake(&mut queue, "urgent", NORMAL);
        let order = turns(&mut queue, &mut left, 100);
        assert_eq!(order[0], "urgent");
        let of_batch = order.iter().filter(|name| *name != "urgent").count();
        assert!((2..=4).contains(&of_batch), "{of_batch} of 100 turns");
        // One that was idle has no turns to make up for.
        turns(&mut queue, &mut left, 500);
        left.insert("urgent", 2);
        wake(&mut queue, "urgent", NORMAL);
        let order = turns(&mut queue, &mut left, 4);
        assert_eq!(order[..2], ["urgent", "urgent"]);
        assert!(order[2..].iter().all(|name| name != "urgent"));
    }
}
