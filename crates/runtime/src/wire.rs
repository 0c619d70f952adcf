//! Between envelopes and records.

use bytes::Bytes;
use starling_bus::InRecord;
use starling_protocol::{
    Body, Envelope, Priority, RecordRef,
    headers::{STARLING_PRIORITY, headers_of},
    ids::content_digest,
};

/// How far a body's text reaches, in estimated tokens: a quarter of its bytes. What a reader takes from a
/// record decides: the output of a result, the goal, inputs, items and parameters of an intent.
#[must_use]
pub fn estimated_tokens(body: &Body) -> i64 {
    let bytes: usize = match body {
        Body::Intent(intent) => {
            let inputs: usize =
                intent.inputs.iter().map(|input| input.content.len() + input.name.len()).sum();
            let items: usize = intent.items.iter().map(String::len).sum();
            let parameters: usize =
                intent.parameters.iter().map(|(name, value)| name.len() + value.len()).sum();
            intent.goal.len() + inputs + items + parameters
        }
        Body::TaskResult(result) => result.output.len(),
        Body::TaskTurn(turn) => {
            turn.text.len() + turn.calls.iter().map(|call| call.arguments.len()).sum::<usize>()
        }
        Body::ToolReply(reply) => reply.outputs.iter().map(|output| output.content.len()).sum(),
        _ => 0,
    };
    i64::try_from(bytes.div_ceil(4)).unwrap_or(i64::MAX)
}

/// The reference to a record that holds `envelope`.
#[must_use]
pub fn reference(record: &InRecord, envelope: &Envelope) -> RecordRef {
    reference_at(&record.at.topic, record.at.partition, record.offset, record.value(), envelope)
}

pub(crate) fn reference_at(
    topic: &str,
    partition: i32,
    offset: i64,
    value: &[u8],
    envelope: &Envelope,
) -> RecordRef {
    RecordRef {
        topic: topic.to_owned(),
        partition,
        offset,
        envelope_id: envelope.id.clone(),
        bytes: i64::try_from(value.len()).unwrap_or(i64::MAX),
        tokens: estimated_tokens(&envelope.body),
        digest: content_digest(value),
    }
}

/// The headers of an envelope's record: for people and tools, never for routing.
pub(crate) fn headers(envelope: &Envelope, traceparent: &str) -> Vec<(String, Bytes)> {
    headers_within(envelope, &Context { parent: traceparent, state: None, priority: None })
}

/// As [`headers`], passing on what the record at hand came with.
pub(crate) fn headers_within(envelope: &Envelope, context: &Context<'_>) -> Vec<(String, Bytes)> {
    let parent = Some(context.parent).filter(|parent| !parent.is_empty());
    let priority =
        context.priority.map(|priority| (STARLING_PRIORITY.to_owned(), priority.to_string().into()));
    headers_of(envelope, parent, context.state)
        .into_iter()
        .map(|(name, value)| (name, Bytes::from(value)))
        .chain(priority)
        .collect()
}

/// What a record passes on to those that follow from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'t> {
    /// W3C traceparent.
    pub(crate) parent: &'t str,
    /// W3C tracestate: what others' tracing needs, passed on as it came.
    pub(crate) state: Option<&'t str>,
    /// How urgent it is.
    pub(crate) priority: Option<Priority>,
}
