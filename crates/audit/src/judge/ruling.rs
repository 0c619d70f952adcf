//! What is ruled of one record.

use crate::account::{Cause, Promise, Status};

/// A status with its reasons.
#[derive(Clone, Debug)]
pub(super) struct Ruling {
    pub(super) status: Status,
    pub(super) promise: Option<Promise>,
    pub(super) why: String,
    pub(super) causes: Vec<Cause>,
}

impl Ruling {
    pub(super) fn new(status: Status, why: impl Into<String>) -> Self {
        Self { status, promise: None, why: why.into(), causes: Vec::new() }
    }

    pub(super) fn original() -> Self {
        Self::new(Status::Original, "")
    }

    pub(super) fn breaks(promise: Promise, why: impl Into<String>) -> Self {
        Self { promise: Some(promise), ..Self::new(Status::Violation, why) }
    }

    pub(super) fn caused_by(mut self, causes: impl IntoIterator<Item = Cause>) -> Self {
        self.causes.extend(causes);
        self
    }

    /// The worse of two, with the causes of both.
    pub(super) fn and(mut self, mut other: Self) -> Self {
        if other.status > self.status {
            std::mem::swap(&mut self, &mut other);
        } else if self.why.is_empty() && other.status == self.status {
            self.why = std::mem::take(&mut other.why);
        }
        for cause in other.causes {
            if !self.causes.contains(&cause) {
                self.causes.push(cause);
            }
        }
        self
    }
}
