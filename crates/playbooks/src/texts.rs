//! What the texts and bounds of a playbook become for one intent.

use crate::playbook::{AnswerTemplate, Part, Terms};
use crate::template::Names;
use starling_protocol::{AnswerSpec, Fallback, TaskTerms};

/// Longest title, in bytes: what a plan allows.
const MAX_TITLE_BYTES: usize = 200;

/// How the answer is to be made.
pub(crate) fn answer_spec(answer: &AnswerTemplate, names: &Names) -> Result<AnswerSpec, String> {
    let instruction = match &answer.instruction {
        Some(text) => text.for_model(names).map_err(within("instruction"))?,
        None => String::new(),
    };
    Ok(AnswerSpec { instruction, terms: terms(&answer.terms, names)? })
}

/// What a task or the answer reads, how long it may take, and what stands in for it.
pub(crate) fn terms(terms: &Terms, names: &Names) -> Result<TaskTerms, String> {
    let part = |part: Part| match part {
        Part::Unsaid | Part::All => None,
        Part::Range(range) => Some(range),
    };
    let fallback = match &terms.fallback {
        Some((text, with_results)) => {
            let text = text.for_people(names).map_err(within("fallback"))?;
            Some(Fallback { text, with_results: *with_results })
        }
        None => None,
    };
    Ok(TaskTerms {
        items: part(terms.items),
        inputs: part(terms.inputs),
        timeout_ms: terms.timeout_ms,
        fallback,
        parts: None,
    })
}

/// Says in which field something is wrong.
pub(crate) fn within(field: &'static str) -> impl Fn(String) -> String {
    move |fault| format!("{field}: {fault}")
}

/// A text on one line, not longer than a title may be.
pub(crate) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    if line.len() <= MAX_TITLE_BYTES {
        return line;
    }
    let most = MAX_TITLE_BYTES - '…'.len_utf8();
    let end = line.char_indices().map(|(at, _)| at).take_while(|at| *at <= most).last().unwrap_or(0);
    format!("{}…", line.get(..end).unwrap_or_default())
}
