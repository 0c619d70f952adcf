//! Why a life of a partition ends, by what is to be done then.

use starling_bus::BusError;
use starling_engine::statelog::Refusal;

/// The memory is dropped in every case.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Another process owns the partition now. If the group still assigns it to us: a new epoch.
    #[error("another owner has taken the partition over")]
    Fenced,
    /// What became of an append is not known, or the broker is in trouble: a new epoch after a while.
    #[error("{0}")]
    Uncertain(String),
    /// What follows from one input cannot be written, whatever the machine is told. It becomes a dead
    /// letter in the next epoch.
    #[error("what follows from the input at {offset:?} does not fit into a record of {limit} bytes")]
    Unfit {
        /// Its offset in the inbox; `None` if it was no record.
        offset: Option<i64>,
        /// Largest record.
        limit: usize,
    },
    /// The inbox does not hold the record that comes next: inputs were lost. A person has to look at it.
    #[error(
        "the inbox has no offset {offset}, which is to be read next: inputs were deleted before they were decided \
         (retention, or a topic made anew); they are lost. Nothing is reset by itself"
    )]
    InboxOutOfRange {
        /// The offset.
        offset: i64,
    },
    /// The state log is damaged. A person has to look at it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The process cannot go on.
    #[error("{0}")]
    Fatal(String),
}

impl From<BusError> for Failure {
    fn from(error: BusError) -> Self {
        match error {
            BusError::Fatal(_) | BusError::NoSuchTopic { .. } => Self::Fatal(error.to_string()),
            other => Self::Uncertain(other.to_string()),
        }
    }
}
