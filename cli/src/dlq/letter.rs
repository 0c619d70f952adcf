//! One dead letter, read as far as it can be read.

use starling_bus::InRecord;
use starling_protocol::{
    Envelope, IntentId, IntentLimits, ParsedIntent, Topic, TopicNames,
    dead_letter::{Burial, Mark},
    headers::{CE_SUBJECT, STARLING_INTENT_ID},
    read_intent,
};
use starling_runtime::{Schemas, registry::Unreadable};
use std::{fmt, str::FromStr};

/// Where a letter lies among the dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LetterId {
    /// Partition of the dead letters.
    pub partition: i32,
    /// Offset in it.
    pub offset: i64,
}

impl LetterId {
    /// Of a record of the dead letters.
    #[must_use]
    pub fn of(record: &InRecord) -> Self {
        Self { partition: record.at.partition, offset: record.offset }
    }
}

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.partition, self.offset)
    }
}

impl FromStr for LetterId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (partition, offset) = text.split_once(':')?;
            let id = Self { partition: partition.parse().ok()?, offset: offset.parse().ok()? };
            (id.partition >= 0 && id.offset >= 0).then_some(id)
        };
        read().ok_or_else(|| "expected PARTITION:OFFSET, such as 3:1027".to_owned())
    }
}

/// What a record of the dead letters is.
#[derive(Debug)]
pub enum Found {
    /// A dead letter.
    Letter(Box<Letter>),
    /// What became of others.
    Mark(Mark),
    /// Nobody knows: it has no headers of ours.
    Foreign,
}

/// A dead letter.
#[derive(Debug)]
pub struct Letter {
    /// The record.
    pub record: InRecord,
    /// How it was buried.
    pub burial: Burial,
    /// What it says.
    pub contents: Contents,
    /// The intent that it is about, if that can be told.
    pub intent: Option<IntentId>,
    /// Whether only the place of its first record tells which intent it is: nothing in it names one.
    pub intent_by_place: bool,
}

/// What the value of a letter is.
#[derive(Debug)]
pub enum Contents {
    /// What services say to each other.
    Envelope(Box<Envelope>),
    /// What a user wants.
    Intent(Box<ParsedIntent>),
    /// It cannot be read.
    Unreadable(String),
    /// It is not here, because it was too large.
    Omitted,
}

impl Contents {
    /// The kind of it, for people.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Envelope(envelope) => envelope.body.kind(),
            Self::Intent(_) => "intent",
            Self::Unreadable(_) => "unreadable",
            Self::Omitted => "omitted",
        }
    }
}

impl Found {
    /// Reads a record of the dead letters.
    pub async fn read(schemas: &Schemas, names: &TopicNames, record: InRecord) -> Self {
        if let Some(mark) = Mark::read(&record.headers) {
            return Self::Mark(mark);
        }
        let Some(burial) = Burial::read(&record.headers) else { return Self::Foreign };
        let from_users = burial.topic == names.name(&Topic::Intents);
        let (contents, named) = if burial.omitted.is_some() {
            (Contents::Omitted, None)
        } else if from_users {
            read_users(schemas, &record).await
        } else {
            read_services(schemas, &record).await
        };
        let (intent, intent_by_place) = match named.or_else(|| told(&record, &burial, names)) {
            None if from_users => {
                (Some(IntentId::of_record(&burial.topic, burial.partition, burial.offset)), true)
            }
            intent => (intent, false),
        };
        Self::Letter(Box::new(Letter { record, burial, contents, intent, intent_by_place }))
    }
}

/// A record of the input topic, as the intake reads it.
async fn read_users(schemas: &Schemas, record: &InRecord) -> (Contents, Option<IntentId>) {
    if let Err(why) = schemas.meet(record.value()).await {
        return (Contents::Unreadable(why), None);
    }
    let limits = IntentLimits { max_bytes: usize::MAX, ..IntentLimits::default() };
    match read_intent(schemas.codec(), &limits, record.value(), record.header("content-type")) {
        Ok(parsed) => {
            let id = parsed.id.clone();
            (Contents::Intent(Box::new(parsed)), id)
        }
        Err(invalid) => {
            let why = invalid.to_string();
            (Contents::Unreadable(why), invalid.id)
        }
    }
}

async fn read_services(schemas: &Schemas, record: &InRecord) -> (Contents, Option<IntentId>) {
    match schemas.read::<Envelope>(record.value()).await {
        Ok(envelope) => {
            let id = envelope.intent_id.clone();
            (Contents::Envelope(Box::new(envelope)), Some(id))
        }
        Err(Unreadable::Never(why) | Unreadable::Later(why) | Unreadable::Newer(why)) => {
            (Contents::Unreadable(why), None)
        }
    }
}

/// The intent that headers or the key tell, for a value that cannot be read.
fn told(record: &InRecord, burial: &Burial, names: &TopicNames) -> Option<IntentId> {
    let keyed = [Topic::Coordinator, Topic::Planner].iter().any(|topic| names.name(topic) == burial.topic);
    let key = record.key.as_deref().filter(|_| keyed).and_then(|key| std::str::from_utf8(key).ok());
    [record.header(STARLING_INTENT_ID), record.header(CE_SUBJECT), key]
        .into_iter()
        .flatten()
        .find_map(|id| IntentId::parse(id).ok())
}
