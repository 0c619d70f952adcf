//! Between the polling thread and whoever calls `next`: a queue that is bounded in records.
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

pub(super) struct Handover {
    state: Mutex<State>,
    arrived: Notify,
    room: Condvar,
    bound: usize,
    pub(super) pump: OnceLock<Thread>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<GroupEvent>,
    records: usize,
    troubles: usize,
    closed: bool,
    /// The pump has paused everything and wants to hear when half of the queue is free.
    pump_waits: bool,
}

impl Handover {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            state: Mutex::new(State::default()),
            arrived: Notify::new(),
            room: Condvar::new(),
            bound: bound.max(1),
            pump: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a record over, waiting for room at most `patience`; else gives it back.
    #[allow(clippy::result_large_err)] // it is the record itself
    pub(super) fn put_record(&self, record: InRecord, patience: Duration) -> Result<(), InRecord> {
        let full = |state: &mut State| state.records >= self.bound;
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
        let roomy = state.records <= self.bound / 2;
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
        state.records = state.queue.iter().filter(|event| matches!(event, GroupEvent::Record(_))).count();
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
            GroupEvent::Record(_) => {
                let was_full = state.records >= self.bound;
                state.records -= 1;
                let wake_pump = state.pump_waits && state.records <= self.bound / 2;
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
