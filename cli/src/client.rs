//! What a user's process does on the bus: publish an intent, follow it, cancel it, read its outcome.

use crate::exit::CliError;
use crate::inputs::Part;
use crate::store::Store;
use bytes::Bytes;
use starling_bus::{
    Bus, Delivered, DeliveryFuture, InRecord, LogReader, OutRecord, PartitionId, ReaderEvent, SendError,
    StartAt,
};
use starling_protocol::Codec;
use starling_protocol::headers::{STARLING_PRIORITY, headers_of};
use starling_protocol::topic::partition_of;
use starling_protocol::{
    Body, Cancel, Envelope, EnvelopeId, Intent, IntentId, Outcome, Priority, Progress, Role, Tag, Timestamp,
    Topic, TopicNames,
};
use starling_runtime::{Clock, Schemas};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// How long a publish may take before the broker counts as gone.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// A publisher and follower of intents.
pub struct Client {
    bus: Arc<dyn Bus>,
    schemas: Schemas,
    names: TopicNames,
    /// Numbers of partitions that were asked for: who publishes many intents asks once.
    partitions: Mutex<HashMap<Topic, i32>>,
    store: Store,
}

/// An intent to be published.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Its id.
    pub id: IntentId,
    /// What is wanted.
    pub intent: Intent,
    /// Who pays.
    pub tenant: String,
    /// How long it may take; `None` leaves it to the settings.
    pub timeout: Option<Duration>,
    /// Traceparent of the span that publishes it.
    pub traceparent: Option<String>,
    /// Parts of those of its inputs that are too long for it, by their positions. They are stored before it is published.
    pub parts: BTreeMap<usize, Vec<Part>>,
}

/// What a follower sees.
#[derive(Debug)]
pub enum Seen {
    /// Something happened.
    Progress(Progress),
    /// It ended.
    Outcome(Box<Outcome>),
    /// All that is in the log was read and the intent has not ended.
    Present,
}

impl Client {
    /// A client of the installation with these topic names, which has no schema registry.
    pub fn new(bus: Arc<dyn Bus>, names: TopicNames) -> Self {
        Self {
            bus,
            schemas: Codec::default().into(),
            names,
            partitions: Mutex::default(),
            store: Store::default(),
        }
    }

    /// The same, which encodes and reads with these.
    #[must_use]
    pub fn with_schemas(self, schemas: Schemas) -> Self {
        Self { schemas, ..self }
    }

    /// The bus that it is on.
    #[must_use]
    pub fn bus(&self) -> &Arc<dyn Bus> {
        &self.bus
    }

    /// What it encodes and reads with.
    #[must_use]
    pub fn schemas(&self) -> &Schemas {
        &self.schemas
    }

    /// The full name of a topic.
    #[must_use]
    pub fn topic(&self, topic: &Topic) -> String {
        self.names.name(topic)
    }

    /// Stores the parts of its long inputs, and then publishes an intent to the input topic.
    ///
    /// # Errors
    /// The broker is unreachable or refuses.
    pub async fn submit(&self, mut submission: Submission) -> Result<(), CliError> {
        for (position, parts) in std::mem::take(&mut submission.parts) {
            let topic = self.names.name(&Topic::Content);
            let stored = self.store.keep(&self.bus, &topic, self.schemas.codec(), &submission.tenant, &parts);
            let chunks = stored.await?;
            if let Some(input) = submission.intent.inputs.get_mut(position) {
                input.chunks = chunks;
            }
        }
        let created_at = Clock::system().now();
        let envelope = Envelope {
            id: EnvelopeId::derive("intent", &[submission.id.as_str()]),
            intent_id: submission.id.clone(),
            tag: Tag::role(Role::Intake),
            hop: 0,
            created_at,
            deadline: submission.timeout.map_or(Timestamp::MAX, |timeout| created_at.plus(timeout)),
            tenant: submission.tenant,
            body: Body::Intent(submission.intent),
        };
        self.publish(&Topic::Intents, &envelope, submission.traceparent.as_deref()).await
    }

    /// Asks the coordinator to cancel an intent.
    ///
    /// # Errors
    /// The broker is unreachable or refuses.
    pub async fn cancel(&self, id: &IntentId, tenant: &str, reason: &str) -> Result<(), CliError> {
        let envelope = Envelope {
            id: EnvelopeId::derive("cancel", &[id.as_str()]),
            intent_id: id.clone(),
            tag: Tag::role(Role::Coordinator).with_lane(id.as_str()),
            hop: 0,
            created_at: Clock::system().now(),
            deadline: Timestamp::MAX,
            tenant: tenant.to_owned(),
            body: Body::Cancel(Cancel { reason: reason.to_owned() }),
        };
        self.publish(&Topic::Coordinator, &envelope, None).await
    }

    /// Follows an intent from now on, or from the beginning of the log.
    ///
    /// # Errors
    /// The broker is unreachable.
    pub async fn follow(&self, id: &IntentId, start: StartAt) -> Result<Follower, CliError> {
        let (progress, to_read_of_progress) = self.open(&Topic::Progress, id, start).await?;
        let (outcomes, to_read_of_outcomes) = self.open(&Topic::Outcomes, id, start).await?;
        let to_read = [to_read_of_outcomes, to_read_of_progress];
        let schemas = self.schemas.clone();
        Ok(Follower {
            outcomes,
            progress,
            schemas,
            id: id.clone(),
            to_read,
            in_hand: None,
            present: false,
            ended: false,
        })
    }

    /// A reader of the partition of `id`. One for each topic: a client that follows the same partition of
    /// two topics cannot tell at whose end it is without asking, and that takes half a second. Also the
    /// last offset that is there already, if there is any to be read.
    async fn open(
        &self,
        topic: &Topic,
        id: &IntentId,
        start: StartAt,
    ) -> Result<(Arc<dyn LogReader>, Option<i64>), CliError> {
        let partition = self.partition(topic, id).await?;
        let marks = self.bus.watermarks(&partition).await?;
        let reader = self.bus.reader().await?;
        // `End` must mean the end as it is now, not as it is when the client gets around to asking.
        let (start, from) = match start {
            StartAt::End => (StartAt::Offset(marks.high), marks.high),
            StartAt::Beginning => (start, marks.low),
            StartAt::Offset(offset) => (start, offset),
        };
        reader.add(partition, start).await?;
        Ok((reader, (from < marks.high).then_some(marks.high - 1)))
    }

    async fn partition(&self, topic: &Topic, id: &IntentId) -> Result<PartitionId, CliError> {
        let name = self.names.name(topic);
        let known = self.partitions.lock().unwrap_or_else(PoisonError::into_inner).get(topic).copied();
        let partitions = match known {
            Some(partitions) => partitions,
            None => {
                let partitions = self.bus.partitions(&name).await?;
                let mut known = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
                known.insert(topic.clone(), partitions);
                partitions
            }
        };
        Ok(PartitionId::new(name, partition_of(id.as_str(), partitions)))
    }

    async fn publish(
        &self,
        topic: &Topic,
        envelope: &Envelope,
        traceparent: Option<&str>,
    ) -> Result<(), CliError> {
        let to = self.partition(topic, &envelope.intent_id).await?;
        let payload = self.schemas.codec().encode(envelope).map_err(|e| CliError::Usage(e.to_string()))?;
        let headers = headers_of(envelope, traceparent, None)
            .into_iter()
            .chain(priority_of(envelope))
            .map(|(name, value)| (name, Bytes::from(value)))
            .collect();
        let record = OutRecord {
            to,
            key: Some(Bytes::copy_from_slice(envelope.intent_id.as_str().as_bytes())),
            headers,
            payload: Some(payload.into()),
        };
        acknowledged("the intent", self.bus.send(record)).await.map(drop)
    }
}

/// Waits until a record is acknowledged that is named so.
///
/// # Errors
/// The broker refuses it, or is unreachable.
pub(crate) async fn acknowledged(what: &str, sent: DeliveryFuture) -> Result<Delivered, CliError> {
    match tokio::time::timeout(PUBLISH_TIMEOUT, sent).await {
        Ok(Ok(delivered)) => Ok(delivered),
        Ok(Err(error @ SendError::Refused { .. })) => Err(CliError::Usage(error.to_string())),
        Ok(Err(error)) => Err(CliError::Unavailable(error.to_string())),
        Err(_) => Err(CliError::Unavailable(format!(
            "the broker did not acknowledge {what} within {} s",
            PUBLISH_TIMEOUT.as_secs()
        ))),
    }
}

/// The header by which an intent of which somebody waits for the outcome is taken in before a batch.
fn priority_of(envelope: &Envelope) -> Option<(String, Vec<u8>)> {
    let Body::Intent(intent) = &envelope.body else { return None };
    Some((STARLING_PRIORITY.to_owned(), Priority::of_level(intent.priority).to_string().into_bytes()))
}

/// Sees what becomes of one intent.
pub struct Follower {
    outcomes: Arc<dyn LogReader>,
    progress: Arc<dyn LogReader>,
    schemas: Schemas,
    id: IntentId,
    /// What was there at the beginning and has still to be read, of outcomes and progress: the last offset.
    /// On a busy installation the end of a topic never comes, so it is not waited for.
    to_read: [Option<i64>; 2],
    /// A record that is being read: whoever waits for it may stop waiting and come again.
    in_hand: Option<InRecord>,
    present: bool,
    ended: bool,
}

impl Follower {
    /// The next thing that happens; after the outcome, `None`.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn next(&mut self) -> Result<Option<Seen>, CliError> {
        if self.ended {
            return Ok(None);
        }
        loop {
            if let Some(record) = &self.in_hand {
                let seen = self.read(record).await;
                self.in_hand = None;
                if let Some(seen) = seen? {
                    self.ended = matches!(seen, Seen::Outcome(_));
                    return Ok(Some(seen));
                }
            }
            if !self.present && self.to_read == [None; 2] {
                self.present = true;
                return Ok(Some(Seen::Present));
            }
            // Progress first, as far as it is there: what is shown should be in order.
            let (topic, event) = tokio::select! {
                biased;
                event = self.progress.next() => (1, event),
                event = self.outcomes.next() => (0, event),
            };
            match event {
                ReaderEvent::Record(record) => {
                    self.to_read[topic].take_if(|last| record.offset >= *last);
                    self.in_hand = Some(record);
                }
                ReaderEvent::End { .. } => self.to_read[topic] = None,
                ReaderEvent::OutOfRange { at, offset } => {
                    return Err(CliError::Failed(format!(
                        "{at} has no record at {offset}: was the topic recreated?"
                    )));
                }
                ReaderEvent::Trouble(error) => tracing::warn!(%error, "reading the log"),
            }
        }
    }

    async fn read(&self, record: &InRecord) -> Result<Option<Seen>, CliError> {
        let key = record.key.as_deref();
        if key.is_some_and(|key| key != self.id.as_str().as_bytes()) {
            return Ok(None); // another intent of this partition; not worth decoding
        }
        if key.is_some() && self.schemas.codec().has_unknown_schema(record.value()) {
            let at = format!("{}, offset {}", record.at, record.offset);
            return Err(CliError::Failed(format!(
                "{at}: a newer version wrote what there is to know of {}: use the starling of that version",
                self.id
            )));
        }
        let read = self.schemas.read_patiently::<Envelope>(record.value()).await;
        let Ok(envelope) = read else { return Ok(None) }; // not ours to judge: the log is shared
        if envelope.intent_id != self.id {
            return Ok(None);
        }
        Ok(match envelope.body {
            Body::Progress(progress) => Some(Seen::Progress(progress)),
            Body::Outcome(outcome) => Some(Seen::Outcome(Box::new(outcome))),
            _ => None,
        })
    }
}
