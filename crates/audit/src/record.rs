//! Records as they are read, and what identifies their bytes.

use crate::Place;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use starling_protocol::dead_letter::{Burial, MARK, burials};
use starling_protocol::state::LoggedEffect;
use starling_protocol::{Timestamp, Topic, TopicNames, headers};

/// A record of a topic, as it was read.
#[derive(Clone, Copy, Debug)]
pub struct LogRecord<'r> {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// When it was written, as it says itself.
    pub timestamp: Timestamp,
    /// Its key.
    pub key: Option<&'r [u8]>,
    /// Its headers, in order.
    pub headers: &'r [(String, Bytes)],
    /// Its value; `None` is a tombstone.
    pub value: Option<&'r [u8]>,
}

impl LogRecord<'_> {
    /// The value of the first header of that name, as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.value.unwrap_or_default()
    }

    pub(crate) fn place(&self, topic: &Topic) -> Place {
        Place::new(topic.clone(), self.partition, self.offset)
    }

    /// The intent that the headers name. They are for people and prove nothing.
    pub(crate) fn subject(&self) -> Option<&str> {
        self.header(headers::CE_SUBJECT)
    }

    /// Whether somebody has sent it again from the dead letters: then it says how often it was buried.
    pub(crate) fn is_replayed(&self, topic: &Topic) -> bool {
        *topic != Topic::Dlq && burials(self.headers) > 0
    }

    /// Whether it says how dead letters were settled, and is none itself.
    pub(crate) fn is_mark(&self) -> bool {
        self.header(MARK).is_some()
    }

    pub(crate) fn print(&self, topic: &Topic) -> Print {
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_ref()));
        Print::of(&topic.suffix(), self.partition, self.key, headers, self.bytes())
    }
}

/// Where a dead letter comes from.
pub(crate) fn origin(names: &TopicNames, burial: &Burial) -> Option<Place> {
    Some(Place::new(topic_named(names, &burial.topic)?, burial.partition, burial.offset))
}

/// Why it is one, for people.
pub(crate) fn reason(burial: Option<&Burial>) -> String {
    match burial {
        Some(burial) if burial.code.is_empty() => burial.reason.clone(),
        Some(burial) => format!("{}: {}", burial.code, burial.reason),
        None => "it does not say why".to_owned(),
    }
}

/// Everything of a record but where it lies in its partition: two records with the same print are the same,
/// byte for byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Print([u8; 16]);

impl Print {
    pub(crate) fn of_effect(topic: &Topic, effect: &LoggedEffect) -> Self {
        let headers = effect.headers.iter().map(|header| (header.name.as_str(), header.value.as_slice()));
        Self::of(&topic.suffix(), effect.partition, effect.key.as_deref(), headers, &effect.payload)
    }

    fn of<'h>(
        topic: &str,
        partition: i32,
        key: Option<&[u8]>,
        headers: impl Iterator<Item = (&'h str, &'h [u8])>,
        value: &[u8],
    ) -> Self {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        part(topic.as_bytes());
        part(&partition.to_be_bytes());
        part(&[u8::from(key.is_some())]);
        part(key.unwrap_or_default());
        part(value);
        for (name, value) in headers {
            part(name.as_bytes());
            part(value);
        }
        let mut print = [0; 16];
        print.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
        Self(print)
    }
}

/// The topic of that full name.
#[must_use]
pub fn topic_named(names: &TopicNames, name: &str) -> Option<Topic> {
    if let Some(topic) = Topic::all().into_iter().find(|topic| names.name(topic) == name) {
        return Some(topic);
    }
    let stem = format!("{}.", names.name(&Topic::Worker(None)));
    name.strip_prefix(stem.as_str()).map(|pool| Topic::Worker(Some(pool.to_owned())))
}
