//! Reads what an envelope refers to, and says what follows when it cannot be read.

use starling_protocol::{Body, Envelope, Failure, Input, RecordRef};
use starling_runtime::{ContentError, HandleError};
use std::sync::Arc;

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

/// The texts that came with an intent.
#[must_use]
pub fn intent_texts(intent: Option<&Arc<Envelope>>) -> (&[Input], &[String]) {
    match intent.map(|envelope| &envelope.body) {
        Some(Body::Intent(intent)) => (&intent.inputs, &intent.items),
        _ => (&[], &[]),
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
