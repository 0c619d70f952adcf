//! The loop's state, and how it goes round.

use super::{
    config::ParallelConfig,
    departures::Departure,
    partition::Partition,
    processor::ProcessorError,
    run::{End, Job, Runner},
};
use crate::{
    fleet::Announcer,
    health::{Gate, Pulse},
    metrics::TopicMetrics,
};
use futures::future::BoxFuture;
use starling_bus::{CommitError, GroupConsumer};
use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// The loop comes round at least this often, which is what tells that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// What a running handler tells the loop.
pub(super) enum Report {
    /// The handler has returned; what it said may not be acknowledged yet.
    SlotFree,
    /// The record has come to an end.
    Ended { partition: i32, epoch: u64, offset: i64, end: End },
}

/// Tells the loop when a handler has returned or was dropped.
pub(super) struct Slot(UnboundedSender<Report>);

impl Drop for Slot {
    fn drop(&mut self) {
        let _ = self.0.send(Report::SlotFree); // the loop may have ended
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// Nothing new begins; what runs may end until then.
    Draining(Instant),
    /// The group is being left.
    Leaving,
}

pub(super) type Committing = BoxFuture<'static, (Result<(), CommitError>, Vec<(i32, u64)>)>;

pub(super) struct Loop {
    pub(super) runner: Arc<Runner>,
    pub(super) config: ParallelConfig,
    pub(super) topic: Arc<str>,
    pub(super) consumer: Arc<dyn GroupConsumer>,
    pub(super) metrics: TopicMetrics,
    pub(super) announcer: Announcer,
    pub(super) pulse: Pulse,
    pub(super) assigned: Gate,
    pub(super) partitions: BTreeMap<i32, Partition>,
    /// Partitions with records that are to run.
    pub(super) ready: BTreeSet<i32>,
    /// Records that were delivered.
    pub(super) delivered: u64,
    /// Records that are to be handled again, by the time from which they may.
    pub(super) delayed: BTreeMap<(Instant, u64), (i32, u64, Job)>,
    /// Makes epochs, and keys of `delayed`, unique.
    pub(super) serial: u64,
    /// Slots that are taken.
    pub(super) busy: usize,
    /// Records that are not done, over all partitions.
    pub(super) in_hand: usize,
    pub(super) reports: UnboundedSender<Report>,
    /// Partitions whose commit may have moved.
    pub(super) touched: BTreeSet<i32>,
    pub(super) committing: Option<Committing>,
    /// No commit before this.
    pub(super) next_commit: Instant,
    /// Partitions that are to go.
    pub(super) departures: Vec<Departure>,
    pub(super) phase: Phase,
    pub(super) failure: Option<ProcessorError>,
}

impl Loop {
    pub(super) async fn run(
        mut self,
        consumer: &dyn GroupConsumer,
        mut reported: UnboundedReceiver<Report>,
        shutdown: CancellationToken,
    ) -> Result<(), ProcessorError> {
        let mut next = consumer.next();
        let mut leave: Option<BoxFuture<'_, ()>> = None;
        let mut left = None;
        let mut ended = false;
        let admission = self.config.admission.clone();
        while !ended {
            self.pulse.beat();
            self.let_depart(&mut reported).await;
            self.dispatch();
            self.start_commit();
            let wake = self.wake_at();
            // What ends work comes before what brings more of it: events may never cease.
            tokio::select! {
                biased;
                () = shutdown.cancelled(), if self.phase == Phase::Running => {
                    self.drain(self.config.grace);
                }
                committed = in_flight(&mut self.committing) => self.on_committed(committed),
                Some(report) = reported.recv() => {
                    self.on_report(report);
                    self.take_reports(&mut reported);
                }
                () = in_flight(&mut leave) => left = Some(Instant::now()),
                () = sleep_until(wake) => self.on_time(),
                () = admission.changed() => {} // dispatched when it comes round
                event = &mut next => {
                    next = consumer.next();
                    ended = self.on_event(event);
                }
            }
            // The last events may come after the member has left.
            ended |= left.is_some_and(|left| left.elapsed() >= HEARTBEAT);
            if self.is_drained() {
                self.phase = Phase::Leaving;
                leave = Some(consumer.leave(self.config.revoke_timeout));
            }
        }
        self.announcer.partitions(Vec::new());
        self.assigned.set(false);
        self.abort_all();
        self.failure.map_or(Ok(()), Err)
    }

    /// Starts handlers while there are slots: who came first goes first, and who is more urgent ahead of some.
    pub(super) fn dispatch(&mut self) {
        if self.phase != Phase::Running {
            return;
        }
        if self.busy < self.config.slots {
            let partitions = &self.partitions;
            self.ready.retain(|number| partitions.get(number).is_some_and(Partition::has_queued));
        }
        while self.busy < self.config.slots {
            let partitions = &self.partitions;
            let ranked =
                self.ready.iter().filter_map(|number| Some((partitions.get(number)?.first_rank()?, *number)));
            let Some((_, number)) = ranked.min() else { break };
            let Some(partition) = self.partitions.get_mut(&number) else { break };
            if !self.config.admission.take() {
                break;
            }
            let Some(job) = partition.next() else { break };
            self.busy += 1;
            let (epoch, offset) = (partition.epoch, job.record.offset);
            let (runner, reports) = (self.runner.clone(), self.reports.clone());
            let slot = Slot(reports.clone());
            let task = tokio::spawn(async move {
                let end = runner.run(job, slot).await;
                let _ = reports.send(Report::Ended { partition: number, epoch, offset, end });
            });
            partition.is_running(offset, task.abort_handle());
        }
        self.tell_busy();
    }

    pub(super) fn tell_busy(&self) {
        self.announcer.busy(self.busy);
        let busy = i64::try_from(self.busy).unwrap_or(i64::MAX);
        self.metrics.in_flight.set(busy);
        if self.config.role == "worker" {
            self.runner.node.metrics.worker_active_count.set(busy);
        }
    }

    pub(super) fn wake_at(&self) -> Instant {
        let mut wake = Instant::now() + HEARTBEAT;
        if let Some(((due, _), _)) = self.delayed.first_key_value() {
            wake = wake.min(*due);
        }
        if !self.touched.is_empty() && self.committing.is_none() && self.phase != Phase::Leaving {
            wake = wake.min(self.next_commit);
        }
        if let Some(until) = self.departures.iter().map(|departure| departure.until).min() {
            wake = wake.min(until);
        }
        match self.phase {
            Phase::Draining(until) => wake.min(until),
            Phase::Running | Phase::Leaving => wake,
        }
    }

    pub(super) fn on_time(&mut self) {
        let now = Instant::now();
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (number, epoch, job) = entry.remove();
            if let Some(partition) = self.partitions.get_mut(&number).filter(|p| p.epoch == epoch) {
                partition.put_back(job);
                self.ready.insert(number);
            }
        }
        if matches!(self.phase, Phase::Draining(until) if until <= now) {
            self.abort_all();
        }
    }

    pub(super) fn fail(&mut self, error: ProcessorError) {
        tracing::error!(topic = %self.topic, %error, "the processor cannot go on");
        self.failure.get_or_insert(error);
        self.drain(Duration::ZERO);
    }

    /// Fails, but finishes what it has begun, as when it is told to stop.
    pub(super) fn fail_in_order(&mut self, error: ProcessorError) {
        if self.phase != Phase::Running {
            return; // it is on its way
        }
        tracing::error!(topic = %self.topic, %error, "the processor does not go on");
        self.failure.get_or_insert(error);
        self.drain(self.config.grace);
    }

    /// Begins nothing more.
    pub(super) fn drain(&mut self, grace: Duration) {
        if self.phase == Phase::Leaving {
            return;
        }
        self.phase = Phase::Draining(Instant::now() + grace);
        self.ready.clear();
        self.delayed.clear();
        for partition in self.partitions.values_mut() {
            partition.drop_waiting();
        }
    }

    /// Whether nothing runs any more and everything that is done is committed.
    pub(super) fn is_drained(&self) -> bool {
        let Phase::Draining(until) = self.phase else { return false };
        let running = self.partitions.values().any(|partition| partition.running() > 0);
        // The last commit is made when the partitions are revoked, in leaving.
        !running || until <= Instant::now()
    }

    pub(super) fn abort_all(&mut self) {
        for partition in self.partitions.values_mut() {
            partition.abort();
        }
    }
}

/// Waits for a future that may be absent; forgets it when it is done.
async fn in_flight<T>(future: &mut Option<BoxFuture<'_, T>>) -> T {
    match future {
        Some(running) => {
            let done = running.await;
            *future = None;
            done
        }
        None => pending().await,
    }
}
