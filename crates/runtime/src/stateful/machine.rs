//! What a stateful processor runs.

use starling_engine::coordinator::{Changes, Coordinator, Counters, Effect, Event, Load, Milestone};
use starling_protocol::Timestamp;
use starling_protocol::state::{Amount, Entity, EntityKey};
use std::collections::BTreeMap;

/// A deterministic state machine whose whole memory are entities: the coordinator, or a toy in tests.
///
/// An [`Effect::DeadLetter`] must be about the record that is being stepped.
pub trait Machine: Send + 'static {
    /// One event at a time; what follows is returned in order.
    fn step(&mut self, now: Timestamp, event: Event) -> Vec<Effect>;

    /// What the last step brought to its end.
    fn take_milestones(&mut self) -> Vec<Milestone> {
        Vec::new()
    }

    /// What differs from the last call.
    fn take_changes(&mut self) -> Changes;

    /// Rebuilds memory from the log. What is applied is no change.
    fn apply(&mut self, changed: &[Entity], deleted: &[EntityKey]);

    /// The whole memory.
    fn entities(&self) -> Vec<Entity>;

    /// When [`Event::Tick`] is wanted next.
    fn next_timer(&self) -> Option<Timestamp>;

    /// How much there is to do.
    fn load(&self) -> Load;

    /// What was counted since it was made.
    fn counters(&self) -> Counters;

    /// What tenants with a budget have spent in its present window; those that are not named in the settings together.
    fn spending(&self) -> BTreeMap<String, Amount> {
        BTreeMap::new()
    }
}

impl Machine for Coordinator {
    fn step(&mut self, now: Timestamp, event: Event) -> Vec<Effect> {
        Coordinator::step(self, now, event)
    }

    fn take_milestones(&mut self) -> Vec<Milestone> {
        Coordinator::take_milestones(self)
    }

    fn take_changes(&mut self) -> Changes {
        Coordinator::take_changes(self)
    }

    fn apply(&mut self, changed: &[Entity], deleted: &[EntityKey]) {
        Coordinator::apply(self, changed, deleted);
    }

    fn entities(&self) -> Vec<Entity> {
        Coordinator::entities(self)
    }

    fn next_timer(&self) -> Option<Timestamp> {
        [Coordinator::next_timer(self), self.next_report()].into_iter().flatten().min()
    }

    fn load(&self) -> Load {
        Coordinator::load(self)
    }

    fn counters(&self) -> Counters {
        Coordinator::counters(self).clone()
    }

    fn spending(&self) -> BTreeMap<String, Amount> {
        Coordinator::spending(self)
    }
}
