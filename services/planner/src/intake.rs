//! The intake: from what users publish to intents that the coordinator can take.

use crate::Strategies;
use async_trait::async_trait;
use starling_bus::InRecord;
use starling_protocol::{
    Body, Codec, Envelope, EnvelopeId, IntentId, Rejection, Role, Tag, Timestamp,
    headers::STARLING_INTENT_ID,
    incoming::{DEFAULT_TENANT, IntentLimits, InvalidIntent, ParsedIntent, read_intent},
};
use starling_runtime::{Clock, HandleError, HandlerContext, RecordHandler};
use std::time::Duration;

/// The code of a rejection because the record is no valid intent.
pub const INVALID_INTENT: &str = "invalid_intent";
/// The code of a rejection because the record is too large.
pub const INTENT_TOO_LARGE: &str = "intent_too_large";
/// The code of a rejection because a valid intent could not be passed on.
pub const UNACCEPTABLE_INTENT: &str = "unacceptable_intent";

/// Handles records of the input topic.
#[derive(Debug)]
pub struct IntakeHandler {
    codec: Codec,
    limits: IntentLimits,
    strategies: Strategies,
    clock: Clock,
}

impl IntakeHandler {
    /// An intake with these bounds. The clock is asked only for records without a timestamp.
    #[must_use]
    pub fn new(codec: Codec, limits: IntentLimits, strategies: Strategies, clock: Clock) -> Self {
        Self { codec, limits, strategies, clock }
    }

    fn read(&self, record: &InRecord) -> Result<ParsedIntent, InvalidIntent> {
        let mut parsed =
            read_intent(&self.codec, &self.limits, record.value(), record.header("content-type"))?;
        let asked = parsed.intent.strategy.clone();
        if let Err(faults) = self.strategies.settle(&mut parsed.intent) {
            return Err(InvalidIntent { id: parsed.id, tenant: Some(parsed.tenant), faults });
        }
        if parsed.intent.strategy != asked {
            let id = parsed.id.clone().unwrap_or_else(|| id_of(record));
            tracing::info!(intent_id = %id, asked, strategy = parsed.intent.strategy, "a strategy is chosen");
        }
        Ok(parsed)
    }

    fn rejection(&self, record: &InRecord, invalid: InvalidIntent) -> Envelope {
        let is_too_large = record.value().len() > self.limits.max_bytes;
        let code = if is_too_large { INTENT_TOO_LARGE } else { INVALID_INTENT };
        let message = invalid.to_string();
        let id = invalid.id.unwrap_or_else(|| id_of(record));
        let tenant = invalid.tenant.unwrap_or_else(|| DEFAULT_TENANT.to_owned());
        tracing::info!(intent_id = %id, reason = message, "an intent is rejected");
        rejected(id, tenant, code, message, self.created_at(record))
    }

    fn created_at(&self, record: &InRecord) -> Timestamp {
        if record.timestamp > Timestamp(0) { record.timestamp } else { self.clock.now() }
    }
}

#[async_trait]
impl RecordHandler for IntakeHandler {
    async fn handle(&self, record: InRecord, cx: &HandlerContext) -> Result<(), HandleError> {
        let value = record.value();
        match self.read(&record) {
            Ok(parsed) => {
                drop(cx.outbox.emit(accepted(&record, parsed, self.created_at(&record))));
                Ok(())
            }
            // Nobody but a person with the bytes at hand can tell what this was to be.
            Err(invalid) if invalid.id.is_none() && std::str::from_utf8(value).is_err() => {
                Err(HandleError::DeadLetter(invalid.to_string()))
            }
            Err(invalid) => {
                drop(cx.outbox.emit(self.rejection(&record, invalid)));
                Ok(())
            }
        }
    }

    fn failed(&self, record: &InRecord, reason: &str) -> Option<Envelope> {
        Some(match self.read(record) {
            Err(invalid) => self.rejection(record, invalid),
            // Nothing is wrong with it but that it could not be passed on.
            Ok(parsed) => {
                let id = parsed.id.unwrap_or_else(|| id_of(record));
                let message = format!("the intent could not be accepted: {reason}");
                rejected(id, parsed.tenant, UNACCEPTABLE_INTENT, message, self.created_at(record))
            }
        })
    }
}

fn accepted(record: &InRecord, parsed: ParsedIntent, created_at: Timestamp) -> Envelope {
    let deadline = match parsed.deadline_ms {
        Some(ms) => created_at.plus(Duration::from_millis(u64::try_from(ms).unwrap_or(0))),
        // The coordinator's settings say how long an intent may take that does not say so itself.
        None => Timestamp::MAX,
    };
    let id = parsed.id.unwrap_or_else(|| id_of(record));
    envelope("intent", id, parsed.tenant, created_at, deadline, Body::Intent(parsed.intent))
}

fn rejected(id: IntentId, tenant: String, code: &str, message: String, created_at: Timestamp) -> Envelope {
    let body = Body::Rejection(Rejection { code: code.to_owned(), message });
    envelope("rejection", id, tenant, created_at, Timestamp::MAX, body)
}

/// A redelivery of the same record is the same intent; so is one that was replayed from the dead letters, which says
/// whose place it takes. It gives no power: whoever writes the header could as well write the id into the value.
fn id_of(record: &InRecord) -> IntentId {
    if let Some(id) = record.header(STARLING_INTENT_ID).and_then(|id| IntentId::parse(id).ok()) {
        return id;
    }
    IntentId::of_record(&record.at.topic, record.at.partition, record.offset)
}

fn envelope(
    kind: &str,
    intent_id: IntentId,
    tenant: String,
    created_at: Timestamp,
    deadline: Timestamp,
    body: Body,
) -> Envelope {
    Envelope {
        id: EnvelopeId::derive(kind, &[intent_id.as_str()]),
        tag: Tag::role(Role::Coordinator).with_lane(intent_id.as_str()),
        intent_id,
        hop: 0,
        created_at,
        deadline,
        tenant,
        body,
    }
}
