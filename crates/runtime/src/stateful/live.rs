//! The life of an owner: inputs in, one append in flight, effects out.

use super::{
    failure::Failure,
    feed::{FeedEvent, Tap, size_of},
    machine::Machine,
    partition::{Shared, Stop},
    performer::{Performed, Performer, Resend},
    report::{PartitionPhase, PartitionStatus, count},
    stepper::{Input, Prepared, Received, Stepper},
    takeover::{Taken, decode, encode, next_record},
};
use crate::telemetry::ActiveSpan;
use futures::{FutureExt as _, future::BoxFuture};
use starling_bus::{Delivered, InRecord, OutRecord, PartitionId, SendError, StartAt};
use starling_engine::coordinator::{Event, FleetView};
use starling_engine::statelog::{Batch, Observed, Owner, Placed};
use starling_protocol::Timestamp;
use starling_protocol::state::{SnapshotChunk, StateRecord};
use std::{collections::VecDeque, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
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
    start_input: i64,
    backlog_end: i64,
    caught_up: bool,
    since_snapshot: (u64, usize),
    last_decision: Instant,
    tick_not_before: Option<Instant>,
    last_report: Instant,
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

/// What belongs to a step of the decision under way, and is due once that is confirmed.
struct Along {
    sends: Vec<Option<ActiveSpan>>,
    notices: Vec<OutRecord>,
    _span: Option<ActiveSpan>, // ends with the confirmation
    received: Option<Instant>,
    dead_letters: usize,
}

impl<'a, M: Machine> Live<'a, M> {
    pub(super) fn new(shared: &'a Shared<M>, number: i32, taken: Taken<M>, poison: Option<i64>) -> Self {
        let Taken { owner, machine, inbox, start_input, backlog_end, since_snapshot } = taken;
        let options = &shared.options;
        let resend = Resend { min: options.resend_min, max: options.resend_max };
        let mut fleet = shared.fleet.clone();
        fleet.mark_changed(); // the machine has not seen it
        let position = owner.position();
        let next_received = start_input;
        let performer = Performer::new(shared.bus.clone(), resend);
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
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            carry: None,
            appending: None,
            chunks: VecDeque::new(),
            performer,
            fleet,
            fleet_speaks: true,
            start_input,
            backlog_end,
            caught_up: next_received >= backlog_end,
            since_snapshot: (since_snapshot, 0),
            last_decision: Instant::now(),
            tick_not_before: None,
            last_report: Instant::now(),
            stop_by: None,
        }
    }

    /// Decides until the partition is given back: then nothing is left undone, if there was time.
    pub(super) async fn run(&mut self, stop: &mut watch::Receiver<Stop>) -> Result<(), Failure> {
        self.report();
        loop {
            self.append_next()?;
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
                performed = self.performer.next() => self.performed(performed),
                event = self.inbox.next(), if has_room => self.received(event)?,
                changed = self.fleet.changed(), if has_room && self.fleet_speaks => {
                    self.fleet_speaks = changed.is_ok();
                    let view = self.fleet.borrow_and_update().clone();
                    self.waiting.push_back(Input::Event(Event::Fleet(view)));
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
        let decoded = self.shared.encoder.codec.decode(record.value());
        let bytes = size_of(&record);
        self.waiting_bytes += bytes;
        let envelope = decoded.map_err(|error| error.to_string());
        let received = Received { record, envelope, bytes, at: Instant::now() };
        self.waiting.push_back(Input::Record(Box::new(received)));
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
        while self.has_room() && let Some(event) = self.inbox.try_next() {
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
        let Prepared { step, sends, notices, span, received, settles, dead_letters } = prepared;
        match batch.push(step) {
            Ok(()) => {
                along.push(Along { sends, notices, _span: span, received, dead_letters });
                if let Some(seq) = settles {
                    self.owner.effect_done(seq); // this very decision deals with it
                }
            }
            Err(step) => {
                let step = *step;
                self.carry =
                    Some(Prepared { step, sends, notices, span, received, settles, dead_letters });
            }
        }
    }

    fn append(&mut self, record: StateRecord, along: Vec<Along>) -> Result<(), Failure> {
        let payload = encode(self.shared, &record)?;
        let bytes = payload.len();
        let record_out =
            OutRecord { to: self.state.clone(), key: None, headers: Vec::new(), payload: Some(payload.into()) };
        let delivery = self.shared.bus.send(record_out);
        let limit = self.shared.options.append_timeout;
        let delivery = timeout(limit, delivery).map(|result| match result {
            Ok(Ok(delivered)) => Ok(delivered),
            Ok(Err(error @ SendError::Refused { .. })) => {
                tracing::error!(%error, "the state log does not take records that the settings allow");
                Err(Failure::Uncertain(error.to_string()))
            }
            Ok(Err(error)) => Err(Failure::Uncertain(error.to_string())),
            Err(_) => Err(Failure::Uncertain("an append was not answered in time".into())),
        });
        self.appending = Some(Appending { record, delivery: delivery.boxed(), bytes, along });
        Ok(())
    }

    /// The record under way was acknowledged. Whether it counts is for the log to say.
    async fn appended(&mut self, delivered: Delivered) -> Result<(), Failure> {
        let Some(Appending { record, bytes, along, .. }) = self.appending.take() else { return Ok(()) };
        let Some(offset) = delivered.offset else {
            return Err(Failure::Uncertain("the broker did not say where the record lies".into()));
        };
        match self.owner.placed(offset) {
            Placed::Next => {}
            Placed::Later { from } => self.read_between(from, offset).await?,
            Placed::Impossible => {
                return Err(Failure::Uncertain(format!("a record was acknowledged at offset {offset}, in the past")));
            }
        }
        match self.owner.observe(offset, record)? {
            Observed::Decision { .. } => self.confirmed(bytes, along),
            Observed::SnapshotPart => {}
            Observed::Snapshot => self.snapshot_confirmed(),
            Observed::Epoch | Observed::Base(_) | Observed::Ignored(_) => return Err(Failure::Fenced),
        }
        Ok(())
    }

    /// Others have written to the log: judges what they wrote, up to the own record.
    async fn read_between(&mut self, from: i64, own: i64) -> Result<(), Failure> {
        let mut tap = self.shared.logs.tap(self.state.clone(), StartAt::Offset(from)).await?;
        loop {
            let record = next_record(self.shared, &mut tap, own).await?;
            if record.offset >= own {
                return Ok(());
            }
            self.owner.observe(record.offset, decode(self.shared, &record)?)?;
        }
    }

    fn confirmed(&mut self, bytes: usize, along: Vec<Along>) {
        let counters = &self.shared.reporter.counters;
        let seq = self.owner.position().seq;
        count(&counters.decisions, 1);
        count(&counters.decision_bytes, bytes);
        let mut spans = Vec::new();
        for Along { sends, notices, _span, received, dead_letters } in along {
            spans.extend(sends);
            notices.into_iter().for_each(|notice| drop(self.shared.bus.send(notice)));
            count(&counters.dead_letters, dead_letters);
            if let Some(received) = received {
                count(&counters.inputs, 1);
                self.shared.metrics.decision_seconds.observe(received.elapsed().as_secs_f64());
            }
        }
        let spans = spans.into_iter().chain(std::iter::repeat_with(|| None));
        for (effect, span) in self.owner.effects_of(seq).iter().zip(spans) {
            self.performer.perform(seq, effect, span);
        }
        self.last_decision = Instant::now();
        self.since_snapshot.0 += 1;
        self.since_snapshot.1 += bytes;
        if let Some(next) = self.owner.position().next_input {
            self.shared.committer.note(&self.shared.inbox(self.stepper.number), next);
        }
        if self.snapshot_is_due() && self.carry.is_none() && self.stop_by.is_none() {
            let entities = self.stepper.machine.entities();
            let limit = self.shared.options.max_record;
            self.chunks = self.owner.snapshot(entities, self.start_input, limit).into();
        }
        if self.last_report.elapsed() >= REPORT_PAUSE {
            self.report();
        }
    }

    // ---- snapshots ----

    fn snapshot_is_due(&self) -> bool {
        let (decisions, bytes) = self.since_snapshot;
        decisions >= self.shared.options.snapshot_decisions || bytes >= self.shared.options.snapshot_bytes
    }

    fn snapshot_confirmed(&mut self) {
        self.since_snapshot = (0, 0);
        count(&self.shared.reporter.counters.snapshots, 1);
        if let Some(hint) = self.owner.last_snapshot() {
            self.shared.committer.note(&self.state, hint);
        }
        if let Some(offset) = self.owner.trim_to() {
            let (bus, state) = (self.shared.bus.clone(), self.state.clone());
            // Trimming what an owner has confirmed is right whoever owns the partition by then.
            tokio::spawn(async move {
                if let Err(error) = bus.trim(&state, offset).await {
                    tracing::warn!(%error, %state, offset, "the state log was not trimmed");
                }
            });
        }
    }

    // ---- effects ----

    fn performed(&mut self, performed: Performed) {
        let counters = &self.shared.reporter.counters;
        match performed {
            Performed::Done { seq } => {
                count(&counters.effects_done, 1);
                self.owner.effect_done(seq);
            }
            Performed::Refused { seq, effect, reason } => {
                count(&counters.effects_refused, 1);
                let event = self.shared.encoder.refusal(&effect, &reason);
                let (topic, partition) = (effect.topic, effect.partition);
                if event.is_none() {
                    tracing::error!(topic, partition, reason, "a dead letter is lost: the broker refuses it");
                } else {
                    tracing::warn!(topic, partition, reason, "the broker refuses an effect");
                }
                self.waiting.push_front(Input::Refused { seq, event });
            }
        }
    }

    /// Whether the log is to be told that effects are done, though nothing else is to be decided.
    fn mark_is_due(&self) -> bool {
        self.owner.has_unmarked_effects()
            && (self.last_decision.elapsed() >= self.shared.options.idle_mark
                || (self.stop_by.is_some() && self.performer.len() == 0))
    }

    // ---- time ----

    fn tick_is_due(&self) -> bool {
        self.caught_up
            && self.tick_not_before.is_none_or(|not_before| Instant::now() >= not_before)
            && self.stepper.machine.next_timer().is_some_and(|timer| timer <= self.time())
    }

    fn time(&self) -> Timestamp {
        self.stepper.now.max(self.shared.clock.now())
    }

    /// When there will be something to append, if nothing else happens.
    fn wake_at(&self) -> Option<Instant> {
        if self.stop_by.is_some() || self.appending.is_some() {
            return self.stop_by;
        }
        let mark = self
            .owner
            .has_unmarked_effects()
            .then(|| self.last_decision + self.shared.options.idle_mark);
        let may_decide = self.caught_up && self.performer.len() < self.shared.options.max_effects;
        let timer = self.stepper.machine.next_timer().filter(|_| may_decide).map(|timer| {
            // A timer may be years away; nothing sleeps that long.
            let at = Instant::now() + timer.since(self.time()).min(Duration::from_secs(3600));
            self.tick_not_before.map_or(at, |not_before| at.max(not_before))
        });
        mark.into_iter().chain(timer).min()
    }

    // ---- giving back ----

    /// No more is taken; what was stepped or waits is left to the next owner.
    fn give_back(&mut self) {
        // Committing and acknowledging take some of the time, too.
        self.stop_by = Some(Instant::now() + self.shared.options.revoke_timeout.mul_f64(0.7));
        self.waiting.clear();
        self.carry = None;
        self.chunks.clear();
    }

    fn is_finished(&self) -> bool {
        let Some(stop_by) = self.stop_by else { return false };
        let all_done =
            self.appending.is_none() && self.performer.len() == 0 && !self.owner.has_unmarked_effects();
        all_done || Instant::now() >= stop_by
    }

    fn report(&mut self) {
        self.last_report = Instant::now();
        let phase = if self.caught_up { PartitionPhase::Live } else { PartitionPhase::CatchingUp };
        let status = PartitionStatus {
            phase,
            seq: self.owner.position().seq,
            effects_outstanding: self.owner.effects_outstanding(),
            load: self.stepper.machine.load(),
            counters: self.stepper.machine.counters(),
        };
        self.shared.reporter.status(self.stepper.number, status);
    }
}

/// The answer to the append under way; pending for ever if there is none.
async fn delivery_of(appending: &mut Option<Appending>) -> Result<Delivered, Failure> {
    match appending {
        Some(appending) => (&mut appending.delivery).await,
        None => std::future::pending().await,
    }
}
