//! Asking the registry what ids stand for: each once, however many records wait for it.

use super::{
    client::{Client, Found, Trouble},
    schemas::Unreadable,
};
use crate::metrics::ReasonLabel;
use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use moka::sync::Cache;
use prometheus_client::metrics::{counter::Counter, family::Family};
use starling_protocol::Codec;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

/// Requests that are open at once.
const OPEN: usize = 8;
/// After trouble with an id the registry is left alone with it for so long.
const COOLING: Duration = Duration::from_secs(1);
/// An id that the registry does not know, or whose schema is of no use, is asked about again after so long.
const REFUSAL: Duration = Duration::from_secs(60);
/// A node of a registry may hear of a new id a moment after who got it.
const SECOND_LOOK: Duration = Duration::from_millis(500);

/// What comes of a lookup; `waiting` counts the schemas that there is nobody to ask about.
pub(super) const RESULTS: [&str; 5] = ["found", "unknown", "unusable", "failed", "waiting"];

type Asking = Shared<BoxFuture<'static, Result<(), Unreadable>>>;

/// What is known, and being asked, about ids of schemas.
pub(super) struct Lookups {
    codec: Codec,
    client: Option<Client>,
    patience: Duration,
    /// Ids that could not be resolved, when that was, and why.
    failed: Cache<i32, (Instant, Unreadable)>,
    /// Where there is nobody to ask: when an id, or what a newer version writes, was met first.
    met: Cache<String, Instant>,
    asking: Mutex<HashMap<i32, Asking>>, // at most one for each record in hand
    open: Semaphore,
    /// Lookups by their result, one of [`RESULTS`].
    pub(super) results: Family<ReasonLabel, Counter>,
}

impl Lookups {
    /// Lets `codec` and its clones learn from the registry of `client`. Without one, ids stay unknown.
    pub(super) fn new(codec: Codec, client: Option<Client>, patience: Duration) -> Self {
        let entries = u64::try_from(codec.limits().max_schemas).unwrap_or(u64::MAX);
        Self {
            codec,
            client,
            patience,
            failed: Cache::builder().max_capacity(entries).time_to_live(REFUSAL).build(),
            // Whoever meets it again after a long time begins to wait anew: it may be another upgrade.
            met: Cache::builder().max_capacity(entries).time_to_idle(patience.max(REFUSAL)).build(),
            asking: Mutex::default(),
            open: Semaphore::new(OPEN),
            results: Family::default(),
        }
    }

    /// Whether there is a registry to ask.
    pub(super) fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// Lets the codec learn what `id` stands for: one request at most, which goes on even if nobody waits
    /// for it any more.
    pub(super) async fn resolve(self: &Arc<Self>, id: i32) -> Result<(), Unreadable> {
        if self.client.is_none() {
            return Err(self.nobody_to_ask(id));
        }
        if let Some((at, failure)) = self.failed.get(&id)
            && (matches!(failure, Unreadable::Never(_)) || at.elapsed() < COOLING)
        {
            return Err(failure);
        }
        let asking = match self.lock().entry(id) {
            std::collections::hash_map::Entry::Occupied(asking) => asking.get().clone(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let asking = self.clone().ask(id).boxed().shared();
                tokio::spawn(asking.clone());
                place.insert(asking).clone()
            }
        };
        asking.await
    }

    async fn ask(self: Arc<Self>, id: i32) -> Result<(), Unreadable> {
        let resolved = self.request(id).await;
        let word = match &resolved {
            Ok(()) => "found",
            Err((word, _)) => *word,
        };
        self.results.get_or_create(&ReasonLabel { reason: word.to_owned() }).inc();
        let resolved = resolved.map_err(|(_, failure)| failure);
        if let Err(failure) = &resolved {
            tracing::warn!(id, %failure, "a schema cannot be had");
            self.failed.insert(id, (Instant::now(), failure.clone()));
        }
        self.lock().remove(&id);
        resolved
    }

    async fn request(&self, id: i32) -> Result<(), (&'static str, Unreadable)> {
        let Some(client) = &self.client else { return Err(("failed", self.nobody_to_ask(id))) };
        let url = client.shown();
        let _place = self.open.acquire().await; // an error would mean that it was closed, which nobody does
        let mut found = client.schema(id).await;
        if matches!(found, Err(Trouble::Missing)) {
            sleep(SECOND_LOOK).await;
            found = client.schema(id).await;
        }
        match found {
            Ok(found) => self.learn(id, &found).map_err(|why| {
                let never = format!("schema id {id} of the schema registry {url} is of no use here: {why}");
                ("unusable", Unreadable::Never(never))
            }),
            Err(Trouble::Missing) => {
                let never = format!("the schema registry {url} does not know schema id {id}");
                Err(("unknown", Unreadable::Never(never)))
            }
            // Also a refusal: credentials and addresses get corrected, and the record would be lost.
            Err(Trouble::Passing(why) | Trouble::Refused(why) | Trouble::Conflict(why)) => {
                let later = format!("schema id {id} cannot be asked of the schema registry {url}: {why}");
                Err(("failed", Unreadable::Later(later)))
            }
        }
    }

    fn learn(&self, id: i32, found: &Found) -> Result<(), String> {
        if let Some(kind) = found.kind.as_deref().filter(|kind| *kind != "AVRO") {
            return Err(format!("it is no Avro schema but {kind}"));
        }
        if found.references.as_ref().is_some_and(|references| !references.is_empty()) {
            return Err("it refers to other schemas".to_owned());
        }
        self.codec.learn(id, &found.schema).map_err(|error| error.to_string())?;
        tracing::info!(id, "learned a schema from the registry");
        Ok(())
    }

    fn nobody_to_ask(&self, id: i32) -> Unreadable {
        let what = format!("schema id {id} of a schema registry is unknown, and registry.url is empty");
        if self.is_patient(&what) { Unreadable::Later(what) } else { Unreadable::Never(what) }
    }

    /// What becomes of a value that only a newer version can read, for that reason.
    pub(super) fn keep_for_successor(&self, why: String) -> Unreadable {
        if self.is_patient(&why) { Unreadable::Newer(why) } else { Unreadable::Never(why) }
    }

    /// Whether there is still patience with values that cannot be read for that reason. Says so once.
    fn is_patient(&self, why: &str) -> bool {
        let since = self.met.get_with_by_ref(why, || {
            tracing::warn!(why, patience = ?self.patience, "a record cannot be read by this process: it waits");
            self.results.get_or_create(&ReasonLabel { reason: "waiting".to_owned() }).inc();
            Instant::now()
        });
        since.elapsed() < self.patience
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Asking>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
