//! What the loop does when handlers come to an end.

use super::{
    processor::ProcessorError,
    run::End,
    state::{Loop, Phase, Report},
};
use starling_bus::PartitionId;
use tokio::{sync::mpsc::UnboundedReceiver, time::Instant};

/// Reports of handlers that are taken in before anything else is looked at.
const REPORTS_A_ROUND: usize = 256;

impl Loop {
    pub(super) fn take_reports(&mut self, reported: &mut UnboundedReceiver<Report>) {
        for _ in 0..REPORTS_A_ROUND {
            match reported.try_recv() {
                Ok(report) => self.on_report(report),
                Err(_) => break,
            }
        }
        self.resume();
    }

    pub(super) fn on_report(&mut self, report: Report) {
        let (number, epoch, offset, end) = match report {
            Report::SlotFree => {
                self.busy = self.busy.saturating_sub(1);
                return;
            }
            Report::Ended { partition, epoch, offset, end } => (partition, epoch, offset, end),
        };
        // A report of an earlier assignment says nothing about this one.
        let Some(partition) = self.partitions.get_mut(&number).filter(|p| p.epoch == epoch) else { return };
        match end {
            End::Done => {
                let already_done = partition.done(offset);
                if partition.has_queued() {
                    self.ready.insert(number);
                }
                self.in_hand = self.in_hand.saturating_sub(1 + already_done);
                self.metrics.already_done.inc_by(already_done as u64);
                self.touched.insert(number);
            }
            End::Again { job, wait } => {
                partition.stopped_running(offset);
                if partition.is_departing() {
                    return; // the next owner handles it
                }
                self.serial += 1;
                self.delayed.insert((Instant::now() + wait, self.serial), (number, epoch, job));
            }
            End::Fatal(why) => {
                partition.stopped_running(offset);
                self.fail(ProcessorError::Handler(why));
            }
            End::TooManyDead(excess) => {
                partition.stopped_running(offset);
                let (topic, role) = (self.topic.clone(), self.config.role.clone());
                // Nothing is wrong with this process: what it does is worth its end, other burials above all, which
                // would be made again if they were broken off.
                self.fail_in_order(ProcessorError::TooManyDeadLetters { topic, role, excess });
            }
        }
    }

    /// Goes on with paused partitions for which there is room again. Waits until half of it is free, so
    /// that a partition is not paused and resumed with every record.
    pub(super) fn resume(&mut self) {
        let total = self.config.queue_total.saturating_add(self.config.slots);
        if self.phase != Phase::Running || self.in_hand > total - total / 4 {
            return;
        }
        let limit = self.config.queue_per_partition / 2;
        let mut ready = Vec::new();
        for (number, partition) in &mut self.partitions {
            if partition.paused
                && !partition.is_departing()
                && !partition.is_full()
                && partition.waiting() <= limit
            {
                partition.paused = false;
                self.metrics.paused.dec();
                ready.push(PartitionId { topic: self.topic.clone(), partition: *number });
            }
        }
        if !ready.is_empty() {
            self.consumer.resume(&ready);
        }
    }
}
