//! What can go wrong on the bus, typed by the reaction that it calls for.

/// A record was not, or not surely, written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The broker will never take this record (too large, not allowed, no such topic): do not retry it.
    #[error("the broker refuses the record for {to}: {reason}")]
    Refused {
        /// Where it was to go.
        to: String,
        /// Why, and what to do.
        reason: String,
    },
    /// It was not written and may be sent again.
    #[error("the record for {to} was not sent: {reason}")]
    NotSent {
        /// Where it was to go.
        to: String,
        /// Why.
        reason: String,
    },
    /// It may or may not have been written.
    #[error("whether the record for {to} was written is unknown: {reason}")]
    Unknown {
        /// Where it was to go.
        to: String,
        /// Why.
        reason: String,
    },
}

/// Offsets were not committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The partition belongs to somebody else now: let go of it.
    #[error("the group has moved on: {0}")]
    Fenced(String),
    /// Metadata larger than the broker takes.
    #[error("the commit's metadata is too large: {0}")]
    MetadataTooLarge(String),
    /// Try again.
    #[error("the commit failed: {0}")]
    Retry(String),
}

/// A single record could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It is not there any more, or never was.
    #[error("there is no record at {0}")]
    Gone(String),
    /// Try again.
    #[error("the record could not be read: {0}")]
    Retry(String),
}

/// Other operations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// The broker cannot be reached, or is not ready.
    #[error("no broker answers at {brokers}: {reason}")]
    Unreachable {
        /// The configured addresses.
        brokers: String,
        /// What the client says.
        reason: String,
    },
    /// A topic is missing.
    #[error("topic {topic} does not exist; `starling topics create` makes it")]
    NoSuchTopic {
        /// Its name.
        topic: String,
    },
    /// Not allowed, or a setting the broker does not take.
    #[error("the broker refuses: {0}")]
    Refused(String),
    /// Try again.
    #[error("{0}")]
    Retry(String),
    /// The client is broken; the process should end.
    #[error("the client failed for good: {0}")]
    Fatal(String),
}
