//! What is not finished in an installation, as its topics and groups tell: effects that are not marked done, records
//! that are not committed.

use crate::Logs;
use anyhow::{Result, bail};
use bytes::Bytes;
use starling_bus::{InRecord, PartitionId};
use starling_engine::{
    offsets::{MAX_METADATA_BYTES, OffsetTracker, Taken},
    statelog::LogFold,
};
use starling_protocol::{Envelope, IntentId, Topic};
use std::collections::{BTreeMap, BTreeSet};

/// The inboxes, and the roles that read them.
pub(crate) fn inboxes() -> [(Topic, &'static str); 5] {
    [
        (Topic::Intents, "intake"),
        (Topic::Coordinator, "coordinator"),
        (Topic::Planner, "planner"),
        (Topic::Worker(None), "worker"),
        (Topic::Critic, "critic"),
    ]
}

impl Logs {
    /// Effects to `topic` that the state log does not say to be done.
    ///
    /// # Errors
    /// The log cannot be read, or does not count.
    pub async fn undone_effects(&self, topic: &Topic) -> Result<usize> {
        let partitions = self.partitions(&Topic::State).await?;
        let topic = self.names().name(topic);
        let mut undone = 0;
        for partition in 0..partitions {
            let mut fold = LogFold::new(partitions);
            for (offset, record) in self.state(partition).await? {
                fold.observe(offset, record)?;
            }
            let pending =
                fold.position().into_iter().flat_map(|position| position.pending.values().flatten());
            undone += pending.filter(|effect| effect.topic == topic).count();
        }
        Ok(undone)
    }

    /// Records of an inbox that its group has not committed as done.
    ///
    /// # Errors
    /// The broker does not tell.
    pub async fn uncommitted(&self, topic: &Topic, role: &str) -> Result<Vec<InRecord>> {
        let partitions = self.all_of(topic).await?;
        let group = self.names().group(role);
        let inspector = self.bus().inspector();
        let marks = inspector.watermarks(&partitions).await?;
        let committed = inspector.committed(&group, &partitions).await?;
        let (mut trackers, mut behind) = (BTreeMap::new(), Vec::new());
        for ((at, marks), committed) in partitions.into_iter().zip(marks).zip(committed) {
            let Some(marks) = marks else { bail!("{at} does not tell where it ends") };
            let tracker = match committed {
                Some(committed) if committed.offset >= marks.high => continue,
                Some(committed) => {
                    OffsetTracker::restore(committed.offset, &committed.metadata, MAX_METADATA_BYTES).0
                }
                None => OffsetTracker::default(),
            };
            if marks.low >= marks.high {
                continue;
            }
            trackers.insert(at.clone(), tracker);
            behind.push(at);
        }
        let mut records = self.records_of(&behind).await?;
        records.retain(|record| {
            trackers.get_mut(&record.at).is_some_and(|tracker| tracker.taken(record.offset) == Taken::New)
        });
        Ok(records)
    }

    /// Inboxes with records that their groups have not read to the end, and how many; empty once everything is done.
    ///
    /// # Errors
    /// The broker does not tell.
    pub async fn lags(&self) -> Result<BTreeMap<String, i64>> {
        let mut lags = BTreeMap::new();
        for (topic, role) in inboxes() {
            let lag = self.lag(&self.all_of(&topic).await?, role).await?;
            if lag > 0 {
                lags.insert(self.names().name(&topic), lag);
            }
        }
        Ok(lags)
    }

    async fn lag(&self, partitions: &[PartitionId], role: &str) -> Result<i64> {
        let inspector = self.bus().inspector();
        let marks = inspector.watermarks(partitions).await?;
        let committed = inspector.committed(&self.names().group(role), partitions).await?;
        let mut lag = 0;
        for ((marks, committed), at) in marks.into_iter().zip(committed).zip(partitions) {
            let Some(marks) = marks else { bail!("{at} does not tell where it ends") };
            let next = committed.map_or(marks.low, |committed| committed.offset);
            lag += marks.high - next.max(marks.low);
        }
        Ok(lag)
    }

    /// All outcomes: for each intent its different records, byte for byte.
    ///
    /// # Errors
    /// The topic cannot be read, or holds what is no outcome.
    pub async fn outcomes(&self) -> Result<BTreeMap<IntentId, BTreeSet<Bytes>>> {
        let mut outcomes: BTreeMap<IntentId, BTreeSet<Bytes>> = BTreeMap::new();
        for record in self.topic(&Topic::Outcomes).await? {
            let envelope: Envelope = self.codec().decode(record.value())?;
            outcomes.entry(envelope.intent_id).or_default().insert(record.payload.unwrap_or_default());
        }
        Ok(outcomes)
    }
}
