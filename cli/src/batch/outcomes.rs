//! The outcomes of a batch's rows: those to come, and those that came while nobody looked.

use super::{
    identity::{BatchTag, Instance},
    settled::Settled,
};
use crate::{client::Client, exit::CliError, installation::all_partitions};
use starling_bus::{Bus, InRecord, LogReader, PartitionId, ReaderEvent, StartAt};
use starling_protocol::{Body, Envelope, Outcome, Timestamp, Topic};
use starling_runtime::Schemas;
use std::{collections::HashMap, sync::Arc};

/// Records of no interest after which others get a turn.
const BREATH: u32 = 64;

/// Reads the topic of outcomes from the time when the batch began. What is found of rows that have not been read from the
/// input yet is remembered by its place: an earlier run had them under way.
pub(super) struct Outcomes {
    bus: Arc<dyn Bus>,
    reader: Arc<dyn LogReader>,
    schemas: Schemas,
    tag: BatchTag,
    retry_failed: bool,
    earlier: HashMap<Instance, (PartitionId, i64)>,
    /// A record that is being read: whoever waits for it may stop waiting and come again.
    in_hand: Option<(Instance, InRecord)>,
}

impl Outcomes {
    /// Reads on from the first outcome that was written then or later.
    ///
    /// # Errors
    /// The broker is unreachable.
    pub(super) async fn since(
        client: &Client,
        tag: BatchTag,
        since: Timestamp,
        retry_failed: bool,
    ) -> Result<Self, CliError> {
        let (bus, schemas) = (client.bus().clone(), client.schemas().clone());
        let topic = client.topic(&Topic::Outcomes);
        let partitions = all_partitions(&topic, bus.partitions(&topic).await?);
        let inspector = bus.inspector();
        let starts = inspector.offsets_since(&partitions, since).await?;
        inspector.rest();
        let reader = bus.reader().await?;
        for (at, start) in partitions.into_iter().zip(starts) {
            let start = start.ok_or_else(|| {
                CliError::Unavailable(format!("nobody tells what lies in {at}: it has no leader"))
            })?;
            reader.add(at, StartAt::Offset(start)).await?;
        }
        Ok(Self { bus, reader, schemas, tag, retry_failed, earlier: HashMap::new(), in_hand: None })
    }

    /// The next outcome of a row that `is_under_way`. Can be dropped without loss.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub(super) async fn next(
        &mut self,
        is_under_way: impl Fn(Instance) -> bool,
        settled: &Settled,
    ) -> Result<(Instance, Outcome), CliError> {
        let mut others = 0;
        loop {
            if let Some((instance, record)) = &self.in_hand {
                let outcome = read(&self.schemas, record).await;
                let instance = *instance;
                self.in_hand = None;
                if let Some(outcome) = outcome? {
                    return Ok((instance, outcome));
                }
            }
            others += 1;
            if others % BREATH == 0 {
                tokio::task::yield_now().await; // the log may never cease
            }
            let record = match self.reader.next().await {
                ReaderEvent::Record(record) => record,
                ReaderEvent::End { .. } => continue,
                ReaderEvent::OutOfRange { at, .. } => {
                    // Retention was faster than we are; what is gone is the oldest.
                    self.reader.remove(&at).await;
                    self.reader.add(at, StartAt::Beginning).await?;
                    continue;
                }
                ReaderEvent::Trouble(error) => {
                    tracing::warn!(%error, "reading the outcomes");
                    continue;
                }
            };
            let key = record.key.as_deref().and_then(|key| std::str::from_utf8(key).ok());
            let Some(instance) = key.and_then(|key| self.tag.instance_of(key)) else { continue };
            if is_under_way(instance) {
                self.in_hand = Some((instance, record));
            } else if settled.may_be_wanted(instance, self.retry_failed) {
                self.earlier.insert(instance, (record.at, record.offset));
            }
        }
    }

    /// The outcome of a row that an earlier run had under way, if it has been met and is still there.
    ///
    /// # Errors
    /// A newer version wrote it.
    pub(super) async fn earlier(&mut self, instance: Instance) -> Result<Option<Outcome>, CliError> {
        let Some(at) = self.earlier.remove(&instance) else { return Ok(None) };
        match self.bus.read(&[at]).await.pop() {
            Some(Ok(record)) => read(&self.schemas, &record).await,
            // If it is submitted again, the coordinator knows it, and nothing more comes of it: it will be said.
            Some(Err(_)) | None => Ok(None),
        }
    }
}

async fn read(schemas: &Schemas, record: &InRecord) -> Result<Option<Outcome>, CliError> {
    if schemas.codec().has_unknown_schema(record.value()) {
        return Err(CliError::Failed(format!(
            "{}, offset {}: a newer version wrote this outcome: use the starling of that version",
            record.at, record.offset
        )));
    }
    let read = schemas.read_patiently::<Envelope>(record.value()).await;
    Ok(match read {
        Ok(Envelope { body: Body::Outcome(outcome), .. }) => Some(outcome),
        Ok(_) | Err(_) => None, // not ours to judge: the log is shared
    })
}
