//! Headers of records. They serve people and tools, never routing: what Starling needs is in the value.

use crate::Envelope;

/// W3C trace context: trace and causing span.
pub const TRACEPARENT: &str = "traceparent";
/// W3C trace context: what vendors add.
pub const TRACESTATE: &str = "tracestate";
/// Media type of the value.
pub const CONTENT_TYPE: &str = "content-type";
/// The envelope's tag.
pub const STARLING_TAG: &str = "starling-tag";
/// CloudEvents: version of the specification.
pub const CE_SPECVERSION: &str = "ce_specversion";
/// CloudEvents: the envelope's id.
pub const CE_ID: &str = "ce_id";
/// CloudEvents: where it comes from, `/starling/<tenant>`.
pub const CE_SOURCE: &str = "ce_source";
/// CloudEvents: what it is, `dev.starling.<body>`.
pub const CE_TYPE: &str = "ce_type";
/// CloudEvents: when its cause was decided, RFC 3339.
pub const CE_TIME: &str = "ce_time";
/// CloudEvents: the intent.
pub const CE_SUBJECT: &str = "ce_subject";

/// In the input topic: the id of an intent whose value names none. Who replays a dead letter sets it, so that the
/// record, which lies elsewhere now, is the same intent still.
pub const STARLING_INTENT_ID: &str = "starling-intent-id";

/// How urgent what the record is part of is, 0 to 9: see [`crate::Priority`]. Who goes first may follow from it, never where
/// to.
pub const STARLING_PRIORITY: &str = "starling-priority";

/// The media type of every value that the codec writes.
pub const AVRO: &str = "application/avro";

/// The headers of an envelope's record: trace context where there is one, and CloudEvents in binary mode.
#[must_use]
pub fn headers_of(
    envelope: &Envelope,
    traceparent: Option<&str>,
    tracestate: Option<&str>,
) -> Vec<(String, Vec<u8>)> {
    let header = |name: &str, value: String| (name.to_owned(), value.into_bytes());
    let optional = |name: &str, value: Option<String>| value.map(|value| header(name, value));
    let fixed = [
        header(CONTENT_TYPE, AVRO.into()),
        header(STARLING_TAG, envelope.tag.to_string()),
        header(CE_SPECVERSION, "1.0".into()),
        header(CE_ID, envelope.id.to_string()),
        header(CE_SOURCE, format!("/starling/{}", envelope.tenant)),
        header(CE_TYPE, format!("dev.starling.{}", envelope.body.kind())),
        header(CE_SUBJECT, envelope.intent_id.to_string()),
    ];
    optional(TRACEPARENT, traceparent.map(str::to_owned))
        .into_iter()
        // The one means nothing without the other.
        .chain(traceparent.and(optional(TRACESTATE, tracestate.map(str::to_owned))))
        .chain(fixed)
        .chain(optional(CE_TIME, envelope.created_at.to_rfc3339()))
        .collect()
}
