//! Commits to the group what the log says anyway: for lag monitors, and as a hint where to begin reading.

use crate::metrics::{Metrics, TopicLabel};
use prometheus_client::metrics::counter::Counter;
use starling_bus::{CommitError, CommitOffset, GroupConsumer, PartitionId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Gathers positions of all partitions and commits them together now and then. None of it is needed for
/// correctness, so a failure is at most a line in the log.
pub(super) struct Committer {
    group: Arc<dyn GroupConsumer>,
    noted: Mutex<BTreeMap<PartitionId, i64>>, // one for each partition
    commits: Counter,
    failures: Counter,
}

impl Committer {
    /// Commits for `group`; counted as those of `inbox`.
    pub(super) fn new(group: Arc<dyn GroupConsumer>, metrics: &Metrics, inbox: &TopicLabel) -> Arc<Self> {
        Arc::new(Self {
            group,
            noted: Mutex::default(),
            commits: metrics.commits.get_or_create_owned(inbox),
            failures: metrics.commit_failures.get_or_create_owned(inbox),
        })
    }

    /// `offset` is to be committed for a partition some time soon.
    pub(super) fn note(&self, at: &PartitionId, offset: i64) {
        self.noted().insert(at.clone(), offset);
    }

    /// What was noted of a partition that is gone must not be committed any more.
    pub(super) fn forget(&self, at: &PartitionId) {
        self.noted().remove(at);
    }

    /// Commits what was noted.
    pub(super) async fn flush(&self) {
        let noted = std::mem::take(&mut *self.noted());
        if noted.is_empty() {
            return;
        }
        let offset_of = |(at, offset): (&PartitionId, &i64)| CommitOffset {
            at: at.clone(),
            offset: *offset,
            metadata: String::new(),
        };
        let committed = self.group.commit(noted.iter().map(offset_of).collect()).await;
        if committed.is_ok() { &self.commits } else { &self.failures }.inc();
        match committed {
            Ok(()) => {}
            Err(CommitError::Retry(reason)) => {
                tracing::warn!(reason, "the position will be committed later");
                let mut waiting = self.noted();
                for (at, offset) in noted {
                    waiting.entry(at).or_insert(offset);
                }
            }
            Err(error) => tracing::debug!(%error, "the position was not committed"),
        }
    }

    /// Commits at every interval, until it is dropped.
    pub(super) async fn run(self: Arc<Self>, every: Duration) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.flush().await;
        }
    }

    fn noted(&self) -> MutexGuard<'_, BTreeMap<PartitionId, i64>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
