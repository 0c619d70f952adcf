//! What a stateful processor tells about itself.

use super::collector::LoadCollector;
use crate::metrics::{KindLabel, Metrics};
use prometheus_client::metrics::{counter::Counter, family::Family};
use starling_engine::coordinator::{Counters, Load};
use starling_protocol::state::Amount;
use std::collections::BTreeMap;
use tokio::sync::watch;

/// How far a partition is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionPhase {
    /// The state log is being read.
    Replaying,
    /// What waited in the inbox at the takeover is being read; deadlines do not fire yet.
    CatchingUp,
    /// It decides.
    Live,
    /// It waits before it is tried again.
    BackingOff {
        /// What went wrong.
        why: String,
    },
}

/// One partition that is assigned to this process.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionStatus {
    /// How far it is.
    pub phase: PartitionPhase,
    /// Seq of the last decision.
    pub seq: i64,
    /// Effects that are not done.
    pub effects_outstanding: usize,
    /// What the machine has to do.
    pub load: Load,
    /// What the machine has counted since it was made.
    pub counters: Counters,
    /// What tenants with a budget have spent in its present window.
    pub spending: BTreeMap<String, Amount>,
}

impl PartitionStatus {
    pub(super) fn new(phase: PartitionPhase) -> Self {
        let (load, counters, spending) = (Load::default(), Counters::default(), BTreeMap::new());
        Self { phase, seq: 0, effects_outstanding: 0, load, counters, spending }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the processor was started; on `/metrics` as `starling_state_log_total`.
        #[derive(Clone, Debug)]
        pub struct StatefulCounters {
            $($(#[$doc])* pub $name: Counter,)*
        }

        impl StatefulCounters {
            pub(super) fn registered_with(metrics: &Metrics) -> Self {
                let family = Family::<KindLabel, Counter>::default();
                metrics.with_registry(|registry| {
                    registry.register("state_log", "What happens around the state log", family.clone());
                });
                let of = |kind: &str| family.get_or_create_owned(&KindLabel { kind: kind.to_owned() });
                Self { $($name: of(stringify!($name))),* }
            }

            /// Name and value of each.
            #[must_use]
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get())),*]
            }
        }
    };
}

counters! {
    /// Epochs begun.
    epochs,
    /// Epochs that ended because another process took over.
    fenced,
    /// Epochs given up for other reasons.
    given_up,
    /// Records of the state log read at takeovers.
    replayed,
    /// Inputs decided.
    inputs,
    /// Inputs that were given again by the log and passed over.
    repeated_inputs,
    /// Decisions confirmed.
    decisions,
    /// Bytes of decisions.
    decision_bytes,
    /// Snapshots completed.
    snapshots,
    /// Effects acknowledged.
    effects_done,
    /// Effects performed again at takeovers.
    effects_repeated,
    /// Effects refused for good, by the broker or because they do not fit.
    effects_refused,
    /// Dead letters.
    dead_letters,
    /// Inbox positions that were not there any more.
    out_of_range,
    /// State logs that were refused.
    refused_logs,
}

pub(super) fn count(counter: &Counter, by: usize) {
    counter.inc_by(by as u64);
}

/// A handle to what a processor tells. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StatefulReport {
    counters: StatefulCounters,
    partitions: watch::Receiver<BTreeMap<i32, PartitionStatus>>,
    assigned: watch::Receiver<bool>,
}

impl StatefulReport {
    /// The counts.
    #[must_use]
    pub fn counters(&self) -> &StatefulCounters {
        &self.counters
    }

    /// The partitions that are assigned now. The receiver hears of changes.
    #[must_use]
    pub fn partitions(&self) -> watch::Receiver<BTreeMap<i32, PartitionStatus>> {
        self.partitions.clone()
    }

    /// Partitions with tasks that wait for workers or are with them.
    #[must_use]
    pub fn active(&self) -> usize {
        let is_active = |status: &&PartitionStatus| status.load.outstanding > 0 || status.load.ready > 0;
        self.partitions.borrow().values().filter(is_active).count()
    }

    /// Waits until something of it changes; `false` when the processor has ended.
    pub(super) async fn changed(&mut self) -> bool {
        tokio::select! {
            biased;
            changed = self.partitions.changed() => changed.is_ok(),
            // Said once; after that only the partitions matter.
            true = async { self.assigned.changed().await.is_ok() } => true,
            else => false,
        }
    }

    /// Whether the group has answered, be it with no partition at all, and every partition's state is read.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let read = |status: &PartitionStatus| {
            matches!(status.phase, PartitionPhase::CatchingUp | PartitionPhase::Live)
        };
        *self.assigned.borrow() && self.partitions.borrow().values().all(read)
    }
}

/// The other end of a [`StatefulReport`].
#[derive(Debug)]
pub(super) struct Reporter {
    pub(super) counters: StatefulCounters,
    partitions: watch::Sender<BTreeMap<i32, PartitionStatus>>,
    assigned: watch::Sender<bool>,
}

impl Reporter {
    /// A reporter of a processor that owns some of `of` partitions.
    pub(super) fn new(metrics: &Metrics, of: i32) -> Self {
        let partitions = watch::Sender::new(BTreeMap::new());
        let collector = LoadCollector { owned: partitions.subscribe(), of };
        metrics.with_registry(|registry| registry.register_collector(Box::new(collector)));
        metrics.expect_decisions();
        Self {
            counters: StatefulCounters::registered_with(metrics),
            partitions,
            assigned: watch::Sender::new(false),
        }
    }

    pub(super) fn report(&self) -> StatefulReport {
        StatefulReport {
            counters: self.counters.clone(),
            partitions: self.partitions.subscribe(),
            assigned: self.assigned.subscribe(),
        }
    }

    pub(super) fn assigned(&self) {
        self.assigned.send_replace(true);
    }

    pub(super) fn phase(&self, partition: i32, phase: PartitionPhase) {
        self.partitions.send_modify(|all| {
            let new = || PartitionStatus::new(phase.clone());
            let status = all.entry(partition).or_insert_with(new);
            status.phase = phase.clone();
        });
    }

    pub(super) fn status(&self, partition: i32, status: PartitionStatus) {
        self.partitions.send_modify(|all| {
            all.insert(partition, status);
        });
    }

    pub(super) fn gone(&self, partition: i32) {
        self.partitions.send_modify(|all| {
            all.remove(&partition);
        });
    }
}
