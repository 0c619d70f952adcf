//! Inputs whose texts lie in parts of their own: what a prompt shows of them.

use crate::{RECORD_GONE, Unread};
use starling_protocol::{Body, Content, Envelope, Failure, Input, PartRange, RecordRef};
use starling_runtime::ContentReader;
use std::{ops::Range, sync::Arc};

/// Bytes of a stored text that are shown to whoever only has to know what it is.
const BEGINNING: usize = 4 << 10;

/// The parts in `range`, whole, with the end of the part before where that was to be told again. Parts of one input
/// that follow each other are one text.
///
/// # Errors
/// One of them cannot be had, or there is no such part.
pub async fn read_parts(
    inputs: &[Input],
    range: &PartRange,
    content: &ContentReader,
) -> Result<Vec<Input>, Unread> {
    let mut read = Vec::new();
    let mut wanted = usize::try_from(range.from).unwrap_or(0)..usize::try_from(range.to).unwrap_or(0);
    let all: usize = inputs.iter().map(Input::parts).sum();
    if wanted.end > all || wanted.is_empty() {
        let message =
            format!("the intent has {all} parts, and the task wants {} to {}", range.from, range.to);
        return Err(Unread::Failed(Failure { code: RECORD_GONE.to_owned(), message, retryable: false }));
    }
    for input in inputs {
        let of = input.parts();
        let own = wanted.start.min(of)..wanted.end.min(of);
        wanted = wanted.start.saturating_sub(of)..wanted.end.saturating_sub(of);
        if own.is_empty() {
            continue;
        }
        if !input.is_stored() {
            read.push(input.clone());
            continue;
        }
        let chunks = input.chunks.get(own.clone()).unwrap_or_default();
        read.push(shown(input, named(&input.name, &own, of), &contents(chunks, content).await?));
    }
    Ok(read)
}

/// All inputs, of stored ones as much from the beginning as `most` bytes have room for.
///
/// # Errors
/// One of them cannot be had.
pub async fn read_inputs(
    inputs: &[Input],
    most: usize,
    content: &ContentReader,
) -> Result<Vec<Input>, Unread> {
    let mut read = Vec::with_capacity(inputs.len());
    for input in inputs {
        if !input.is_stored() {
            read.push(input.clone());
            continue;
        }
        let mut size = 0;
        let fits = |chunk: &&RecordRef| {
            let before = size;
            size += usize::try_from(chunk.bytes).unwrap_or(0);
            before <= most
        };
        let chunks: Vec<RecordRef> = input.chunks.iter().take_while(fits).cloned().collect();
        let of = input.parts();
        let name = if chunks.len() == of {
            input.name.clone()
        } else {
            format!("{}, the first {} of {of} parts", input.name, chunks.len())
        };
        read.push(shown(input, name, &contents(&chunks, content).await?));
    }
    Ok(read)
}

/// All inputs, of stored ones what they are and how they begin: for whoever divides the work.
///
/// # Errors
/// One of them cannot be had.
pub async fn outlines(inputs: &[Input], content: &ContentReader) -> Result<Vec<Input>, Unread> {
    let mut outlines = Vec::with_capacity(inputs.len());
    for input in inputs {
        let Some(first) = input.chunks.first() else {
            outlines.push(input.clone());
            continue;
        };
        let read = contents(std::slice::from_ref(first), content).await?;
        outlines.push(outline(input, read.first().map_or("", |read| &read.content().text)));
    }
    Ok(outlines)
}

/// What is shown of a stored input to whoever divides the work, whose first part is `first`.
#[must_use]
pub fn outline(input: &Input, first: &str) -> Input {
    let mut end = first.len().min(BEGINNING);
    while !first.is_char_boundary(end) {
        end -= 1; // ends at 0 at the latest, which is a boundary
    }
    Input {
        name: format!(
            "{}, the beginning of {} parts of {} tokens",
            input.name,
            input.parts(),
            input.tokens()
        ),
        media_type: input.media_type.clone(),
        content: first.get(..end).unwrap_or_default().to_owned(),
        chunks: Vec::new(),
    }
}

/// All inputs but stored ones, of which only it is said that others have read them.
#[must_use]
pub fn without_stored(inputs: &[Input]) -> Vec<Input> {
    let title = |input: &Input| match input.is_stored() {
        true => Input {
            name: format!("{}, {} parts that the tasks have read", input.name, input.parts()),
            content: "(see the results)".to_owned(),
            chunks: Vec::new(),
            ..input.clone()
        },
        false => input.clone(),
    };
    inputs.iter().map(title).collect()
}

/// An envelope that was checked to hold a part.
struct Read(Arc<Envelope>);

impl Read {
    fn of(envelope: Arc<Envelope>, at: &RecordRef) -> Result<Self, Unread> {
        if let Body::Content(_) = envelope.body {
            return Ok(Self(envelope));
        }
        let kind = envelope.body.kind();
        let message =
            format!("{}[{}]@{} holds a {kind}, expected a Content", at.topic, at.partition, at.offset);
        Err(Unread::Failed(Failure { code: RECORD_GONE.to_owned(), message, retryable: false }))
    }

    fn content(&self) -> &Content {
        static NONE: Content =
            Content { heading: String::new(), overlap: String::new(), text: String::new() };
        match &self.0.body {
            Body::Content(content) => content,
            _ => &NONE, // none is made of another body
        }
    }
}

async fn contents(chunks: &[RecordRef], content: &ContentReader) -> Result<Vec<Read>, Unread> {
    let read = content.get_many(chunks).await.into_iter().zip(chunks);
    read.map(|(envelope, at)| Read::of(envelope?, at)).collect()
}

fn shown(input: &Input, name: String, parts: &[Read]) -> Input {
    let mut content = String::new();
    if let Some(first) = parts.first().map(Read::content) {
        content.push_str(&first.heading);
        if !first.overlap.is_empty() {
            content.push_str("(The end of the part before:)\n");
            content.push_str(&first.overlap);
            if !first.overlap.ends_with('\n') {
                content.push('\n');
            }
            content.push_str("(This part:)\n");
        }
    }
    content.extend(parts.iter().map(|part| part.content().text.as_str()));
    Input { name, media_type: input.media_type.clone(), content, chunks: Vec::new() }
}

fn named(name: &str, own: &Range<usize>, of: usize) -> String {
    match own.len() {
        1 => format!("{name}, part {} of {of}", own.start + 1),
        _ => format!("{name}, parts {} to {} of {of}", own.start + 1, own.end),
    }
}
