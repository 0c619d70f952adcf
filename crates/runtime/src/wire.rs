//! Between envelopes and records.

use bytes::Bytes;
use starling_bus::InRecord;
use starling_llm::Encoding;
use starling_protocol::{
    Body, Envelope, Priority, RecordRef,
    headers::{STARLING_PRIORITY, headers_of},
    ids::content_digest,
};

/// How far a body's text reaches, in tokens by rule of thumb: who refers to it does not know which model will read it.
/// What a reader takes from a record decides: the output of a result, the goal, inputs, items and parameters of an intent,
/// parts of inputs included that lie elsewhere.
#[must_use]
pub fn estimated_tokens(body: &Body) -> i64 {
    let count = |text: &String| Encoding::Estimate.count(text);
    match body {
        Body::Intent(intent) => {
            let inputs = intent.inputs.iter().flat_map(|input| [&input.content, &input.name]);
            let parameters = intent.parameters.iter().flat_map(|(name, value)| [name, value]);
            let stored =
                intent.inputs.iter().flat_map(|input| &input.chunks).map(|chunk| chunk.tokens.max(0));
            let texts = inputs.chain(parameters).chain(&intent.items).chain([&intent.goal]);
            texts.map(count).chain(stored).fold(0, i64::saturating_add)
        }
        Body::TaskResult(result) => count(&result.output),
        Body::TaskTurn(turn) => {
            count(&turn.text) + turn.calls.iter().map(|call| count(&call.arguments)).sum::<i64>()
        }
        Body::ToolReply(reply) => reply.outputs.iter().map(|output| count(&output.content)).sum(),
        Body::Content(content) => [&content.heading, &content.overlap, &content.text].map(count).iter().sum(),
        _ => 0,
    }
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
