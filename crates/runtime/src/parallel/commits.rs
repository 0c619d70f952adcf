//! When the loop commits, and what.

use super::state::{Loop, Phase};
use futures::FutureExt as _;
use starling_bus::{CommitError, CommitOffset, PartitionId};
use std::time::Duration;
use tokio::time::Instant;

/// How long to wait before a commit that failed is tried again.
const COMMIT_RETRY: Duration = Duration::from_millis(500);

impl Loop {
    pub(super) fn start_commit(&mut self) {
        if self.committing.is_some() || self.touched.is_empty() || self.phase == Phase::Leaving {
            return;
        }
        if Instant::now() < self.next_commit {
            return;
        }
        let numbers: Vec<i32> = std::mem::take(&mut self.touched).into_iter().collect();
        let (offsets, partitions) = self.commits_of(&numbers);
        if offsets.is_empty() {
            return;
        }
        let pause = if self.in_hand == 0 { self.config.commit_idle } else { self.config.commit_interval };
        self.next_commit = Instant::now() + pause;
        let consumer = self.consumer.clone();
        self.committing = Some(async move { (consumer.commit(offsets).await, partitions) }.boxed());
    }

    /// What is to be committed for these partitions, and which assignments that is of.
    pub(super) fn commits_of(&mut self, numbers: &[i32]) -> (Vec<CommitOffset>, Vec<(i32, u64)>) {
        let mut offsets = Vec::new();
        let mut assignments = Vec::new();
        for number in numbers {
            let Some(partition) = self.partitions.get_mut(number) else { continue };
            if let Some(commit) = partition.tracker.commit() {
                let at = PartitionId { topic: self.topic.clone(), partition: *number };
                offsets.push(CommitOffset { at, offset: commit.offset, metadata: commit.metadata });
                assignments.push((*number, partition.epoch));
            }
        }
        (offsets, assignments)
    }

    pub(super) fn on_committed(&mut self, (result, assignments): (Result<(), CommitError>, Vec<(i32, u64)>)) {
        self.committing = None;
        let error = match result {
            Ok(()) => {
                self.metrics.commits.inc();
                return;
            }
            Err(error) => error,
        };
        self.metrics.commit_failures.inc();
        if let CommitError::MetadataTooLarge(reason) = &error {
            self.limit_metadata(&assignments, reason);
        }
        // During every rebalance some commits are of the generation before; partitions that the member keeps
        // are committed again, those that it loses are not here any more.
        tracing::debug!(topic = %self.topic, %error, "a commit failed and will be made again");
        self.next_commit = Instant::now() + COMMIT_RETRY;
        self.commit_again(&assignments);
    }

    /// Of these assignments the commit that failed is made again, if they still hold.
    pub(super) fn commit_again(&mut self, assignments: &[(i32, u64)]) {
        for (number, epoch) in assignments {
            if let Some(partition) = self.partitions.get_mut(number).filter(|p| p.epoch == *epoch) {
                partition.tracker.commit_failed();
                self.touched.insert(*number);
            }
        }
    }

    /// The broker keeps less metadata than it does by default, and does not say how much: finds out from what it
    /// refuses. Until that fits, what is done above a slow record is done again after a crash. Says whether less will be
    /// asked of it.
    pub(super) fn limit_metadata(&mut self, assignments: &[(i32, u64)], reason: &str) -> bool {
        let refused = assignments.iter().filter_map(|(number, _)| self.partitions.get(number));
        let longest = refused.map(|partition| partition.tracker.handed_out_metadata()).max().unwrap_or(0);
        let limit = longest / 4 * 3;
        if limit >= self.config.max_metadata {
            return longest > self.config.max_metadata; // it was refused before the limit was lowered last
        }
        tracing::warn!(
            topic = %self.topic,
            reason,
            limit,
            "the broker's offset.metadata.max.bytes is lower than usual: partitions wait earlier behind a slow record"
        );
        self.config.max_metadata = limit;
        self.partitions.values_mut().for_each(|partition| partition.tracker.limit_metadata(limit));
        true
    }
}
