//! Reads what envelopes refer to, with a cache and one read for each record however many ask for it.

use crate::registry::{Schemas, Unreadable};
use futures::{FutureExt, future::BoxFuture, future::Shared};
use moka::sync::Cache;
use starling_bus::{Bus, InRecord, PartitionId, ReadError};
use starling_protocol::{Envelope, RecordRef, ids::content_digest};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Bounds of a [`ContentReader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentOptions {
    /// Largest total of the encoded sizes of cached envelopes, in bytes. Default 32 MiB; an envelope in
    /// memory takes about as much again.
    pub cache_bytes: u64,
    /// Most records in one read from the bus. Default 64.
    pub batch: usize,
}

impl Default for ContentOptions {
    fn default() -> Self {
        Self { cache_bytes: 32 << 20, batch: 64 }
    }
}

/// Why a referenced record could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// It is not there any more, for good.
    #[error("the record is gone: {0}")]
    Gone(String),
    /// What lies there is another record, or not readable, for good.
    #[error("the record is not the one referred to: {0}")]
    Mismatch(String),
    /// The bus is in trouble; try again.
    #[error("the record cannot be read at present: {0}")]
    Retry(String),
    /// Its schema cannot be had at present; try again, however often.
    #[error("the record cannot be read yet: {0}")]
    Wait(String),
}

type Place = (PartitionId, i64);
type Loading = Shared<BoxFuture<'static, Arc<Vec<Result<Loaded, ContentError>>>>>;

/// Reads referenced envelopes.
pub struct ContentReader {
    bus: Arc<dyn Bus>,
    schemas: Schemas,
    batch: usize,
    cache: Cache<Place, Loaded>,
    /// Records that are being read now: the read and the position in it.
    loading: Arc<Mutex<HashMap<Place, (Loading, usize)>>>,
}

#[derive(Clone)]
struct Loaded {
    envelope: Arc<Envelope>,
    /// Absent for what this process wrote itself: it knows what it wrote.
    digest: Option<Arc<str>>,
    bytes: u32,
}

impl ContentReader {
    /// A reader with an empty cache.
    pub fn new(bus: Arc<dyn Bus>, schemas: impl Into<Schemas>, options: ContentOptions) -> Self {
        let cache = Cache::builder()
            .max_capacity(options.cache_bytes)
            .weigher(|_: &Place, loaded: &Loaded| loaded.bytes.saturating_add(256))
            .build();
        let schemas = schemas.into();
        Self { bus, schemas, batch: options.batch.max(1), cache, loading: Arc::default() }
    }

    /// The envelope that `at` refers to, checked against its id and, where given, its digest.
    ///
    /// # Errors
    /// See [`ContentError`].
    pub async fn get(&self, at: &RecordRef) -> Result<Arc<Envelope>, ContentError> {
        self.get_many(std::slice::from_ref(at))
            .await
            .pop()
            .unwrap_or_else(|| Err(ContentError::Retry("nothing was read".to_owned())))
    }

    /// The envelopes that `refs` refer to, in that order; what is not cached comes in one read.
    pub async fn get_many(&self, refs: &[RecordRef]) -> Vec<Result<Arc<Envelope>, ContentError>> {
        let places: Vec<Place> = refs.iter().map(place).collect();
        let mut found: Vec<Option<Loaded>> = places.iter().map(|place| self.cache.get(place)).collect();
        let waiting = self.load(&places, &found);
        let mut faults: HashMap<usize, ContentError> = HashMap::new();
        for (index, (loading, position)) in waiting {
            match loading.await.get(position) {
                Some(Ok(loaded)) => found[index] = Some(loaded.clone()),
                Some(Err(fault)) => {
                    faults.insert(index, fault.clone());
                }
                None => {}
            }
        }
        refs.iter()
            .zip(found)
            .enumerate()
            .map(|(index, (at, loaded))| match (loaded, faults.remove(&index)) {
                (Some(loaded), _) => check(at, &loaded),
                (None, Some(fault)) => Err(fault),
                (None, None) => Err(ContentError::Retry(format!("{}: nothing was read", name(at)))),
            })
            .collect()
    }

    /// Remembers an envelope that this process wrote.
    pub fn remember(&self, at: PartitionId, offset: i64, envelope: Arc<Envelope>, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.cache.insert((at, offset), Loaded { envelope, digest: None, bytes });
    }

    /// For each place that was not found, the read that will bring it.
    fn load(&self, places: &[Place], found: &[Option<Loaded>]) -> Vec<(usize, (Loading, usize))> {
        let mut loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing: Vec<Place> = Vec::new();
        for (place, _) in places.iter().zip(found).filter(|(_, found)| found.is_none()) {
            if !loading.contains_key(place) && !missing.contains(place) {
                missing.push(place.clone());
            }
        }
        for batch in missing.chunks(self.batch) {
            let read = self.read(batch.to_vec());
            for (position, place) in batch.iter().enumerate() {
                loading.insert(place.clone(), (read.clone(), position));
            }
            // The read goes on even if who asked first is dropped: others may wait for it.
            tokio::spawn(read);
        }
        places
            .iter()
            .zip(found)
            .enumerate()
            .filter(|(_, (_, found))| found.is_none())
            .filter_map(|(index, (place, _))| Some((index, loading.get(place)?.clone())))
            .collect()
    }

    fn read(&self, batch: Vec<Place>) -> Loading {
        let (bus, schemas) = (self.bus.clone(), self.schemas.clone());
        let (cache, loading) = (self.cache.clone(), self.loading.clone());
        async move {
            let mut loaded = Vec::with_capacity(batch.len());
            for record in bus.read(&batch).await {
                loaded.push(decode(&schemas, record).await);
            }
            for (place, loaded) in batch.iter().zip(&loaded) {
                if let Ok(loaded) = loaded {
                    cache.insert(place.clone(), loaded.clone());
                }
            }
            let mut loading = loading.lock().unwrap_or_else(PoisonError::into_inner);
            for place in &batch {
                loading.remove(place);
            }
            Arc::new(loaded)
        }
        .boxed()
        .shared()
    }
}

fn place(at: &RecordRef) -> Place {
    (PartitionId::new(at.topic.as_str(), at.partition), at.offset)
}

fn name(at: &RecordRef) -> String {
    format!("{}[{}]@{}", at.topic, at.partition, at.offset)
}

async fn decode(schemas: &Schemas, record: Result<InRecord, ReadError>) -> Result<Loaded, ContentError> {
    let record = record.map_err(|error| match error {
        ReadError::Gone(what) => ContentError::Gone(what),
        ReadError::Retry(what) => ContentError::Retry(what),
    })?;
    let value = record.value();
    let envelope = schemas.read::<Envelope>(value).await.map_err(|error| {
        let what = format!("{}@{}: {error}", record.at, record.offset);
        match error {
            Unreadable::Never(_) => ContentError::Mismatch(what),
            Unreadable::Later(_) | Unreadable::Newer(_) => ContentError::Wait(what),
        }
    })?;
    Ok(Loaded {
        envelope: Arc::new(envelope),
        digest: Some(content_digest(value).into()),
        bytes: u32::try_from(value.len()).unwrap_or(u32::MAX),
    })
}

fn check(at: &RecordRef, loaded: &Loaded) -> Result<Arc<Envelope>, ContentError> {
    if loaded.envelope.id != at.envelope_id {
        return Err(ContentError::Mismatch(format!(
            "{} holds envelope {}, expected {}",
            name(at),
            loaded.envelope.id,
            at.envelope_id
        )));
    }
    match &loaded.digest {
        Some(digest) if !at.digest.is_empty() && **digest != *at.digest => {
            Err(ContentError::Mismatch(format!("{} has digest {digest}, expected {}", name(at), at.digest)))
        }
        _ => Ok(loaded.envelope.clone()),
    }
}
