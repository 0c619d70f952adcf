//! The life of an owner: inputs in, one append in flight, effects out.

mod append;
mod timing;

use super::{
    failure::Failure,
    feed::{FeedEvent, Tap},
    machine::Machine,
    partition::{Shared, Stop},
    performer::{Performed, Performer, Resend},
    report::count,
    stepper::{Input, Prepared, Received, Stepper},
    takeover::Taken,
};
use crate::telemetry::ActiveSpan;
use futures::future::BoxFuture;
use starling_bus::{Delivered, InRecord, OutRecord, PartitionId};
use starling_engine::coordinator::{Counters, Event, FleetView, KnownAgents, Milestone};
use starling_engine::statelog::{Batch, Owner};
use starling_protocol::{
    DeadReason, DecodeError, Envelope,
    state::{SnapshotChunk, StateRecord},
};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// The least time between two ticks from which nothing followed, should a machine ask for one again at once.
const TICK_PAUSE: Duration = Duration::from_millis(10);
/// The least time between two reports of load.
const REPORT_PAUSE: Duration = Duration::from_millis(250);

/// An owner with everything that it drops when it is not the owner any more.
pub(super) struct Live<'a, M> {
    shared: &'a Shared<M>,
    state: PartitionId,
    owner: Box<Owner>,
    stepper: Stepper<M>,
    inbox: Tap,
    /// Offset of the inbox from which on nothing was received.
    next_received: i64,
    /// Received, but its schema has to be asked for. Nothing after it is received meanwhile.
    unread: Option<Unread>,
    /// Received, not stepped.
    waiting: VecDeque<Input>,
    /// Bytes of the records among them.
    waiting_bytes: usize,
    /// Stepped, but too much for the last decision: the first of the next.
    carry: Option<Prepared>,
    appending: Option<Appending>,
    /// A snapshot that is being appended.
    chunks: VecDeque<SnapshotChunk>,
    performer: Performer,
    fleet: watch::Receiver<FleetView>,
    fleet_speaks: bool,
    agents: Option<watch::Receiver<Arc<KnownAgents>>>,
    start_input: i64,
    backlog_end: i64,
    caught_up: bool,
    since_snapshot: (u64, usize),
    /// Bytes of the last snapshot, as far as it was written.
    snapshot_size: usize,
    last_decision: Instant,
    tick_not_before: Option<Instant>,
    last_report: Instant,
    /// Something has happened since.
    report_due: bool,
    told: Counters,
    /// When everything has to be finished, once the partition is being given back.
    stop_by: Option<Instant>,
}

/// The one record that is under way to the state log.
struct Appending {
    record: StateRecord,
    delivery: BoxFuture<'static, Result<Delivered, Failure>>,
    bytes: usize,
    along: Vec<Along>,
}

/// A record of the inbox whose schema is not known yet.
struct Unread {
    record: InRecord,
    at: Instant,
    envelope: BoxFuture<'static, Result<Envelope, String>>,
}

/// What belongs to a step of the decision under way, and is due once that is confirmed.
struct Along {
    sends: Vec<Option<ActiveSpan>>,
    notices: Vec<OutRecord>,
    _span: Option<ActiveSpan>, // ends with the confirmation
    received: Option<Instant>,
    dead_letters: Vec<DeadReason>,
    milestones: Vec<Milestone>,
}

impl<'a, M: Machine> Live<'a, M> {
    pub(super) fn new(shared: &'a Shared<M>, number: i32, taken: Taken<M>, poison: Option<i64>) -> Self {
        let Taken { owner, machine, inbox, start_input, backlog_end, since_snapshot } = taken;
        let options = &shared.options;
        let resend = Resend { min: options.resend_min, max: options.resend_max };
        let mut fleet = shared.fleet.clone();
        fleet.mark_changed(); // the machine has not seen it
        let mut agents = shared.agents.clone();
        agents.iter_mut().for_each(watch::Receiver::mark_changed); // it was made a while ago
        let position = owner.position();
        let next_received = start_input;
        let performer = Performer::new(shared.bus.clone(), shared.encoder.schemas.clone(), resend);
        for (seq, effects) in owner.pending() {
            effects.iter().for_each(|effect| performer.perform(seq, effect, None));
        }
        count(&shared.reporter.counters.effects_repeated, performer.len());
        let now = position.now;
        Self {
            shared,
            state: shared.state(number),
            owner,
            stepper: Stepper {
                machine,
                encoder: shared.encoder.clone(),
                counters: shared.reporter.counters.clone(),
                clock: shared.clock.clone(),
                group: options.group.as_str().into(),
                number,
                partitions: shared.partitions,
                now,
                poison,
            },
            inbox,
            next_received,
            unread: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            carry: None,
            appending: None,
            chunks: VecDeque::new(),
            performer,
            fleet,
            fleet_speaks: true,
            agents,
            start_input,
            backlog_end,
            caught_up: next_received >= backlog_end,
            since_snapshot: (since_snapshot, 0),
            snapshot_size: 0,
            last_decision: Instant::now(),
            tick_not_before: None,
            last_report: Instant::now(),
            report_due: true,
            told: Counters::default(),
            stop_by: None,
        }
    }

    /// Decides until the partition is given back: then nothing is left undone, if there was time.
    pub(super) async fn run(&mut self, stop: &mut watch::Receiver<Stop>) -> Result<(), Failure> {
        self.report();
        loop {
            self.append_next()?;
            if self.report_due && self.last_report.elapsed() >= REPORT_PAUSE {
                self.report();
            }
            if self.is_finished() {
                return Ok(());
            }
            let stopping = self.stop_by.is_some();
            let has_room = !stopping && self.has_room();
            let wake_at = self.wake_at();
            tokio::select! {
                biased;
                () = Stop::wanted(stop), if !stopping => self.give_back(),
                appended = delivery_of(&mut self.appending) => self.appended(appended?).await?,
                performed = self.performer.next() => self.performed(performed)?,
                envelope = reading_of(&mut self.unread), if !stopping => self.now_read(envelope),
                event = self.inbox.next(), if has_room && self.unread.is_none() => self.received(event)?,
                changed = self.fleet.changed(), if has_room && self.fleet_speaks => {
                    self.fleet_speaks = changed.is_ok();
                    let view = self.fleet.borrow_and_update().clone();
                    self.waiting.push_back(Input::Event(Event::Fleet(view)));
                }
                known = changed_agents(&mut self.agents), if has_room => {
                    self.waiting.push_back(Input::Event(Event::Agents(known)));
                }
                () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {}
            }
        }
    }

    // ---- inputs ----

    fn has_room(&self) -> bool {
        let options = &self.shared.options;
        self.waiting.len() < options.max_batch.saturating_mul(2)
            && self.waiting_bytes < options.max_batch_bytes.saturating_mul(2)
    }

    fn received(&mut self, event: Option<FeedEvent>) -> Result<(), Failure> {
        match event {
            Some(FeedEvent::Record(record)) => self.received_record(record),
            Some(FeedEvent::End(next)) if next >= self.backlog_end && !self.caught_up => {
                self.waiting.push_back(Input::BacklogRead);
            }
            Some(FeedEvent::End(_)) => {}
            Some(FeedEvent::OutOfRange(offset)) => return Err(Failure::InboxOutOfRange { offset }),
            None => return Err(Failure::Fatal("the reader of the inbox has ended".into())),
        }
        Ok(())
    }

    fn received_record(&mut self, record: InRecord) {
        if record.offset < self.next_received {
            count(&self.shared.reporter.counters.repeated_inputs, 1);
            return;
        }
        self.next_received = record.offset.saturating_add(1);
        self.shared.hops.observe(record.timestamp, self.shared.clock.now());
        let (schemas, at) = (&self.shared.encoder.schemas, Instant::now());
        match schemas.codec().decode(record.value()) {
            Err(error) if error.is_newer() || matches!(error, DecodeError::UnknownSchemaId { .. }) => {
                let (schemas, value) = (schemas.clone(), record.payload.clone().unwrap_or_default());
                let envelope = Box::pin(async move { schemas.read_in_order(&value).await });
                self.unread = Some(Unread { record, at, envelope });
            }
            decoded => self.take_in(record, at, decoded.map_err(|error| error.to_string())),
        }
    }

    /// The schema that had to be asked for is there, or never will be.
    fn now_read(&mut self, envelope: Result<Envelope, String>) {
        if let Some(Unread { record, at, .. }) = self.unread.take() {
            self.take_in(record, at, envelope);
        }
    }

    fn take_in(&mut self, record: InRecord, at: Instant, envelope: Result<Envelope, String>) {
        let bytes = record.size();
        self.waiting_bytes += bytes;
        self.waiting.push_back(Input::Record(Box::new(Received { record, envelope, bytes, at })));
        if self.next_received >= self.backlog_end && !self.caught_up {
            self.waiting.push_back(Input::BacklogRead);
        }
    }

    // ---- decisions ----

    /// Begins to append whatever is due, unless something is under way.
    fn append_next(&mut self) -> Result<(), Failure> {
        if self.appending.is_some() {
            return Ok(());
        }
        if let Some(chunk) = self.chunks.pop_front() {
            return self.append(StateRecord::SnapshotChunk(chunk), Vec::new());
        }
        let mut batch = Batch::new(self.shared.options.max_record);
        let mut along = Vec::new();
        if self.stop_by.is_none() && self.performer.len() < self.shared.options.max_effects {
            self.fill(&mut batch, &mut along)?;
        }
        if batch.steps() == 0 && !self.mark_is_due() {
            return Ok(());
        }
        let decision = self.owner.decide(batch, self.start_input);
        self.append(StateRecord::Decision(decision), along)
    }

    /// Steps what waits, as far as it goes into one record.
    fn fill(&mut self, batch: &mut Batch, along: &mut Vec<Along>) -> Result<(), Failure> {
        while self.has_room()
            && self.unread.is_none()
            && let Some(event) = self.inbox.try_next()
        {
            self.received(Some(event))?;
        }
        if let Some(prepared) = self.carry.take() {
            self.include(prepared, batch, along);
            if self.snapshot_is_due() {
                return Ok(()); // it can only be taken when nothing is stepped that is not decided
            }
        }
        let options = &self.shared.options;
        let mut bytes = 0;
        while self.carry.is_none()
            && batch.steps() < options.max_batch
            && bytes < options.max_batch_bytes
            && let Some(input) = self.waiting.pop_front()
        {
            if let Input::Record(received) = &input {
                self.waiting_bytes = self.waiting_bytes.saturating_sub(received.bytes);
                bytes += received.bytes;
            }
            if let Some(prepared) = self.step(input)? {
                self.include(prepared, batch, along);
            }
        }
        if self.carry.is_none() && self.tick_is_due() {
            let prepared = self.stepper.event(Event::Tick)?;
            self.tick_not_before = prepared.is_vacuous().then(|| Instant::now() + TICK_PAUSE);
            self.include(prepared, batch, along);
        }
        Ok(())
    }

    fn step(&mut self, input: Input) -> Result<Option<Prepared>, Failure> {
        Ok(Some(match input {
            Input::Record(received) => self.stepper.record(*received)?,
            Input::Event(event) => self.stepper.event(event)?,
            Input::Refused { seq, event } => {
                let mut prepared = match event {
                    Some(event) => self.stepper.event(event)?,
                    None => Prepared::default(),
                };
                prepared.settles = Some(seq);
                prepared
            }
            Input::BacklogRead => {
                self.caught_up = true;
                return Ok(None);
            }
        }))
    }

    fn include(&mut self, prepared: Prepared, batch: &mut Batch, along: &mut Vec<Along>) {
        if prepared.is_vacuous() {
            return;
        }
        let Prepared { step, sends, notices, span, received, settles, dead_letters, milestones } = prepared;
        match batch.push(step) {
            Ok(()) => {
                along.push(Along { sends, notices, _span: span, received, dead_letters, milestones });
                if let Some(seq) = settles {
                    self.owner.effect_done(seq); // this very decision deals with it
                }
            }
            Err(step) => {
                let step = *step;
                self.carry = Some(Prepared {
                    step,
                    sends,
                    notices,
                    span,
                    received,
                    settles,
                    dead_letters,
                    milestones,
                });
            }
        }
    }

    // ---- effects ----

    fn performed(&mut self, performed: Performed) -> Result<(), Failure> {
        let counters = &self.shared.reporter.counters;
        match performed {
            Performed::Done { seq } => {
                count(&counters.effects_done, 1);
                self.owner.effect_done(seq);
            }
            // Nothing is dropped in silence: what people cannot be given stays undone in the log until they can.
            Performed::Refused { effect, reason, .. } if self.shared.encoder.is_dead_letter(&effect) => {
                count(&counters.effects_refused, 1);
                return Err(Failure::Fatal(format!("the dead letters take no record: {reason}")));
            }
            Performed::Refused { seq, effect, reason } => {
                count(&counters.effects_refused, 1);
                let event = self.shared.encoder.refusal(&effect, &reason);
                let (topic, partition) = (effect.topic, effect.partition);
                tracing::warn!(topic, partition, reason, "the broker refuses an effect");
                self.waiting.push_front(Input::Refused { seq, event });
            }
        }
        Ok(())
    }

    /// Whether the log is to be told that effects are done, though nothing else is to be decided.
    fn mark_is_due(&self) -> bool {
        self.owner.has_unmarked_effects()
            && (self.last_decision.elapsed() >= self.shared.options.idle_mark
                || (self.stop_by.is_some() && self.performer.len() == 0))
    }
}

/// Waits for agents that the machine has not seen; for ever if there never are any.
async fn changed_agents(agents: &mut Option<watch::Receiver<Arc<KnownAgents>>>) -> Arc<KnownAgents> {
    if let Some(agents) = agents
        && agents.changed().await.is_ok()
    {
        return agents.borrow_and_update().clone();
    }
    std::future::pending().await
}

/// The answer to the append under way; pending for ever if there is none.
async fn delivery_of(appending: &mut Option<Appending>) -> Result<Delivered, Failure> {
    match appending {
        Some(appending) => (&mut appending.delivery).await,
        None => std::future::pending().await,
    }
}

/// What the record says whose schema is being asked for; pending for ever if there is none.
async fn reading_of(unread: &mut Option<Unread>) -> Result<Envelope, String> {
    match unread {
        Some(unread) => (&mut unread.envelope).await,
        None => std::future::pending().await,
    }
}
