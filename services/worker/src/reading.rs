//! Reads all that a task refers to, in one go.

use starling_agents::TaskOutput;
use starling_protocol::{Envelope, Failure, Input, RecordRef, Task, TaskKind};
use starling_runtime::ContentReader;
use starling_service::{IntentTexts, Unread, output_of, read_inputs, read_parts, without_stored};
use std::sync::Arc;

/// The texts that a task is built on.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// The intent, for its inputs and items.
    pub(crate) intent: Option<Arc<Envelope>>,
    /// Its inputs as the task reads them, where some of them lie in parts of their own.
    pub(crate) inputs: Option<Vec<Input>>,
    /// The results of the tasks that it depends on, in their order.
    pub(crate) results: Vec<TaskOutput>,
    /// What the attempt before delivered, where that can still be read.
    pub(crate) earlier: Option<String>,
}

/// Reads what `task` refers to; of stored inputs that it does not read in parts, no more than `most` bytes each.
///
/// # Errors
/// The intent or a result cannot be had. That the earlier attempt is gone is no error: it only helps.
pub(crate) async fn read(task: &Task, content: &ContentReader, most: usize) -> Result<Reading, Unread> {
    let results = task.dependencies.iter().filter_map(|dependency| dependency.result.as_ref());
    let earlier = task.feedback.as_ref().and_then(|feedback| feedback.result.as_ref());
    let refs: Vec<RecordRef> = task.intent_ref.iter().chain(results).chain(earlier).cloned().collect();
    if refs.is_empty() && task.dependencies.is_empty() {
        return Ok(Reading::default());
    }
    // One answer for each reference, in the order of the references.
    let mut answers = content.get_many(&refs).await.into_iter();
    let mut next = || {
        let unanswered = || Err(starling_runtime::ContentError::Retry("nothing was read".to_owned()));
        answers.next().unwrap_or_else(unanswered)
    };

    let mut reading = Reading::default();
    if task.intent_ref.is_some() {
        reading.intent = Some(next()?);
    }
    for dependency in &task.dependencies {
        let output = match (&dependency.result, &dependency.failure) {
            (Some(at), _) => Ok(output_of(&*next()?, at)?.to_owned()),
            (None, Some(failure)) => Err(failure.clone()),
            (None, None) => Err(Failure {
                code: "no_result".to_owned(),
                message: "there is no result".to_owned(),
                retryable: false,
            }),
        };
        let (number, title) = (dependency.number, dependency.title.clone());
        reading.results.push(TaskOutput { number, title, output });
    }
    if let Some(at) = earlier {
        reading.earlier = next().ok().and_then(|envelope| output_of(&envelope, at).ok().map(str::to_owned));
    }
    reading.inputs = stored_inputs(task, reading.intent.as_ref(), content, most).await?;
    Ok(reading)
}

async fn stored_inputs(
    task: &Task,
    intent: Option<&Arc<Envelope>>,
    content: &ContentReader,
    most: usize,
) -> Result<Option<Vec<Input>>, Unread> {
    let texts = IntentTexts::of(intent);
    if let Some(range) = &task.terms.parts {
        return read_parts(texts.inputs, range, content).await.map(Some);
    }
    let inputs = texts.within(&task.terms).inputs;
    if !inputs.iter().any(Input::is_stored) {
        return Ok(None);
    }
    match task.kind {
        TaskKind::Work => read_inputs(inputs, most, content).await.map(Some),
        TaskKind::Synthesis | TaskKind::Reduce => Ok(Some(without_stored(inputs))),
    }
}
