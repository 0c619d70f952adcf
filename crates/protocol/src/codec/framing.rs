//! What stands before an encoded value and names the schema that it was written with.

use super::schema::Fingerprint;

const SINGLE_OBJECT: [u8; 2] = [0xc3, 0x01];
const CONFLUENT: u8 = 0x00;

/// How a value names its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaName {
    /// Avro single-object encoding.
    Fingerprint(Fingerprint),
    /// Id in a Confluent-compatible schema registry.
    Id(i32),
}

/// Why a frame could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameFault {
    Empty,
    Unknown,
    Truncated,
}

/// Splits a record's value into the name of its schema and the encoded value.
pub(super) fn split(bytes: &[u8]) -> Result<(SchemaName, &[u8]), FrameFault> {
    if bytes.is_empty() {
        return Err(FrameFault::Empty);
    }
    if let Some(rest) = bytes.strip_prefix(&SINGLE_OBJECT) {
        return match rest.split_first_chunk() {
            Some((fingerprint, datum)) => Ok((SchemaName::Fingerprint(*fingerprint), datum)),
            None => Err(FrameFault::Truncated),
        };
    }
    if let Some(rest) = bytes.strip_prefix(&[CONFLUENT]) {
        return match rest.split_first_chunk() {
            Some((id, datum)) => Ok((SchemaName::Id(i32::from_be_bytes(*id)), datum)),
            None => Err(FrameFault::Truncated),
        };
    }
    Err(FrameFault::Unknown)
}

/// Appends the frame that names a schema.
pub(super) fn put(name: SchemaName, out: &mut Vec<u8>) {
    match name {
        SchemaName::Fingerprint(fingerprint) => {
            out.extend(SINGLE_OBJECT);
            out.extend(fingerprint);
        }
        SchemaName::Id(id) => {
            out.push(CONFLUENT);
            out.extend(id.to_be_bytes());
        }
    }
}

/// Whether a record's value begins like an Avro frame. No text does: neither beginning is valid UTF-8
/// text that a person would write.
pub(crate) fn is_framed(bytes: &[u8]) -> bool {
    bytes.starts_with(&SINGLE_OBJECT) || bytes.starts_with(&[CONFLUENT])
}
