//! What one decision is made of.

use super::size::{RECORD_OVERHEAD, upper_bound};
use starling_protocol::Timestamp;
use starling_protocol::state::{Entity, EntityKey, LoggedEffect};
use std::collections::BTreeMap;

/// What followed from one input. It is decided as a whole or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// The time at which it was stepped.
    pub now: Timestamp,
    /// Inbox offset after the input; `None` if it did not come from the inbox.
    pub next_input: Option<i64>,
    /// Entities that are new or changed, whole.
    pub changed: Vec<Entity>,
    /// Entities that are gone.
    pub deleted: Vec<EntityKey>,
    /// What is to be sent, in order.
    pub effects: Vec<LoggedEffect>,
}

impl Step {
    /// No encoding of the step's content is longer, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        upper_bound(&self.changed)
            .saturating_add(upper_bound(&self.deleted))
            .saturating_add(upper_bound(&self.effects))
    }
}

/// Steps that are decided together, cut by encoded size.
#[derive(Debug)]
pub struct Batch {
    limit: usize,
    size: usize,
    steps: usize,
    pub(super) now: Timestamp,
    pub(super) next_input: Option<i64>,
    /// The last word on each entity; `None` if it is gone.
    entities: BTreeMap<EntityKey, Option<Entity>>,
    pub(super) effects: Vec<LoggedEffect>,
}

impl Batch {
    /// An empty batch for a record of at most `max_record_bytes`.
    #[must_use]
    pub fn new(max_record_bytes: usize) -> Self {
        Self {
            limit: max_record_bytes.saturating_sub(RECORD_OVERHEAD),
            size: 0,
            steps: 0,
            now: Timestamp(i64::MIN),
            next_input: None,
            entities: BTreeMap::new(),
            effects: Vec::new(),
        }
    }

    /// Adds a step, or gives it back if the record would become too large: then it begins the next
    /// batch. A step that [`Batch::can_hold`] refuses never gets in.
    ///
    /// # Errors
    /// The step, boxed, if it does not fit.
    pub fn push(&mut self, step: Step) -> Result<(), Box<Step>> {
        let size = self.size.saturating_add(step.size());
        if size > self.limit {
            return Err(Box::new(step));
        }
        self.size = size;
        self.steps += 1;
        self.now = self.now.max(step.now);
        self.next_input = self.next_input.max(step.next_input);
        for key in step.deleted {
            self.entities.insert(key, None);
        }
        for entity in step.changed {
            self.entities.insert(entity.key(), Some(entity));
        }
        self.effects.extend(step.effects);
        Ok(())
    }

    /// Whether a step of that size fits into a batch of its own.
    #[must_use]
    pub fn can_hold(max_record_bytes: usize, size: usize) -> bool {
        size <= max_record_bytes.saturating_sub(RECORD_OVERHEAD)
    }

    /// Number of steps.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Effects so far.
    #[must_use]
    pub fn effects(&self) -> &[LoggedEffect] {
        &self.effects
    }

    pub(super) fn take_entities(&mut self) -> (Vec<Entity>, Vec<EntityKey>) {
        let mut changed = Vec::new();
        let mut deleted = Vec::new();
        for (key, entity) in std::mem::take(&mut self.entities) {
            match entity {
                Some(entity) => changed.push(entity),
                None => deleted.push(key),
            }
        }
        (changed, deleted)
    }
}
