//! Stores parts of long texts in the content topic, each once.

use crate::{client::PUBLISH_TIMEOUT, exit::CliError, inputs::Part};
use bytes::Bytes;
use futures::future::try_join_all;
use starling_bus::{Bus, Delivered, DeliveryFuture, OutRecord, PartitionId, SendError};
use starling_protocol::{
    Body, Codec, Envelope, EnvelopeId, IntentId, RecordRef, Role, Tag, Timestamp, headers::headers_of,
    topic::partition_of,
};
use starling_runtime::Clock;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Records that are under way at once.
const AT_ONCE: usize = 64;
/// Parts of which it is remembered where they are, so that they are not stored again.
const REMEMBERED: usize = 100_000;

/// What this process has stored. Another one that stores the same has no way to know, short of reading the topic: then it
/// is there twice, under the same id and key, and each intent refers to its own.
#[derive(Default)]
pub(crate) struct Store(Mutex<HashMap<EnvelopeId, RecordRef>>);

impl Store {
    /// Stores those of `parts` that are not stored yet, waits until all are acknowledged, and says where each is.
    ///
    /// # Errors
    /// The broker is unreachable or refuses.
    pub(crate) async fn keep(
        &self,
        bus: &Arc<dyn Bus>,
        topic: &str,
        codec: &Codec,
        tenant: &str,
        parts: &[Part],
    ) -> Result<Vec<RecordRef>, CliError> {
        let mut known = self.lock().clone();
        let partitions = bus.partitions(topic).await?;
        let mut wanted = HashSet::new();
        let named: Vec<(EnvelopeId, &Part)> =
            parts.iter().map(|part| (part.content.envelope_id(), part)).collect();
        let new = named.iter().filter(|(id, _)| !known.contains_key(id) && wanted.insert(id.clone()));
        let new: Vec<&(EnvelopeId, &Part)> = new.collect();
        for batch in new.chunks(AT_ONCE) {
            let mut sent = Vec::with_capacity(batch.len());
            for (id, part) in batch {
                let at = PartitionId::new(topic, partition_of(id.as_str(), partitions));
                let (record, place) = record(at, codec, tenant, id, part)?;
                sent.push(acknowledged(bus.send(record), place));
            }
            for place in try_join_all(sent).await? {
                known.insert(place.envelope_id.clone(), place);
            }
        }
        let places = named.iter().filter_map(|(id, _)| known.get(id).cloned()).collect();
        let mut remembered = self.lock();
        if known.len() > REMEMBERED {
            known.clear(); // storing some of it again does no harm
        }
        *remembered = known;
        Ok(places)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<EnvelopeId, RecordRef>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is stored, and the reference to it as far as it is known before it is.
fn record(
    at: PartitionId,
    codec: &Codec,
    tenant: &str,
    id: &EnvelopeId,
    part: &Part,
) -> Result<(OutRecord, RecordRef), CliError> {
    let envelope = Envelope {
        id: id.clone(),
        intent_id: IntentId::content(id),
        tag: Tag::role(Role::Worker),
        hop: 0,
        created_at: Clock::system().now(),
        deadline: Timestamp::MAX,
        tenant: tenant.to_owned(),
        body: Body::Content(part.content.clone()),
    };
    let payload = codec.encode(&envelope).map_err(|error| CliError::Usage(error.to_string()))?;
    let place =
        RecordRef { tokens: part.tokens, ..RecordRef::of(&at.topic, at.partition, -1, &envelope, &payload) };
    let headers = headers_of(&envelope, None, None);
    let record = OutRecord {
        to: at,
        key: Some(Bytes::copy_from_slice(id.as_str().as_bytes())),
        headers: headers.into_iter().map(|(name, value)| (name, Bytes::from(value))).collect(),
        payload: Some(payload.into()),
    };
    Ok((record, place))
}

async fn acknowledged(sent: DeliveryFuture, place: RecordRef) -> Result<RecordRef, CliError> {
    match tokio::time::timeout(PUBLISH_TIMEOUT, sent).await {
        Ok(Ok(Delivered { offset: Some(offset) })) => Ok(RecordRef { offset, ..place }),
        // It is there, but nobody knows where.
        Ok(Ok(Delivered { offset: None })) => {
            Err(CliError::Unavailable("the broker did not say where it put a part: try again".to_owned()))
        }
        Ok(Err(error @ SendError::Refused { .. })) => Err(CliError::Usage(error.to_string())),
        Ok(Err(error)) => Err(CliError::Unavailable(error.to_string())),
        Err(_) => Err(CliError::Unavailable(format!(
            "the broker did not acknowledge a part within {} s",
            PUBLISH_TIMEOUT.as_secs()
        ))),
    }
}
