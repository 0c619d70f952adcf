//! The same as the whole-text search, for replies that come in pieces.

use super::mender::{Mender, Progress};
use super::{CLOSE, MAX_THOUGHTS, NoJson, OPEN, begins, tokens};

/// Cleans a reply that comes in pieces: thoughts and ends of turns go, and of a JSON reply only the mended value stays.
#[derive(Debug)]
pub(crate) struct Cleaner {
    /// `None` for prose.
    opener: Option<char>,
    state: State,
    /// Text that cannot be judged yet, from `at` on.
    held: String,
    at: usize,
    thoughts: usize,
    mender: Mender,
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
    /// A tool is called.
    Call,
}

impl Cleaner {
    pub(crate) fn new(opener: Option<char>) -> Cleaner {
        Cleaner {
            opener,
            state: State::Start,
            held: String::new(),
            at: 0,
            thoughts: 0,
            mender: Mender::default(),
        }
    }

    /// What of this piece, and of what was held back, goes to the reader.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        let mut out = String::new();
        if matches!(self.state, State::After | State::TooDeep | State::Call) {
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
            (State::Start | State::Inside, None) => {
                let held = std::mem::take(&mut self.held);
                let kept = tokens::without_ends(&held);
                // Nothing else was held back that ends a turn.
                if kept.len() == held.trim_end().len() { held } else { kept.to_owned() }
            }
            _ => String::new(),
        }
    }

    /// Why a JSON reply is none; `Ok` for prose.
    pub(crate) fn verdict(&self) -> Result<(), NoJson> {
        match (self.opener, self.state) {
            (_, State::Call) => Err(NoJson::ToolCall),
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
                if self.opener.is_none() {
                    let decided = tokens::undecided(piece);
                    out.push_str(piece.get(..decided).unwrap_or_default());
                    self.at += decided;
                    return false;
                }
                let progress = self.mender.feed(piece, out);
                self.at = self.held.len();
                match progress {
                    Progress::Open => {}
                    Progress::Complete(_) => self.state = State::After,
                    Progress::TooDeep => self.state = State::TooDeep,
                }
                false
            }
            State::After | State::TooDeep | State::Call => false,
        }
    }

    fn start(&mut self) -> bool {
        let rest = self.rest();
        let trimmed = rest.trim_start();
        let blank = rest.len() - trimmed.len();
        let (skip, next) = if trimmed.starts_with(OPEN) {
            (blank + OPEN.len(), State::Thinking)
        } else if tokens::is_call(trimmed) {
            (blank, State::Call)
        } else if OPEN.starts_with(trimmed) || tokens::may_be_call(trimmed) {
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

    /// Looks for the beginning of the value.
    fn seek(&mut self) -> bool {
        let Some(opener) = self.opener else {
            return false;
        };
        let rest = self.rest();
        let found = rest.find(opener);
        let before = found.map_or(rest, |offset| rest.get(..offset).unwrap_or_default());
        if tokens::has_call(before) {
            self.state = State::Call;
            return true;
        }
        let Some(offset) = found else {
            // A call may have begun.
            self.at = self.held.len() - tail(rest, tokens::MAX_CALL).len();
            return false;
        };
        let fits = rest.get(offset..).and_then(|rest| begins(rest, opener));
        self.at += offset;
        match fits {
            // What stands before it was looked at.
            None => return false,
            Some(true) => self.state = State::Inside,
            Some(false) => self.at += opener.len_utf8(),
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
