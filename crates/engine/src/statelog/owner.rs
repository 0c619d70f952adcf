//! The owner's side: from taking a partition over to losing it.
//!
//! [`Takeover`] → [`Replay`] → [`Owner`]. Each is consumed by the next, and none goes back: when anything
//! is uncertain, the whole is dropped and a new takeover begins. State of an old epoch is never used again.

use super::batch::Batch;
use super::effects::EffectsLedger;
use super::fold::{LogFold, Observed, Position, Refusal};
use super::size::RECORD_OVERHEAD;
use super::snapshot::{self, Stamp};
use starling_protocol::Timestamp;
use starling_protocol::state::{Decision, Entity, EpochStart, LoggedEffect, SnapshotChunk, StateRecord};

/// A process wants a partition.
#[derive(Clone, Debug)]
pub struct Takeover {
    start: EpochStart,
}

impl Takeover {
    /// Begins. `nonce` is random and used for this epoch alone.
    #[must_use]
    pub fn new(nonce: String, partitions: i32, version: String, at: Timestamp) -> Self {
        Self { start: EpochStart { nonce, partitions, version, at } }
    }

    /// What is to be appended first.
    #[must_use]
    pub fn record(&self) -> StateRecord {
        StateRecord::EpochStart(self.start.clone())
    }

    /// It was acknowledged at `offset`: the log is to be read up to there.
    #[must_use]
    pub fn appended(self, offset: i64) -> Replay {
        Replay {
            fold: LogFold::new(self.start.partitions),
            nonce: self.start.nonce,
            partitions: self.start.partitions,
            epoch: offset,
            first: None,
        }
    }
}

/// The log is being read up to the start of the own epoch.
#[derive(Debug)]
pub struct Replay {
    fold: LogFold,
    nonce: String,
    partitions: i32,
    epoch: i64,
    first: Option<i64>,
}

/// What a record of the past means for the memory that is being built.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // moved from record to record, never stored
pub enum Replayed {
    /// Something is to be applied, or nothing; the replay goes on.
    More(Replay, Observed),
    /// That was the start of the own epoch: the partition is ours.
    Owned(Box<Owner>),
}

impl Replay {
    /// Judges the next record of the log.
    ///
    /// # Errors
    /// The log must not be worked with.
    pub fn observe(mut self, offset: i64, record: StateRecord) -> Result<Replayed, Refusal> {
        let first = *self.first.get_or_insert(offset);
        if offset > self.epoch {
            return Err(Refusal::Missing { offset: self.epoch });
        }
        let observed = self.fold.observe(offset, record)?;
        if offset < self.epoch {
            return Ok(Replayed::More(self, observed));
        }
        let Some(position) = self.fold.position() else { return Err(Refusal::NoBeginning { first }) };
        if self.fold.epoch() != Some((self.epoch, self.nonce.as_str())) {
            return Err(Refusal::Missing { offset: self.epoch });
        }
        let mut ledger = EffectsLedger::new(position.seq);
        for (seq, effects) in &position.pending {
            ledger.confirmed(*seq, effects.len());
        }
        let Self { fold, nonce, partitions, epoch, .. } = self;
        Ok(Replayed::Owned(Box::new(Owner { fold, nonce, partitions, epoch, ledger })))
    }

    /// Offset of the start of the own epoch: the last record to be read.
    #[must_use]
    pub fn epoch(&self) -> i64 {
        self.epoch
    }
}

/// The owner of a partition, as far as it knows.
#[derive(Debug)]
pub struct Owner {
    fold: LogFold,
    nonce: String,
    partitions: i32,
    epoch: i64,
    ledger: EffectsLedger,
}

/// Where an acknowledged record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Right after all that was judged: give it to [`Owner::observe`].
    Next,
    /// Others have written meanwhile: read from `from` up to the own record, and let
    /// [`Owner::observe`] judge all of them.
    Later {
        /// First offset that was not judged.
        from: i64,
    },
    /// Where it cannot lie: the log is not the one that was read.
    Impossible,
}

impl Owner {
    /// The record that decides `batch`. `start_input` is where the inbox is read from if the log does not
    /// say so yet.
    #[must_use]
    pub fn decide(&self, mut batch: Batch, start_input: i64) -> Decision {
        let (changed, deleted) = batch.take_entities();
        let position = self.position();
        Decision {
            epoch: self.epoch,
            nonce: self.nonce.clone(),
            seq: position.seq + 1,
            now: position.now.max(batch.now),
            next_input: batch.next_input.max(position.next_input).unwrap_or(start_input),
            changed,
            deleted,
            effects: batch.effects,
            effects_done: self.ledger.done_up_to(),
        }
    }

    /// The whole state as chunks of records of at most `max_record_bytes`, to be appended one after the
    /// other without a decision in between.
    #[must_use]
    pub fn snapshot(
        &self,
        entities: Vec<Entity>,
        start_input: i64,
        max_record_bytes: usize,
    ) -> Vec<SnapshotChunk> {
        let position = self.position();
        let stamp = Stamp {
            epoch: self.epoch,
            nonce: self.nonce.clone(),
            partitions: self.partitions,
            next_input: position.next_input.unwrap_or(start_input),
        };
        snapshot::cut(&stamp, position, entities, max_record_bytes.saturating_sub(RECORD_OVERHEAD))
    }

    /// What to do about a record that was acknowledged at `offset`.
    #[must_use]
    pub fn placed(&self, offset: i64) -> Placed {
        let from = self.fold.next_offset();
        match offset.cmp(&from) {
            std::cmp::Ordering::Equal => Placed::Next,
            std::cmp::Ordering::Greater => Placed::Later { from },
            std::cmp::Ordering::Less => Placed::Impossible,
        }
    }

    /// Judges the next record of the log, whoever wrote it. An own decision that comes back as
    /// [`Observed::Decision`] is confirmed, and its effects are to be performed. If an own record comes
    /// back as [`Observed::Ignored`], the partition has another owner.
    ///
    /// # Errors
    /// The log must not be worked with.
    pub fn observe(&mut self, offset: i64, record: StateRecord) -> Result<Observed, Refusal> {
        let effects = match &record {
            StateRecord::Decision(decision) => decision.effects.len(),
            StateRecord::EpochStart(_) | StateRecord::SnapshotChunk(_) => 0,
        };
        let observed = self.fold.observe(offset, record)?;
        if let Observed::Decision { .. } = observed {
            self.ledger.confirmed(self.position().seq, effects);
        }
        Ok(observed)
    }

    /// Whether the log still says that this is the owner, as far as it was read.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.fold.epoch() == Some((self.epoch, self.nonce.as_str()))
    }

    /// One effect of decision `seq` is done; later decisions say so.
    pub fn effect_done(&mut self, seq: i64) {
        self.ledger.done(seq);
    }

    /// Effects that were to be performed and are not known to be done, in order.
    pub fn pending(&self) -> impl Iterator<Item = (i64, &[LoggedEffect])> {
        self.position().pending.iter().map(|(seq, effects)| (*seq, effects.as_slice()))
    }

    /// The effects of decision `seq`, if they are not known to be done.
    #[must_use]
    pub fn effects_of(&self, seq: i64) -> &[LoggedEffect] {
        self.position().pending.get(&seq).map_or(&[], Vec::as_slice)
    }

    /// Effects that are not done.
    #[must_use]
    pub fn effects_outstanding(&self) -> usize {
        self.ledger.outstanding()
    }

    /// Whether effects are done that the log does not know to be.
    #[must_use]
    pub fn has_unmarked_effects(&self) -> bool {
        let first = self.position().pending.first_key_value();
        first.is_some_and(|(seq, _)| *seq <= self.ledger.done_up_to())
    }

    /// Where the partition stands.
    #[must_use]
    #[allow(clippy::expect_used)] // an owner is only made of a log that has begun, and a log stays begun
    pub fn position(&self) -> &Position {
        self.fold.position().expect("the log has begun")
    }

    /// The own epoch.
    #[must_use]
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Where the last complete snapshot begins.
    #[must_use]
    pub fn last_snapshot(&self) -> Option<i64> {
        self.fold.last_snapshot()
    }

    /// Below this offset the log is not needed any more.
    #[must_use]
    pub fn trim_to(&self) -> Option<i64> {
        self.fold.trim_to()
    }
}
