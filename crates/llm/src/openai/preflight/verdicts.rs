//! What a reply says about the endpoint.

use super::heard::{Said, Streamed};
use super::questions::{BIRD, TOOL};
use crate::json_text;
use crate::openai::fault::{self, Fault};
use crate::{ModelErrorKind, Verdict};
use serde_json::Value;

/// A verdict, and what was seen.
pub(super) type Judged = (Verdict, String);

/// Why a trial that the endpoint should have taken has failed. The same question in plain words was answered.
pub(super) fn of_fault(fault: &Fault) -> Judged {
    use ModelErrorKind as Kind;
    let verdict = match fault.kind {
        Kind::BadRequest | Kind::UnknownModel | Kind::Unauthorized => Verdict::Refused,
        // A server that cannot do it, or fails at it and says so.
        Kind::Server if fault.refusal.is_some() || !fault.retry => Verdict::Refused,
        // What cannot be read says nothing, either.
        _ => Verdict::Unknown,
    };
    (verdict, fault.message.clone())
}

/// A model that nobody has should be refused.
pub(super) fn unknown_name(heard: Result<Said, Fault>) -> Judged {
    match heard {
        Ok(Said { model: Some(model), .. }) if !model.is_empty() => {
            (Verdict::Ignored, format!("a made-up name was answered, by {}", fault::quote(&model)))
        }
        Ok(_) => (Verdict::Ignored, "a made-up name was answered".to_owned()),
        // Whatever it is, it came with a status of 200.
        Err(fault) if fault.kind == ModelErrorKind::BadReply => {
            (Verdict::Ignored, format!("a made-up name was not refused: {}", fault.message))
        }
        Err(fault) => match of_fault(&fault) {
            (Verdict::Refused, message) => (Verdict::Works, format!("a made-up name was refused: {message}")),
            unknown => unknown,
        },
    }
}

/// JSON should keep to its schema.
pub(super) fn json(heard: Result<Said, Fault>) -> Judged {
    let said = match heard {
        Ok(said) => said,
        Err(fault) => return of_fault(&fault),
    };
    let value = json_text::extract(&said.text, '{').ok();
    let value = value.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    match value {
        Some(value) if value.get("bird").and_then(Value::as_str) == Some(BIRD) => {
            (Verdict::Works, "the reply keeps to its schema".to_owned())
        }
        _ if said.cut => cut_off(),
        _ if said.text.trim().is_empty() => (Verdict::Unknown, "the reply is empty".to_owned()),
        _ => (Verdict::Ignored, format!("the reply does not keep to its schema: {}", shown(&said.text))),
    }
}

/// The function should be called.
pub(super) fn tools(heard: Result<Said, Fault>) -> Judged {
    let said = match heard {
        Ok(said) => said,
        Err(fault) => return of_fault(&fault),
    };
    match said.calls.first() {
        Some(name) if name == TOOL => (Verdict::Works, "the function was called".to_owned()),
        Some(name) => {
            (Verdict::Ignored, format!("a function was called that was not offered: {}", shown(name)))
        }
        None if json_text::prose(&said.text).is_err() => {
            (Verdict::Ignored, format!("the call came as text: {}", shown(&said.text)))
        }
        None if said.cut => cut_off(),
        None if said.text.trim().is_empty() => (Verdict::Unknown, "the reply is empty".to_owned()),
        None => (Verdict::Ignored, format!("the reply calls no function: {}", shown(&said.text))),
    }
}

/// A reply should come in pieces. `fault` is what ended it before its time.
pub(super) fn stream(heard: &Streamed, fault: Option<&Fault>) -> Judged {
    let pieces = heard.pieces;
    match fault {
        Some(fault) if pieces == 0 => of_fault(fault),
        // What came is enough to tell; that it broke off is another matter.
        Some(fault) if pieces > 1 => {
            (Verdict::Works, format!("{pieces} pieces came, then it broke off: {}", fault.message))
        }
        Some(fault) => (Verdict::Unknown, fault.message.clone()),
        None if heard.whole => (Verdict::Ignored, "the reply came as a whole, not as a stream".to_owned()),
        None if pieces > 1 => (Verdict::Works, format!("the reply came in {pieces} pieces{}", span(heard))),
        None if pieces == 1 => (Verdict::Ignored, "the whole reply came in one piece".to_owned()),
        None if heard.cut => cut_off(),
        None => (Verdict::Unknown, "no text came".to_owned()),
    }
}

/// A streamed reply should say how many tokens it took. `asked` is false if the endpoint did not take that question.
pub(super) fn stream_counts(heard: &Streamed, fault: Option<&Fault>, asked: bool) -> Judged {
    match heard.usage {
        Some(usage) => (Verdict::Works, format!("{} tokens were counted", usage.total())),
        None if !asked => (Verdict::Refused, "the endpoint does not take stream_options".to_owned()),
        None if fault.is_some() || !(heard.finished || heard.done) => {
            (Verdict::Unknown, "the stream was not read to its end".to_owned())
        }
        None => (Verdict::Ignored, "no number of tokens came".to_owned()),
    }
}

/// When the pieces came: a proxy that holds them back gives all of them at the end.
fn span(heard: &Streamed) -> String {
    let Some((first, last)) = heard.span else { return String::new() };
    format!(", the first after {:.2} s, the last after {:.2} s", first.as_secs_f64(), last.as_secs_f64())
}

fn cut_off() -> Judged {
    (
        Verdict::Unknown,
        "the reply was cut off at its most tokens before it said what is to be told".to_owned(),
    )
}

/// The beginning of what a model said.
fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let quoted = fault::quote(text);
    let mut short: String = quoted.chars().take(MOST).collect();
    if quoted.chars().count() > MOST {
        short.push('…');
    }
    format!("\"{short}\"")
}
