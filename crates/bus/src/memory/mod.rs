//! The bus in memory: partitions, groups, offsets and commit metadata as Kafka has them, without Kafka.
//!
//! For the embedded default, where one process is the whole swarm, and for tests and simulation, which
//! can ask it for every misfortune that a real cluster has ([`MemoryFaults`]).

mod assignment;
mod consumers;
mod core;
mod faults;
mod feed;
mod group;
mod inspect;
mod log;
mod options;
mod retention;

pub use faults::{CommitFault, MemberId, MemoryFaults, SendFault};
pub use options::{Clock, MemoryOptions, MemoryRetention};

use self::{
    consumers::{MemoryMember, MemoryReader},
    core::{Core, Shared},
    faults::Held,
    inspect::MemoryInspector,
};
use crate::{
    Bus, BusError, Committed, Delivered, DeliveryFuture, GroupConfig, GroupConsumer, InRecord, Inspector,
    LogReader, OutRecord, PartitionId, ReadError, SendError, TopicSpec, Watermarks,
};
use async_trait::async_trait;
use futures::FutureExt;
use std::{
    future::ready,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
    time::{sleep, timeout},
};

/// A cluster in this process's memory. It ends with the process.
#[derive(Debug)]
pub struct MemoryBus {
    shared: Arc<Shared>,
}

impl MemoryBus {
    /// A bus without any topic: see [`Bus::create_topics`].
    #[must_use]
    pub fn new(options: MemoryOptions) -> Arc<Self> {
        Arc::new(Self { shared: Shared::new(options) })
    }

    /// A handle that makes things go wrong.
    #[must_use]
    pub fn faults(&self) -> MemoryFaults {
        MemoryFaults { shared: self.shared.clone() }
    }
}

#[async_trait]
impl Bus for MemoryBus {
    fn send(&self, record: OutRecord) -> DeliveryFuture {
        let mut core = self.shared.lock();
        match core.send_fault(&record.to) {
            None => {
                let result = core.append(record);
                ready(result.map(|offset| Delivered { offset: Some(offset) })).boxed()
            }
            Some(fault) => send_with(&mut core, record, fault),
        }
    }

    async fn join(&self, config: GroupConfig) -> Result<Arc<dyn GroupConsumer>, BusError> {
        let wake = Arc::new(Notify::new());
        let group = config.group.clone();
        let id = self.shared.lock().join(config, wake.clone(), Handle::current())?;
        let (closed, has_closed) = (Notify::new(), AtomicBool::new(false));
        Ok(Arc::new(MemoryMember { shared: self.shared.clone(), group, id, wake, closed, has_closed }))
    }

    async fn reader(&self) -> Result<Arc<dyn LogReader>, BusError> {
        Ok(Arc::new(MemoryReader::open(self.shared.clone())))
    }

    async fn read(&self, at: &[(PartitionId, i64)]) -> Vec<Result<InRecord, ReadError>> {
        let core = self.shared.lock();
        at.iter().map(|(partition, offset)| core.read(partition, *offset)).collect()
    }

    async fn partitions(&self, topic: &str) -> Result<i32, BusError> {
        let core = self.shared.lock();
        let found =
            core.topics.get(topic).ok_or_else(|| BusError::NoSuchTopic { topic: topic.to_owned() })?;
        Ok(found.count())
    }

    async fn watermarks(&self, partition: &PartitionId) -> Result<Watermarks, BusError> {
        let core = self.shared.lock();
        let log = core.log(partition)?;
        Ok(Watermarks { low: log.first(), high: log.next() })
    }

    async fn committed(&self, group: &str, partition: &PartitionId) -> Result<Option<Committed>, BusError> {
        let core = self.shared.lock();
        Ok(core.groups.get(group).and_then(|group| group.committed.get(partition).cloned()))
    }

    async fn create_topics(&self, topics: &[TopicSpec]) -> Result<Vec<String>, BusError> {
        let mut core = self.shared.lock();
        let mut created = Vec::new();
        for spec in topics {
            if core.create(spec)? {
                created.push(spec.name.clone());
            }
        }
        Ok(created)
    }

    async fn trim(&self, partition: &PartitionId, offset: i64) -> Result<(), BusError> {
        self.shared.lock().trim(partition, offset)
    }

    async fn flush(&self, within: Duration) {
        // Sending is done when `send` returns; only records that a fault holds back can be waited for.
        let none_held = async {
            while self.shared.lock().faults.holds_any() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = timeout(within, none_held).await; // the bound is the caller's wish
    }

    fn inspector(&self) -> Arc<dyn Inspector> {
        Arc::new(MemoryInspector(self.shared.clone()))
    }
}

fn send_with(core: &mut Core, record: OutRecord, fault: SendFault) -> DeliveryFuture {
    let to = record.to.to_string();
    let unknown = |reason: &str| Err(SendError::Unknown { to: to.clone(), reason: reason.to_owned() });
    let delivered = |offset| Delivered { offset: Some(offset) };
    let result = match fault {
        SendFault::UnknownWritten => core.append(record).and_then(|_| unknown("the answer was lost")),
        SendFault::UnknownNotWritten => unknown("the request or its answer was lost"),
        SendFault::UnknownLandsLater => {
            core.faults.hold(Held { record, reply: None });
            unknown("timed out")
        }
        SendFault::WithoutOffset => core.append(record).map(|_| Delivered { offset: None }),
        SendFault::Twice => core.append(record.clone()).and_then(|first| {
            core.append(record)?;
            Ok(delivered(first))
        }),
        SendFault::NotSent => Err(SendError::NotSent { to: to.clone(), reason: "the queue is full".into() }),
        SendFault::Refused => Err(SendError::Refused { to: to.clone(), reason: "not allowed".into() }),
        SendFault::Delayed => {
            let (reply, result) = oneshot::channel();
            core.faults.hold(Held { record, reply: Some(reply) });
            let lost = SendError::Unknown { to, reason: "the record was lost".into() };
            return result.map(|result| result.unwrap_or(Err(lost))).boxed();
        }
    };
    ready(result).boxed()
}
