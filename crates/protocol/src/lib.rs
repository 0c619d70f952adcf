//! The wire contract of Starling: what its services say to each other, and how it is encoded.
//!
//! This crate has no I/O and no clock. Everything that travels between services is an [`Envelope`];
//! everything that the coordinator remembers is a [`state::StateRecord`]. A [`Codec`] turns them into
//! the values of records and back.

pub mod body;
pub mod codec;
pub mod dead_letter;
pub mod envelope;
pub mod fleet;
pub mod headers;
pub mod ids;
pub mod incoming;
pub mod priority;
pub mod record_ref;
pub mod state;
pub mod tag;
pub mod time;
pub mod topic;
pub mod trace_parent;

pub use body::*;
pub use codec::{Codec, CodecLimits, DecodeError, EncodeError};
pub use dead_letter::DeadReason;
pub use envelope::{Body, Envelope};
pub use ids::{EnvelopeId, IntentId, RunId, TaskId};
pub use incoming::{IntentFault, IntentLimits, InvalidIntent, ParsedIntent, read_intent};
pub use priority::Priority;
pub use record_ref::RecordRef;
pub use tag::{Role, Tag};
pub use time::Timestamp;
pub use topic::{Topic, TopicNames};
pub use trace_parent::TraceParent;
