//! Who owns a partition of the state log, and what in it counts.
//!
//! The log is the arbiter. Any number of processes may believe that they own a partition and append to
//! it; [`LogFold`] says, record by record, what is accepted, and every reader comes to the same result.
//! An owner believes in a decision only once the log has accepted it. So two owners never both decide,
//! without transactions and whatever the group coordinator thinks.

mod batch;
mod effects;
mod fold;
mod owner;
mod size;
mod snapshot;

pub use batch::{Batch, Step};
pub use effects::EffectsLedger;
pub use fold::{Ignored, LogFold, Observed, Position, Refusal};
pub use owner::{Owner, Placed, Replay, Replayed, Takeover};
pub use size::{RECORD_OVERHEAD, upper_bound};
