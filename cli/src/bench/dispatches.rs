//! What coordinators send to the workers, read from the topic itself.

use super::stage::{Stage, reader};
use crate::exit::CliError;
use starling_bus::{LogReader, ReaderEvent};
use starling_protocol::{Codec, Envelope, EnvelopeId, Topic, topic::partition_of};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Instant,
};

/// What was counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Count {
    /// Different dispatches.
    pub(super) known: usize,
    /// Those of them that were there when the coordinator ended.
    pub(super) before: usize,
    /// Records whose dispatch was there before.
    pub(super) repeated: usize,
    /// When the first new dispatch came since then.
    pub(super) first: Option<Instant>,
    /// When that of the last partition came.
    pub(super) last: Option<Instant>,
    /// Partitions of the coordinators that have not dispatched anything new since.
    silent: usize,
}

impl Count {
    /// Whether every partition that had dispatched before has dispatched something new since.
    pub(super) fn all_partitions(&self) -> bool {
        self.silent == 0
    }
}

/// Follows the dispatches.
pub(super) struct Dispatches {
    reader: Arc<dyn LogReader>,
    codec: Codec,
    /// Of the coordinators.
    partitions: i32,
    seen: HashSet<EnvelopeId>,
    /// Which partitions of the coordinators dispatch, and whether they have since the coordinator ended.
    spoke: BTreeMap<i32, bool>,
    count: Count,
}

impl Dispatches {
    pub(super) async fn of(stage: &Stage, partitions: i32) -> Result<Self, CliError> {
        Ok(Self {
            reader: reader(stage.bus.as_ref(), &stage.names.name(&Topic::Worker(None))).await?,
            codec: Codec::default(),
            partitions,
            seen: HashSet::new(),
            spoke: BTreeMap::new(),
            count: Count::default(),
        })
    }

    /// Reads on until something holds. Nothing is lost if it is dropped before.
    pub(super) async fn until(&mut self, holds: impl Fn(&Count) -> bool) -> Result<(), CliError> {
        while !holds(&self.count) {
            let ReaderEvent::Record(record) = self.reader.next().await else { continue };
            let envelope: Envelope =
                self.codec.decode(record.value()).map_err(|error| CliError::Failed(error.to_string()))?;
            self.observe(envelope, Instant::now());
        }
        Ok(())
    }

    /// The coordinator has ended, and all that it sent is read.
    pub(super) fn ended(&mut self) {
        self.count.before = self.count.known;
        self.count.silent = self.spoke.len();
        self.spoke.values_mut().for_each(|spoke| *spoke = false);
        (self.count.first, self.count.last) = (None, None);
    }

    pub(super) fn count(&self) -> &Count {
        &self.count
    }

    fn observe(&mut self, envelope: Envelope, at: Instant) {
        let partition = partition_of(envelope.intent_id.as_str(), self.partitions);
        if !self.seen.insert(envelope.id) {
            self.count.repeated += 1;
            return;
        }
        self.count.known += 1;
        self.count.first.get_or_insert(at);
        let spoke = self.spoke.entry(partition).or_insert(true);
        if !std::mem::replace(spoke, true) {
            self.count.silent -= 1;
            self.count.last = Some(at);
        }
    }
}
