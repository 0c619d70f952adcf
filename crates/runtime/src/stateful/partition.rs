//! One partition, life after life.

use super::{
    committer::Committer,
    encode::Encoder,
    failure::Failure,
    feed::Feed,
    live::Live,
    machine::Machine,
    options::StatefulOptions,
    report::{PartitionPhase, Reporter, count},
    takeover::take_over,
};
use crate::{
    clock::Clock,
    metrics::{Hops, Metrics},
    random::Random,
};
use starling_bus::{Bus, PartitionId};
use starling_engine::coordinator::{FleetView, KnownAgents};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// What the partitions of a process share.
pub(super) struct Shared<M> {
    pub(super) bus: Arc<dyn Bus>,
    pub(super) encoder: Arc<Encoder>,
    pub(super) clock: Clock,
    pub(super) random: Random,
    pub(super) metrics: Arc<Metrics>,
    /// Of the inbox.
    pub(super) hops: Hops,
    pub(super) fleet: watch::Receiver<FleetView>,
    pub(super) agents: Option<watch::Receiver<Arc<KnownAgents>>>,
    pub(super) make: Arc<dyn Fn(i32) -> M + Send + Sync>,
    pub(super) options: StatefulOptions,
    pub(super) inbox_topic: Arc<str>,
    pub(super) state_topic: Arc<str>,
    /// Number of partitions of both.
    pub(super) partitions: i32,
    pub(super) inboxes: Feed,
    pub(super) logs: Feed,
    pub(super) committer: Arc<Committer>,
    pub(super) reporter: Arc<Reporter>,
}

impl<M> Shared<M> {
    pub(super) fn inbox(&self, number: i32) -> PartitionId {
        PartitionId { topic: self.inbox_topic.clone(), partition: number }
    }

    pub(super) fn state(&self, number: i32) -> PartitionId {
        PartitionId { topic: self.state_topic.clone(), partition: number }
    }
}

/// What the group wants of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It is ours.
    Run,
    /// Give it back in order.
    GiveBack,
    /// It is gone: do nothing more.
    Gone,
}

impl Stop {
    /// Waits until the group wants anything but [`Stop::Run`], or has ended.
    pub(super) async fn wanted(stop: &mut watch::Receiver<Stop>) {
        let _ = stop.wait_for(|stop| *stop != Stop::Run).await; // an error: the processor has ended
    }

    async fn gone(stop: &mut watch::Receiver<Stop>) {
        let _ = stop.wait_for(|stop| *stop == Stop::Gone).await; // an error: the processor has ended
    }
}

/// Runs a partition until it is given back or gone.
///
/// # Errors
/// The process cannot go on.
pub(super) async fn run<M: Machine>(
    shared: Arc<Shared<M>>,
    number: i32,
    mut stop: watch::Receiver<Stop>,
) -> Result<(), String> {
    let mut gone = stop.clone();
    let result = tokio::select! {
        biased;
        result = lives(&shared, number, &mut stop) => result,
        () = Stop::gone(&mut gone) => Ok(()),
    };
    shared.reporter.gone(number);
    result
}

async fn lives<M: Machine>(
    shared: &Shared<M>,
    number: i32,
    stop: &mut watch::Receiver<Stop>,
) -> Result<(), String> {
    let mut backoff = Backoff::new(shared.options.epoch_backoff_min, shared.options.epoch_backoff_max);
    let mut poison = None;
    loop {
        shared.reporter.phase(number, PartitionPhase::Replaying);
        let began = Instant::now();
        let failure = match life(shared, number, stop, poison).await {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        if began.elapsed() > shared.options.epoch_backoff_max {
            backoff.reset();
        }
        let wait = react(shared, number, &failure, &mut backoff)?;
        if let Failure::Unfit { offset, .. } = failure {
            poison = offset;
        }
        shared.reporter.phase(number, PartitionPhase::BackingOff { why: failure.to_string() });
        tokio::select! {
            biased;
            () = sleep(wait) => {}
            () = Stop::wanted(stop) => return Ok(()),
        }
    }
}

/// One epoch. All memory of it ends with this function.
async fn life<M: Machine>(
    shared: &Shared<M>,
    number: i32,
    stop: &mut watch::Receiver<Stop>,
    poison: Option<i64>,
) -> Result<(), Failure> {
    let taken = tokio::select! {
        biased;
        taken = take_over(shared, number) => taken?,
        () = Stop::wanted(stop) => return Ok(()),
    };
    Live::new(shared, number, taken, poison).run(stop).await
}

/// Tells people, and says how long to wait.
fn react<M>(
    shared: &Shared<M>,
    partition: i32,
    failure: &Failure,
    backoff: &mut Backoff,
) -> Result<Duration, String> {
    use starling_engine::statelog::Refusal;
    let counters = &shared.reporter.counters;
    Ok(match failure {
        Failure::Fatal(reason) => return Err(reason.clone()),
        Failure::Refused(refusal @ Refusal::Partitions { .. }) => return Err(refusal.to_string()),
        Failure::Refused(refusal) => {
            count(&counters.refused_logs, 1);
            tracing::error!(partition, %refusal, "the partition is stopped");
            shared.options.fault_backoff
        }
        Failure::InboxOutOfRange { .. } => {
            count(&counters.out_of_range, 1);
            tracing::error!(partition, %failure, "the partition is stopped");
            shared.options.fault_backoff
        }
        Failure::Fenced => {
            count(&counters.fenced, 1);
            tracing::warn!(partition, %failure, "memory is dropped");
            backoff.next(shared.random.fraction())
        }
        Failure::Unfit { .. } => {
            count(&counters.given_up, 1);
            tracing::error!(partition, %failure, "memory is dropped");
            backoff.next(shared.random.fraction())
        }
        Failure::Uncertain(_) => {
            count(&counters.given_up, 1);
            tracing::warn!(partition, %failure, "memory is dropped");
            backoff.next(shared.random.fraction())
        }
    })
}

/// Doubles each time, with jitter, so that two that fence each other do not do so for ever.
struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    fn reset(&mut self) {
        self.next = self.min;
    }

    /// `chance` is between 0 and 1.
    fn next(&mut self, chance: f64) -> Duration {
        let wait = self.next.mul_f64(0.5 + chance / 2.0);
        self.next = (self.next * 2).min(self.max);
        wait
    }
}
