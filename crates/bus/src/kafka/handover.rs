//! Between the polling thread and whoever calls `next`: a queue that is bounded in records and in their bytes.
//!
//! The thread waits a little when it is full, then takes the record back and pauses its partitions, so
//! that it never stops polling. Other events are few and always fit.

use crate::{GroupEvent, InRecord, PartitionId};
use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::Thread,
    time::Duration,
};
use tokio::sync::Notify;

/// Troubles that may wait; more of them say nothing new.
const MAX_TROUBLES: usize = 64;

/// What may wait to be taken. One record always may, however large.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

pub(super) struct Handover {
    state: Mutex<State>,
    arrived: Notify,
    room: Condvar,
    bound: Bound,
    pub(super) pump: OnceLock<Thread>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<GroupEvent>,
    records: usize,
    /// Of these records.
    bytes: usize,
    troubles: usize,
    closed: bool,
    /// The pump has paused everything and wants to hear when half of the queue is free.
    pump_waits: bool,
}

impl State {
    fn is_full(&self, bound: Bound) -> bool {
        self.records > 0 && (self.records >= bound.records || self.bytes >= bound.bytes)
    }

    fn is_half_empty(&self, bound: Bound) -> bool {
        self.records <= bound.records / 2 && self.bytes <= bound.bytes / 2
    }
}

impl Handover {
    pub(super) fn new(bound: Bound) -> Self {
        Self {
            state: Mutex::new(State::default()),
            arrived: Notify::new(),
            room: Condvar::new(),
            bound,
            pump: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a record over, waiting for room at most `patience`; else gives it back.
    #[allow(clippy::result_large_err)] // it is the record itself
    pub(super) fn put_record(&self, record: InRecord, patience: Duration) -> Result<(), InRecord> {
        let full = |state: &mut State| state.is_full(self.bound);
        let mut state = self.lock();
        if full(&mut state) {
            state =
                self.room.wait_timeout_while(state, patience, full).unwrap_or_else(PoisonError::into_inner).0;
            if full(&mut state) {
                state.pump_waits = true;
                return Err(record);
            }
        }
        state.records += 1;
        state.bytes += record.size();
        state.queue.push_back(GroupEvent::Record(record));
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    pub(super) fn put(&self, event: GroupEvent) {
        let mut state = self.lock();
        match &event {
            GroupEvent::Trouble(_) if state.troubles >= MAX_TROUBLES => return,
            GroupEvent::Trouble(_) => state.troubles += 1,
            GroupEvent::Closed => state.closed = true,
            _ => {}
        }
        state.queue.push_back(event);
        drop(state);
        self.arrived.notify_one();
    }

    /// Whether a pump that has paused everything should go on.
    pub(super) fn has_room(&self) -> bool {
        let mut state = self.lock();
        let roomy = state.is_half_empty(self.bound);
        state.pump_waits = !roomy;
        roomy
    }

    /// Takes back what waits of these partitions.
    pub(super) fn purge(&self, gone: impl Fn(&PartitionId) -> bool) {
        let mut state = self.lock();
        state.queue.retain(|event| match event {
            GroupEvent::Record(record) => !gone(&record.at),
            GroupEvent::End { at, .. } | GroupEvent::OutOfRange { at, .. } => !gone(at),
            _ => true,
        });
        let sizes = state.queue.iter().filter_map(|event| match event {
            GroupEvent::Record(record) => Some(record.size()),
            _ => None,
        });
        (state.records, state.bytes) =
            sizes.fold((0, 0), |(records, bytes), size| (records + 1, bytes + size));
        drop(state);
        self.room.notify_one();
    }

    pub(super) async fn next(&self) -> GroupEvent {
        loop {
            if let Some(event) = self.take() {
                return event;
            }
            self.arrived.notified().await;
        }
    }

    fn take(&self) -> Option<GroupEvent> {
        let mut state = self.lock();
        let Some(event) = state.queue.pop_front() else {
            return state.closed.then_some(GroupEvent::Closed);
        };
        match &event {
            GroupEvent::Record(record) => {
                let was_full = state.is_full(self.bound);
                state.records -= 1;
                state.bytes -= record.size();
                let wake_pump = state.pump_waits && state.is_half_empty(self.bound);
                state.pump_waits &= !wake_pump;
                drop(state);
                if was_full {
                    self.room.notify_one();
                }
                if wake_pump && let Some(pump) = self.pump.get() {
                    pump.unpark();
                }
            }
            GroupEvent::Trouble(_) => state.troubles -= 1,
            _ => {}
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use bytes::Bytes;
    use starling_protocol::Timestamp;

    fn record(offset: i64, bytes: usize) -> InRecord {
        InRecord {
            at: PartitionId::new("t", 0),
            offset,
            timestamp: Timestamp(0),
            key: None,
            headers: Vec::new(),
            payload: Some(Bytes::from(vec![0; bytes])),
        }
    }

    #[tokio::test]
    async fn large_records_wait_outside_though_there_is_room_for_more_of_them() {
        let handover = Handover::new(Bound { records: 10, bytes: 100 });
        let put = |offset, bytes| handover.put_record(record(offset, bytes), Duration::ZERO).is_ok();
        assert!(put(0, 1_000), "one always may");
        assert!(!put(1, 1));
        assert!(!handover.has_room());
        assert!(matches!(handover.next().await, GroupEvent::Record(record) if record.offset == 0));
        assert!(handover.has_room());
        for offset in 1..=2 {
            assert!(put(offset, 50));
        }
        assert!(!put(3, 1), "100 bytes wait");
        handover.purge(|_| true);
        assert!(put(3, 1), "what was purged counts no more");
    }
}
