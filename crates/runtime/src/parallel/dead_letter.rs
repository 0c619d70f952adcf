//! What a dead letter looks like.

use bytes::Bytes;
use starling_bus::{InRecord, OutRecord, PartitionId};
use starling_protocol::Timestamp;

/// Why a record is a dead letter: a word for counting, and a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) word: &'static str,
    pub(crate) text: String,
}

impl Reason {
    pub(crate) fn new(word: &'static str, text: impl Into<String>) -> Self {
        Self { word, text: text.into() }
    }
}

/// The record as it was, with the reason and where it came from in its headers.
pub(crate) fn dead_letter(record: &InRecord, to: PartitionId, reason: &Reason, now: Timestamp) -> OutRecord {
    let mut headers = record.headers.clone();
    for (name, value) in [
        ("starling-dlq-reason", reason.text.clone()),
        ("starling-dlq-topic", record.at.topic.to_string()),
        ("starling-dlq-partition", record.at.partition.to_string()),
        ("starling-dlq-offset", record.offset.to_string()),
        ("starling-dlq-time", now.0.to_string()),
    ] {
        headers.push((name.to_owned(), Bytes::from(value)));
    }
    OutRecord { to, key: record.key.clone(), headers, payload: record.payload.clone() }
}

/// The same without its value, for a record that not even the dead letters take. The value is still where
/// it was, as the headers say.
pub(crate) fn without_value(mut letter: OutRecord) -> OutRecord {
    letter.headers.push(("starling-dlq-payload".to_owned(), Bytes::from_static(b"omitted: too large")));
    letter.payload = None;
    letter
}
