//! What the loop does when the group speaks: records, assignments, partitions that go.

use super::{
    partition::{Admitted, Partition},
    processor::ProcessorError,
    state::{Loop, Phase},
};
use starling_bus::{Assignment, GroupEvent, InRecord, PartitionId};

impl Loop {
    /// Says whether the member has left.
    pub(super) fn on_event(&mut self, event: GroupEvent) -> bool {
        match event {
            GroupEvent::Record(record) => self.on_record(record),
            GroupEvent::End { at, next_offset } => {
                if let Some(partition) = self.partitions.get_mut(&at.partition)
                    && self.phase == Phase::Running
                {
                    partition.reach_end(next_offset);
                    self.touched.insert(at.partition);
                }
            }
            GroupEvent::Assigned(assignments) => self.on_assigned(&assignments),
            GroupEvent::Revoked(gone, ack) => self.on_revoked(gone, ack),
            GroupEvent::Lost(gone) => self.on_lost(&gone),
            GroupEvent::OutOfRange { at, offset } => {
                self.fail(ProcessorError::OutOfRange { at, offset });
            }
            GroupEvent::Trouble(error) => {
                tracing::warn!(topic = %self.topic, %error, "the bus is in trouble")
            }
            GroupEvent::Fatal(error) => self.fail(error.into()),
            GroupEvent::Closed => return true,
        }
        false
    }

    pub(super) fn on_assigned(&mut self, assignments: &[Assignment]) {
        for assignment in assignments {
            self.serial += 1;
            let partition = Partition::new(self.serial, assignment, self.config.max_metadata);
            self.partitions.insert(assignment.at.partition, partition);
        }
        self.assigned.set(true);
        self.announce();
    }

    pub(super) fn on_record(&mut self, record: InRecord) {
        let number = record.at.partition;
        let Some(partition) = self.partitions.get_mut(&number) else { return };
        if self.phase != Phase::Running || partition.is_departing() {
            return; // it was never taken, so it is not committed
        }
        self.delivered += 1;
        match partition.deliver(record, self.delivered) {
            Admitted::Kept => self.in_hand += 1,
            Admitted::AlreadyDone => {
                self.metrics.already_done.inc();
                self.touched.insert(number);
            }
        }
        if partition.has_queued() {
            self.ready.insert(number);
        }
        let full = partition.is_full()
            || partition.waiting() >= self.config.queue_per_partition
            || self.in_hand >= self.config.queue_total.saturating_add(self.config.slots);
        if full && !partition.paused {
            partition.paused = true;
            self.metrics.paused.inc();
            self.consumer.pause(&[PartitionId { topic: self.topic.clone(), partition: number }]);
        }
    }

    /// Forgets partitions. What still runs for them is dropped, and its reports are ignored.
    pub(super) fn let_go(&mut self, gone: &[PartitionId]) {
        for at in gone {
            if let Some(mut partition) = self.partitions.remove(&at.partition) {
                partition.abort();
                self.in_hand = self.in_hand.saturating_sub(partition.in_hand());
                if partition.paused {
                    self.metrics.paused.dec();
                }
            }
            self.touched.remove(&at.partition);
        }
        let partitions = &self.partitions;
        self.ready.retain(|number| partitions.contains_key(number));
        self.delayed.retain(|_, (number, _, _)| partitions.contains_key(number));
        self.announce();
    }

    pub(super) fn announce(&self) {
        self.announcer.partitions(self.partitions.keys().copied().collect());
    }
}
