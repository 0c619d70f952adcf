//! What is wrong with an intent.

use crate::IntentId;
use std::fmt;

/// Most faults that are listed; a user who sees these many can begin.
const MAX_FAULTS: usize = 20;
/// Longest piece of a user's text that is repeated in a message, in characters.
const MAX_EXCERPT: usize = 60;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntentFault {
    /// The field, such as `limits.max_tasks` or `inputs[2].name`; empty for the value as a whole.
    pub path: String,
    /// What was expected and what was found.
    pub message: String,
}

impl fmt::Display for IntentFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

/// A record of the input topic that is no valid intent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid intent: {}", Joined(faults))]
pub struct InvalidIntent {
    /// The user's id, if it could be read and is one.
    pub id: Option<IntentId>,
    /// The tenant, if it could be read and is one.
    pub tenant: Option<String>,
    /// What is wrong: faults of shape first, then those of values.
    pub faults: Vec<IntentFault>,
}

struct Joined<'f>(&'f [IntentFault]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, fault) in self.0.iter().enumerate() {
            write!(f, "{}{fault}", if position == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// Collects faults.
#[derive(Debug, Default)]
pub(super) struct Faults {
    listed: Vec<IntentFault>,
    more: usize,
}

impl Faults {
    pub(super) fn add(&mut self, path: &str, message: impl Into<String>) {
        if self.listed.len() < MAX_FAULTS {
            self.listed.push(IntentFault { path: path.to_owned(), message: message.into() });
        } else {
            self.more += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// The error, with id and tenant where they are valid.
    pub(super) fn into_invalid(mut self, id: Option<&str>, tenant: Option<&str>) -> InvalidIntent {
        if self.more > 0 {
            let message = format!("and {} more faults", self.more);
            self.listed.push(IntentFault { path: String::new(), message });
        }
        InvalidIntent {
            id: id.and_then(|id| IntentId::parse(id).ok()),
            // A tenant is written in the alphabet of ids.
            tenant: tenant.filter(|tenant| IntentId::parse(tenant).is_ok()).map(str::to_owned),
            faults: self.listed,
        }
    }
}

/// A user's text in quotes, shortened, with control characters escaped.
pub(super) fn excerpt(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(MAX_EXCERPT).collect();
    if chars.next().is_some() { format!("{head:?}…") } else { format!("{head:?}") }
}
