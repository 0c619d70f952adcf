//! Reading what users publish to the input topic: an Avro envelope, a JSON object, or just the goal as
//! text.
//!
//! Users write this by hand, so reading is strict and answers with all faults at once, each with the
//! path of the field, what was expected and what was found. A faulty intent still has its id, where that
//! can be read, because the answer must reach the user under it.

mod check;
mod fault;
mod json;
mod tree;

pub use fault::{IntentFault, InvalidIntent};

use crate::codec::{Codec, is_framed};
use crate::{Body, Envelope, Intent, IntentId, Timestamp};
use check::Draft;
use fault::Faults;

/// The tenant of intents that name none.
pub const DEFAULT_TENANT: &str = "default";
/// The planning strategy of intents that name none.
pub const DEFAULT_STRATEGY: &str = "llm";
/// The priority of intents that name none.
pub const DEFAULT_PRIORITY: i32 = 5;
/// The latest deadline that an intent can ask for, in milliseconds from its record's timestamp: 7 days.
pub const MAX_DEADLINE_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// Bounds of what is read from the input topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentLimits {
    /// Largest record value, in bytes. Default 900,000, which with its envelope still fits a Kafka
    /// record of the usual largest size.
    pub max_bytes: usize,
    /// Longest goal, in bytes. Default 16 KiB.
    pub max_goal_bytes: usize,
    /// Most items. Default 10,000.
    pub max_items: usize,
    /// Most inputs. Default 64.
    pub max_inputs: usize,
    /// Most parts of all inputs. Default 10,000.
    pub max_parts: usize,
    /// Most parameters. Default 64.
    pub max_parameters: usize,
    /// Longest value of a parameter, in bytes. Default 16 KiB.
    pub max_parameter_bytes: usize,
}

impl Default for IntentLimits {
    fn default() -> Self {
        Self {
            max_bytes: 900_000,
            max_goal_bytes: 16 << 10,
            max_items: 10_000,
            max_inputs: 64,
            max_parts: 10_000,
            max_parameters: 64,
            max_parameter_bytes: 16 << 10,
        }
    }
}

/// An intent as a user published it, checked, with defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedIntent {
    /// The user's own id. Without one, it is derived from where the record was read
    /// ([`IntentId::of_record`]).
    pub id: Option<IntentId>,
    /// Who pays.
    pub tenant: String,
    /// Deadline in milliseconds from the record's timestamp, 1 to [`MAX_DEADLINE_MS`].
    pub deadline_ms: Option<i64>,
    /// What is wanted.
    pub intent: Intent,
}

/// Reads the value of a record of the input topic. `content_type` is the record's header of that name;
/// without one, or with one that says nothing, the value's beginning tells what it is.
///
/// # Errors
/// The value is no valid intent: all of its faults, and its id and tenant where they could be read.
pub fn read_intent(
    codec: &Codec,
    limits: &IntentLimits,
    value: &[u8],
    content_type: Option<&str>,
) -> Result<ParsedIntent, InvalidIntent> {
    let mut faults = Faults::default();
    let form = Form::of(value, content_type);
    if value.len() > limits.max_bytes {
        let message = format!("expected at most {} bytes, found {}", limits.max_bytes, value.len());
        faults.add("", message);
        let (id, tenant) = match form {
            Form::Json => json::peek(value),
            Form::Avro | Form::Text => (None, None),
        };
        return Err(faults.into_invalid(id.as_deref(), tenant.as_deref()));
    }
    let draft = match form {
        Form::Avro => read_avro(codec, value, &mut faults),
        Form::Json => json::read(value, &mut faults),
        Form::Text => read_text(value, &mut faults),
    };
    check::finish(draft, limits, faults)
}

/// How an intent is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Avro,
    Json,
    Text,
}

impl Form {
    fn of(value: &[u8], content_type: Option<&str>) -> Self {
        let named = content_type.and_then(|text| text.split(';').next()).map(str::trim);
        match named.map(str::to_ascii_lowercase).as_deref() {
            Some("application/avro" | "avro/binary" | "application/vnd.apache.avro+binary") => Self::Avro,
            Some("application/json" | "text/json") => Self::Json,
            Some("text/plain") => Self::Text,
            _ if is_framed(value) => Self::Avro,
            _ if tree::without_mark(value).trim_ascii_start().first() == Some(&b'{') => Self::Json,
            _ => Self::Text,
        }
    }
}

fn read_text(value: &[u8], faults: &mut Faults) -> Draft {
    let goal = match std::str::from_utf8(tree::without_mark(value)) {
        Ok(text) => Some(text.to_owned()),
        Err(error) => {
            let at = error.valid_up_to();
            faults.add("goal", format!("expected UTF-8 text, found other bytes from byte {at} on"));
            None
        }
    };
    Draft { goal, goal_is_faulty: !faults.is_empty(), ..Draft::default() }
}

fn read_avro(codec: &Codec, value: &[u8], faults: &mut Faults) -> Draft {
    let envelope: Envelope = match codec.decode(value) {
        Ok(envelope) => envelope,
        Err(error) => {
            faults.add("", error.to_string());
            return Draft { goal_is_faulty: true, ..Draft::default() };
        }
    };
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let mut draft =
        Draft { id: some(envelope.intent_id.as_str()), tenant: some(&envelope.tenant), ..Draft::default() };
    if envelope.deadline > Timestamp(0) && envelope.deadline != Timestamp::MAX {
        draft.deadline_ms = Some(envelope.deadline.0.saturating_sub(envelope.created_at.0));
    }
    match envelope.body {
        Body::Intent(intent) => {
            draft.goal = Some(intent.goal);
            draft.strategy = some(&intent.strategy);
            draft.priority = Some(intent.priority.into());
            draft.max_tasks = intent.limits.max_tasks.map(i64::from);
            draft.max_attempts = intent.limits.max_attempts.map(i64::from);
            draft.min_score = intent.limits.min_score;
            draft.degrade_after_ms = intent.limits.degrade_after_ms;
            draft.max_calls = intent.limits.max_calls;
            draft.max_tokens = intent.limits.max_tokens;
            draft.max_cost_usd = intent.limits.max_cost_usd;
            draft.inputs = intent.inputs;
            draft.items = intent.items;
            draft.parameters = intent.parameters;
        }
        other => {
            faults.add("body", format!("expected an Intent, found a {}", other.kind()));
            draft.goal_is_faulty = true;
        }
    }
    draft
}
