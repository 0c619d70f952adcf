//! Single flight: of those who ask the same at the same time one makes the call, and the others wait for its reply.
//!
//! Who makes it holds the turn. If it gets no reply, because the call failed or nobody wants it any more, the turn goes to
//! whoever has waited for longest: one call at a time, however many wait. The wait of each ends with its own deadline.

use super::entry::Entry;
use super::key::Key;
use crate::{ModelError, Reuse};
use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

/// Questions that are the same, and are asked in the same way: who wants no kept reply waits for nobody who may take one.
pub(super) type Question = (Key, Reuse);

/// The questions that are being answered. As many as there are callers at most.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<Question, Open>>);

struct Open {
    flight: Arc<Flight>,
    /// Who makes the call, and who waits.
    seats: usize,
}

struct Flight {
    turn: Arc<tokio::sync::Mutex<()>>,
    end: OnceLock<End>,
}

/// What came of a question, for all who wait.
#[derive(Clone)]
pub(super) enum End {
    /// A reply.
    Reply(Entry),
    /// A failure that everybody who asks this would meet.
    Hopeless(ModelError),
}

/// What somebody who asks is to do.
pub(super) enum Boarded {
    /// Make the call.
    Turn(Turn),
    /// Nothing: another one did.
    Ended(End),
    /// Nothing: the deadline came first.
    TooLate,
}

impl Flights {
    /// Waits for the end of an equal question, or for the turn.
    pub(super) async fn board(self: &Arc<Self>, question: Question, deadline: Instant) -> Boarded {
        let seat = self.sit(question);
        let turn = seat.flight.turn.clone().lock_owned();
        let Ok(guard) = timeout_at(deadline, turn).await else { return Boarded::TooLate };
        match seat.flight.end.get() {
            Some(end) => Boarded::Ended(end.clone()),
            None => Boarded::Turn(Turn { seat, _guard: guard }),
        }
    }

    fn sit(self: &Arc<Self>, question: Question) -> Seat {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = flights.entry(question).or_insert_with(|| {
            let flight = Flight { turn: Arc::default(), end: OnceLock::new() };
            Open { flight: Arc::new(flight), seats: 0 }
        });
        open.seats += 1;
        Seat { flight: open.flight.clone(), flights: self.clone(), question }
    }
}

/// One who takes part.
struct Seat {
    flights: Arc<Flights>,
    question: Question,
    flight: Arc<Flight>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut flights = self.flights.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Place::Occupied(mut open) = flights.entry(self.question)
            && Arc::ptr_eq(&open.get().flight, &self.flight)
        {
            open.get_mut().seats -= 1;
            if open.get().seats == 0 {
                open.remove();
            }
        }
    }
}

/// The right to make the call. Dropped without an end, it goes to the next who waits.
pub(super) struct Turn {
    seat: Seat,
    _guard: OwnedMutexGuard<()>,
}

impl Turn {
    /// Tells all who wait. Who asks from now on begins anew.
    pub(super) fn end(self, end: End) {
        let Seat { flights, question, flight } = &self.seat;
        let mut flights = flights.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Place::Occupied(open) = flights.entry(*question)
            && Arc::ptr_eq(&open.get().flight, flight)
        {
            open.remove();
        }
        drop(flights);
        // There is one turn for each flight, so there was no end before.
        let _ = flight.end.set(end);
    }
}
