//! A model whose replies are kept: who asks what was asked before gets the reply that was given then.
//!
//! Stands outside of the retries, limits and the circuit breaker of an endpoint: what is answered here never reaches them.
//! Questions are the same if who is asked, the messages and the parameters are (see [`key`]). Of those who ask the same at
//! the same time one makes the call (see [`flight`]). Only complete replies are kept: no failure, and nothing of a stream
//! that was not read to its end.

mod bounded;
mod disk;
mod entry;
mod figures;
mod flight;
mod key;
mod store;

pub use bounded::CacheBounds;
pub use figures::{CacheCounts, CacheFigures, Source};

use crate::{
    ChatReply, ChatRequest, Model, ModelChoice, ModelError, ModelErrorKind, ModelInfo, Purposes, Reuse,
    StreamEvent, TextStream,
};
use async_trait::async_trait;
use disk::Disk;
use entry::Entry;
use figures::Tally;
use flight::{Boarded, End, Flights, Turn};
use futures::{StreamExt as _, stream};
use key::Key;
use starling_protocol::CallReport;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use tokio::time::Instant;

/// What is kept, where and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Whose replies.
    pub purposes: Purposes,
    /// How long a reply may be given again.
    pub ttl: Duration,
    /// How much in memory.
    pub memory: CacheBounds,
    /// On disk as well, so that it survives the process.
    pub disk: Option<DiskOptions>,
}

/// Where on disk, and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// The folder. Several processes may have the same.
    pub folder: PathBuf,
    /// How much.
    pub bounds: CacheBounds,
}

/// The folder of the cache cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the folder {} for replies cannot be used: {source}", folder.display())]
pub struct CacheFolderError {
    /// Which.
    pub folder: PathBuf,
    /// Why not.
    pub source: io::Error,
}

/// Wraps a model.
pub struct CachedModel {
    model: Arc<dyn Model>,
    cache: Arc<Cache>,
}

struct Cache {
    purposes: Purposes,
    store: Store,
    flights: Arc<Flights>,
    tally: Tally,
    /// Largest reply that is put together from a stream to be kept, in bytes.
    longest: u64,
    /// Whom it stands in front of.
    info: ModelInfo,
}

/// What is known of a question before it is asked.
enum Answer {
    /// The reply.
    Known(Entry),
    /// There is none: ask.
    Ask(Pending),
}

/// A question that is being asked.
struct Pending {
    cache: Arc<Cache>,
    key: Key,
    turn: Turn,
}

impl CachedModel {
    /// Keeps the replies of `model`.
    ///
    /// # Errors
    /// There is to be a folder on disk that cannot be used.
    pub fn new(model: Arc<dyn Model>, options: CacheOptions) -> Result<Self, CacheFolderError> {
        let CacheOptions { purposes, ttl, memory, disk } = options;
        let longest = disk.as_ref().map_or(memory.bytes, |disk| disk.bounds.bytes.max(memory.bytes));
        let disk = match disk {
            Some(DiskOptions { folder, bounds }) => match Disk::open(&folder, bounds) {
                Ok(disk) => Some(disk),
                Err(source) => return Err(CacheFolderError { folder, source }),
            },
            None => None,
        };
        let cache = Cache {
            purposes,
            store: Store::new(ttl, memory, disk),
            flights: Arc::default(),
            tally: Tally::default(),
            longest,
            info: model.info(),
        };
        Ok(Self { model, cache: Arc::new(cache) })
    }

    /// What it has counted so far.
    #[must_use]
    pub fn figures(&self) -> CacheFigures {
        let (memory, disk) = self.cache.store.sizes();
        CacheFigures { counts: self.cache.tally.counts(), memory, disk }
    }

    fn key(&self, request: &ChatRequest) -> Key {
        let mut provenance = self.model.provenance(request.purpose);
        match &request.model {
            None => {}
            Some(ModelChoice::Role(role)) => {
                provenance.push_str("\nasked for what is ");
                provenance.push_str(&self.model.provenance(*role));
            }
            Some(ModelChoice::Named(name)) => {
                provenance.push_str("\nasked for ");
                provenance.push_str(name);
            }
        }
        Key::of(&provenance, request)
    }
}

impl Cache {
    /// Looks for the reply to a question, in what is kept and with those who ask the same just now.
    async fn look_up(self: &Arc<Self>, key: Key, request: &ChatRequest) -> Result<Answer, ModelError> {
        let purpose = request.purpose;
        if request.reuse == Reuse::Allowed
            && let Some(entry) = self.store.recall(&key)
        {
            self.tally.hit(purpose, Source::Memory);
            return Ok(Answer::Known(entry));
        }
        let turn = match self.flights.board((key, request.reuse), request.deadline).await {
            Boarded::Turn(turn) => turn,
            Boarded::Ended(End::Reply(entry)) => {
                self.tally.hit(purpose, Source::Flight);
                return Ok(Answer::Known(entry));
            }
            // It was one call, which is accounted for where it was made.
            Boarded::Ended(End::Hopeless(error)) => return Err(ModelError { report: free(&error), ..error }),
            Boarded::TooLate => return Err(self.too_late()),
        };
        // It may have come while this one waited for its turn; and only one looks on disk.
        if request.reuse == Reuse::Allowed
            && let Some((entry, source)) = self.store.find(key).await
        {
            turn.end(End::Reply(entry.clone()));
            self.tally.hit(purpose, source);
            return Ok(Answer::Known(entry));
        }
        self.tally.miss(purpose);
        Ok(Answer::Ask(Pending { cache: self.clone(), key, turn }))
    }

    fn too_late(&self) -> ModelError {
        ModelError {
            kind: ModelErrorKind::Deadline,
            message: "the deadline came while an equal question was being answered".to_owned(),
            endpoint: self.info.endpoint.clone(),
            report: CallReport { model: self.info.model.clone(), ..CallReport::default() },
        }
    }
}

/// The report of somebody who met a failure without a call.
fn free(error: &ModelError) -> CallReport {
    CallReport { model: error.report.model.clone(), ..CallReport::default() }
}

impl Pending {
    async fn answered(self, text: &str, report: &CallReport) {
        let Pending { cache, key, turn } = self;
        let entry = cache.store.remember(key, text, report);
        turn.end(End::Reply(entry.clone()));
        cache.store.write(key, entry).await;
    }

    fn failed(self, error: &ModelError) {
        if is_hopeless(error.kind) {
            self.turn.end(End::Hopeless(error.clone()));
        }
    }
}

/// Whether everybody who asks the same meets the same failure.
fn is_hopeless(kind: ModelErrorKind) -> bool {
    // The deadline is that of the one who asked.
    !kind.is_retryable() && kind != ModelErrorKind::Deadline
}

#[async_trait]
impl Model for CachedModel {
    fn info(&self) -> ModelInfo {
        self.model.info()
    }

    fn wrapped(&self) -> Option<&dyn Model> {
        Some(self.model.as_ref())
    }

    async fn chat(&self, request: ChatRequest) -> Result<ChatReply, ModelError> {
        if !self.cache.purposes.contains(request.purpose) {
            return self.model.chat(request).await;
        }
        let asked = Instant::now();
        let pending = match self.cache.look_up(self.key(&request), &request).await? {
            Answer::Known(entry) => return Ok(entry.reply(asked)),
            Answer::Ask(pending) => pending,
        };
        match self.model.chat(request).await {
            Ok(reply) => {
                // What a tool will say is not known here: a conversation that calls one goes on, and its end is kept.
                if reply.calls().is_empty() {
                    pending.answered(&reply.text, &reply.report).await;
                }
                Ok(reply)
            }
            Err(error) => {
                pending.failed(&error);
                Err(error)
            }
        }
    }

    /// A reply that is kept comes in one piece. Who waits for an equal question gets it once it is complete: a reply of
    /// which only the beginning came can be asked for anew, one that was passed on in part cannot.
    async fn stream(&self, request: ChatRequest) -> Result<TextStream, ModelError> {
        if !self.cache.purposes.contains(request.purpose) {
            return self.model.stream(request).await;
        }
        let asked = Instant::now();
        let pending = match self.cache.look_up(self.key(&request), &request).await? {
            Answer::Known(entry) => {
                let report = entry.report(asked);
                let events = [StreamEvent::Text(entry.text.to_string()), StreamEvent::Done(report)];
                return Ok(stream::iter(events.map(Ok)).boxed());
            }
            Answer::Ask(pending) => pending,
        };
        match self.model.stream(request).await {
            Ok(events) => {
                let recording = Recording { events, text: Some(String::new()), pending: Some(pending) };
                Ok(recording.into_stream())
            }
            Err(error) => {
                pending.failed(&error);
                Err(error)
            }
        }
    }

    async fn forget(&self, request: &ChatRequest) {
        if self.cache.purposes.contains(request.purpose) {
            self.cache.store.forget(self.key(request)).await;
        }
        self.model.forget(request).await;
    }
}

/// A stream that is kept once it has come to its end.
struct Recording {
    events: TextStream,
    /// What has come; `None` once it is too long to be kept.
    text: Option<String>,
    pending: Option<Pending>,
}

impl Recording {
    fn into_stream(self) -> TextStream {
        stream::unfold(self, |mut recording| async move {
            let event = recording.events.next().await?;
            recording.note(&event).await;
            Some((event, recording))
        })
        .boxed()
    }

    async fn note(&mut self, event: &Result<StreamEvent, ModelError>) {
        match event {
            Ok(StreamEvent::Text(piece)) => {
                if let Some(text) = &mut self.text {
                    text.push_str(piece);
                    if text.len() as u64 > self.cache_limit() {
                        self.text = None;
                    }
                }
            }
            Ok(StreamEvent::Calls(_)) => self.text = None,
            Ok(StreamEvent::Done(report)) => {
                if let (Some(pending), Some(text)) = (self.pending.take(), self.text.take()) {
                    pending.answered(&text, report).await;
                }
            }
            Err(error) => {
                if let Some(pending) = self.pending.take() {
                    pending.failed(error);
                }
            }
        }
    }

    fn cache_limit(&self) -> u64 {
        self.pending.as_ref().map_or(0, |pending| pending.cache.longest)
    }
}
