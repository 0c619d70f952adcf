//! Follows cancellations, and stops what is being done for a cancelled intent.

use crate::registry::Schemas;
use futures::future::FutureExt as _;
use starling_bus::{Bus, BusError, LogReader, PartitionId, ReaderEvent, StartAt};
use starling_protocol::{Body, Envelope, IntentId};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Knows which intents are cancelled. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    state: Arc<Mutex<State>>,
    replayed: watch::Receiver<bool>,
}

#[derive(Debug)]
struct State {
    cancelled: HashSet<IntentId>,
    /// In the order in which they came; the oldest is forgotten first.
    order: VecDeque<IntentId>,
    limit: usize,
    /// What is being done for each intent, and by how many.
    running: HashMap<IntentId, (CancellationToken, usize)>,
}

/// Held while something is done for an intent.
#[derive(Debug)]
pub struct IntentWork {
    token: CancellationToken,
    intent: IntentId,
    state: Arc<Mutex<State>>,
}

impl IntentWork {
    /// Fires when the intent is cancelled.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.child_token()
    }
}

impl Drop for IntentWork {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, users)) = state.running.get_mut(&self.intent) {
            *users -= 1;
            if *users == 0 {
                state.running.remove(&self.intent);
            }
        }
    }
}

impl Control {
    /// Follows the control topic from its beginning until `stop`. Remembers `limit` cancellations at most.
    ///
    /// # Errors
    /// The topic is missing, or the client cannot be made.
    pub async fn follow(
        bus: &dyn Bus,
        topic: PartitionId,
        schemas: impl Into<Schemas>,
        limit: usize,
        stop: CancellationToken,
    ) -> Result<Self, BusError> {
        // On a busy installation the end of the topic never comes, so it is not waited for: what was there at
        // the start is.
        let last = bus.watermarks(&topic).await?.high - 1;
        let reader = bus.reader().await?;
        reader.add(topic.clone(), StartAt::Beginning).await?;
        let (sender, replayed) = watch::channel(false);
        let control = Self { state: Arc::new(Mutex::new(State::new(limit))), replayed };
        let report = Replay { last, sender };
        tokio::spawn(follow(control.state.clone(), reader, topic, schemas.into(), report, stop));
        Ok(control)
    }

    /// One that knows of nothing and follows nothing.
    #[must_use]
    pub fn deaf() -> Self {
        let (_, replayed) = watch::channel(true);
        Self { state: Arc::new(Mutex::new(State::new(1))), replayed }
    }

    /// Whether everything that was there at the start has been read.
    #[must_use]
    pub fn is_replayed(&self) -> bool {
        *self.replayed.borrow()
    }

    /// Waits until everything that was there at the start has been read.
    pub async fn replayed(&self) {
        let mut replayed = self.replayed.clone();
        let _ = replayed.wait_for(|done| *done).await; // an error means that the process stops
    }

    /// Whether the intent is cancelled.
    #[must_use]
    pub fn is_cancelled(&self, intent: &IntentId) -> bool {
        self.lock().cancelled.contains(intent)
    }

    /// Begins work for an intent; `None` if it is cancelled.
    #[must_use]
    pub fn begin(&self, intent: &IntentId) -> Option<IntentWork> {
        let mut state = self.lock();
        if state.cancelled.contains(intent) {
            return None;
        }
        let (token, users) = state.running.entry(intent.clone()).or_default();
        *users += 1;
        let token = token.clone();
        Some(IntentWork { token, intent: intent.clone(), state: self.state.clone() })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(limit: usize) -> Self {
        Self {
            cancelled: HashSet::new(),
            order: VecDeque::new(),
            limit: limit.max(1),
            running: HashMap::new(),
        }
    }

    fn cancel(&mut self, intent: IntentId) {
        if let Some((token, _)) = self.running.get(&intent) {
            token.cancel();
        }
        if self.cancelled.insert(intent.clone()) {
            self.order.push_back(intent);
        }
        while self.order.len() > self.limit {
            if let Some(oldest) = self.order.pop_front() {
                self.cancelled.remove(&oldest);
            }
        }
    }
}

/// Tells when everything that was there at the start has been read.
struct Replay {
    last: i64,
    sender: watch::Sender<bool>,
}

impl Replay {
    fn has_read(&self, offset: i64) {
        if offset >= self.last && !*self.sender.borrow() {
            self.sender.send_replace(true);
        }
    }
}

async fn follow(
    state: Arc<Mutex<State>>,
    reader: Arc<dyn LogReader>,
    topic: PartitionId,
    schemas: Schemas,
    replay: Replay,
    stop: CancellationToken,
) {
    loop {
        let event = tokio::select! {
            event = reader.next().fuse() => event,
            () = stop.cancelled() => return,
        };
        match event {
            ReaderEvent::Record(record) => {
                // Nothing of it may be passed over for want of a schema; it is a topic of few records. What a newer
                // version wrote is passed over: waiting for a successor would leave all later ones unread as well,
                // and what is done for an intent that has ended counts for nothing.
                let read = tokio::select! {
                    read = schemas.read_patiently::<Envelope>(record.value()) => read,
                    () = stop.cancelled() => return,
                };
                match read {
                    Ok(Envelope { intent_id, body: Body::Cancel(_), .. }) => {
                        tracing::info!(intent = %intent_id, "the intent is cancelled");
                        state.lock().unwrap_or_else(PoisonError::into_inner).cancel(intent_id);
                    }
                    Ok(other) => tracing::warn!(kind = other.body.kind(), "no cancellation, passed over"),
                    // Tombstones are how compaction forgets.
                    Err(_) if record.payload.is_none() => {}
                    Err(error) => tracing::warn!(%error, offset = record.offset, "unreadable, passed over"),
                }
                replay.has_read(record.offset);
            }
            ReaderEvent::End { .. } => replay.has_read(replay.last),
            ReaderEvent::OutOfRange { offset, .. } => {
                // Old cancellations were deleted while they were read: go on with what is there.
                tracing::info!(offset, "the control topic was trimmed");
                reader.remove(&topic).await;
                if let Err(error) = reader.add(topic.clone(), StartAt::Beginning).await {
                    tracing::error!(%error, "cancellations cannot be followed any more");
                }
            }
            ReaderEvent::Trouble(error) => tracing::warn!(%error, "cancellations are not readable now"),
        }
    }
}
