//! W3C trace context as text: the only form in which a trace leaves a process.

use starling_protocol::{IntentId, ids::digest};
use std::fmt;

/// A `traceparent`: which trace, which span in it, and whether it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Never 0.
    pub trace_id: u128,
    /// Never 0.
    pub span_id: u64,
    /// Whether whoever made it records the trace.
    pub sampled: bool,
}

impl TraceContext {
    /// Reads a `traceparent`; `None` if it is none. Versions to come may append fields, which are
    /// ignored, as the standard demands.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.trim().split('-');
        let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let lower_hex = |field: &str, length: usize| {
            field.len() == length && field.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        let well_formed = lower_hex(version, 2)
            && version != "ff"
            && (version != "00" || fields.next().is_none())
            && lower_hex(trace, 32)
            && lower_hex(span, 16)
            && lower_hex(flags, 2);
        if !well_formed {
            return None;
        }
        let context = Self {
            trace_id: u128::from_str_radix(trace, 16).ok()?,
            span_id: u64::from_str_radix(span, 16).ok()?,
            sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
        };
        (context.trace_id != 0 && context.span_id != 0).then_some(context)
    }

    /// The trace of an intent that came without one: the same intent always gets the same.
    #[must_use]
    pub fn trace_of_intent(intent: &IntentId) -> u128 {
        trace_of(&["trace", intent.as_str()])
    }

    /// The trace of a record that came without one and whose intent is not known yet.
    #[must_use]
    pub fn trace_of_record(topic: &str, partition: i32, offset: i64) -> u128 {
        trace_of(&["trace", topic, &partition.to_string(), &offset.to_string()])
    }

    /// The trace id as it stands in a report: 32 hex digits.
    #[must_use]
    pub fn trace_id_text(&self) -> String {
        format!("{:032x}", self.trace_id)
    }
}

fn trace_of(cause: &[&str]) -> u128 {
    // The digest is 32 hex digits, so it always parses; 0 is no trace id.
    u128::from_str_radix(&digest(cause), 16).unwrap_or(1).max(1)
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_what_it_writes_and_refuses_what_the_standard_refuses() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceContext::parse(text).unwrap().to_string(), text);
        for bad in [
            "",
            "00",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
        let future = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        assert!(TraceContext::parse(future).is_some());
    }
}
