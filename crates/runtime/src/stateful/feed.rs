//! One log reader for all partitions of the process, and a queue for each.
//!
//! A reader costs threads and connections, so the partitions share one. Back-pressure is pausing a
//! partition while its queue is full.

use starling_bus::{Bus, BusError, InRecord, LogReader, PartitionId, ReaderEvent, StartAt};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// When reading a partition pauses.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueBounds {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

/// What a [`Tap`] gives.
#[derive(Debug)]
pub(super) enum FeedEvent {
    Record(InRecord),
    /// Everything before this offset was given.
    End(i64),
    /// This offset is not there.
    OutOfRange(i64),
}

/// The shared reader. Ends when it and all of its taps are dropped.
#[derive(Clone)]
pub(super) struct Feed {
    commands: mpsc::UnboundedSender<Command>, // a few for each change of assignment
    reader: Arc<dyn LogReader>,
    bounds: QueueBounds,
}

enum Command {
    Add { at: PartitionId, start: StartAt, route: Route, reply: oneshot::Sender<Result<(), BusError>> },
    Remove { at: PartitionId, flow: Arc<Flow> },
}

struct Route {
    events: mpsc::UnboundedSender<FeedEvent>, // bounded by pausing
    flow: Arc<Flow>,
}

impl Feed {
    pub(super) async fn open(bus: &dyn Bus, bounds: QueueBounds) -> Result<Self, BusError> {
        let reader = bus.reader().await?;
        let (commands, received) = mpsc::unbounded_channel();
        tokio::spawn(pump(reader.clone(), received));
        Ok(Self { commands, reader, bounds })
    }

    /// Begins to read a partition. A tap of the same partition must have been dropped before.
    pub(super) async fn tap(&self, at: PartitionId, start: StartAt) -> Result<Tap, BusError> {
        let (sender, events) = mpsc::unbounded_channel();
        let flow = Arc::new(Flow {
            reader: self.reader.clone(),
            at: at.clone(),
            bounds: self.bounds,
            level: Mutex::default(),
        });
        let tap = Tap { events, flow: flow.clone(), commands: self.commands.clone() };
        let (reply, answer) = oneshot::channel();
        let route = Route { events: sender, flow };
        let gone = |_| BusError::Fatal("the reader has ended".into());
        let add = Command::Add { at, start, route, reply };
        self.commands.send(add).map_err(|_| BusError::Fatal("the reader has ended".into()))?;
        answer.await.map_err(gone)??;
        Ok(tap)
    }
}

/// The records of one partition, in order. Reading ends when it is dropped.
pub(super) struct Tap {
    events: mpsc::UnboundedReceiver<FeedEvent>,
    flow: Arc<Flow>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Tap {
    /// The next event; `None` when the reader has ended. Can be dropped without loss.
    pub(super) async fn next(&mut self) -> Option<FeedEvent> {
        let event = self.events.recv().await;
        event.inspect(|event| self.flow.took(event))
    }

    /// The next event, if there is one already.
    pub(super) fn try_next(&mut self) -> Option<FeedEvent> {
        let event = self.events.try_recv().ok();
        event.inspect(|event| self.flow.took(event))
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let remove = Command::Remove { at: self.flow.at.clone(), flow: self.flow.clone() };
        let _ = self.commands.send(remove); // the reader may have ended: then there is nothing to remove
    }
}

/// How full a queue is.
struct Flow {
    reader: Arc<dyn LogReader>,
    at: PartitionId,
    bounds: QueueBounds,
    level: Mutex<Level>,
}

#[derive(Default)]
struct Level {
    records: usize,
    bytes: usize,
    paused: bool,
}

impl Flow {
    fn put(&self, record: &InRecord) {
        let mut level = self.lock();
        level.records += 1;
        level.bytes += record.size();
        let full = level.records >= self.bounds.records || level.bytes >= self.bounds.bytes;
        if full && !level.paused {
            level.paused = true;
            self.reader.pause(&self.at);
        }
    }

    fn took(&self, event: &FeedEvent) {
        let FeedEvent::Record(record) = event else { return };
        let mut level = self.lock();
        level.records = level.records.saturating_sub(1);
        level.bytes = level.bytes.saturating_sub(record.size());
        let low = level.records <= self.bounds.records / 2 && level.bytes <= self.bounds.bytes / 2;
        if low && level.paused {
            level.paused = false;
            self.reader.resume(&self.at);
        }
    }

    fn release(&self) {
        let mut level = self.lock();
        if std::mem::take(&mut level.paused) {
            self.reader.resume(&self.at);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Level> {
        self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Only this task calls the reader's `next`, and it changes what is read in between, so that no event of
/// an earlier tap can reach a later one.
async fn pump(reader: Arc<dyn LogReader>, mut commands: mpsc::UnboundedReceiver<Command>) {
    let mut routes: BTreeMap<PartitionId, Route> = BTreeMap::new();
    loop {
        let next = reader.next();
        tokio::pin!(next);
        let event = loop {
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    None => return,
                    Some(command) => obey(command, reader.as_ref(), &mut routes).await,
                },
                event = &mut next => break event,
            }
        };
        let (at, event) = match event {
            ReaderEvent::Record(record) => (record.at.clone(), FeedEvent::Record(record)),
            ReaderEvent::End { at, next_offset } => (at, FeedEvent::End(next_offset)),
            ReaderEvent::OutOfRange { at, offset } => (at, FeedEvent::OutOfRange(offset)),
            ReaderEvent::Trouble(error) => {
                tracing::warn!(%error, "reading goes on when the broker answers again");
                continue;
            }
        };
        if let Some(route) = routes.get(&at) {
            if let FeedEvent::Record(record) = &event {
                route.flow.put(record);
            }
            let _ = route.events.send(event); // its tap was dropped: the command to remove it is on its way
        }
    }
}

async fn obey(command: Command, reader: &dyn LogReader, routes: &mut BTreeMap<PartitionId, Route>) {
    match command {
        Command::Add { at, start, route, reply } => {
            let added = reader.add(at.clone(), start).await;
            if added.is_ok() {
                routes.insert(at, route);
            }
            let _ = reply.send(added); // whoever asked has been stopped meanwhile
        }
        Command::Remove { at, flow } => {
            if routes.get(&at).is_some_and(|route| Arc::ptr_eq(&route.flow, &flow)) {
                routes.remove(&at);
                flow.release();
                reader.remove(&at).await;
            }
        }
    }
}
