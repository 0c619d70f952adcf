//! The bus as one process sees it: the memory bus, seen through the network.

use crate::{
    dice::Dice,
    network::{Life, Network},
};
use async_trait::async_trait;
use futures::FutureExt as _;
use starling_bus::{
    Bus, BusError, CommitError, CommitOffset, Committed, DeliveryFuture, GroupConfig, GroupConsumer,
    GroupEvent, InRecord, Inspector, LogReader, MemberId, OutRecord, PartitionId, ReadError, SendError,
    TopicSpec, Watermarks,
};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// The bus of one life of a process.
pub(crate) struct SimBus {
    network: Arc<Network>,
    life: Life,
    dice: Arc<Mutex<Dice>>,
}

impl SimBus {
    /// A connection of `life`.
    #[must_use]
    pub(crate) fn new(network: Arc<Network>, life: Life, seed: u64) -> Arc<Self> {
        let dice = Arc::new(Mutex::new(Dice::of(seed, &format!("requests {life}"))));
        Arc::new(Self { network, life, dice })
    }
}

fn draw<T>(dice: &Mutex<Dice>, with: impl FnOnce(&mut Dice) -> T) -> T {
    with(&mut dice.lock().unwrap_or_else(PoisonError::into_inner))
}

async fn travel(dice: &Mutex<Dice>) {
    sleep(draw(dice, |dice| dice.millis(0, 4))).await;
}

#[async_trait]
impl Bus for SimBus {
    fn send(&self, record: OutRecord) -> DeliveryFuture {
        let to = record.to.to_string();
        let answered = self.network.send(self.life, record);
        async move {
            answered.await.unwrap_or(Err(SendError::Unknown { to, reason: "the run has ended".into() }))
        }
        .boxed()
    }

    async fn join(&self, config: GroupConfig) -> Result<Arc<dyn GroupConsumer>, BusError> {
        travel(&self.dice).await;
        let group = config.group.clone();
        let inner = self.network.memory.join(config).await?;
        // Members are listed in the order in which they joined.
        let id = self.network.memory.faults().members(&group).pop();
        let id = id.ok_or_else(|| BusError::Fatal("the group has no members".into()))?;
        self.network.joined(self.life, &group, id, inner.clone());
        let (network, life, dice) = (self.network.clone(), self.life, self.dice.clone());
        Ok(Arc::new(SimMember { inner, network, group, life, id, lost: AtomicU64::new(0), dice }))
    }

    async fn reader(&self) -> Result<Arc<dyn LogReader>, BusError> {
        travel(&self.dice).await;
        self.network.memory.reader().await
    }

    async fn read(&self, at: &[(PartitionId, i64)]) -> Vec<Result<InRecord, ReadError>> {
        travel(&self.dice).await;
        let fails = self.network.weather().read_fails;
        if draw(&self.dice, |dice| dice.chance(fails)) {
            return at.iter().map(|_| Err(ReadError::Retry("no answer in time".into()))).collect();
        }
        self.network.memory.read(at).await
    }

    async fn partitions(&self, topic: &str) -> Result<i32, BusError> {
        self.network.memory.partitions(topic).await
    }

    async fn watermarks(&self, partition: &PartitionId) -> Result<Watermarks, BusError> {
        travel(&self.dice).await;
        self.network.memory.watermarks(partition).await
    }

    async fn committed(&self, group: &str, partition: &PartitionId) -> Result<Option<Committed>, BusError> {
        travel(&self.dice).await;
        self.network.memory.committed(group, partition).await
    }

    async fn create_topics(&self, topics: &[TopicSpec]) -> Result<Vec<String>, BusError> {
        self.network.memory.create_topics(topics).await
    }

    async fn trim(&self, partition: &PartitionId, offset: i64) -> Result<(), BusError> {
        travel(&self.dice).await;
        self.network.memory.trim(partition, offset).await
    }

    async fn flush(&self, within: Duration) {
        let until = Instant::now() + within;
        while self.network.is_sending(self.life) && Instant::now() < until {
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn inspector(&self) -> Arc<dyn Inspector> {
        self.network.memory.inspector()
    }
}

struct SimMember {
    inner: Arc<dyn GroupConsumer>,
    network: Arc<Network>,
    group: String,
    life: Life,
    id: MemberId,
    /// How often it has heard that it was taken for dead.
    lost: AtomicU64,
    dice: Arc<Mutex<Dice>>,
}

#[async_trait]
impl GroupConsumer for SimMember {
    async fn next(&self) -> GroupEvent {
        let event = self.inner.next().await;
        if matches!(event, GroupEvent::Lost(_)) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        if let GroupEvent::Revoked(partitions, _) | GroupEvent::Lost(partitions) = &event {
            self.network.disturb(&self.group, partitions);
        }
        event
    }

    fn pause(&self, partitions: &[PartitionId]) {
        self.inner.pause(partitions);
    }

    fn resume(&self, partitions: &[PartitionId]) {
        self.inner.resume(partitions);
    }

    async fn commit(&self, offsets: Vec<CommitOffset>) -> Result<(), CommitError> {
        let generation = self.lost.load(Ordering::Relaxed);
        travel(&self.dice).await;
        let weather = self.network.weather();
        let (refused, answer_lost) = draw(&self.dice, |dice| {
            (dice.chance(weather.commit_refused), dice.chance(weather.commit_answer_lost))
        });
        if refused {
            return Err(CommitError::Retry("not the coordinator".into()));
        }
        // A group takes commits of its present generation only, and a member knows of that one of which it has heard.
        let result = if self.network.generation(self.id) == generation {
            self.inner.commit(offsets.clone()).await
        } else {
            Err(CommitError::Fenced("of an earlier generation".into()))
        };
        self.network.committed(self.life, &offsets, &result);
        travel(&self.dice).await;
        match result {
            Ok(()) if answer_lost => Err(CommitError::Retry("the answer was lost".into())),
            other => other,
        }
    }

    async fn leave(&self, within: Duration) {
        self.inner.leave(within).await;
        self.network.left(self.life, self.id);
    }
}
