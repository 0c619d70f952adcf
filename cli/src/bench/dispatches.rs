//! What coordinators send to the workers, read from the topic itself.

use super::stage::{Stage, reader};
use crate::exit::CliError;
use starling_bus::{LogReader, ReaderEvent};
use starling_protocol::{Codec, Envelope, EnvelopeId, IntentId, Topic, topic::partition_of};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Instant,
};

/// What was counted.
#[derive(Clone, Debug)]
pub(super) struct Count {
    /// Dispatches that were there when the coordinator ended.
    pub(super) before: usize,
    /// Records whose dispatch was there before.
    pub(super) repeated: usize,
    /// When the first new dispatch came since then.
    pub(super) first: Option<Instant>,
    /// When that of the last partition came.
    pub(super) last: Option<Instant>,
    /// Number of partitions of the coordinators.
    partitions: i32,
    seen: HashSet<EnvelopeId>,
    /// Tasks of each of them that are not dispatched yet.
    left: BTreeMap<i32, usize>,
    /// Those of them that had tasks left when the coordinator ended, and have dispatched nothing new since.
    silent: BTreeSet<i32>,
}

impl Count {
    fn new(partitions: i32, intents: &[IntentId], tasks: usize) -> Self {
        let mut left = BTreeMap::new();
        for intent in intents {
            *left.entry(partition_of(intent.as_str(), partitions)).or_default() += tasks;
        }
        Self {
            before: 0,
            repeated: 0,
            first: None,
            last: None,
            partitions,
            seen: HashSet::new(),
            left,
            silent: BTreeSet::new(),
        }
    }

    /// Different dispatches.
    pub(super) fn known(&self) -> usize {
        self.seen.len()
    }

    /// Whether every partition that had tasks left has dispatched something new since.
    pub(super) fn all_partitions(&self) -> bool {
        self.silent.is_empty()
    }

    fn ended(&mut self) {
        self.before = self.known();
        self.silent = self.left.iter().filter(|(_, left)| **left > 0).map(|(at, _)| *at).collect();
        (self.first, self.last) = (None, None);
    }

    fn observe(&mut self, intent: &IntentId, dispatch: EnvelopeId, at: Instant) {
        if !self.seen.insert(dispatch) {
            self.repeated += 1;
            return;
        }
        self.first.get_or_insert(at);
        let partition = partition_of(intent.as_str(), self.partitions);
        if let Some(left) = self.left.get_mut(&partition) {
            *left = left.saturating_sub(1);
        }
        if self.silent.remove(&partition) {
            self.last = Some(at);
        }
    }
}

/// Follows the dispatches.
pub(super) struct Dispatches {
    reader: Arc<dyn LogReader>,
    codec: Codec,
    count: Count,
}

impl Dispatches {
    /// Of these intents, of so many tasks each.
    pub(super) async fn of(stage: &Stage, intents: &[IntentId], tasks: usize) -> Result<Self, CliError> {
        let partitions = stage.bus.partitions(&stage.names.name(&Topic::Coordinator)).await?;
        let reader = reader(stage.bus.as_ref(), &stage.names.name(&Topic::Worker(None))).await?;
        Ok(Self { reader, codec: Codec::default(), count: Count::new(partitions, intents, tasks) })
    }

    /// Reads on until something holds. Nothing is lost if it is dropped before.
    pub(super) async fn until(&mut self, holds: impl Fn(&Count) -> bool) -> Result<(), CliError> {
        while !holds(&self.count) {
            let ReaderEvent::Record(record) = self.reader.next().await else { continue };
            let envelope: Envelope =
                self.codec.decode(record.value()).map_err(|error| CliError::Failed(error.to_string()))?;
            self.count.observe(&envelope.intent_id, envelope.id, Instant::now());
        }
        Ok(())
    }

    /// The coordinator has ended, and all that it sent is read.
    pub(super) fn ended(&mut self) {
        self.count.ended();
    }

    pub(super) fn count(&self) -> &Count {
        &self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_partition_has_gone_on_only_with_something_new() {
        let intents: Vec<_> = (0..100).map(|n| IntentId::from_string(format!("intent-{n}"))).collect();
        let of = |p| intents.iter().filter(|i| partition_of(i.as_str(), 2) == p).collect::<Vec<_>>()[0];
        let (one, other) = (of(0), of(1));
        let dispatch = |name: &str| EnvelopeId::derive("test", &[name]);
        let mut count = Count::new(2, &[one.clone(), other.clone()], 3);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        count.observe(one, dispatch("a"), at(0));
        count.observe(other, dispatch("b"), at(1));
        count.ended();
        assert_eq!((count.before, count.all_partitions()), (2, false));

        count.observe(one, dispatch("a"), at(2));
        assert_eq!((count.repeated, count.first), (1, None), "a repetition is nothing new");
        count.observe(one, dispatch("c"), at(3));
        count.observe(one, dispatch("d"), at(4));
        assert!(!count.all_partitions());
        count.observe(other, dispatch("e"), at(5));
        assert!(count.all_partitions());
        assert_eq!((count.first, count.last, count.known()), (Some(at(3)), Some(at(5)), 5));
    }

    #[test]
    fn a_partition_without_tasks_is_not_waited_for() {
        let intent = IntentId::from_string("intent");
        let mut count = Count::new(12, std::slice::from_ref(&intent), 1);
        count.observe(&intent, EnvelopeId::derive("test", &["a"]), Instant::now());
        count.ended();
        assert!(count.all_partitions());
    }
}
