//! References to records in the log: how a large value is passed without being copied.

use crate::ids::content_digest;
use crate::{Envelope, EnvelopeId};
use serde::{Deserialize, Serialize};

/// Where a value lies, and how a reader knows that it found the right one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecordRef {
    /// Topic name.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
    /// Id of the envelope in that record.
    pub envelope_id: EnvelopeId,
    /// Size of the record's value in bytes.
    pub bytes: i64,
    /// Estimated tokens of the text that a reader takes from it.
    pub tokens: i64,
    /// SHA-256 of the record's value, in hex. Empty where the writer could not know it: then the
    /// envelope id alone identifies the record.
    pub digest: String,
}

impl RecordRef {
    /// The reference to a record that was read or written: `payload` is its value as it lies in the log.
    /// Tokens are estimated as a quarter of the bytes.
    #[must_use]
    pub fn of(topic: &str, partition: i32, offset: i64, envelope: &Envelope, payload: &[u8]) -> Self {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        Self {
            topic: topic.to_owned(),
            partition,
            offset,
            envelope_id: envelope.id.clone(),
            bytes: count(payload.len()),
            tokens: count(payload.len().div_ceil(4)),
            digest: content_digest(payload),
        }
    }
}
