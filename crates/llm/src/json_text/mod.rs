//! The JSON value in a model's prose.
//!
//! Models wrap JSON in code fences, put words around it, think aloud before it, and write it as other languages print it
//! ([`mender`]). Everything here is one pass over the text, without recursion: a reply of nothing but brackets costs no
//! stack.

mod cleaner;
mod mender;
mod tokens;

pub(crate) use cleaner::Cleaner;

use mender::{Mender, Progress};
use serde::de::IgnoredAny;
use std::borrow::Cow;

/// Deepest nesting that is taken for a sensible value. Below serde_json's own limit of 128, so that
/// what is found here can be parsed there.
pub const MAX_DEPTH: usize = 100;

/// Places that are tried as the start of the value before giving up.
const MAX_CANDIDATES: usize = 64;

/// Deepest `<think>` in `<think>`.
const MAX_THOUGHTS: usize = 16;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Why there is no JSON value in a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoJson {
    /// Nothing that begins like a value.
    #[error("no JSON in the reply")]
    Absent,
    /// It begins and does not end.
    #[error("the JSON of the reply does not end")]
    Unfinished,
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("the JSON of the reply is nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// Balanced, but no JSON; with the parser's words.
    #[error("the JSON of the reply is malformed: {0}")]
    Malformed(String),
    /// It asks for a tool, though it was offered none.
    #[error("the reply is a call of a tool, and there are no tools")]
    ToolCall,
}

/// Finds the one JSON object (`opener` = `{`) or array (`[`) in a reply. What is not quite JSON is mended where it can
/// be meant in one way only.
///
/// # Errors
/// See [`NoJson`].
pub fn extract(reply: &str, opener: char) -> Result<Cow<'_, str>, NoJson> {
    let spoken = without_thoughts(reply);
    match find(spoken, opener) {
        Ok(json) => Ok(json),
        // What a thought that does not end has of JSON is a draft.
        Err(reason) if reply.trim_start().starts_with(OPEN) => Err(reason),
        // A JSON string may hold the very tag that was taken for the end of a thought.
        Err(reason) => find(reply, opener).ok().filter(|json| json.contains(CLOSE)).ok_or(reason),
    }
}

/// The prose of a reply: without what was thought aloud, and without the ends of a turn behind it.
///
/// # Errors
/// [`NoJson::ToolCall`].
pub fn prose(reply: &str) -> Result<&str, NoJson> {
    let whole = reply.trim_start();
    let (open, close) = (whole.find(OPEN), whole.find(CLOSE));
    // A thought in the middle of a text is part of it: what stands before it is not to be lost.
    let within = matches!((open, close), (Some(open), Some(close)) if 0 < open && open < close);
    let spoken = if within { whole } else { without_thoughts(whole) };
    if tokens::is_call(spoken) { Err(NoJson::ToolCall) } else { Ok(tokens::without_ends(spoken)) }
}

fn find(text: &str, opener: char) -> Result<Cow<'_, str>, NoJson> {
    let mut reason = NoJson::Absent;
    let mut from = 0;
    for _ in 0..MAX_CANDIDATES {
        let Some(rest) = text.get(from..) else { break };
        let Some(at) = rest.find(opener) else { break };
        if rest.get(..at).is_some_and(tokens::has_call) {
            return Err(NoJson::ToolCall);
        }
        let candidate = rest.get(at..).unwrap_or_default();
        let mut mended = String::new();
        let passed = match Mender::default().feed(candidate, &mut mended) {
            Progress::Complete(end) => {
                let json = candidate.get(..end).unwrap_or_default();
                match serde_json::from_str::<IgnoredAny>(json) {
                    Ok(_) => return Ok(Cow::Borrowed(json)),
                    Err(_) if serde_json::from_str::<IgnoredAny>(&mended).is_ok() => {
                        return Ok(Cow::Owned(mended));
                    }
                    Err(error) => reason = NoJson::Malformed(error.to_string()),
                }
                // What is in it is only a part.
                end
            }
            // The same for what would be found in the rest.
            Progress::Open if begins(candidate, opener) == Some(true) => return Err(NoJson::Unfinished),
            Progress::Open => {
                if matches!(reason, NoJson::Absent) {
                    reason = NoJson::Unfinished;
                }
                opener.len_utf8()
            }
            Progress::TooDeep => return Err(NoJson::TooDeep),
        };
        from += at + passed;
    }
    Err(reason)
}

/// Whether the bracket that the text begins with is followed by what may follow it in JSON, because prose has brackets
/// too. `None` if that cannot be said yet.
fn begins(text: &str, opener: char) -> Option<bool> {
    let mut next = text.get(opener.len_utf8()..).unwrap_or_default().trim_start().chars();
    Some(match (opener, next.next()?) {
        (_, '/') => matches!(next.next()?, '/' | '*'),
        ('{', c) => matches!(c, '"' | '\'' | '}'),
        (_, c) => matches!(c, '"' | '\'' | ']' | '{' | '[' | '-' | '0'..='9'),
    })
}

/// The text after what the model thought aloud; the text itself if it did not.
fn without_thoughts(reply: &str) -> &str {
    let trimmed = reply.trim_start();
    if let Some(mut rest) = trimmed.strip_prefix(OPEN) {
        let mut depth = 1;
        while depth > 0 {
            let Some(close) = rest.find(CLOSE) else {
                return "";
            };
            match rest.find(OPEN) {
                Some(open) if open < close && depth < MAX_THOUGHTS => {
                    depth += 1;
                    rest = rest.get(open + OPEN.len()..).unwrap_or_default();
                }
                _ => {
                    depth -= 1;
                    rest = rest.get(close + CLOSE.len()..).unwrap_or_default();
                }
            }
        }
        return rest.trim_start();
    }
    // Some chat templates put the opening tag into the prompt, so that only the closing one comes.
    match trimmed.find(CLOSE) {
        Some(close) => trimmed.get(close + CLOSE.len()..).unwrap_or_default().trim_start(),
        None => trimmed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Vec<(String, Result<&'static str, NoJson>)> {
        [
            (r#"{"a":1}"#, Ok(r#"{"a":1}"#)),
            ("```json\n{\"a\": [1,2]}\n```", Ok("{\"a\": [1,2]}")),
            (r#"Sure! Here it is: {"a":"}\"{"} Hope it helps {x}."#, Ok(r#"{"a":"}\"{"}"#)),
            (r#"The set {x, y} is {"a":1}"#, Ok(r#"{"a":1}"#)),
            (r#"<think>maybe {"a":0}?</think> {"a":1}"#, Ok(r#"{"a":1}"#)),
            ("<think>a<think>b</think>{}</think>\n{\"ü\":1}", Ok("{\"ü\":1}")),
            ("<think>{\"a\":1}", Err(NoJson::Absent)),
            ("no json", Err(NoJson::Absent)),
            ("", Err(NoJson::Absent)),
            (r#"{"a": [1, 2"#, Err(NoJson::Unfinished)),
            (r#"{"a": [1, 2]"#, Err(NoJson::Unfinished)),
            (r#"{"a": {"b": 1}, "c": {}"#, Err(NoJson::Unfinished)),
            (r#"{x {"a":1}"#, Ok(r#"{"a":1}"#)),
            // Nearly JSON.
            ("```json\n{'a': [1, 2,],}\n```", Ok(r#"{"a": [1, 2]}"#)),
            ("{\n// first\n\"a\": NaN /* none */}", Ok("{\n\n\"a\": null  }")),
            ("{\"a\": \"two\nlines\"}", Ok(r#"{"a": "two\nlines"}"#)),
            // Tokens of templates.
            (r#"{"a":1}<|im_end|>"#, Ok(r#"{"a":1}"#)),
            (r#"<|im_start|>assistant {"a":1}"#, Ok(r#"{"a":1}"#)),
            (r#"{"a":"<tool_call>"}"#, Ok(r#"{"a":"<tool_call>"}"#)),
            (r#"{"a":1} <tool_call>{"name":"x"}</tool_call>"#, Ok(r#"{"a":1}"#)),
            (r#"<tool_call>{"name":"x"}</tool_call>"#, Err(NoJson::ToolCall)),
            (r#"<think>x</think>I look. <tool_call> {"name":"x"}"#, Err(NoJson::ToolCall)),
            (
                r#"<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_call_argument_begin|>{"q":1}"#,
                Err(NoJson::ToolCall),
            ),
            (r#"[TOOL_CALLS] [{"name":"x"}]"#, Err(NoJson::ToolCall)),
        ]
        .into_iter()
        .map(|(text, expected)| (text.to_owned(), expected))
        .collect()
    }

    #[test]
    fn the_value_is_found_in_whole_replies() {
        for (text, expected) in table() {
            let found = extract(&text, '{');
            assert_eq!(found.as_deref().map_err(Clone::clone), expected, "{text}");
        }
        assert_eq!(extract(r#"thought {} </think> {"a":2}"#, '{').as_deref(), Ok(r#"{"a":2}"#));
        assert_eq!(extract(r#"{"a":"</think>"}"#, '{').as_deref(), Ok(r#"{"a":"</think>"}"#));
        for part in ["{a:1}", r#"{"a" 1, "b": {"c": 2}}"#, r#"{"a": {"b": 1} "c": {}}"#] {
            assert!(matches!(extract(part, '{'), Err(NoJson::Malformed(_))), "{part}");
        }
    }

    #[test]
    fn the_value_is_found_in_pieces_of_any_size() {
        for (text, expected) in table() {
            for size in [1, 2, 5, 1000] {
                let mut cleaner = Cleaner::new(Some('{'));
                let chars: Vec<char> = text.chars().collect();
                let mut got = String::new();
                for piece in chars.chunks(size) {
                    got.push_str(&cleaner.push(&piece.iter().collect::<String>()));
                }
                got.push_str(&cleaner.finish());
                let result = cleaner.verdict().map(|()| got.as_str());
                assert_eq!(result, expected, "{text} by {size}");
            }
        }
    }

    #[test]
    fn prose_loses_its_thoughts_and_nothing_else() {
        for (text, expected) in [
            ("hello <think>x</think> there", "hello <think>x</think> there"),
            ("  <think>x</think>\n hello { \"", "hello { \""),
            ("<thin", "<thin"),
            ("< 5 is small", "< 5 is small"),
            ("fine<|im_end|>", "fine"),
            ("fine <|eot_id|>\n<|im_end|>\n", "fine "),
            ("<|im_end|>", ""),
            ("<|im_end|> ends a turn<|im_e", "<|im_end|> ends a turn<|im_e"),
            ("<tool_ is no call", "<tool_ is no call"),
        ] {
            for size in [1, 3, 100] {
                let mut cleaner = Cleaner::new(None);
                let chars: Vec<char> = text.chars().collect();
                let mut got = String::new();
                for piece in chars.chunks(size) {
                    got.push_str(&cleaner.push(&piece.iter().collect::<String>()));
                }
                got.push_str(&cleaner.finish());
                assert_eq!(got, expected, "by {size}");
                assert_eq!(prose(text).map(str::trim_end), Ok(expected.trim()), "{text}");
                assert_eq!(cleaner.verdict(), Ok(()));
            }
        }
    }

    #[test]
    fn a_call_of_a_tool_is_no_prose() {
        for text in ["<tool_call>\n{}", " <think>hm</think> <|tool_call_begin|>f:0", "[TOOL_CALLS] []"] {
            assert_eq!(prose(text), Err(NoJson::ToolCall));
            for size in [1, 3, 100] {
                let mut cleaner = Cleaner::new(None);
                let chars: Vec<char> = text.chars().collect();
                for piece in chars.chunks(size) {
                    assert_eq!(cleaner.push(&piece.iter().collect::<String>()), "");
                }
                assert_eq!(cleaner.finish(), "");
                assert_eq!(cleaner.verdict(), Err(NoJson::ToolCall));
            }
        }
        assert_eq!(prose("I would <tool_call> if I could"), Ok("I would <tool_call> if I could"));
    }

    #[test]
    fn hostile_depth_costs_neither_stack_nor_time() {
        for bracket in [
            "[",
            "{",
            "{\"a\":[",
            "<think>",
            "</think>",
            "<think></think>",
            "{'",
            "{/*",
            "<|im_end|>",
            "{\"a\":1,",
        ] {
            let text = bracket.repeat(100_000);
            assert!(extract(&text, '{').is_err());
            assert!(extract(&text, '[').is_err());
            let mut cleaner = Cleaner::new(Some('{'));
            cleaner.push(&text);
            assert!(cleaner.verdict().is_err());
        }
    }
}
