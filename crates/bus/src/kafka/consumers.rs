//! The handles of a polled consumer: a group's member and a reader.

use super::{
    access::Access,
    admin::Admin,
    errors::{commit_error, is_between_generations},
    handover::Bound,
    pump,
    shared::{Command, Membership, Probe, PumpConsumer, PumpContext, Shared},
};
use crate::{
    BusError, CommitError, CommitOffset, Deliver, GroupConfig, GroupConsumer, GroupEvent, LogReader,
    PartitionId, ReaderEvent, StartAt,
};
use async_trait::async_trait;
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    consumer::{CommitMode, Consumer},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};
use tokio::{sync::oneshot, task::spawn_blocking, time::timeout};

/// Records that may wait for [`LogReader::next`].
const READER_QUEUE: usize = 4096;

/// How long to wait until the group may take commits again.
const BETWEEN_GENERATIONS: Duration = Duration::from_millis(25);

/// The consumer while it lives; commits borrow it from here.
type Slot = Arc<Mutex<Option<Arc<PumpConsumer>>>>;

/// Starts the thread with a consumer of its own; returns once the consumer is made.
async fn start(
    name: String,
    config: ClientConfig,
    shared: Arc<Shared>,
    topics: Vec<String>,
) -> Result<(Slot, oneshot::Receiver<()>), BusError> {
    let slot: Slot = Arc::default();
    let (ready, made) = oneshot::channel();
    let (ended, end) = oneshot::channel();
    let inner = slot.clone();
    let body = move || {
        let _ = shared.handover.pump.set(thread::current()); // set here alone
        let consumer =
            config.create_with_context(PumpContext(shared.clone())).and_then(|mut consumer: PumpConsumer| {
                let pump = thread::current();
                consumer.set_nonempty_callback(move || pump.unpark());
                if !topics.is_empty() {
                    consumer.subscribe(&topics.iter().map(String::as_str).collect::<Vec<_>>())?;
                }
                Ok(Arc::new(consumer))
            });
        match consumer {
            Err(error) => {
                let _ = ready.send(Err(shared.error(&error)));
            }
            Ok(consumer) => {
                *inner.lock().unwrap_or_else(PoisonError::into_inner) = Some(consumer.clone());
                if ready.send(Ok(())).is_err() {
                    shared.command(Command::Abandon); // whoever asked for it has gone
                }
                let release = || *inner.lock().unwrap_or_else(PoisonError::into_inner) = None;
                let ended = || {
                    let _ = ended.send(()); // nobody may wait for it
                };
                pump::run(consumer, &shared, release, ended);
            }
        }
    };
    thread::Builder::new()
        .name(name)
        .spawn(body)
        .map_err(|error| BusError::Retry(format!("no thread for a consumer: {error}")))?;
    made.await.map_err(|_| BusError::Fatal("the consumer's thread ended".into()))??;
    Ok((slot, end))
}

pub(super) struct KafkaMember {
    shared: Arc<Shared>,
    consumer: Slot,
    topics: Vec<String>,
    commit_timeout: Duration,
    /// One commit at a time, in the order of the calls.
    turn: tokio::sync::Mutex<()>,
    end: tokio::sync::Mutex<Option<oneshot::Receiver<()>>>,
}

impl KafkaMember {
    pub(super) async fn join(admin: &Admin, config: GroupConfig) -> Result<Self, BusError> {
        for topic in &config.topics {
            admin.partitions(topic).await?;
        }
        let options = admin.options();
        let shared = Shared::new(
            Bound { records: config.queue_records.max(1), bytes: options.fetch_ahead_bytes },
            config.deliver,
            config.revoke_timeout,
            options.request_timeout,
            Access::of(options),
            Membership { group: config.group.clone(), topics: config.topics.clone() },
            Probe::Coordinator(config.topics.first().cloned().unwrap_or_default()),
        );
        let name = format!("poll {}", config.group);
        let (consumer, end) =
            start(name, options.member(&config), shared.clone(), config.topics.clone()).await?;
        Ok(Self {
            shared,
            consumer,
            topics: config.topics,
            commit_timeout: options.commit_timeout,
            turn: tokio::sync::Mutex::new(()),
            end: tokio::sync::Mutex::new(Some(end)),
        })
    }

    /// The broker takes commits for any partition from a live member; only the owner may commit here.
    fn check_owner(&self, offsets: &[CommitOffset]) -> Result<(), CommitError> {
        let book = self.shared.book();
        let subscribed = |at: &PartitionId| self.topics.iter().any(|topic| **topic == *at.topic);
        match offsets.iter().find(|offset| subscribed(&offset.at) && !book.contains(&offset.at)) {
            Some(offset) => Err(CommitError::Fenced(format!("{} is not assigned to this member", offset.at))),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl GroupConsumer for KafkaMember {
    async fn next(&self) -> GroupEvent {
        self.shared.handover.next().await
    }

    fn pause(&self, partitions: &[PartitionId]) {
        if self.shared.deliver == Deliver::Records {
            self.shared.want_paused(partitions, true);
        }
    }

    fn resume(&self, partitions: &[PartitionId]) {
        if self.shared.deliver == Deliver::Records {
            self.shared.want_paused(partitions, false);
        }
    }

    async fn commit(&self, offsets: Vec<CommitOffset>) -> Result<(), CommitError> {
        if offsets.is_empty() {
            return Ok(()); // which the client would call an error, for ever
        }
        let _turn = self.turn.lock().await;
        self.check_owner(&offsets)?;
        let consumer = self.consumer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(consumer) = consumer else { return Err(CommitError::Fenced("the member has left".into())) };
        let deadline = Instant::now() + self.commit_timeout;
        let shared = self.shared.clone();
        let commit = spawn_blocking(move || {
            let mut list = TopicPartitionList::with_capacity(offsets.len());
            for CommitOffset { at, offset, metadata } in &offsets {
                let mut element = list.add_partition(&at.topic, at.partition);
                element.set_offset(Offset::Offset(*offset))?;
                element.set_metadata(metadata);
            }
            let assignments = || shared.book().assignments(offsets.iter().map(|offset| &offset.at));
            let before = assignments();
            loop {
                match consumer.commit(&list, CommitMode::Sync) {
                    Err(error)
                        if is_between_generations(&error)
                            && !consumer.assignment_lost()
                            && assignments() == before
                            && Instant::now() < deadline =>
                    {
                        thread::sleep(BETWEEN_GENERATIONS);
                    }
                    ended => return ended,
                }
            }
        });
        match timeout(self.commit_timeout, commit).await {
            Ok(Ok(result)) => result.map_err(|error| commit_error(&error)),
            Ok(Err(error)) => Err(CommitError::Retry(error.to_string())),
            Err(_) => Err(CommitError::Retry(format!("no answer within {:?}", self.commit_timeout))),
        }
    }

    async fn leave(&self, within: Duration) {
        self.shared.command(Command::Leave(Instant::now() + within));
        let mut end = self.end.lock().await;
        if let Some(waiting) = end.as_mut()
            && timeout(within, waiting).await.is_ok()
        {
            *end = None;
        }
    }
}

impl Drop for KafkaMember {
    fn drop(&mut self) {
        self.shared.command(Command::Abandon);
    }
}

pub(super) struct KafkaReader {
    shared: Arc<Shared>,
    admin: Admin,
}

impl KafkaReader {
    pub(super) async fn open(admin: &Admin) -> Result<Self, BusError> {
        let options = admin.options();
        let shared = Shared::new(
            Bound { records: READER_QUEUE, bytes: options.fetch_ahead_bytes },
            Deliver::Records,
            Duration::ZERO,
            options.request_timeout,
            Access::of(options),
            Membership { group: options.reader_group(), topics: Vec::new() },
            Probe::Broker(options.reader_group()),
        );
        start("poll reader".into(), options.reader(), shared.clone(), Vec::new()).await?;
        Ok(Self { shared, admin: admin.clone() })
    }
}

#[async_trait]
impl LogReader for KafkaReader {
    async fn add(&self, partition: PartitionId, start: StartAt) -> Result<(), BusError> {
        let count = self.admin.partitions(&partition.topic).await?;
        if !(0..count).contains(&partition.partition) {
            return Err(BusError::Refused(format!("there is no partition {partition}")));
        }
        let start = match start {
            StartAt::End => StartAt::Offset(self.admin.watermarks(&partition).await?.high),
            other => other,
        };
        let (done, added) = oneshot::channel();
        self.shared.command(Command::Add(partition, start, done));
        added.await.unwrap_or_else(|_| Err(BusError::Fatal("the reader has ended".into())))
    }

    async fn remove(&self, partition: &PartitionId) {
        let (done, removed) = oneshot::channel();
        self.shared.command(Command::Remove(partition.clone(), done));
        let _ = removed.await; // a reader that has ended has nothing to remove
    }

    fn pause(&self, partition: &PartitionId) {
        self.shared.want_paused(std::slice::from_ref(partition), true);
    }

    fn resume(&self, partition: &PartitionId) {
        self.shared.want_paused(std::slice::from_ref(partition), false);
    }

    async fn next(&self) -> ReaderEvent {
        loop {
            match self.shared.handover.next().await {
                GroupEvent::Record(record) => return ReaderEvent::Record(record),
                GroupEvent::End { at, next_offset } => return ReaderEvent::End { at, next_offset },
                GroupEvent::OutOfRange { at, offset } => return ReaderEvent::OutOfRange { at, offset },
                GroupEvent::Trouble(error) | GroupEvent::Fatal(error) => return ReaderEvent::Trouble(error),
                GroupEvent::Closed => std::future::pending().await,
                GroupEvent::Assigned(_) | GroupEvent::Revoked(..) | GroupEvent::Lost(_) => {}
            }
        }
    }
}

impl Drop for KafkaReader {
    fn drop(&mut self) {
        self.shared.command(Command::Abandon);
    }
}
