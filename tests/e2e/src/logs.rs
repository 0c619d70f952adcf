//! Reads the topics of an installation, as an operator's program would.

use anyhow::{Context, Result, bail, ensure};
use starling::{
    installation::all_partitions,
    scan::{Scan, Span, watermarks},
};
use starling_bus::{Bus, InRecord, PartitionId, ReaderEvent, StartAt};
use starling_protocol::{
    Body, Codec, Envelope, IntentId, Outcome, Topic, TopicNames, fleet::FleetBeat, state::StateRecord,
    topic::partition_of,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// How long reading what is there may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What lies in the topics of an installation.
#[derive(Clone)]
pub struct Logs {
    bus: Arc<dyn Bus>,
    names: TopicNames,
    codec: Codec,
}

impl Logs {
    /// The topics with these names.
    #[must_use]
    pub fn new(bus: Arc<dyn Bus>, names: TopicNames) -> Self {
        Self { bus, names, codec: Codec::default() }
    }

    /// The same, read with another codec.
    #[must_use]
    pub fn with_codec(self, codec: Codec) -> Self {
        Self { codec, ..self }
    }

    pub(crate) fn bus(&self) -> &dyn Bus {
        self.bus.as_ref()
    }

    pub(crate) fn names(&self) -> &TopicNames {
        &self.names
    }

    /// Reads what is written without a registry.
    #[must_use]
    pub fn codec(&self) -> &Codec {
        &self.codec
    }

    /// Number of partitions of a topic.
    ///
    /// # Errors
    /// The broker does not tell.
    pub async fn partitions(&self, topic: &Topic) -> Result<i32> {
        Ok(self.bus.partitions(&self.names.name(topic)).await?)
    }

    /// All partitions of a topic.
    ///
    /// # Errors
    /// The broker does not tell.
    pub(crate) async fn all_of(&self, topic: &Topic) -> Result<Vec<PartitionId>> {
        Ok(all_partitions(&self.names.name(topic), self.partitions(topic).await?))
    }

    /// One partition of a topic.
    #[must_use]
    pub fn partition(&self, topic: &Topic, partition: i32) -> PartitionId {
        PartitionId::new(self.names.name(topic), partition)
    }

    /// All records that lie in a partition now.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn records(&self, at: &PartitionId) -> Result<Vec<InRecord>> {
        self.records_of(std::slice::from_ref(at)).await
    }

    /// All records that lie in a topic now, in their order within each partition.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn topic(&self, topic: &Topic) -> Result<Vec<InRecord>> {
        self.records_of(&self.all_of(topic).await?).await
    }

    /// All records that lie now in partitions of one topic.
    pub(crate) async fn records_of(&self, partitions: &[PartitionId]) -> Result<Vec<InRecord>> {
        let read = async {
            let marks = watermarks(self.bus.inspector().as_ref(), partitions).await?;
            let all = marks.into_iter().map(|(at, marks)| Span { at, from: marks.low, to: marks.high });
            let mut scan = Scan::over(self.bus.clone(), all.collect());
            let mut records = Vec::new();
            while let Some(record) = scan.next().await? {
                records.push(record);
            }
            ensure!(scan.shortened().is_empty(), "deleted meanwhile: records of {:?}", scan.shortened());
            Ok(records)
        };
        let what = || partitions.first().map_or_else(String::new, |at| format!("reading {at} and so on"));
        tokio::time::timeout(PATIENCE, read).await.with_context(what)?
    }

    /// All envelopes of an intent that lie in a topic now.
    ///
    /// # Errors
    /// The topic cannot be read, or something in it is no envelope.
    pub async fn envelopes(&self, topic: &Topic, id: &IntentId) -> Result<Vec<Envelope>> {
        let mut found = Vec::new();
        for record in self.topic(topic).await? {
            let envelope: Envelope = self.codec.decode(record.value())?;
            if envelope.intent_id == *id {
                found.push(envelope);
            }
        }
        Ok(found)
    }

    /// The outcome of an intent. Its record may be there more than once, byte for byte the same.
    ///
    /// # Errors
    /// There is none, or there are two that differ.
    pub async fn one_outcome(&self, id: &IntentId) -> Result<Outcome> {
        let partitions = self.bus.partitions(&self.names.name(&Topic::Outcomes)).await?;
        let at = self.partition(&Topic::Outcomes, partition_of(id.as_str(), partitions));
        let mut first: Option<(InRecord, Outcome)> = None;
        for record in self.records(&at).await? {
            let envelope: Envelope = self.codec.decode(record.value())?;
            let Body::Outcome(outcome) = envelope.body else {
                bail!("{at} holds a {}", envelope.body.kind())
            };
            if envelope.intent_id != *id {
                continue;
            }
            match &first {
                None => first = Some((record, outcome)),
                Some((known, other)) if known.payload != record.payload => bail!(
                    "{id} has two outcomes that differ, at offsets {} and {}: {other:?} and {outcome:?}",
                    known.offset,
                    record.offset
                ),
                Some(_) => {}
            }
        }
        first.map(|(_, outcome)| outcome).with_context(|| format!("{id} has no outcome"))
    }

    /// The records of a partition of the state log, with their offsets.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn state(&self, partition: i32) -> Result<Vec<(i64, StateRecord)>> {
        let records = self.records(&self.partition(&Topic::State, partition)).await?;
        records.iter().map(|record| Ok((record.offset, self.codec.decode(record.value())?))).collect()
    }

    /// Listens to the fleet, from the beginning of its topic, until `count` worker processes have told that
    /// they have partitions.
    ///
    /// # Errors
    /// It takes longer than that, or the topic cannot be read.
    pub async fn until_workers_have_partitions(&self, count: usize, within: Duration) -> Result<()> {
        let mut known = BTreeSet::new();
        let listen = async {
            let reader = self.bus.reader().await?;
            reader.add(self.partition(&Topic::Fleet, 0), StartAt::Beginning).await?;
            while known.len() < count {
                let ReaderEvent::Record(record) = reader.next().await else { continue };
                let beat: FleetBeat = self.codec.decode(record.value())?;
                if beat.role == "worker" && !beat.partitions.is_empty() {
                    known.insert(beat.process);
                }
            }
            Ok(())
        };
        match tokio::time::timeout(within, listen).await {
            Ok(listened) => listened,
            Err(_) => bail!("{} of {count} workers have partitions after {within:?}", known.len()),
        }
    }
}
