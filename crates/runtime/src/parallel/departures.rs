//! Letting partitions go: what runs in them may come to its end while the group waits, so that little is done twice.

use super::state::{Loop, Report};
use starling_bus::{CommitError, PartitionId, RevokeAck};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, timeout},
};

/// The part of the time that the group waits in which handlers may end. The rest is for the last commit.
const FOR_HANDLERS: f64 = 0.7;

/// Partitions that the group wants back.
pub(super) struct Departure {
    partitions: Vec<PartitionId>,
    ack: RevokeAck,
    /// What still runs then is stopped.
    pub(super) until: Instant,
}

impl Loop {
    /// Begins nothing more in these partitions. They go as soon as nothing runs in them; see
    /// [`Loop::let_depart`].
    pub(super) fn on_revoked(&mut self, partitions: Vec<PartitionId>, ack: RevokeAck) {
        for at in &partitions {
            if let Some(partition) = self.partitions.get_mut(&at.partition) {
                let before = partition.in_hand();
                partition.depart();
                self.in_hand = self.in_hand.saturating_sub(before - partition.in_hand());
            }
        }
        let known = &self.partitions;
        let stays = |number: &i32| known.get(number).is_some_and(|partition| !partition.is_departing());
        self.ready.retain(stays);
        self.delayed.retain(|_, (number, _, _)| stays(number));
        let until = Instant::now() + self.config.revoke_timeout.mul_f64(FOR_HANDLERS);
        self.departures.push(Departure { partitions, ack, until });
    }

    /// These partitions are gone already: nobody waits for them any more, and they may come back.
    pub(super) fn on_lost(&mut self, gone: &[PartitionId]) {
        for departure in &mut self.departures {
            departure.partitions.retain(|at| !gone.contains(at));
        }
        self.departures.retain(|departure| !departure.partitions.is_empty());
        self.let_go(gone);
    }

    /// Lets partitions go in which nothing runs any more, or whose time is up.
    pub(super) async fn let_depart(&mut self, reported: &mut UnboundedReceiver<Report>) {
        while let Some(index) = self.departures.iter().position(|departure| self.is_due(departure)) {
            let departure = self.departures.remove(index);
            self.depart(departure, reported).await;
        }
    }

    fn is_due(&self, departure: &Departure) -> bool {
        let runs = |at: &PartitionId| self.partitions.get(&at.partition).is_some_and(|p| p.running() > 0);
        departure.until <= Instant::now() || !departure.partitions.iter().any(runs)
    }

    /// Stops what still runs in the partitions, commits what is done in them, and lets them go.
    async fn depart(&mut self, departure: Departure, reported: &mut UnboundedReceiver<Report>) {
        let Departure { partitions: gone, ack, .. } = departure;
        for at in &gone {
            if let Some(partition) = self.partitions.get_mut(&at.partition) {
                partition.abort();
            }
        }
        while let Ok(report) = reported.try_recv() {
            self.on_report(report);
        }
        let patience = self.config.revoke_timeout.mul_f64(1.0 - FOR_HANDLERS);
        if timeout(patience, self.last_commit(&gone)).await.is_err() {
            tracing::warn!("the partitions are let go without a last commit");
        }
        self.let_go(&gone);
        ack.acknowledge();
    }

    async fn last_commit(&mut self, gone: &[PartitionId]) {
        // One commit at a time: an older one must not overtake this one.
        if let Some(committing) = self.committing.take() {
            let committed = committing.await;
            self.on_committed(committed);
        }
        let numbers: Vec<i32> = gone.iter().map(|at| at.partition).collect();
        loop {
            let (offsets, assignments) = self.commits_of(&numbers);
            if offsets.is_empty() {
                return;
            }
            let Err(error) = self.consumer.commit(offsets).await else {
                self.metrics.commits.inc();
                return;
            };
            self.metrics.commit_failures.inc();
            let fits_next = match &error {
                CommitError::MetadataTooLarge(reason) => self.limit_metadata(&assignments, reason),
                _ => false,
            };
            if !fits_next {
                tracing::warn!(%error, "what was done last may be done again by the next owner");
                return;
            }
            self.commit_again(&assignments);
        }
    }
}
