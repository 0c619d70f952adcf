//! One partition of the state log: which of its records count is for `engine::statelog` to say; what they say of
//! intents goes into their books.

use crate::Place;
use crate::book::{Book, Decided, Undecided};
use crate::record::{Print, origin, reason, topic_named};
use crate::said::{Said, Stamp};
use starling_engine::statelog::{LogFold, Observed, Refusal};
use starling_protocol::dead_letter::Burial;
use starling_protocol::headers::CE_SUBJECT;
use starling_protocol::ids::content_digest;
use starling_protocol::state::{Decision, Entity, EntityKey, EntityKind, LoggedEffect, StateRecord};
use starling_protocol::{Codec, Envelope, EnvelopeId, IntentId, Timestamp, Topic, TopicNames};
use std::collections::BTreeMap;

/// What is known of one partition of the state log.
#[derive(Clone, Debug)]
pub(crate) struct StateLog {
    fold: LogFold,
    /// Inputs before the offset were decided with the decision of this seq; ascending in both.
    inputs: Vec<(i64, i64)>,
    /// Seq and time of the snapshot that the log begins with, if it does not begin with its first decision.
    base: Option<Base>,
    /// Offset of each epoch's start, with what was known to be done then.
    epochs: Vec<(i64, i64)>,
    /// What is known to be done as of [`crate::Cut::done_by`].
    done: i64,
    /// Why no more of it can be read.
    pub(crate) refusal: Option<Refusal>,
}

/// Where a trimmed log begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    pub(crate) seq: i64,
    pub(crate) now: i64,
}

/// What a decision of one intent needs of its surroundings.
pub(crate) struct Reading<'l> {
    pub(crate) codec: &'l Codec,
    pub(crate) names: &'l TopicNames,
    pub(crate) partition: i32,
    /// See [`crate::Cut::done_by`].
    pub(crate) done_by: Option<i64>,
    /// Records that one book may hold.
    pub(crate) room: usize,
}

type Books = BTreeMap<IntentId, Book>;

impl StateLog {
    pub(crate) fn new(partitions: i32) -> Self {
        Self {
            fold: LogFold::new(partitions),
            inputs: Vec::new(),
            base: None,
            epochs: Vec::new(),
            done: 0,
            refusal: None,
        }
    }

    /// Takes the next record in, and notes in the books what it says.
    pub(crate) fn observe(&mut self, reading: &Reading<'_>, offset: i64, value: &[u8], books: &mut Books) {
        if self.refusal.is_some() {
            return;
        }
        let record = match reading.codec.decode::<StateRecord>(value) {
            Ok(record) => record,
            Err(error) => {
                self.refusal = Some(Refusal::Undecodable { offset, reason: error.to_string() });
                return;
            }
        };
        let decision = match &record {
            StateRecord::Decision(decision) => Some(Head::of(decision)),
            StateRecord::EpochStart(_) | StateRecord::SnapshotChunk(_) => None,
        };
        let effects = match &record {
            StateRecord::Decision(decision) => reading.effects(&decision.effects),
            StateRecord::EpochStart(_) | StateRecord::SnapshotChunk(_) => Vec::new(),
        };
        let observed = match self.fold.observe(offset, record) {
            Ok(observed) => observed,
            Err(refusal) => {
                self.refusal = Some(refusal);
                return;
            }
        };
        match (observed, decision) {
            (Observed::Epoch, _) => {
                let done = self.fold.position().map_or(0, |position| position.effects_done);
                self.epochs.push((offset, done));
            }
            (Observed::Decision { changed, deleted }, Some(head)) => {
                if self.inputs.last().is_none_or(|(next, _)| *next < head.next_input) {
                    self.inputs.push((head.next_input, head.seq));
                }
                for entity in &changed {
                    if let Some(book) = books.get_mut(&entity.key().intent_id) {
                        book.state.changed(head.seq, head.now, entity);
                    }
                }
                for EntityKey { intent_id, kind, .. } in &deleted {
                    if *kind == EntityKind::Intent
                        && let Some(book) = books.get_mut(intent_id)
                    {
                        book.state.gone(head.seq);
                    }
                }
                for effect in effects {
                    if let Some(book) = books.get_mut(&effect.intent) {
                        book.decide(
                            effect.decided(reading.partition, offset, head.seq, head.now),
                            reading.room,
                        );
                    }
                }
            }
            (Observed::Ignored(_), Some(_)) => {
                for effect in effects {
                    if let Some(book) = books.get_mut(&effect.intent) {
                        book.undecided.push(Undecided { print: effect.print, state: offset });
                    }
                }
            }
            (Observed::Base(entities), _) => self.begin(reading, offset, &entities, books),
            _ => {}
        }
        if reading.done_by.is_none_or(|end| offset < end)
            && let Some(position) = self.fold.position()
        {
            self.done = position.effects_done;
        }
    }

    /// The log begins with a snapshot: what lay before it is only known by its result.
    fn begin(&mut self, reading: &Reading<'_>, offset: i64, entities: &[Entity], books: &mut Books) {
        let Some(position) = self.fold.position() else { return };
        let next_input = position.next_input.unwrap_or(0);
        self.base = Some(Base { seq: position.seq, now: position.now.0 });
        self.inputs.push((next_input, position.seq));
        for entity in entities {
            if let Some(book) = books.get_mut(&entity.key().intent_id) {
                book.state.changed(position.seq, position.now.0, entity);
                book.state.from_base = true;
            }
        }
        for (seq, effects) in &position.pending {
            for effect in reading.effects(effects) {
                if let Some(book) = books.get_mut(&effect.intent) {
                    book.decide(
                        effect.decided(reading.partition, offset, *seq, position.now.0),
                        reading.room,
                    );
                }
            }
        }
    }

    /// The decision with which the input at `offset` was decided; `None` if it was not.
    pub(crate) fn decision_of(&self, offset: i64) -> Option<i64> {
        let at = self.inputs.partition_point(|(next, _)| *next <= offset);
        self.inputs.get(at).map(|(_, seq)| *seq)
    }

    /// The offsets of the inbox that the decision of `seq` took in.
    pub(crate) fn inputs_of(&self, seq: i64) -> Option<std::ops::Range<i64>> {
        let at = self.inputs.binary_search_by_key(&seq, |(_, seq)| *seq).ok()?;
        let from = at.checked_sub(1).and_then(|before| self.inputs.get(before)).map_or(0, |(next, _)| *next);
        self.inputs.get(at).map(|(next, _)| from..*next)
    }

    /// Where the log begins, if its first decisions are gone.
    pub(crate) fn base(&self) -> Option<Base> {
        self.base
    }

    /// Whether nothing at all of the log counts: it was not read, or must not be believed.
    pub(crate) fn is_void(&self) -> bool {
        self.refusal.is_some() || (self.base.is_none() && self.fold.position().is_none())
    }

    /// Whether the log says that the effects of that decision are done.
    pub(crate) fn is_done(&self, seq: i64) -> bool {
        seq <= self.done
    }

    /// How many owners after that of the decision could not know whether its effects were done.
    pub(crate) fn takeovers(&self, decided: &Decided) -> usize {
        let undone = |(start, done): &&(i64, i64)| *start > decided.state && *done < decided.seq;
        self.epochs.iter().filter(undone).count()
    }
}

/// What of a decision is needed after it was judged.
struct Head {
    seq: i64,
    now: i64,
    next_input: i64,
}

impl Head {
    fn of(decision: &Decision) -> Self {
        Self { seq: decision.seq, now: decision.now.0, next_input: decision.next_input }
    }
}

/// An effect that can be told whose it is.
struct ReadEffect {
    intent: IntentId,
    topic: Topic,
    partition: i32,
    stamp: Stamp,
    said: Said,
    print: Print,
    digest: String,
    origin: Option<Place>,
}

impl ReadEffect {
    fn decided(self, number: i32, state: i64, seq: i64, now: i64) -> Decided {
        let Self { topic, partition, stamp, said, print, digest, origin, .. } = self;
        Decided { number, state, seq, now, topic, partition, stamp, said, print, digest, origin }
    }
}

impl Reading<'_> {
    fn effects(&self, effects: &[LoggedEffect]) -> Vec<ReadEffect> {
        effects.iter().filter_map(|effect| self.effect(effect)).collect()
    }

    fn effect(&self, effect: &LoggedEffect) -> Option<ReadEffect> {
        let topic = topic_named(self.names, &effect.topic)?;
        let print = Print::of_effect(&topic, effect);
        let digest = content_digest(&effect.payload);
        let envelope: Option<Envelope> = self.codec.decode(&effect.payload).ok();
        if topic == Topic::Dlq {
            let (origin, reason, subject) = letter_of(self.names, effect);
            let intent = envelope.as_ref().map(|envelope| envelope.intent_id.clone()).or(subject)?;
            let (id, created_at) = envelope
                .map_or_else(|| (EnvelopeId::from_string(""), Timestamp(0)), |e| (e.id, e.created_at));
            return Some(ReadEffect {
                intent,
                topic,
                partition: effect.partition,
                stamp: Stamp { id, created_at },
                said: Said::Letter { reason },
                print,
                digest,
                origin,
            });
        }
        let envelope = envelope?;
        Some(ReadEffect {
            topic,
            partition: effect.partition,
            said: Said::of(&envelope.body),
            intent: envelope.intent_id,
            stamp: Stamp { id: envelope.id, created_at: envelope.created_at },
            print,
            digest,
            origin: None,
        })
    }
}

fn letter_of(names: &TopicNames, effect: &LoggedEffect) -> (Option<Place>, String, Option<IntentId>) {
    let headers: Vec<(String, &[u8])> =
        effect.headers.iter().map(|header| (header.name.clone(), header.value.as_slice())).collect();
    let burial = Burial::read(&headers);
    let subject = headers.iter().find(|(name, _)| name == CE_SUBJECT);
    let subject = subject.and_then(|(_, value)| std::str::from_utf8(value).ok()).map(IntentId::from_string);
    (burial.as_ref().and_then(|burial| origin(names, burial)), reason(burial.as_ref()), subject)
}
