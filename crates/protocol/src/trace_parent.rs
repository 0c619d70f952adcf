//! W3C trace context: the one header that ties an intent's records into one trace.

use crate::IntentId;
use crate::ids::digest;
use std::{fmt, str::FromStr};

/// A `traceparent`: which trace a record belongs to, and which span caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    /// The trace; not all zeros.
    pub trace_id: [u8; 16],
    /// The span that caused the record; not all zeros.
    pub span_id: [u8; 8],
    /// Bit 0 says that the trace is sampled.
    pub flags: u8,
}

impl TraceParent {
    /// The context of an intent that came without one, sampled. It is derived from the id, so whoever
    /// reads the record again is in the same trace. The span is that of the intent's acceptance: it must
    /// be recorded under this id, as the root, or the spans below it have no parent.
    #[must_use]
    pub fn for_intent(intent: &IntentId) -> Self {
        Self {
            trace_id: not_zero(leading_bytes(&digest(&["trace", intent.as_str()]))),
            span_id: not_zero(leading_bytes(&digest(&["root span", intent.as_str()]))),
            flags: 1,
        }
    }

    /// The same trace with another span as the cause.
    #[must_use]
    pub fn with_span(self, span_id: [u8; 8]) -> Self {
        Self { span_id, ..self }
    }

    /// The trace id as 32 hex digits.
    #[must_use]
    pub fn trace_id_hex(&self) -> String {
        Hex(&self.trace_id).to_string()
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", Hex(&self.trace_id), Hex(&self.span_id), self.flags)
    }
}

/// A text that is no `traceparent`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no traceparent: expected 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, lower case, ids not zero"
)]
pub struct InvalidTraceParent(String);

impl FromStr for TraceParent {
    type Err = InvalidTraceParent;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| InvalidTraceParent(text.chars().take(100).collect()))
    }
}

/// Later versions may append fields; version `ff` is forbidden and version 0 has exactly four.
fn parse(text: &str) -> Option<TraceParent> {
    let mut parts = text.splitn(5, '-');
    let [version] = hex_bytes::<1>(parts.next()?)?;
    let trace_id = hex_bytes::<16>(parts.next()?)?;
    let span_id = hex_bytes::<8>(parts.next()?)?;
    let [flags] = hex_bytes::<1>(parts.next()?)?;
    let valid = version != 0xff
        && (version != 0 || parts.next().is_none())
        && trace_id != [0; 16]
        && span_id != [0; 8];
    valid.then_some(TraceParent { trace_id, span_id, flags })
}

fn hex_bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower_hex = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    (text.len() == 2 * N && lower_hex).then(|| leading_bytes(text))
}

/// The first bytes of a text of hex digits.
fn leading_bytes<const N: usize>(hex: &str) -> [u8; N] {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0]) << 4 | digit(pair[1]);
    }
    bytes
}

fn not_zero<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    if let (true, Some(last)) = (bytes == [0; N], bytes.last_mut()) {
        *last = 1;
    }
    bytes
}

struct Hex<'b>(&'b [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
