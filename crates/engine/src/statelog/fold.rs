//! The one function that judges the records of a state partition.

use super::snapshot::{Gathered, Gathering};
use starling_protocol::Timestamp;
use starling_protocol::state::{
    Decision, Entity, EntityKey, EpochStart, LoggedEffect, SnapshotChunk, StateRecord,
};
use std::collections::BTreeMap;

/// Judges the records of one state partition in the order of the log, and holds what follows from those
/// that are accepted, except for the entities: these it hands on.
///
/// A decision is accepted only if epoch and nonce are those of the latest [`EpochStart`] before it and
/// its seq is the next. Chunks of a snapshot obey the same rule, and count once the last one is there.
#[derive(Clone, Debug)]
pub struct LogFold {
    /// What this installation is set to.
    partitions: i32,
    /// Whether the log has said the same.
    partitions_confirmed: bool,
    next_offset: Option<i64>,
    epoch: Option<Epoch>,
    /// `None` until the log has begun: at offset 0 or with a complete snapshot.
    position: Option<Position>,
    gathering: Option<Gathering>,
    /// Where the last complete snapshot begins, and the one before it.
    snapshots: (Option<i64>, Option<i64>),
}

#[derive(Clone, Debug)]
struct Epoch {
    offset: i64,
    nonce: String,
    /// Whether its start was read, or follows from the snapshot that the log begins with.
    read: bool,
}

/// Where a partition stands after its accepted records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Seq of the last accepted decision; 0 before the first.
    pub seq: i64,
    /// The coordinator's time; never falls.
    pub now: Timestamp,
    /// Inbox offset to read next; `None` before the first decision.
    pub next_input: Option<i64>,
    /// The effects of all decisions up to this one are done.
    pub effects_done: i64,
    /// Effects of later decisions, by seq: whether they are done is not known.
    pub pending: BTreeMap<i64, Vec<LoggedEffect>>,
}

/// What a record is.
#[derive(Debug, PartialEq)]
pub enum Observed {
    /// A process has taken the partition over; records of earlier epochs do not count any more.
    Epoch,
    /// A decision is accepted; these entities change.
    Decision {
        /// New values.
        changed: Vec<Entity>,
        /// What is gone.
        deleted: Vec<EntityKey>,
    },
    /// The log begins with this snapshot: all entities there are.
    Base(Vec<Entity>),
    /// A part of a snapshot is accepted; more follow.
    SnapshotPart,
    /// A snapshot is complete. It says what was known already.
    Snapshot,
    /// It does not count.
    Ignored(Ignored),
}

/// Why a record does not count. None of these is a fault of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// Its writer did not own the partition any more.
    StaleEpoch,
    /// It claims the present epoch but was not written by the owner.
    WrongNonce,
    /// The decision was accepted before.
    SeqRepeated,
    /// A decision before it is missing.
    SeqGap,
    /// A chunk that does not go on where the last one ended.
    TornSnapshot,
    /// It lies before the snapshot that the log begins with.
    BeforeBase,
    /// A process that is set to another number of partitions wanted to take over.
    OtherPartitions,
    /// The offset was judged before.
    OffsetRepeated,
}

/// A log that must not be worked with. A person has to look at it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The log was made with another number of partitions.
    #[error(
        "the state log was made for {log} coordinator partitions, the coordinator's topic has {ours}: intents would \
         lie in the wrong partitions; restore the number, or start with new topics under another prefix"
    )]
    Partitions {
        /// What the log says.
        log: i32,
        /// What we are set to.
        ours: i32,
    },
    /// The beginning is missing.
    #[error(
        "the state log neither begins at offset 0 nor holds a complete snapshot (it begins at {first}): decisions \
         are missing; was it trimmed by hand or by retention?"
    )]
    NoBeginning {
        /// First offset that is there.
        first: i64,
    },
    /// It begins with a snapshot of a process that was not the owner.
    #[error(
        "the state log begins with a snapshot of epoch {base}, but at offset {offset} there is a record of epoch \
         {epoch}, whose start is missing: the log was trimmed in the wrong place"
    )]
    StaleBeginning {
        /// Epoch of the snapshot.
        base: i64,
        /// Epoch of the other record.
        epoch: i64,
        /// Where that lies.
        offset: i64,
    },
    /// Something that is no state record, or that a newer version wrote.
    #[error("the record at offset {offset} of the state log cannot be read: {reason}")]
    Undecodable {
        /// Where it lies.
        offset: i64,
        /// What the codec says.
        reason: String,
    },
    /// The log does not hold what the broker acknowledged.
    #[error(
        "the state log ends before offset {offset}, which the broker has acknowledged: were records lost?"
    )]
    Missing {
        /// Where it should lie.
        offset: i64,
    },
}

impl LogFold {
    /// A fold that has read nothing yet, for an installation with that many coordinator partitions.
    #[must_use]
    pub fn new(partitions: i32) -> Self {
        Self {
            partitions,
            partitions_confirmed: false,
            next_offset: None,
            epoch: None,
            position: None,
            gathering: None,
            snapshots: (None, None),
        }
    }

    /// Judges the next record.
    ///
    /// # Errors
    /// The log must not be worked with.
    pub fn observe(&mut self, offset: i64, record: StateRecord) -> Result<Observed, Refusal> {
        if self.next_offset.is_some_and(|next| offset < next) {
            return Ok(Observed::Ignored(Ignored::OffsetRepeated));
        }
        if self.next_offset.is_none() && offset == 0 {
            self.position = Some(Position::default());
        }
        self.next_offset = Some(offset.saturating_add(1));
        match record {
            StateRecord::EpochStart(start) => self.epoch_start(offset, start),
            StateRecord::Decision(decision) => self.decision(offset, decision),
            StateRecord::SnapshotChunk(chunk) => self.chunk(offset, chunk),
        }
    }

    /// Where the partition stands; `None` as long as the log has not begun.
    #[must_use]
    pub fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    /// Offset and nonce of the latest epoch.
    #[must_use]
    pub fn epoch(&self) -> Option<(i64, &str)> {
        self.epoch.as_ref().map(|epoch| (epoch.offset, epoch.nonce.as_str()))
    }

    /// The offset after the last record that was judged.
    #[must_use]
    pub fn next_offset(&self) -> i64 {
        self.next_offset.unwrap_or(0)
    }

    /// Where the last complete snapshot begins: a reader may begin there.
    #[must_use]
    pub fn last_snapshot(&self) -> Option<i64> {
        self.snapshots.0
    }

    /// Where the last complete snapshot but one begins: what lies before it is not needed any more.
    #[must_use]
    pub fn trim_to(&self) -> Option<i64> {
        self.snapshots.1
    }

    fn epoch_start(&mut self, offset: i64, start: EpochStart) -> Result<Observed, Refusal> {
        if !self.same_partitions(start.partitions)? {
            return Ok(Observed::Ignored(Ignored::OtherPartitions));
        }
        self.epoch = Some(Epoch { offset, nonce: start.nonce, read: true });
        self.gathering = None;
        Ok(Observed::Epoch)
    }

    fn decision(&mut self, offset: i64, mut decision: Decision) -> Result<Observed, Refusal> {
        if let Some(why) = self.foreign(offset, decision.epoch, &decision.nonce)? {
            return Ok(Observed::Ignored(why));
        }
        let Some(position) = &mut self.position else {
            return Ok(Observed::Ignored(Ignored::BeforeBase));
        };
        if decision.seq <= position.seq {
            return Ok(Observed::Ignored(Ignored::SeqRepeated));
        }
        if decision.seq != position.seq + 1 {
            return Ok(Observed::Ignored(Ignored::SeqGap));
        }
        self.gathering = None;
        let effects = std::mem::take(&mut decision.effects);
        position.advance(&decision, effects);
        Ok(Observed::Decision { changed: decision.changed, deleted: decision.deleted })
    }

    fn chunk(&mut self, offset: i64, chunk: SnapshotChunk) -> Result<Observed, Refusal> {
        if self.position.is_none() && chunk.part == 0 {
            // The start of its epoch may have been trimmed away.
            let newer = self.epoch.as_ref().is_none_or(|e| !e.read && e.offset < chunk.epoch);
            if newer && chunk.epoch < offset {
                self.epoch = Some(Epoch { offset: chunk.epoch, nonce: chunk.nonce.clone(), read: false });
            }
        }
        if let Some(why) = self.foreign(offset, chunk.epoch, &chunk.nonce)? {
            return Ok(Observed::Ignored(why));
        }
        if !self.same_partitions(chunk.partitions)? {
            return Ok(Observed::Ignored(Ignored::OtherPartitions));
        }
        if self.position.as_ref().is_some_and(|position| position.seq != chunk.seq) {
            return Ok(Observed::Ignored(Ignored::TornSnapshot));
        }
        let keep = self.position.is_none();
        match Gathering::take(&mut self.gathering, offset, chunk, keep) {
            Gathered::Torn => Ok(Observed::Ignored(Ignored::TornSnapshot)),
            Gathered::Part => Ok(Observed::SnapshotPart),
            Gathered::Whole { first, position, entities } => {
                self.snapshots = (Some(first), self.snapshots.0);
                if let Some(known) = &mut self.position {
                    known.next_input = known.next_input.max(position.next_input);
                    return Ok(Observed::Snapshot);
                }
                self.position = Some(position);
                Ok(Observed::Base(entities))
            }
        }
    }

    /// Why a record of that epoch and nonce does not count, if it does not.
    fn foreign(&self, offset: i64, epoch: i64, nonce: &str) -> Result<Option<Ignored>, Refusal> {
        let Some(current) = &self.epoch else { return Ok(Some(Ignored::BeforeBase)) };
        if epoch > current.offset && !current.read && self.position.is_some() {
            return Err(Refusal::StaleBeginning { base: current.offset, epoch, offset });
        }
        Ok(if epoch != current.offset {
            Some(Ignored::StaleEpoch)
        } else if nonce != current.nonce {
            Some(Ignored::WrongNonce)
        } else {
            None
        })
    }

    /// The first record that names a number of partitions settles it for the log.
    fn same_partitions(&mut self, partitions: i32) -> Result<bool, Refusal> {
        if !self.partitions_confirmed && partitions != self.partitions {
            return Err(Refusal::Partitions { log: partitions, ours: self.partitions });
        }
        self.partitions_confirmed = true;
        Ok(partitions == self.partitions)
    }
}

impl Position {
    fn advance(&mut self, decision: &Decision, effects: Vec<LoggedEffect>) {
        self.seq = decision.seq;
        self.now = self.now.max(decision.now);
        self.next_input = self.next_input.max(Some(decision.next_input));
        if !effects.is_empty() {
            self.pending.insert(decision.seq, effects);
        }
        // A decision cannot vouch for its own effects: they are performed after it.
        self.effects_done = self.effects_done.max(decision.effects_done.min(decision.seq - 1));
        self.pending = self.pending.split_off(&self.effects_done.saturating_add(1));
    }
}
