//! Reads what an envelope refers to, and says what follows when it cannot be read.

use starling_protocol::{Body, Envelope, Failure, IndexRange, Input, RecordRef, TaskTerms};
use starling_runtime::{ContentError, HandleError};
use std::{collections::BTreeMap, sync::Arc};

/// Something that an envelope refers to cannot be had.
#[derive(Clone, Debug, PartialEq)]
pub enum Unread {
    /// For good: a failure of the task that needs it.
    Failed(Failure),
    /// At present: handle the envelope again.
    Later(HandleError),
}

/// The code of a failure because a record is gone, or is another one.
pub const RECORD_GONE: &str = "record_gone";

impl From<ContentError> for Unread {
    fn from(error: ContentError) -> Self {
        match error {
            ContentError::Gone(_) | ContentError::Mismatch(_) => Unread::Failed(Failure {
                code: RECORD_GONE.to_owned(),
                message: error.to_string(),
                retryable: false,
            }),
            ContentError::Retry(_) => Unread::Later(HandleError::Retry(error.to_string())),
            ContentError::Wait(_) => Unread::Later(HandleError::Wait(error.to_string())),
        }
    }
}

/// What an intent brings beside its goal.
#[derive(Clone, Copy, Debug)]
pub struct IntentTexts<'e> {
    /// Its inputs.
    pub inputs: &'e [Input],
    /// Its items.
    pub items: &'e [String],
    /// Its parameters.
    pub parameters: &'e BTreeMap<String, String>,
}

impl<'e> IntentTexts<'e> {
    /// Those of the intent in this envelope; nothing where there is none.
    #[must_use]
    pub fn of(intent: Option<&'e Arc<Envelope>>) -> Self {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        match intent.map(|envelope| &envelope.body) {
            Some(Body::Intent(intent)) => {
                Self { inputs: &intent.inputs, items: &intent.items, parameters: &intent.parameters }
            }
            _ => Self { inputs: &[], items: &[], parameters: &NONE },
        }
    }

    /// Those that a task with these terms reads.
    #[must_use]
    pub fn within(self, terms: &TaskTerms) -> Self {
        Self {
            inputs: IndexRange::of(terms.inputs.as_ref(), self.inputs),
            items: IndexRange::of(terms.items.as_ref(), self.items),
            ..self
        }
    }
}

/// The output in the envelope that `at` refers to.
///
/// # Errors
/// There is something else.
pub fn output_of<'e>(envelope: &'e Envelope, at: &RecordRef) -> Result<&'e str, Unread> {
    match &envelope.body {
        Body::TaskResult(result) => Ok(&result.output),
        other => Err(Unread::Failed(Failure {
            code: RECORD_GONE.to_owned(),
            message: format!(
                "{}[{}]@{} holds a {}, expected a TaskResult",
                at.topic,
                at.partition,
                at.offset,
                other.kind()
            ),
            retryable: false,
        })),
    }
}
