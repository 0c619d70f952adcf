//! The JSON value in a model's prose.
//!
//! Models wrap JSON in code fences, put words around it and think aloud before it. Everything here is
//! one pass over the text, without recursion: a reply of nothing but brackets costs no stack.

mod cleaner;

pub(crate) use cleaner::Cleaner;

use serde::de::IgnoredAny;

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
}

/// Finds the one JSON object (`opener` = `{`) or array (`[`) in a reply.
///
/// # Errors
/// See [`NoJson`].
pub fn extract(reply: &str, opener: char) -> Result<&str, NoJson> {
    let spoken = without_thoughts(reply);
    match find(spoken, opener) {
        Ok(json) => Ok(json),
        // A JSON string may hold the very tag that was taken for the end of a thought.
        Err(reason) => find(reply, opener).map_err(|_| reason),
    }
}

fn find(text: &str, opener: char) -> Result<&str, NoJson> {
    let mut reason = NoJson::Absent;
    let mut from = 0;
    for _ in 0..MAX_CANDIDATES {
        let Some(rest) = text.get(from..) else { break };
        let Some(at) = rest.find(opener) else { break };
        let candidate = rest.get(at..).unwrap_or_default();
        let mut scanner = Scanner::default();
        match scanner.feed(candidate) {
            Progress::Complete(end) => {
                let json = candidate.get(..end).unwrap_or_default();
                match serde_json::from_str::<IgnoredAny>(json) {
                    Ok(_) => return Ok(json),
                    Err(error) => reason = NoJson::Malformed(error.to_string()),
                }
            }
            Progress::Open => {
                if matches!(reason, NoJson::Absent) {
                    reason = NoJson::Unfinished;
                }
            }
            Progress::TooDeep => return Err(NoJson::TooDeep),
        }
        from += at + opener.len_utf8();
    }
    Err(reason)
}

/// The text after what the model thought aloud; the text itself if it did not.
#[must_use]
pub fn without_thoughts(reply: &str) -> &str {
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

/// How far a value has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More to come.
    Open,
    /// The value ends before this byte of the piece just fed.
    Complete(usize),
    /// Beyond [`MAX_DEPTH`].
    TooDeep,
}

/// Follows brackets and strings of a value that may come in pieces.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Scanner {
    /// Takes the next piece; the first one begins with the opening bracket.
    pub(crate) fn feed(&mut self, piece: &str) -> Progress {
        for (at, byte) in piece.bytes().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth > MAX_DEPTH {
                        return Progress::TooDeep;
                    }
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Progress::Complete(at + 1);
                    }
                }
                _ => {}
            }
        }
        Progress::Open
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
        ]
        .into_iter()
        .map(|(text, expected)| (text.to_owned(), expected))
        .collect()
    }

    #[test]
    fn the_value_is_found_in_whole_replies() {
        for (text, expected) in table() {
            // The whole-text search may look into an unfinished thought when there is nothing else.
            if text.starts_with("<think>{") {
                continue;
            }
            assert_eq!(extract(&text, '{'), expected, "{text}");
        }
        assert_eq!(extract(r#"thought {} </think> {"a":2}"#, '{'), Ok(r#"{"a":2}"#));
        assert_eq!(extract(r#"{"a":"</think>"}"#, '{'), Ok(r#"{"a":"</think>"}"#));
        assert!(matches!(extract("{a:1}", '{'), Err(NoJson::Malformed(_))));
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
            }
        }
    }

    #[test]
    fn hostile_depth_costs_neither_stack_nor_time() {
        for bracket in ["[", "{", "{\"a\":[", "<think>", "</think>", "<think></think>"] {
            let text = bracket.repeat(100_000);
            assert!(extract(&text, '{').is_err());
            assert!(extract(&text, '[').is_err());
            let mut cleaner = Cleaner::new(Some('{'));
            cleaner.push(&text);
            assert!(cleaner.verdict().is_err());
        }
    }
}
