//! From a dead letter to the record that takes its place again.

use super::letter::{Contents, Letter};
use crate::installation::Inbox;
use bytes::Bytes;
use starling_bus::{Bus, InRecord, OutRecord, PartitionId, ReadError};
use starling_protocol::{
    Envelope, Timestamp, Topic,
    dead_letter::{COUNT, OmittedValue, own_headers},
    headers::STARLING_INTENT_ID,
    ids::content_digest,
    topic::partition_of,
};
use starling_runtime::Schemas;
use std::{collections::HashMap, sync::Arc, time::Duration};

/// Makes records of letters.
pub struct Replay {
    bus: Arc<dyn Bus>,
    schemas: Schemas,
    /// Where records may go: a letter's headers alone must not say that.
    inboxes: Vec<Inbox>,
    horizon: Duration,
    now: Timestamp,
    partitions: HashMap<String, i32>,
}

impl Replay {
    /// Into these inboxes. An intent without an id of its own is not sent again when it was buried longer ago than
    /// `horizon`: nobody would know any more that it was there before.
    pub fn new(
        bus: Arc<dyn Bus>,
        schemas: Schemas,
        inboxes: Vec<Inbox>,
        horizon: Duration,
        now: Timestamp,
    ) -> Self {
        Self { bus, schemas, inboxes, horizon, now, partitions: HashMap::new() }
    }

    /// The record that takes the place of the letter's again: key, value and headers as they were, but for the count of
    /// its burials, and for the id of an intent that had its id from the place where it lay.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn record(&mut self, letter: &Letter) -> Result<OutRecord, String> {
        let burial = &letter.burial;
        let inbox = self.inboxes.iter().find(|inbox| inbox.name == burial.topic).cloned();
        let inbox = inbox.ok_or_else(|| {
            format!("it came from {}, which is no inbox of this installation", burial.topic)
        })?;
        let count = self.partitions_of(&inbox.name).await?;
        if inbox.topic == Topic::Intents
            && letter.intent_by_place
            && burial.time.plus(self.horizon) < self.now
        {
            return Err(format!(
                "it was buried more than coordinator.dedup_horizon ({} h) ago, so that nobody would recognise it; \
                 publish its value anew if it is still wanted",
                self.horizon.as_secs() / 3600
            ));
        }
        let payload = match &burial.omitted {
            None => letter.record.payload.clone(),
            Some(omitted) => Some(self.original(letter, omitted).await?),
        };
        let partition = match &inbox.topic {
            Topic::Coordinator => self.intent(letter, payload.as_ref()).await,
            _ => None,
        };
        let partition = match partition {
            Some(intent) => partition_of(&intent, count),
            None => burial.partition.rem_euclid(count.max(1)),
        };
        let mut headers: Vec<(String, Bytes)> = own_headers(&letter.record.headers).cloned().collect();
        headers.push((COUNT.to_owned(), burial.count.to_string().into()));
        let has_id = headers.iter().any(|(name, _)| name == STARLING_INTENT_ID);
        // Its id comes from where it lay, and it will lie elsewhere.
        if let Some(intent) = letter.intent.as_ref().filter(|_| letter.intent_by_place && !has_id) {
            headers.push((STARLING_INTENT_ID.to_owned(), Bytes::from(intent.as_str().to_owned())));
        }
        let to = PartitionId::new(inbox.name, partition);
        Ok(OutRecord { to, key: letter.record.key.clone(), headers, payload })
    }

    async fn partitions_of(&mut self, topic: &str) -> Result<i32, String> {
        if let Some(count) = self.partitions.get(topic) {
            return Ok(*count);
        }
        let count = self.bus.partitions(topic).await.map_err(|error| error.to_string())?;
        self.partitions.insert(topic.to_owned(), count);
        Ok(count)
    }

    /// The value of a letter that was too large, from where it lay.
    async fn original(&self, letter: &Letter, omitted: &OmittedValue) -> Result<Bytes, String> {
        let burial = &letter.burial;
        let at = PartitionId::new(burial.topic.as_str(), burial.partition);
        let read = self.bus.read(&[(at.clone(), burial.offset)]).await.pop();
        let place = format!("{at}@{}", burial.offset);
        let original = match read {
            Some(Ok(record)) => record,
            Some(Err(ReadError::Gone(_))) | None => {
                return Err(format!(
                    "its value was too large to be buried, and {place}, where it lay, is gone"
                ));
            }
            Some(Err(error)) => return Err(format!("its value lies in {place}: {error}")),
        };
        if !is_original(&original, letter, omitted) {
            return Err(format!(
                "its value was too large to be buried, and in {place} lies another record now"
            ));
        }
        Ok(original.payload.unwrap_or_default())
    }

    /// The intent that an input of the coordinator is about.
    async fn intent(&self, letter: &Letter, payload: Option<&Bytes>) -> Option<String> {
        let intent = match (&letter.contents, payload) {
            (Contents::Omitted, Some(value)) => {
                let read = self.schemas.read::<Envelope>(value).await;
                read.map(|envelope| envelope.intent_id).ok().or_else(|| letter.intent.clone())
            }
            _ => letter.intent.clone(),
        };
        intent.map(|intent| intent.as_str().to_owned())
    }
}

/// Whether a record is the one that the letter was made of. Letters of the first versions tell neither size nor
/// digest; their keys and headers must do.
fn is_original(record: &InRecord, letter: &Letter, omitted: &OmittedValue) -> bool {
    let value = record.value();
    record.key == letter.record.key
        && omitted.bytes.is_none_or(|bytes| bytes == value.len())
        && omitted.digest.as_ref().is_none_or(|digest| *digest == content_digest(value))
        && own_headers(&record.headers).eq(own_headers(&letter.record.headers))
}
