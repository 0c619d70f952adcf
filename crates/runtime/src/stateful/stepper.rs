//! From one input to a step that can be written.

use super::{
    encode::Encoder,
    failure::Failure,
    machine::Machine,
    report::{StatefulCounters, count},
};
use crate::{
    clock::Clock,
    dead_letter::Reason,
    telemetry::{ActiveSpan, Processed},
    wire::reference,
};
use starling_bus::{InRecord, OutRecord};
use starling_engine::coordinator::{Changes, Effect, Event, Milestone};
use starling_engine::statelog::{Batch, Step, upper_bound};
use starling_protocol::state::{Entity, EntityKey};
use starling_protocol::{DeadReason, Envelope, EnvelopeId, Timestamp, topic::partition_of};
use std::{collections::VecDeque, sync::Arc};
use tokio::time::Instant;

/// Something to be decided.
#[derive(Debug)]
pub(super) enum Input {
    /// A record of the inbox.
    Record(Box<Received>),
    /// What waited at the takeover has been read.
    BacklogRead,
    /// The broker refused an effect of decision `seq`; the machine is to be told, if it concerns an
    /// intent.
    Refused { seq: i64, event: Option<Event> },
    /// Something else.
    Event(Event),
}

/// A record of the inbox, decoded while it waited.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) record: InRecord,
    pub(super) envelope: Result<Envelope, String>,
    pub(super) bytes: usize,
    pub(super) at: Instant,
}

/// A step, with what goes along with it but is not logged.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    pub(super) step: Step,
    /// For each effect of the step.
    pub(super) sends: Vec<Option<ActiveSpan>>,
    /// Sent once the step is confirmed.
    pub(super) notices: Vec<OutRecord>,
    /// The span in which the input is processed; it lasts until the decision is confirmed.
    pub(super) span: Option<ActiveSpan>,
    /// When the input came.
    pub(super) received: Option<Instant>,
    /// Seq of the refused effect that this deals with.
    pub(super) settles: Option<i64>,
    pub(super) dead_letters: Vec<DeadReason>,
    /// Counted once the step is confirmed.
    pub(super) milestones: Vec<Milestone>,
}

impl Prepared {
    /// Whether there is nothing in it that the log or anybody has to know.
    pub(super) fn is_vacuous(&self) -> bool {
        let Step { next_input, changed, deleted, effects, .. } = &self.step;
        next_input.is_none()
            && changed.is_empty()
            && deleted.is_empty()
            && effects.is_empty()
            && self.notices.is_empty()
            && self.settles.is_none()
    }
}

/// Steps a machine.
pub(super) struct Stepper<M> {
    pub(super) machine: M,
    pub(super) encoder: Arc<Encoder>,
    pub(super) counters: StatefulCounters,
    pub(super) clock: Clock,
    pub(super) group: Arc<str>,
    pub(super) number: i32,
    pub(super) partitions: i32,
    /// What was said last; `now` never falls.
    pub(super) now: Timestamp,
    /// An input whose consequences could not be written in the last epoch.
    pub(super) poison: Option<i64>,
}

impl<M: Machine> Stepper<M> {
    /// The present instant, never before an earlier one.
    pub(super) fn tick(&mut self) -> Timestamp {
        self.now = self.now.max(self.clock.now());
        self.now
    }

    pub(super) fn record(&mut self, received: Received) -> Result<Prepared, Failure> {
        let now = self.tick();
        let Received { record, envelope, at, .. } = received;
        let mut prepared = Prepared { received: Some(at), ..Prepared::default() };
        prepared.step.now = now;
        prepared.step.next_input = Some(record.offset.saturating_add(1));
        let span = self.encoder.spans.process(Processed {
            at: &record.at,
            offset: record.offset,
            group: &self.group,
            traceparent: record.header("traceparent"),
            intent: envelope.as_ref().ok().map(|envelope| &envelope.intent_id),
        });
        let trace = span.traceparent().to_string();
        prepared.span = Some(span);

        if self.poison == Some(record.offset) {
            let limit = self.encoder.max_record;
            let reason = format!("what follows from it does not fit into a record of {limit} bytes");
            self.dead_letter(&mut prepared, &record, Reason::new(DeadReason::Unfit, reason));
            return Ok(prepared);
        }
        let event = match envelope {
            Err(reason) => {
                Event::Undecodable { at_partition: record.at.partition, at_offset: record.offset, reason }
            }
            Ok(envelope) => {
                let right = partition_of(envelope.intent_id.as_str(), self.partitions);
                if right != self.number {
                    let reason = format!(
                        "intent {} belongs to partition {right} of {}, not to {}",
                        envelope.intent_id, self.partitions, self.number
                    );
                    self.dead_letter(&mut prepared, &record, Reason::new(DeadReason::Misplaced, reason));
                    return Ok(prepared);
                }
                let at = reference(&record, &envelope);
                Event::Received { envelope, at, trace }
            }
        };
        self.step(event, Some(&record), &mut prepared)?;
        Ok(prepared)
    }

    /// Steps an event that came from elsewhere.
    pub(super) fn event(&mut self, event: Event) -> Result<Prepared, Failure> {
        let mut prepared = Prepared::default();
        prepared.step.now = self.tick();
        self.step(event, None, &mut prepared)?;
        Ok(prepared)
    }

    /// Steps an event, and what follows from effects that can never be sent, until everything fits.
    fn step(
        &mut self,
        event: Event,
        record: Option<&InRecord>,
        prepared: &mut Prepared,
    ) -> Result<(), Failure> {
        // Each refusal takes something away; so many mean that the machine puts it back.
        const MOST: usize = 1_024;
        let mut due = VecDeque::from([event]);
        for _ in 0..MOST {
            let Some(event) = due.pop_front() else {
                if Batch::can_hold(self.encoder.max_record, prepared.step.size()) {
                    return Ok(());
                }
                match self.take_largest(prepared) {
                    Some(refused) => due.push_back(refused),
                    None => break,
                }
                continue;
            };
            for effect in self.machine.step(prepared.step.now, event) {
                if let Some(refused) = self.take(effect, record, prepared) {
                    count(&self.counters.effects_refused, 1);
                    due.push_back(refused);
                }
            }
            absorb(&mut prepared.step, self.machine.take_changes());
            prepared.milestones.extend(self.machine.take_milestones());
        }
        Err(Failure::Unfit { offset: record.map(|record| record.offset), limit: self.encoder.max_record })
    }

    /// Adds an effect; if it can never be sent, says what the machine is to be told.
    fn take(&self, effect: Effect, record: Option<&InRecord>, prepared: &mut Prepared) -> Option<Event> {
        match effect {
            Effect::Send { to, envelope, trace, links, priority } => {
                match self.encoder.send(&to, &envelope, &trace, &links, priority) {
                    Ok((effect, span)) => {
                        prepared.step.effects.push(effect);
                        prepared.sends.push(Some(span));
                    }
                    Err(refused) => return Some(*refused),
                }
            }
            Effect::DeadLetter { at_offset, code, reason, .. } => match record {
                Some(record) if record.offset == at_offset => {
                    self.dead_letter(prepared, record, Reason::new(code, reason));
                }
                _ => tracing::error!(at_offset, reason, "a dead letter of a record that is not at hand"),
            },
            Effect::Notify { envelope } => {
                let trace = prepared.span.as_ref().map_or("", |span| span.traceparent());
                prepared.notices.extend(self.encoder.notice(&envelope, trace));
            }
        }
        None
    }

    fn dead_letter(&self, prepared: &mut Prepared, record: &InRecord, reason: Reason) {
        tracing::warn!(
            partition = record.at.partition, offset = record.offset, code = %reason.code, reason = reason.text,
            "dead letter"
        );
        if let Some(span) = &mut prepared.span {
            span.fail(&reason.text);
        }
        let letter = self.encoder.dead_letter(record, &reason, prepared.step.now);
        prepared.step.effects.push(letter);
        prepared.sends.push(None);
        prepared.dead_letters.push(reason.code);
    }

    /// A step that is too large loses its largest envelope, or the intent of its largest entity is given
    /// up: what the machine is to be told. Dead letters stay.
    fn take_largest(&self, prepared: &mut Prepared) -> Option<Event> {
        let reason = format!(
            "what follows from one input takes more than a record of {} bytes has room for",
            self.encoder.max_record
        );
        let Prepared { step, sends, .. } = prepared;
        let envelopes = step.effects.iter().zip(&*sends).enumerate().filter(|(_, (_, span))| span.is_some());
        let effect = envelopes.map(|(at, (effect, _))| (upper_bound(effect), at)).max();
        let entity = step.changed.iter().enumerate().map(|(at, entity)| (upper_bound(entity), at)).max();
        let refused = match (effect, entity) {
            (Some((size, at)), entity) if entity.is_none_or(|(other, _)| size >= other) => {
                sends.remove(at);
                self.encoder.refusal(&step.effects.remove(at), &reason)
            }
            (_, Some((_, at))) => step.changed.get(at).map(|entity| entity_refused(entity, reason)),
            _ => None,
        };
        count(&self.counters.effects_refused, usize::from(refused.is_some()));
        refused
    }
}

fn entity_refused(entity: &Entity, reason: String) -> Event {
    let EntityKey { intent_id, task_id, .. } = entity.key();
    Event::EffectRefused {
        envelope_id: EnvelopeId::derive("state", &[intent_id.as_str()]),
        intent_id,
        task_id,
        reason,
    }
}

/// Later changes of the same entity replace earlier ones.
fn absorb(step: &mut Step, changes: Changes) {
    if step.changed.is_empty() && step.deleted.is_empty() {
        step.changed = changes.changed;
        step.deleted = changes.deleted;
        return;
    }
    for key in changes.deleted {
        step.changed.retain(|entity| entity.key() != key);
        if !step.deleted.contains(&key) {
            step.deleted.push(key);
        }
    }
    for entity in changes.changed {
        let key = entity.key();
        step.deleted.retain(|deleted| *deleted != key);
        step.changed.retain(|other| other.key() != key);
        step.changed.push(entity);
    }
}
