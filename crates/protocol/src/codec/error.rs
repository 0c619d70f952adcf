//! Why a value could not be encoded or decoded.

use super::cursor::{Fault, Malformed};
use super::record::RecordKind;
use super::schema::Fingerprint;
use std::fmt;

/// A record that cannot be written. Trying again cannot help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The value would be larger than the limit.
    #[error("the encoded value has more than the allowed {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The record does not fit its schema: the program and its schemas disagree.
    #[error("a {kind} does not fit its schema: {reason}")]
    Unencodable {
        /// Which kind of record.
        kind: RecordKind,
        /// What does not fit.
        reason: String,
    },
}

/// Bytes that are no record. The same bytes will never be one, so they belong into the dead letters, with two
/// exceptions: [`DecodeError::UnknownSchemaId`] can pass, when the codec learns what the id stands for, and what is
/// [newer](DecodeError::is_newer) than this process its successor can read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// There are no bytes.
    #[error("the value is empty")]
    Empty,
    /// There are too many bytes.
    #[error("the value has {bytes} bytes, {limit} are allowed")]
    TooLarge {
        /// Size of the value, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The decoded value could need too much memory.
    #[error("decoding the value could take more than the allowed {limit} bytes of memory")]
    TooCostly {
        /// The limit, in bytes.
        limit: usize,
    },
    /// Neither single-object encoding nor Confluent framing.
    #[error(
        "the value is no Avro record: it begins with byte {first:#04x}, \
         expected c3 01 (single-object encoding) or 00 (Confluent framing)"
    )]
    UnknownFraming {
        /// The first byte.
        first: u8,
    },
    /// Written with a schema that this version does not know.
    #[error(
        "the value was written with a schema that this version does not know, fingerprint {}: a newer version reads it",
        Hex(fingerprint)
    )]
    UnknownSchema {
        /// Its fingerprint, in the order of the header.
        fingerprint: Fingerprint,
    },
    /// Written with a schema id that the codec does not know (yet).
    #[error("the value was written with schema id {id} of a schema registry, which is not known here")]
    UnknownSchemaId {
        /// The id.
        id: i32,
    },
    /// A record of another kind, such as a beat in an inbox.
    #[error("expected a value of kind {expected}, found one of kind {found}")]
    OtherRecord {
        /// What was to be read.
        expected: RecordKind,
        /// What the schema says it is.
        found: RecordKind,
    },
    /// The bytes after the header are no value of the schema.
    #[error("malformed value: {0}")]
    Malformed(Malformed),
}

impl DecodeError {
    /// Whether a newer version may have written the value, and so may read it.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(
            self,
            DecodeError::UnknownSchema { .. }
                | DecodeError::Malformed(Malformed { fault: Fault::Newer(_), .. })
        )
    }
}

struct Hex<'b>(&'b [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
