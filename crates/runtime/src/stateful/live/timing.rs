//! When an owner wakes, gives back, and tells how it is.

use super::{Live, REPORT_PAUSE};
use crate::{
    metrics::KindLabel,
    stateful::{
        machine::Machine,
        report::{PartitionPhase, PartitionStatus},
    },
};
use starling_protocol::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

impl<M: Machine> Live<'_, M> {
    pub(super) fn tick_is_due(&self) -> bool {
        self.caught_up
            && self.tick_not_before.is_none_or(|not_before| Instant::now() >= not_before)
            && self.stepper.machine.next_timer().is_some_and(|timer| timer <= self.time())
    }

    fn time(&self) -> Timestamp {
        self.stepper.now.max(self.shared.clock.now())
    }

    /// When there will be something to append, if nothing else happens.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        if self.stop_by.is_some() || self.appending.is_some() {
            return self.stop_by;
        }
        let mark =
            self.owner.has_unmarked_effects().then(|| self.last_decision + self.shared.options.idle_mark);
        let may_decide = self.caught_up && self.performer.len() < self.shared.options.max_effects;
        let timer = self.stepper.machine.next_timer().filter(|_| may_decide).map(|timer| {
            // A timer may be years away; nothing sleeps that long.
            let at = Instant::now() + timer.since(self.time()).min(Duration::from_secs(3600));
            self.tick_not_before.map_or(at, |not_before| at.max(not_before))
        });
        let report = self.report_due.then(|| self.last_report + REPORT_PAUSE);
        mark.into_iter().chain(timer).chain(report).min()
    }

    /// No more is taken; what was stepped or waits is left to the next owner.
    pub(super) fn give_back(&mut self) {
        // Committing and acknowledging take some of the time, too.
        self.stop_by = Some(Instant::now() + self.shared.options.revoke_timeout.mul_f64(0.7));
        self.unread = None;
        self.waiting.clear();
        self.carry = None;
        self.chunks.clear();
    }

    pub(super) fn is_finished(&self) -> bool {
        let Some(stop_by) = self.stop_by else { return false };
        let all_done =
            self.appending.is_none() && self.performer.len() == 0 && !self.owner.has_unmarked_effects();
        all_done || Instant::now() >= stop_by
    }

    pub(super) fn report(&mut self) {
        self.last_report = Instant::now();
        self.report_due = false;
        let phase = if self.caught_up { PartitionPhase::Live } else { PartitionPhase::CatchingUp };
        let counters = self.stepper.machine.counters();
        for (kind, now, before) in [
            ("duplicate", counters.duplicates, self.told.duplicates),
            ("late", counters.superseded_late, self.told.superseded_late),
            ("abandoned_run", counters.superseded_abandoned, self.told.superseded_abandoned),
            ("cancelled", counters.superseded_cancelled, self.told.superseded_cancelled),
        ] {
            let kind = KindLabel { kind: kind.to_owned() };
            self.shared.metrics.superseded.get_or_create(&kind).inc_by(now.saturating_sub(before));
        }
        self.told = counters.clone();
        let status = PartitionStatus {
            phase,
            seq: self.owner.position().seq,
            effects_outstanding: self.owner.effects_outstanding(),
            load: self.stepper.machine.load(),
            counters,
            spending: self.stepper.machine.spending(),
        };
        self.shared.reporter.status(self.stepper.number, status);
    }
}
