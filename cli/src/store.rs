//! Stores parts of long texts in the content topic, each once.

use crate::{client::acknowledged, exit::CliError, inputs::Part};
use bytes::Bytes;
use futures::future::try_join_all;
use starling_bus::{Bus, DeliveryFuture, OutRecord, PartitionId};
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
        let named: Vec<(EnvelopeId, &Part)> =
            parts.iter().map(|part| (part.content.envelope_id(), part)).collect();
        let mut places: HashMap<EnvelopeId, RecordRef> = {
            let remembered = self.lock();
            named.iter().filter_map(|(id, _)| Some((id.clone(), remembered.get(id)?.clone()))).collect()
        };
        let partitions = bus.partitions(topic).await?;
        let mut wanted = HashSet::new();
        let new = named.iter().filter(|(id, _)| !places.contains_key(id) && wanted.insert(id.clone()));
        let new: Vec<&(EnvelopeId, &Part)> = new.collect();
        for batch in new.chunks(AT_ONCE) {
            let mut sent = Vec::with_capacity(batch.len());
            for (id, part) in batch {
                let at = PartitionId::new(topic, partition_of(id.as_str(), partitions));
                let (record, place) = record(at, codec, tenant, id, part)?;
                sent.push(placed(bus.send(record), place));
            }
            for place in try_join_all(sent).await? {
                places.insert(place.envelope_id.clone(), place);
            }
        }
        let in_order = named.iter().filter_map(|(id, _)| places.get(id).cloned()).collect();
        let mut remembered = self.lock();
        remembered.extend(places);
        if remembered.len() > REMEMBERED {
            remembered.clear(); // storing some of it again does no harm
        }
        Ok(in_order)
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

async fn placed(sent: DeliveryFuture, place: RecordRef) -> Result<RecordRef, CliError> {
    match acknowledged("a part", sent).await?.offset {
        Some(offset) => Ok(RecordRef { offset, ..place }),
        // It is there, but nobody knows where.
        None => {
            Err(CliError::Unavailable("the broker did not say where it put a part: try again".to_owned()))
        }
    }
}
