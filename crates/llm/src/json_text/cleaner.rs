//! The same as the whole-text search, for replies that come in pieces.

use super::{CLOSE, MAX_THOUGHTS, NoJson, OPEN, Progress, Scanner};

/// Cleans a reply that comes in pieces: thoughts go, and of a JSON reply only the value stays.
#[derive(Debug)]
pub(crate) struct Cleaner {
    /// `None` for prose.
    opener: Option<char>,
    state: State,
    /// Text that cannot be judged yet, from `at` on.
    held: String,
    at: usize,
    thoughts: usize,
    scanner: Scanner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far: a thought may begin.
    Start,
    /// Inside a thought.
    Thinking,
    /// Prose before the JSON value.
    Before,
    /// Inside what is passed on.
    Inside,
    /// After the JSON value.
    After,
    /// The JSON value is nested too deep.
    TooDeep,
}

impl Cleaner {
    pub(crate) fn new(opener: Option<char>) -> Cleaner {
        Cleaner {
            opener,
            state: State::Start,
            held: String::new(),
            at: 0,
            thoughts: 0,
            scanner: Scanner::default(),
        }
    }

    /// What of this piece, and of what was held back, goes to the reader.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        let mut out = String::new();
        if self.state == State::Inside && self.opener.is_none() {
            out.push_str(piece);
            return out;
        }
        if matches!(self.state, State::After | State::TooDeep) {
            return out;
        }
        self.held.push_str(piece);
        while self.advance(&mut out) {}
        // Once a piece, not once a step: a reply of nothing but brackets stays linear.
        self.held.drain(..self.at);
        self.at = 0;
        out
    }

    fn rest(&self) -> &str {
        self.held.get(self.at..).unwrap_or_default()
    }

    /// The text came to its end: whatever was held back in doubt goes out.
    pub(crate) fn finish(&mut self) -> String {
        match (self.state, self.opener) {
            (State::Start | State::Inside, None) => std::mem::take(&mut self.held),
            _ => String::new(),
        }
    }

    /// Why a JSON reply is none; `Ok` for prose.
    pub(crate) fn verdict(&self) -> Result<(), NoJson> {
        match (self.opener, self.state) {
            (None, _) | (_, State::After) => Ok(()),
            (_, State::TooDeep) => Err(NoJson::TooDeep),
            (_, State::Inside) => Err(NoJson::Unfinished),
            (_, State::Start | State::Thinking | State::Before) => Err(NoJson::Absent),
        }
    }

    /// One step; true if there may be another.
    fn advance(&mut self, out: &mut String) -> bool {
        match self.state {
            State::Start => self.start(),
            State::Thinking => self.think(),
            State::Before => self.seek(),
            State::Inside => {
                let piece = self.held.get(self.at..).unwrap_or_default();
                self.at = self.held.len();
                if self.opener.is_none() {
                    out.push_str(piece);
                    return false;
                }
                match self.scanner.feed(piece) {
                    Progress::Open => out.push_str(piece),
                    Progress::Complete(end) => {
                        out.push_str(piece.get(..end).unwrap_or_default());
                        self.state = State::After;
                    }
                    Progress::TooDeep => self.state = State::TooDeep,
                }
                false
            }
            State::After | State::TooDeep => false,
        }
    }

    fn start(&mut self) -> bool {
        let rest = self.rest();
        let trimmed = rest.trim_start();
        let blank = rest.len() - trimmed.len();
        let (skip, next) = if trimmed.starts_with(OPEN) {
            (blank + OPEN.len(), State::Thinking)
        } else if OPEN.starts_with(trimmed) {
            return false;
        } else if self.opener.is_some() {
            (blank, State::Before)
        } else {
            (blank, State::Inside)
        };
        self.thoughts = 1;
        self.at += skip;
        self.state = next;
        true
    }

    fn think(&mut self) -> bool {
        let rest = self.rest();
        let close = rest.find(CLOSE);
        let open = rest.find(OPEN).filter(|open| close.is_none_or(|close| *open < close));
        match (open, close) {
            (Some(open), _) if self.thoughts < MAX_THOUGHTS => {
                self.thoughts += 1;
                self.at += open + OPEN.len();
            }
            (_, Some(close)) => {
                self.thoughts = self.thoughts.saturating_sub(1);
                self.at += close + CLOSE.len();
                if self.thoughts == 0 {
                    self.state = State::Start;
                }
            }
            _ => {
                // Only a tag that is not whole yet is worth keeping of a thought.
                self.at = self.held.len() - tail(rest, CLOSE.len() - 1).len();
                return false;
            }
        }
        true
    }

    /// Looks for an opening bracket that is followed by what may follow it in JSON, because prose has
    /// brackets too.
    fn seek(&mut self) -> bool {
        let Some(opener) = self.opener else {
            return false;
        };
        let Some(offset) = self.rest().find(opener) else {
            self.at = self.held.len();
            return false;
        };
        self.at += offset;
        let next = self.rest().chars().skip(1).find(|c| !c.is_whitespace());
        let fits = match (opener, next) {
            (_, None) => return false,
            ('{', Some(c)) => matches!(c, '"' | '}'),
            (_, Some(c)) => matches!(c, '"' | ']' | '{' | '[' | '-' | '0'..='9'),
        };
        if fits {
            self.state = State::Inside;
        } else {
            self.at += opener.len_utf8();
        }
        true
    }
}

/// The last bytes of a text, at most `most`, whole characters only.
fn tail(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default()
}
