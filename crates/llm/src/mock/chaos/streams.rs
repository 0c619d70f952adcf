//! Streams as servers write them, good and bad, and whole replies where streams were asked for.

use super::{Bad, MockAction, pieces, wire};
use axum::body::Bytes;
use serde_json::{Value, json};

pub(super) fn comments(bad: &Bad<'_>) -> MockAction {
    let events =
        bad.events(bad.answer).into_iter().map(|event| format!(": OPENROUTER PROCESSING\n\n: {{\n{event}"));
    bad.streams(events.collect())
}

pub(super) fn keep_alives(bad: &Bad<'_>) -> MockAction {
    let quiet = ":\n\n\n\nevent: ping\ndata: {}\n\nretry: 3000\n\ndata:\n\n";
    bad.streams(bad.events(bad.answer).into_iter().map(|event| format!("{quiet}id: 7\n{event}")).collect())
}

pub(super) fn crlf(bad: &Bad<'_>) -> MockAction {
    bad.streams(bad.events(bad.answer).into_iter().map(|event| event.replace('\n', "\r\n")).collect())
}

pub(super) fn split_code_points(bad: &Bad<'_>) -> MockAction {
    // JSON may write every character as it is.
    let events = Bytes::from(bad.events(bad.answer).concat());
    bad.writes("text/event-stream", (0..events.len()).map(|at| events.slice(at..=at)).collect())
}

pub(super) fn missing_done(bad: &Bad<'_>) -> MockAction {
    let mut events = bad.events(bad.answer);
    events.pop();
    bad.streams(events)
}

const OVERLOADED: &str = "the engine is overloaded";

/// The beginning of the answer, then this.
fn half_then(bad: &Bad<'_>, last: String) -> MockAction {
    let half = bad.answer.chars().count().div_ceil(2);
    let begin: String = bad.answer.chars().take(half).collect();
    let said = pieces(&begin, 3).into_iter().map(|piece| wire::event(&bad.frame.piece(&piece)));
    bad.streams(said.chain([last]).collect())
}

pub(super) fn error_event(bad: &Bad<'_>) -> MockAction {
    half_then(bad, format!("event: error\ndata: {}\n\n", json!({"message": OVERLOADED})))
}

pub(super) fn error_object(bad: &Bad<'_>) -> MockAction {
    let error = json!({"error": {"message": OVERLOADED, "type": "server_error", "code": 503}});
    if bad.call.streams { half_then(bad, wire::event(&error)) } else { bad.sends(error.to_string()) }
}

/// A good stream with these parts of counts.
fn counted(bad: &Bad<'_>, counts: Option<Value>) -> MockAction {
    let parts = bad.parts(bad.answer).into_iter().chain(counts);
    bad.streams(parts.map(|part| wire::event(&part)).chain([wire::DONE.to_owned()]).collect())
}

pub(super) fn usage_empty_choices(bad: &Bad<'_>) -> MockAction {
    counted(bad, Some(bad.frame.counts(json!([]), bad.frame.usage(None, bad.answer.len()))))
}

pub(super) fn usage_empty_delta(bad: &Bad<'_>) -> MockAction {
    let choices = json!([{"index": 0, "delta": {}}]);
    counted(bad, Some(bad.frame.counts(choices, bad.frame.usage(None, bad.answer.len()))))
}

pub(super) fn usage_nowhere(bad: &Bad<'_>) -> MockAction {
    if bad.call.streams {
        return counted(bad, None);
    }
    let mut whole = bad.frame.says(bad.answer, None);
    if let Value::Object(fields) = &mut whole {
        fields.remove("usage");
    }
    bad.sends(whole.to_string())
}

pub(super) fn whole_for_stream(bad: &Bad<'_>) -> MockAction {
    let body = serde_json::to_string_pretty(&bad.frame.says(bad.answer, None)).unwrap_or_default();
    bad.writes("application/json", vec![body.into()])
}
