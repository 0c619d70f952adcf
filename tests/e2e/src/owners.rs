//! What topics tell of those who have owned the coordinator's only partition.

use crate::Logs;
use anyhow::{Result, bail, ensure};
use starling_engine::statelog::{Ignored, LogFold, Observed};
use starling_protocol::{Envelope, Topic, state::StateRecord};
use std::collections::HashMap;

/// Who has written to the state log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Owners {
    /// How many, one after the other.
    pub epochs: usize,
    /// Records of theirs that came when another one had taken over, and do not count.
    pub stale: usize,
}

impl Logs {
    /// Offsets of the starts of epochs in the only partition of the state log.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn epochs(&self) -> Result<Vec<i64>> {
        let records = self.state(0).await?;
        let is_start = |(_, record): &&(i64, StateRecord)| matches!(record, StateRecord::EpochStart(_));
        Ok(records.iter().filter(is_start).map(|(offset, _)| *offset).collect())
    }

    /// Reads the only partition of the state log as the services do.
    ///
    /// # Errors
    /// It cannot be read; a record counts though its epoch has ended, or does not count for another reason.
    pub async fn owners(&self) -> Result<Owners> {
        let mut fold = LogFold::new(1);
        let (mut epoch, mut owners) = (None, Owners::default());
        for (offset, record) in self.state(0).await? {
            let of = match &record {
                StateRecord::EpochStart(_) => None,
                StateRecord::Decision(decision) => Some(decision.epoch),
                StateRecord::SnapshotChunk(chunk) => Some(chunk.epoch),
            };
            match fold.observe(offset, record)? {
                Observed::Epoch => {
                    epoch = Some(offset);
                    owners.epochs += 1;
                }
                Observed::Ignored(Ignored::StaleEpoch) => owners.stale += 1,
                Observed::Ignored(other) => bail!("the record at {offset} of the state log: {other:?}"),
                _ => ensure!(of == epoch, "the record at {offset} counts though its epoch has ended"),
            }
        }
        Ok(owners)
    }

    /// What was decided once was decided once: the same id never has two contents.
    ///
    /// # Errors
    /// It has, or the topics cannot be read.
    pub async fn decided_once(&self) -> Result<()> {
        for topic in [Topic::Planner, Topic::Worker(None), Topic::Outcomes] {
            let mut seen: HashMap<String, Vec<u8>> = HashMap::new();
            for record in self.topic(&topic).await? {
                let envelope: Envelope = self.codec().decode(record.value())?;
                let known = seen.entry(envelope.id.to_string()).or_insert_with(|| record.value().to_vec());
                ensure!(known == record.value(), "{} of {topic:?} was decided twice", envelope.id);
            }
        }
        Ok(())
    }
}
