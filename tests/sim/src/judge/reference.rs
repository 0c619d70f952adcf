//! Which records of a state log count, written down a second time and as plainly as possible: what the services go by is
//! held against it.

use starling_engine::statelog::Observed;
use starling_protocol::state::StateRecord;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Epoch,
    Decision,
    Part,
    Snapshot,
    Nothing,
}

/// Reads a log from its beginning.
#[derive(Debug, Default)]
pub(super) struct Reference {
    /// Offset and nonce of the latest start of an epoch.
    epoch: Option<(i64, String)>,
    /// Of the last decision that counts.
    seq: i64,
    /// The part of a snapshot that comes next, of how many.
    parts: Option<(i32, i32)>,
}

impl Reference {
    pub(super) fn judge(&mut self, offset: i64, record: &StateRecord) -> Kind {
        match record {
            StateRecord::EpochStart(start) => {
                self.epoch = Some((offset, start.nonce.clone()));
                self.parts = None;
                Kind::Epoch
            }
            StateRecord::Decision(decision) => {
                if !self.is_of_owner(decision.epoch, &decision.nonce) || decision.seq != self.seq + 1 {
                    return Kind::Nothing;
                }
                self.seq = decision.seq;
                self.parts = None;
                Kind::Decision
            }
            StateRecord::SnapshotChunk(chunk) => {
                if !self.is_of_owner(chunk.epoch, &chunk.nonce) || chunk.seq != self.seq {
                    return Kind::Nothing;
                }
                let expected = if chunk.part == 0 { Some((0, chunk.parts)) } else { self.parts };
                if expected != Some((chunk.part, chunk.parts)) {
                    self.parts = None;
                    return Kind::Nothing;
                }
                if chunk.part + 1 < chunk.parts {
                    self.parts = Some((chunk.part + 1, chunk.parts));
                    return Kind::Part;
                }
                self.parts = None;
                Kind::Snapshot
            }
        }
    }

    fn is_of_owner(&self, epoch: i64, nonce: &str) -> bool {
        self.epoch.as_ref().is_some_and(|(offset, owner)| *offset == epoch && owner == nonce)
    }
}

/// The same, as the services see it.
pub(super) fn kind_of(observed: &Observed) -> Kind {
    match observed {
        Observed::Epoch => Kind::Epoch,
        Observed::Decision { .. } => Kind::Decision,
        Observed::SnapshotPart => Kind::Part,
        Observed::Snapshot | Observed::Base(_) => Kind::Snapshot,
        Observed::Ignored(_) => Kind::Nothing,
    }
}
