//! The auditor: accounts for every record of an intent. What caused it, what it caused; whether it was the first, a
//! duplicate, superseded or a dead letter; which model calls were repeated; and whether the promises were kept.
//!
//! It judges by the records alone. Of the swarm's own code it shares the wire contract and the function that says
//! which records of a state log count ([`starling_engine::statelog::LogFold`]); not one of the coordinator's
//! decisions. No I/O and no clock: whoever reads gives a [`Cut`] and the records to a [`Ledger`].
//!
//! | question | file |
//! |---|---|
//! | what is kept of a record? | `said.rs`, `book.rs` |
//! | what does the state log say of an intent? | `state_log.rs`, `book.rs` |
//! | was it decided, and is everything there that was? | `judge/effects.rs` |
//! | what became of what the coordinator was told? | `judge/inbox.rs` |
//! | what became of what services were told? | `judge/work.rs` |
//! | exactly one outcome? | `judge/outcome.rs` |
//! | which calls were repeated? | `judge/calls.rs` |
//! | what can not be known any more? | `place.rs` |

mod account;
mod book;
mod content;
mod fleet;
mod judge;
mod ledger;
mod place;
mod record;
mod report;
mod said;
mod state_log;
mod stray;
mod text;

pub use account::{
    Account, Answer, Cause, Counts, Entry, Moved, Promise, Purpose, RepeatedCall, Standing, Status,
};
pub use ledger::{Installation, Ledger, Limits, Scope, Terms};
pub use place::{Cut, Extent, Place};
pub use record::{LogRecord, topic_named};
pub use report::Report;
pub use stray::Stray;
pub use text::{line_of, tree_of};
