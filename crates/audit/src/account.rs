//! What is found out about an intent. The JSON of these types is the contract of `starling audit --json`.

use crate::Place;
use serde::{Serialize, Serializer};
use starling_protocol::{IntentId, OutcomeStatus};
use std::collections::BTreeMap;
use std::fmt;

/// What became of a record, better before worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It had its effect.
    Original,
    /// The same again, recognised as such.
    Duplicate,
    /// A model was asked again for what had an answer.
    RepeatedCall,
    /// Nobody needed it any more: its intent was cancelled or had ended, its run was given up.
    Superseded,
    /// People have it.
    DeadLetter,
    /// What it would take to say is not there any more.
    Unknown,
    /// Nothing has become of it yet.
    Pending,
    /// Nothing explains it.
    Unaccounted,
    /// A promise is broken.
    Violation,
}

impl Status {
    /// Every status, better before worse.
    pub const ALL: [Self; 9] = [
        Self::Original,
        Self::Duplicate,
        Self::RepeatedCall,
        Self::Superseded,
        Self::DeadLetter,
        Self::Unknown,
        Self::Pending,
        Self::Unaccounted,
        Self::Violation,
    ];

    /// In words, as in the JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Status::Original => "original",
            Status::Duplicate => "duplicate",
            Status::RepeatedCall => "repeated_call",
            Status::Superseded => "superseded",
            Status::DeadLetter => "dead_letter",
            Status::Unknown => "unknown",
            Status::Pending => "pending",
            Status::Unaccounted => "unaccounted",
            Status::Violation => "violation",
        }
    }
}

/// The promises, with their numbers in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// An accepted intent reaches exactly one outcome.
    OneOutcome = 1,
    /// What a task does to its intent it does once, and only what was decided is done.
    AppliedOnce = 2,
    /// Nothing accepted is dropped in silence.
    NothingDropped = 3,
}

impl Promise {
    /// Its number.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }
}

impl Serialize for Promise {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.number())
    }
}

/// Why a record is there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Another record.
    Record(Place),
    /// A decision: where it lies in the state log, and its number.
    Decision(Place, i64),
    /// Somebody outside.
    User,
    /// A record that is not there any more, or was not asked for.
    Gone,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Record(place) => place.fmt(f),
            Cause::Decision(place, seq) => write!(f, "{place}#{seq}"),
            Cause::User => f.write_str("user"),
            Cause::Gone => f.write_str("gone"),
        }
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A record, or one that ought to be there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Where it lies; `None` for what is not there.
    pub record: Option<Place>,
    /// What it is.
    pub kind: &'static str,
    /// Id of its envelope; empty where there is none.
    pub id: String,
    /// What it is about, for people.
    pub about: String,
    /// When it was written, in milliseconds since 1970.
    pub at: i64,
    /// Why it is there.
    pub causes: Vec<Cause>,
    /// What became of it.
    pub status: Status,
    /// The promise that is broken.
    pub promise: Option<Promise>,
    /// Why that is so, for people; empty where nothing needs to be said.
    pub why: String,
    /// How far it is from the root of the tree.
    #[serde(skip)]
    pub depth: usize,
}

/// What a model was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A plan.
    Plan,
    /// A task.
    Work,
    /// A judgement.
    Judge,
}

/// An answer of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// Where it lies.
    pub record: Place,
    /// When it was written, in milliseconds since 1970.
    pub at: i64,
    /// The process that asked; empty where the record does not say.
    pub process: String,
    /// Whether this is the one that counts.
    pub taken: bool,
}

/// Several answers to the same question.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RepeatedCall {
    /// What was asked.
    pub purpose: Purpose,
    /// About what.
    pub about: String,
    /// In the order in which they came.
    pub answers: Vec<Answer>,
}

impl RepeatedCall {
    /// How often it was asked again.
    #[must_use]
    pub fn repetitions(&self) -> usize {
        self.answers.len().saturating_sub(1)
    }
}

/// A task that was answered by another process than the one that had its partition when it was sent. The first one
/// may have asked the model before it was gone; only the model's own log can tell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved {
    /// The task.
    pub record: Place,
    /// About what.
    pub about: String,
    /// Who had it first.
    pub from: String,
    /// Who answered.
    pub to: String,
}

/// How an account ends, better before worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Everything is accounted for.
    Clean,
    /// It goes on or has just ended, and what is not accounted for is under way.
    Live,
    /// Something is not accounted for.
    Unaccounted,
    /// A promise is broken.
    Violated,
}

/// How many records became what, by [`Status::name`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Counts(pub BTreeMap<&'static str, usize>);

impl Counts {
    /// How many there are of it.
    #[must_use]
    pub fn of(&self, status: Status) -> usize {
        self.0.get(status.name()).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, status: Status, count: usize) {
        *self.0.entry(status.name()).or_default() += count;
    }
}

/// The account of one intent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Account {
    /// Which intent.
    pub intent_id: IntentId,
    /// How it ends.
    pub standing: Standing,
    /// Whether the intent goes on.
    pub live: bool,
    /// How it ended, as its outcome says; `None` if there is none.
    pub outcome: Option<OutcomeStatus>,
    /// How many records became what.
    pub counts: Counts,
    /// Reports of its progress. They are best effort and not accounted for.
    pub progress: usize,
    /// Parts of long inputs that it refers to and that are there, as they were.
    pub parts: usize,
    /// Questions to a model that have several answers.
    pub repeated: Vec<RepeatedCall>,
    /// Tasks of which a first call may have gone unheard.
    pub moved: Vec<Moved>,
    /// What cannot be known, and what was not looked at.
    pub notes: Vec<String>,
    /// Every record, causes before what they caused.
    pub entries: Vec<Entry>,
}

impl Account {
    /// Model calls that are known to have been repeated.
    #[must_use]
    pub fn repetitions(&self, purpose: Purpose) -> usize {
        self.repeated.iter().filter(|call| call.purpose == purpose).map(RepeatedCall::repetitions).sum()
    }

    /// The entries that stand in the way of a clean account.
    pub fn findings(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.status >= Status::Pending)
    }

    /// Whether nothing is left to be explained: everything is accounted for, or the intent goes on and was allowed
    /// to.
    #[must_use]
    pub fn is_fine(&self) -> bool {
        self.standing <= Standing::Live
    }
}
