//! Reading single records, fast: a few consumers that are told exactly where to look.

use super::{
    KafkaOptions,
    context::Plain,
    convert::decode,
    errors::code_of,
    pump::{PROBE, broker_answers},
};
use crate::{InRecord, PartitionId, ReadError};
use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Instant,
};
use tokio::{sync::Semaphore, task::spawn_blocking};

type Answers = Vec<Option<Result<InRecord, ReadError>>>;

pub(super) struct SingleReads {
    options: KafkaOptions,
    idle: Mutex<Vec<BaseConsumer<Plain>>>,
    turns: Arc<Semaphore>,
}

impl SingleReads {
    pub(super) fn new(options: KafkaOptions) -> Arc<Self> {
        let turns = Arc::new(Semaphore::new(options.read_consumers.max(1)));
        Arc::new(Self { options, idle: Mutex::default(), turns })
    }

    pub(super) async fn read(
        self: &Arc<Self>,
        at: &[(PartitionId, i64)],
    ) -> Vec<Result<InRecord, ReadError>> {
        if at.is_empty() {
            return Vec::new();
        }
        let turn = self.turns.clone().acquire_owned().await;
        let (this, wanted) = (self.clone(), at.to_vec());
        let read = spawn_blocking(move || {
            let _turn = turn;
            this.read_blocking(&wanted)
        });
        read.await
            .unwrap_or_else(|error| at.iter().map(|_| Err(ReadError::Retry(error.to_string()))).collect())
    }

    fn read_blocking(&self, at: &[(PartitionId, i64)]) -> Vec<Result<InRecord, ReadError>> {
        let deadline = Instant::now() + self.options.read_timeout;
        let mut lookup = Lookup::new(at);
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let consumer = idle.map_or_else(|| self.options.single().create_with_context(Plain), Ok);
        let late = match consumer {
            Ok(consumer) => {
                let result = lookup.run(&consumer, &self.options, deadline);
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(consumer);
                result.err().map_or_else(
                    || format!("no answer within {:?}", self.options.read_timeout),
                    |e| e.to_string(),
                )
            }
            Err(error) => error.to_string(),
        };
        let unanswered = |(partition, offset): &(PartitionId, i64)| {
            Err(ReadError::Retry(format!("{partition}@{offset} at {}: {late}", self.options.brokers)))
        };
        lookup
            .answers
            .into_iter()
            .zip(at)
            .map(|(answer, at)| answer.unwrap_or_else(|| unanswered(at)))
            .collect()
    }
}

impl Drop for SingleReads {
    fn drop(&mut self) {
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        let topic = self.options.reader_group();
        // Closing blocks, and must not be tried while the brokers are away.
        thread::spawn(move || {
            for consumer in idle {
                if broker_answers(&consumer, &topic, PROBE) {
                    drop(consumer);
                } else {
                    std::mem::forget(consumer);
                }
            }
        });
    }
}

/// What is still wanted, by partition and offset, with the places of the answers.
struct Lookup {
    wanted: BTreeMap<PartitionId, BTreeMap<i64, Vec<usize>>>,
    answers: Answers,
}

impl Lookup {
    fn new(at: &[(PartitionId, i64)]) -> Self {
        let mut wanted: BTreeMap<PartitionId, BTreeMap<i64, Vec<usize>>> = BTreeMap::new();
        let mut answers: Answers = Vec::with_capacity(at.len());
        for (index, (partition, offset)) in at.iter().enumerate() {
            if *offset < 0 {
                answers.push(Some(Err(gone(partition, *offset))));
            } else {
                wanted.entry(partition.clone()).or_default().entry(*offset).or_default().push(index);
                answers.push(None);
            }
        }
        Self { wanted, answers }
    }

    /// Rounds of one assignment each, at the lowest wanted offset of every partition, until nothing is
    /// wanted or time is up. Later offsets that come along are taken too.
    fn run(
        &mut self,
        consumer: &BaseConsumer<Plain>,
        options: &KafkaOptions,
        deadline: Instant,
    ) -> KafkaResult<()> {
        while !self.wanted.is_empty() && Instant::now() < deadline {
            let mut starts = TopicPartitionList::with_capacity(self.wanted.len());
            for (at, offsets) in &self.wanted {
                if let Some((offset, _)) = offsets.first_key_value() {
                    starts.add_partition_offset(&at.topic, at.partition, Offset::Offset(*offset))?;
                }
            }
            consumer.assign(&starts)?;
            self.round(consumer, options, deadline);
        }
        consumer.unassign()
    }

    fn round(&mut self, consumer: &BaseConsumer<Plain>, options: &KafkaOptions, deadline: Instant) {
        let mut open: BTreeSet<PartitionId> = self.wanted.keys().cloned().collect();
        while !open.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            match consumer.poll(left) {
                Some(Ok(message)) => {
                    let at = PartitionId::new(message.topic(), message.partition());
                    self.came(&at, message.offset(), || decode(&message, at.clone()));
                    open.remove(&at);
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    let suspects: Vec<_> =
                        open.iter().filter(|at| at.partition == partition).cloned().collect();
                    self.check(consumer, options, suspects, &mut open);
                }
                Some(Err(error)) => match code_of(&error) {
                    Some(
                        Code::AutoOffsetReset
                        | Code::OffsetOutOfRange
                        | Code::UnknownTopicOrPartition
                        | Code::UnknownTopic
                        | Code::UnknownPartition,
                    ) => {
                        let suspects = open.iter().cloned().collect();
                        if !self.check(consumer, options, suspects, &mut open) {
                            return; // the log has moved meanwhile: assign anew
                        }
                    }
                    _ => tracing::debug!(%error, "reading single records goes on trying"),
                },
                None => {}
            }
        }
    }

    /// A record came; what was wanted before it in its partition does not exist.
    fn came(&mut self, at: &PartitionId, offset: i64, record: impl Fn() -> InRecord) {
        let Some(offsets) = self.wanted.get_mut(at) else { return };
        let later = offsets.split_off(&offset);
        let missing = std::mem::replace(offsets, later);
        let here = offsets.remove(&offset).unwrap_or_default();
        if offsets.is_empty() {
            self.wanted.remove(at);
        }
        for (offset, places) in missing {
            self.answer(&places, &Err(gone(at, offset)));
        }
        if !here.is_empty() {
            self.answer(&here, &Ok(record()));
        }
    }

    /// Asks where the partitions begin and end; true if that answered something.
    fn check(
        &mut self,
        consumer: &BaseConsumer<Plain>,
        options: &KafkaOptions,
        suspects: Vec<PartitionId>,
        open: &mut BTreeSet<PartitionId>,
    ) -> bool {
        let mut answered = false;
        for at in suspects {
            let exists = match consumer.fetch_watermarks(&at.topic, at.partition, options.request_timeout) {
                Ok((low, high)) => low..high,
                Err(error) => match code_of(&error) {
                    Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition) => 0..0,
                    _ => continue,
                },
            };
            let Some(offsets) = self.wanted.get_mut(&at) else { continue };
            let all = std::mem::take(offsets);
            let first = all.first_key_value().map(|(offset, _)| *offset);
            let (there, not): (BTreeMap<_, _>, BTreeMap<_, _>) =
                all.into_iter().partition(|(offset, _)| exists.contains(offset));
            if there.is_empty() {
                self.wanted.remove(&at);
            } else {
                *offsets = there;
            }
            if first.is_some_and(|first| not.contains_key(&first)) {
                open.remove(&at);
                answered = true;
            }
            for (offset, places) in not {
                self.answer(&places, &Err(gone(&at, offset)));
            }
        }
        answered
    }

    fn answer(&mut self, places: &[usize], answer: &Result<InRecord, ReadError>) {
        for place in places {
            if let Some(slot) = self.answers.get_mut(*place) {
                *slot = Some(answer.clone());
            }
        }
    }
}

fn gone(at: &PartitionId, offset: i64) -> ReadError {
    ReadError::Gone(format!("{at}@{offset}"))
}
