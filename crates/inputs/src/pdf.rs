//! The text of a PDF. The library that reads it panics at what it does not expect, and nobody knows how long it takes:
//! it works in a thread of its own, which is left behind if it takes too long.

use crate::text::TextLimits;
use pdf_extract::{Dictionary, Document, Object, OutputError, PlainTextOutput, output_doc_page};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The parser's recursion is bounded, but not shallow.
const STACK: usize = 64 << 20;
/// Nodes above a page. Real ones have a handful; a cycle has no end.
const MAX_DEPTH: usize = 64;

/// What was taken from a PDF.
pub(crate) struct Read {
    pub(crate) text: String,
    pub(crate) missing: Vec<String>,
}

/// # Errors
/// It is damaged or encrypted, has no text, or there is too much of it.
pub(crate) fn text_of(bytes: &[u8], limits: TextLimits) -> Result<Read, String> {
    let (give, take) = mpsc::sync_channel(1);
    let bytes = bytes.to_vec();
    let work = move || {
        // Nobody waits any more if this fails.
        let _ = give.send(read(&bytes, limits));
    };
    let begun = thread::Builder::new().name("pdf".to_owned()).stack_size(STACK).spawn(work);
    begun.map_err(|error| format!("cannot be read as PDF: {error}"))?;
    // A little more than the pages may take together, so that what is known of them is told.
    match take.recv_timeout(limits.time.saturating_add(Duration::from_secs(1))) {
        Ok(read) => read,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(too_long(limits.time)),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err("is a damaged PDF".to_owned()),
    }
}

fn too_long(time: Duration) -> String {
    format!("is a PDF that takes longer than {} s to read", time.as_secs())
}

fn read(bytes: &[u8], limits: TextLimits) -> Result<Read, String> {
    let begun = Instant::now();
    let document = guarded(|| Document::load_mem(bytes).map_err(|error| error.to_string()));
    let mut document = document.map_err(|why| format!("is a damaged PDF: {why}"))?;
    // Many are encrypted without a password, only to say that nobody should print them.
    let locked = document.is_encrypted()
        && guarded(|| document.decrypt("").map_err(|error| error.to_string())).is_err();
    if locked {
        return Err("is an encrypted PDF: save it without a password".to_owned());
    }
    let pages = guarded(|| Ok(document.get_pages())).map_err(|why| format!("is a damaged PDF: {why}"))?;
    if pages.is_empty() {
        return Err("is a PDF without pages".to_owned());
    }
    let mut text = String::new();
    let (mut empty, mut broken) = (Vec::new(), Vec::new());
    for (number, id) in &pages {
        if begun.elapsed() > limits.time {
            return Err(too_long(limits.time));
        }
        let sound = document.get_dictionary(*id).is_ok_and(|page| has_end(&document, page));
        match sound.then(|| guarded(|| page(&document, *number))) {
            Some(Ok(found)) if found.trim().is_empty() => empty.push(*number),
            Some(Ok(found)) => {
                if !text.is_empty() {
                    text.push_str("\n\n");
                }
                text.push_str(found.trim());
            }
            Some(Err(_)) | None => broken.push(*number),
        }
        if text.len() > limits.bytes {
            return Err(format!("has more than {} bytes of text in it", limits.bytes));
        }
    }
    if text.is_empty() {
        let count = pages.len();
        return Err(if broken.is_empty() {
            format!(
                "is a PDF of {count} pages without text, probably scans: run it through text recognition first"
            )
        } else {
            format!("is a PDF of {count} pages, and none of them has text that can be read")
        });
    }
    text.push('\n');
    let mut missing = Vec::new();
    if !empty.is_empty() {
        missing.push(format!("{} without text, perhaps scans or pictures", named(&empty)));
    }
    if !broken.is_empty() {
        missing.push(format!("{} that cannot be read", named(&broken)));
    }
    Ok(Read { text, missing })
}

/// Whether the tree above a page ends: its reader follows it without looking.
fn has_end(document: &Document, page: &Dictionary) -> bool {
    let mut node = page;
    for _ in 0..MAX_DEPTH {
        let parent = node.get(b"Parent").and_then(Object::as_reference);
        match parent.and_then(|id| document.get_dictionary(id)) {
            Ok(parent) => node = parent,
            Err(_) => return true,
        }
    }
    false
}

fn page(document: &Document, number: u32) -> Result<String, String> {
    let mut text = String::new();
    let mut output = PlainTextOutput::new(&mut text);
    let read: Result<(), OutputError> = output_doc_page(document, &mut output, number);
    read.map_err(|error| error.to_string())?;
    text.retain(|c| !c.is_control() || matches!(c, '\n' | '\t'));
    Ok(text)
}

fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // Whatever a panic leaves half done is not looked at again: the page is given up, or the file.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("its reader gave up".to_owned()))
}

/// `page 3`, `pages 1, 4-9`.
fn named(pages: &[u32]) -> String {
    let runs = pages.chunk_by(|one, next| one + 1 == *next);
    let runs: Vec<String> = runs
        .map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect();
    format!("{} {}", if pages.len() == 1 { "page" } else { "pages" }, runs.join(", "))
}
