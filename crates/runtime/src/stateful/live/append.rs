//! One append in flight, and what follows when the log accepts it.

use super::{Along, Appending, Live};
use crate::stateful::{
    failure::Failure,
    machine::Machine,
    report::count,
    takeover::{decode, encode, next_record},
};
use futures::FutureExt as _;
use starling_bus::{Bus, Delivered, DeliveryFuture, OutRecord, SendError, StartAt};
use starling_engine::statelog::{Observed, Placed};
use starling_protocol::state::StateRecord;
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};

impl<M: Machine> Live<'_, M> {
    pub(super) fn append(&mut self, record: StateRecord, along: Vec<Along>) -> Result<(), Failure> {
        let payload = encode(self.shared, &record)?;
        let bytes = payload.len();
        let record_out = OutRecord {
            to: self.state.clone(),
            key: None,
            headers: Vec::new(),
            payload: Some(payload.into()),
        };
        let (bus, options) = (self.shared.bus.clone(), &self.shared.options);
        let (limit, pause) = (options.append_timeout, options.resend_min);
        let first = bus.send(record_out.clone());
        let delivery = timeout(limit, deliver(bus, record_out, first, pause)).map(|result| match result {
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
    pub(super) async fn appended(&mut self, delivered: Delivered) -> Result<(), Failure> {
        let Some(Appending { record, bytes, along, .. }) = self.appending.take() else { return Ok(()) };
        let Some(offset) = delivered.offset else {
            return Err(Failure::Uncertain("the broker did not say where the record lies".into()));
        };
        match self.owner.placed(offset) {
            Placed::Next => {}
            Placed::Later { from } => self.read_between(from, offset).await?,
            Placed::Impossible => {
                return Err(Failure::Uncertain(format!(
                    "a record was acknowledged at offset {offset}, in the past"
                )));
            }
        }
        match self.owner.observe(offset, record)? {
            Observed::Decision { .. } => self.confirmed(bytes, along),
            Observed::SnapshotPart => self.snapshot_size += bytes,
            Observed::Snapshot => {
                self.snapshot_size += bytes;
                self.snapshot_confirmed();
            }
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
        for Along { sends, notices, _span, received, dead_letters, milestones } in along {
            spans.extend(sends);
            notices.into_iter().for_each(|notice| drop(self.shared.bus.send(notice)));
            milestones.into_iter().for_each(|milestone| self.shared.metrics.reach(milestone));
            count(&counters.dead_letters, dead_letters.len());
            dead_letters.into_iter().for_each(|reason| self.shared.metrics.count_dead_letter(reason));
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
            self.snapshot_size = 0;
        }
        self.report_due = true;
    }

    pub(super) fn snapshot_is_due(&self) -> bool {
        let (decisions, bytes) = self.since_snapshot;
        // One that is larger than what it stands for is not worth writing.
        let enough = self.shared.options.snapshot_bytes.max(self.snapshot_size);
        decisions >= self.shared.options.snapshot_decisions || bytes >= enough
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
}

/// Waits for the answer to an append. One that surely was not written, as when the producer's queue is
/// full, is sent again; nothing else is.
async fn deliver(
    bus: Arc<dyn Bus>,
    record: OutRecord,
    mut delivery: DeliveryFuture,
    pause: Duration,
) -> Result<Delivered, SendError> {
    loop {
        match delivery.await {
            Err(SendError::NotSent { reason, .. }) => {
                tracing::warn!(reason, "the append is sent again");
                sleep(pause).await;
                delivery = bus.send(record.clone());
            }
            other => return other,
        }
    }
}
