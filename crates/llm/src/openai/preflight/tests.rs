//! What replies say, without any calls.
#![allow(clippy::unwrap_used)]

use super::heard::{Said, Streamed};
use super::questions::BIRD;
use super::verdicts;
use crate::Verdict::{self, Ignored, Refused, Unknown, Works};
use crate::openai::fault::{self, Fault};
use crate::openai::sse::SseEvent;
use serde_json::{Value, json};
use std::time::Duration;

fn reply(message: Value, finish: &str) -> Result<Said, Fault> {
    let choice = json!({"message": message, "finish_reason": finish});
    Said::read(json!({"model": "m", "choices": [choice]}).to_string().as_bytes())
}

fn says(text: &str, finish: &str) -> Result<Said, Fault> {
    reply(json!({"content": text}), finish)
}

fn status(code: u16, message: &str) -> Result<Said, Fault> {
    Err(fault::of_status(code, None, &json!({"error": {"message": message}}).to_string()))
}

#[test]
fn a_name_that_nobody_has_should_be_refused() {
    for (heard, expected) in [
        (status(404, "model 'x' not found"), Works),
        (status(400, "x is not a valid model ID"), Works),
        (status(403, "no access to model x"), Works),
        (Said::read(br#"{"error":{"code":404,"message":"the model x does not exist"}}"#), Works),
        (says("Yes", "length"), Ignored),
        (says("", "length"), Ignored),
        (Said::read(b"<html>"), Ignored),
        (status(429, "slow down"), Unknown),
        (status(500, "out of order"), Unknown),
    ] {
        let told = format!("{heard:?}");
        assert_eq!(verdicts::unknown_name(heard).0, expected, "{told}");
    }
}

#[test]
fn json_keeps_to_its_schema_or_does_not() {
    let kept = json!({"bird": BIRD}).to_string();
    for (heard, expected) in [
        (says(&kept, "stop"), Works),
        (says(&format!("```json\n{kept}\n```"), "stop"), Works),
        (says(&format!("<think>hm</think>{kept}"), "length"), Works),
        (reply(json!({"content": [{"type": "text", "text": kept}]}), "stop"), Works),
        (says("{\"bird\":\"robin\"}", "stop"), Ignored),
        (says("A robin.", "stop"), Ignored),
        (says("{\"bird\":\"quill", "length"), Unknown),
        (says(" ", "stop"), Unknown),
        (status(400, "response_format json_schema is not supported"), Refused),
        (status(500, "failed to compile the grammar"), Refused),
        (status(501, ""), Refused),
        (status(503, "loading"), Unknown),
        (Said::read(br#"{"choices":[]}"#), Unknown),
    ] {
        let told = format!("{heard:?}");
        assert_eq!(verdicts::json(heard).0, expected, "{told}");
    }
}

#[test]
fn a_call_of_the_function_that_was_offered_is_one() {
    let call = |name: &str| json!({"content": null, "tool_calls": [{"function": {"name": name, "arguments": "{}"}}]});
    for (heard, expected) in [
        (reply(call("note_bird"), "tool_calls"), Works),
        (reply(call("other"), "tool_calls"), Ignored),
        (says("<tool_call>{\"name\":\"note_bird\"}</tool_call>", "stop"), Ignored),
        (says("I noted it.", "stop"), Ignored),
        (says("Let me think", "length"), Unknown),
        (says("", "stop"), Unknown),
        (status(400, "m does not support tools"), Refused),
        (status(404, "No endpoints found that support tool use"), Refused),
    ] {
        let told = format!("{heard:?}");
        assert_eq!(verdicts::tools(heard).0, expected, "{told}");
    }
}

fn streamed(parts: &[&str]) -> Result<Streamed, Fault> {
    let mut heard = Streamed::default();
    for (n, data) in parts.iter().enumerate() {
        let event = SseEvent { name: String::new(), data: (*data).to_owned() };
        heard.event(&event, Duration::from_millis(100 * n as u64))?;
    }
    Ok(heard)
}

#[test]
fn a_stream_has_pieces_and_counts() {
    const A: &str = r#"{"choices":[{"delta":{"content":"one"}}]}"#;
    const THOUGHT: &str = r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#;
    const EMPTY: &str = r#"{"choices":[{"delta":{"role":"assistant","content":""}}],"usage":null}"#;
    const STOP: &str = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    const LENGTH: &str = r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#;
    const COUNTS: &str = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
    let table: [(&[&str], Verdict, Verdict); 7] = [
        (&[EMPTY, A, A, STOP, COUNTS, "[DONE]"], Works, Works),
        (&[A, A, STOP], Works, Ignored),
        (&[A, STOP, "", "[DONE]"], Ignored, Ignored),
        (&[THOUGHT, THOUGHT, LENGTH, COUNTS], Works, Works),
        (&[LENGTH, "[DONE]"], Unknown, Ignored),
        (&[STOP, "[DONE]"], Unknown, Ignored),
        (&["ping", A, A], Works, Unknown),
    ];
    for (parts, stream, counts) in table {
        let heard = streamed(parts).unwrap();
        assert_eq!(verdicts::stream(&heard, None).0, stream, "{parts:?}");
        assert_eq!(verdicts::stream_counts(&heard, None, true).0, counts, "{parts:?}");
    }
    let seen = verdicts::stream(&streamed(&[EMPTY, A, A, STOP]).unwrap(), None).1;
    assert_eq!(seen, "the reply came in 2 pieces, the first after 0.10 s, the last after 0.20 s");
    let cut = Fault::new(crate::ModelErrorKind::Server, "cut");
    let (some, none) = (streamed(&[A, A]).unwrap(), Streamed::default());
    assert_eq!(verdicts::stream(&some, Some(&cut)).0, Works);
    assert_eq!(verdicts::stream_counts(&some, Some(&cut), true).0, Unknown);
    assert_eq!(verdicts::stream(&none, Some(&cut)).0, Unknown);
    assert_eq!(verdicts::stream_counts(&some, None, false).0, Refused);
    assert_eq!(
        streamed(&[r#"{"error":{"code":400,"message":"no"}}"#]).unwrap_err().message,
        "refused (400): no"
    );
    let whole = Streamed::of_whole(&says("one two", "stop").unwrap());
    assert_eq!(verdicts::stream(&whole, None).0, Ignored);
}
