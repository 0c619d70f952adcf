//! Follows a JSON value to its end, and mends what can only be meant in one way.
//!
//! Models write JSON as Python and JavaScript print it: with a comma too many, single quotes, comments, `True`, `NaN`, line
//! ends within strings. Nothing of that leaves a doubt about what is meant. What does leave one stays as it is and is for
//! the parser to refuse: a bracket or a comma that is missing, a name without quotes, a string that does not end.
//!
//! Valid JSON passes through unchanged. One pass, no recursion, and no more is held back than a comma, a word and the
//! blanks after them.

use super::MAX_DEPTH;

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

/// Longest word that has another one in its place (`-Infinity`), in bytes.
const MAX_WORD: usize = 9;
/// Most blanks that are held back behind a comma, in bytes; what is beyond them is dropped.
const MAX_BLANKS: usize = 4096;

/// Takes a value in pieces, the first of which begins with its opening bracket.
#[derive(Debug, Default)]
pub(crate) struct Mender {
    depth: usize,
    place: Place,
    /// The last character that was neither blank nor in a comment nor in a string; `"` for a string.
    last: char,
    /// A comma and what is blank behind it: it goes if the next thing is a closing bracket.
    comma: String,
    /// A word that has begun.
    word: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Between tokens, or in a number or a word.
    #[default]
    Outside,
    /// In a string that ends with this quote.
    String(char),
    /// After a backslash in such a string.
    Escape(char),
    /// After a slash that may begin a comment.
    Slash,
    /// In a comment up to the end of the line.
    Line,
    /// In a comment up to `*/`, maybe after its asterisk.
    Block { asterisk: bool },
}

impl Mender {
    /// Takes the next piece and appends to `out` what is known of the mended value.
    pub(crate) fn feed(&mut self, piece: &str, out: &mut String) -> Progress {
        for (at, c) in piece.char_indices() {
            match self.place {
                Place::Outside => {
                    if let Some(end) = self.outside(c, out) {
                        return match end {
                            End::Complete => Progress::Complete(at + c.len_utf8()),
                            End::TooDeep => Progress::TooDeep,
                        };
                    }
                }
                Place::String(quote) => self.string(c, quote, out),
                Place::Escape(quote) => {
                    // JSON knows no `\'`.
                    if c != '\'' {
                        out.push('\\');
                    }
                    out.push(c);
                    self.place = Place::String(quote);
                }
                Place::Slash => match c {
                    '/' => self.place = Place::Line,
                    '*' => self.place = Place::Block { asterisk: false },
                    _ => {
                        self.settle(out);
                        out.push('/');
                        self.last = '/';
                        self.place = Place::Outside;
                        if let Some(end) = self.outside(c, out) {
                            return match end {
                                End::Complete => Progress::Complete(at + c.len_utf8()),
                                End::TooDeep => Progress::TooDeep,
                            };
                        }
                    }
                },
                Place::Line if matches!(c, '\n' | '\r') => {
                    self.place = Place::Outside;
                    self.blank(c, out);
                }
                Place::Block { asterisk: true } if c == '/' => {
                    self.place = Place::Outside;
                    // Tokens on both sides of it stay two.
                    self.blank(' ', out);
                }
                Place::Block { .. } => self.place = Place::Block { asterisk: c == '*' },
                Place::Line => {}
            }
        }
        Progress::Open
    }

    fn string(&mut self, c: char, quote: char, out: &mut String) {
        match c {
            '\\' => self.place = Place::Escape(quote),
            _ if c == quote => {
                out.push('"');
                self.place = Place::Outside;
            }
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ => out.push(c),
        }
    }

    fn outside(&mut self, c: char, out: &mut String) -> Option<End> {
        if c.is_ascii_alphabetic() || (c == '-' && self.word.is_empty()) {
            if self.word.len() == MAX_WORD {
                self.flush_word(out);
            }
            if self.word.is_empty() {
                self.flush_comma(out);
            }
            self.word.push(c);
            return None;
        }
        self.flush_word(out);
        match c {
            ' ' | '\t' | '\n' | '\r' => self.blank(c, out),
            '/' => self.place = Place::Slash,
            ',' => {
                self.flush_comma(out);
                self.comma.push(',');
            }
            '"' => self.begin_string('"', out),
            // Anywhere else it is an apostrophe.
            '\'' if !self.comma.is_empty() || matches!(self.last, '{' | '[' | ':') => {
                self.begin_string('\'', out);
            }
            '{' | '[' => {
                self.settle_with(c, out);
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Some(End::TooDeep);
                }
            }
            '}' | ']' => {
                // A comma is one too many only behind a value.
                if matches!(self.last, '{' | '[' | ':' | ',') {
                    self.flush_comma(out);
                } else if let Some(blanks) = self.comma.get(1..) {
                    out.push_str(blanks);
                    self.comma.clear();
                }
                out.push(c);
                self.last = c;
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    return Some(End::Complete);
                }
            }
            _ => self.settle_with(c, out),
        }
        None
    }

    fn begin_string(&mut self, quote: char, out: &mut String) {
        self.settle_with('"', out);
        self.place = Place::String(quote);
    }

    fn settle_with(&mut self, c: char, out: &mut String) {
        self.settle(out);
        out.push(c);
        self.last = c;
    }

    /// Nothing that was held back is in doubt any more.
    fn settle(&mut self, out: &mut String) {
        self.flush_word(out);
        self.flush_comma(out);
    }

    fn blank(&mut self, c: char, out: &mut String) {
        self.flush_word(out);
        if self.comma.is_empty() {
            out.push(c);
        } else if self.comma.len() < MAX_BLANKS {
            self.comma.push(c);
        }
    }

    fn flush_comma(&mut self, out: &mut String) {
        if !self.comma.is_empty() {
            out.push_str(&self.comma);
            self.comma.clear();
            self.last = ',';
        }
    }

    fn flush_word(&mut self, out: &mut String) {
        let Some(last) = self.word.chars().last() else { return };
        out.push_str(match self.word.as_str() {
            "True" => "true",
            "False" => "false",
            // JSON has no such numbers; JavaScript writes null for them.
            "None" | "NaN" | "-NaN" | "Infinity" | "-Infinity" => "null",
            word => word,
        });
        self.last = last;
        self.word.clear();
    }
}

enum End {
    Complete,
    TooDeep,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::Value;

    /// The mended value, fed in pieces of so many characters.
    fn mend(text: &str, size: usize) -> (String, Progress) {
        let mut mender = Mender::default();
        let mut out = String::new();
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(size) {
            let progress = mender.feed(&piece.iter().collect::<String>(), &mut out);
            if progress != Progress::Open {
                return (out, progress);
            }
        }
        (out, Progress::Open)
    }

    #[test]
    fn what_can_only_be_meant_in_one_way_is_mended() {
        for (text, expected) in [
            // A comma too many.
            (r#"{"a":[1,2,],}"#, r#"{"a":[1,2]}"#),
            ("{\"a\":1 ,\n }", "{\"a\":1 \n }"),
            (r#"{"a":"x",/* y */}"#, r#"{"a":"x" }"#),
            (r#"{"a":{"b":1,},"c":[[],],}"#, r#"{"a":{"b":1},"c":[[]]}"#),
            // Single quotes.
            (r"{'a': 'b'}", r#"{"a": "b"}"#),
            (r#"{'a': 'it\'s "so"', "b": "it's"}"#, r#"{"a": "it's \"so\"", "b": "it's"}"#),
            (r"{'a':['}',']']}", r#"{"a":["}","]"]}"#),
            (r#"{"a":"it\'s"}"#, r#"{"a":"it's"}"#),
            // Comments.
            ("{// one }\n\"a\": 1 // two\n}", "{\n\"a\": 1 \n}"),
            (r#"{"a": /* "b": ** / */ 1}"#, r#"{"a":   1}"#),
            (r#"{"u": "http://x/*y*/"}"#, r#"{"u": "http://x/*y*/"}"#),
            // Words of other languages.
            (r#"{"a":True,"b":False,"c":None}"#, r#"{"a":true,"b":false,"c":null}"#),
            (r#"{"a":NaN,"b":-Infinity,"c":[Infinity]}"#, r#"{"a":null,"b":null,"c":[null]}"#),
            // Line ends within a string.
            ("{\"a\":\"x\n\ty\r\n\"}", r#"{"a":"x\n\ty\r\n"}"#),
        ] {
            for size in [1, 2, 3, 1000] {
                let (mended, progress) = mend(text, size);
                assert!(matches!(progress, Progress::Complete(_)), "{text}");
                assert_eq!(mended, expected, "{text} by {size}");
            }
            serde_json::from_str::<Value>(&mended_whole(text)).unwrap();
        }
    }

    fn mended_whole(text: &str) -> String {
        mend(text, 1000).0
    }

    #[test]
    fn what_leaves_a_doubt_is_not_mended() {
        for text in [
            "{a: 1}",             // a name without quotes
            r#"{"a": 1 "b": 2}"#, // a comma is missing
            r#"{"a" 1}"#,         // a colon is missing
            r#"{"a": [1, 2}"#,    // a bracket is missing
            r#"{"a": 1"#,         // it does not end
            r#"{"a": "x}"#,       // a string does not end
            r"{'a': 'it's'}",     // which quote ends it?
            r#"{"a": [1,,2]}"#,   // something is missing, or a comma is too many
            r#"{"a": [,]}"#,
            r#"{"a":,}"#,
            r#"{,"a":1}"#,
            r#"{"a": 1/**/2}"#,
            r#"{"a": 1 / 2}"#,
            r#"{"a": nope}"#,
            r#"{"a": NaN5}"#,
            r#"{"a": 1NaN}"#,
            r#"{"a": TrueTrue}"#,
            r#"{"a": +1}"#,
            r#"{"a": 0x10}"#,
            r#"{"a": "\x41"}"#,
            "{\"a\": \u{201c}x\u{201d}}",
        ] {
            assert!(serde_json::from_str::<Value>(&mended_whole(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn valid_json_passes_unchanged_in_pieces_of_any_size() {
        // The parts that values are made of, put together by a generator that needs no more than a seed.
        let atoms = [
            "1",
            "-0.5e+10",
            "2E5",
            "true",
            "false",
            "null",
            r#""""#,
            r#""a,}]'//""#,
            r#""\"\\\/\u00e9\n'""#,
            r#""NaN""#,
            "[]",
            "{}",
            "[ ]",
            "{\n}",
            "\"🦜ü\"",
        ];
        let mut state = 7_u64;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        let blanks = ["", " ", "\n  ", "\t", "\r\n"];
        for _ in 0..500 {
            let mut value = atoms[draw(atoms.len())].to_owned();
            for _ in 0..draw(6) + 1 {
                let (a, b, c) = (blanks[draw(5)], blanks[draw(5)], blanks[draw(5)]);
                let other = atoms[draw(atoms.len())];
                value = match draw(3) {
                    0 => format!("[{a}{value}{b},{c}{other}]"),
                    1 => format!("{{{a}\"k'\"{b}:{c}{value}}}"),
                    _ => format!("{{\"x\":{a}{other}{b},{c}\"y\":{value}{a}}}"),
                };
            }
            serde_json::from_str::<Value>(&value).unwrap();
            for size in [1, 3, 10_000] {
                let (out, progress) = mend(&value, size);
                assert_eq!(out, value, "by {size}");
                assert!(matches!(progress, Progress::Complete(_)));
            }
        }
    }

    #[test]
    fn hostile_texts_are_bounded() {
        let mut mender = Mender::default();
        let mut out = String::new();
        mender.feed("{\"a\":1,", &mut out);
        for _ in 0..1000 {
            mender.feed(&" ".repeat(1000), &mut out);
            mender.feed(&"x".repeat(1000), &mut out);
            mender.feed(",", &mut out);
        }
        assert!(mender.comma.len() <= MAX_BLANKS && mender.word.len() <= MAX_WORD);
        let (_, progress) = mend(&"[".repeat(100_000), 1000);
        assert_eq!(progress, Progress::TooDeep);
    }
}
