//! How urgent something is.

use std::fmt;

/// How urgent an intent is, and with it all that is done for it: 0 (batch) to 9 (somebody waits).
///
/// It decides who goes first where several wait: for a worker, for a place in a queue, for a call of a model. Nobody waits
/// for ever for that: how much a more urgent one may overtake is bounded everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// That of a batch.
    pub const BATCH: Self = Self(0);
    /// The highest.
    pub const MAX: Self = Self(9);

    /// As a level from 0 to 9; what lies beyond is taken for the nearest.
    #[must_use]
    pub fn of_level(level: i32) -> Self {
        Self(u8::try_from(level.clamp(0, i32::from(Self::MAX.0))).unwrap_or_default())
    }

    /// The level, 0 to 9.
    #[must_use]
    pub fn level(self) -> u8 {
        self.0
    }

    /// Whether nobody waits for it: it is below what is usual.
    #[must_use]
    pub fn is_batch(self) -> bool {
        self < Self::default()
    }

    /// As it stands in a header. What is not there or not readable says nothing, and is like most.
    #[must_use]
    pub fn of_header(value: Option<&str>) -> Self {
        value.and_then(|level| level.parse().ok()).map_or_else(Self::default, Self::of_level)
    }
}

impl Default for Priority {
    /// That of an intent of which nobody says how urgent it is.
    fn default() -> Self {
        Self(5)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_header_says_is_a_priority() {
        for (header, expected) in [
            (None, 5),
            (Some(""), 5),
            (Some("soon"), 5),
            (Some("0"), 0),
            (Some("9"), 9),
            (Some("10"), 9),
            (Some("-1"), 0),
        ] {
            assert_eq!(Priority::of_header(header).level(), expected, "{header:?}");
        }
    }
}
