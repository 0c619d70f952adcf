//! What a polling thread shares with its callers and with librdkafka's callbacks.

use super::{
    access::Access,
    book::Book,
    context::log,
    errors::code_of,
    handover::{Bound, Handover},
    rebalance,
    wait::wait_within,
};
use crate::{BusError, Deliver, GroupEvent, PartitionId, RevokeAck, StartAt};
use rdkafka::{
    ClientContext, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode as Code},
    types::RDKafkaRespErr,
};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

pub(super) type PumpConsumer = BaseConsumer<PumpContext>;

/// What the callers and the thread share.
pub(super) struct Shared {
    pub(super) handover: Handover,
    pub(super) deliver: Deliver,
    pub(super) revoke_timeout: Duration,
    pub(super) request_timeout: Duration,
    access: Access,
    membership: Membership,
    /// What to ask for to see whether the brokers are there.
    pub(super) probe: Probe,
    book: Mutex<Book>,
    commands: Mutex<VecDeque<Command>>,
    /// Something was served in a poll that returned nothing: there may be more.
    pub(super) served: AtomicBool,
    /// The last words of librdkafka about an error: its structured form lacks offsets.
    last_words: Mutex<String>,
    /// Leaving: the application has let everything go already.
    pub(super) leaving: AtomicBool,
}

/// The group that a consumer is in.
pub(super) struct Membership {
    /// Its name; of readers, one that nothing is done with.
    pub(super) group: String,
    /// What its members read; none for readers.
    pub(super) topics: Vec<String>,
}

/// How to see whether a consumer can be closed in the orderly way.
pub(super) enum Probe {
    /// The group's coordinator answers about this topic.
    Coordinator(String),
    /// Any broker answers, about this topic, which need not exist.
    Broker(String),
}

pub(super) enum Command {
    Add(PartitionId, StartAt, oneshot::Sender<Result<(), BusError>>),
    Remove(PartitionId, oneshot::Sender<()>),
    /// Orderly, until the instant.
    Leave(Instant),
    /// Nobody listens any more.
    Abandon,
}

impl Shared {
    pub(super) fn new(
        queue: Bound,
        deliver: Deliver,
        revoke_timeout: Duration,
        request_timeout: Duration,
        access: Access,
        membership: Membership,
        probe: Probe,
    ) -> Arc<Self> {
        Arc::new(Self {
            handover: Handover::new(queue),
            deliver,
            revoke_timeout,
            request_timeout,
            access,
            membership,
            probe,
            book: Mutex::new(Book::default()),
            commands: Mutex::new(VecDeque::new()),
            served: AtomicBool::new(false),
            last_words: Mutex::new(String::new()),
            leaving: AtomicBool::new(false),
        })
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn command(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push_back(command);
        self.wake();
    }

    pub(super) fn want_paused(&self, partitions: &[PartitionId], paused: bool) {
        self.book().want_paused(partitions, paused);
        self.wake();
    }

    fn wake(&self) {
        if let Some(pump) = self.handover.pump.get() {
            pump.unpark();
        }
    }

    /// Takes back everything of these partitions that was not heard yet.
    pub(super) fn retract(&self, partitions: &[PartitionId]) {
        self.handover.purge(|at| partitions.contains(at));
        let mut book = self.book();
        for at in partitions {
            book.remove(at);
        }
    }

    /// Tells the application to let go, and waits until it has or must have.
    pub(super) fn revoke(&self, partitions: Vec<PartitionId>, within: Duration) {
        let (acknowledge, acknowledged) = oneshot::channel();
        self.handover.put(GroupEvent::Revoked(partitions, RevokeAck(Some(acknowledge))));
        if wait_within(acknowledged, within).is_none() {
            tracing::warn!(?within, "a revocation was not acknowledged in time; the partitions go anyway");
        }
    }

    /// What an error of the client is to the application.
    pub(super) fn error(&self, error: &KafkaError) -> BusError {
        let rights = match code_of(error) {
            Some(Code::GroupAuthorizationFailed) => {
                format!("the right Read on group {}", self.membership.group)
            }
            _ => {
                let mut topics = self.book().topics();
                topics.extend(self.membership.topics.iter().cloned());
                topics.sort();
                topics.dedup();
                format!("the rights Read and Describe on topic {}", topics.join(", "))
            }
        };
        self.access.error(error, &rights)
    }

    pub(super) fn next_command(&self) -> Option<Command> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    pub(super) fn last_words(&self) -> String {
        self.last_words.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The context of a polled consumer.
pub(super) struct PumpContext(pub(super) Arc<Shared>);

impl ClientContext for PumpContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.0.served.store(true, Ordering::Relaxed);
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let mut last = self.0.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        last.clear();
        last.push_str(reason);
        drop(last);
        tracing::trace!(target: "librdkafka", %error, reason);
    }
}

impl ConsumerContext for PumpContext {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, what: RDKafkaRespErr, list: &mut TopicPartitionList) {
        self.0.served.store(true, Ordering::Relaxed);
        rebalance::serve(&self.0, consumer, what, list);
    }
}
