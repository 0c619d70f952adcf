//! How many calls this process has open at an endpoint, whatever model they ask.

use super::line::Line;
use starling_engine::rate::Bulkheads;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// The places of all lines together.
#[derive(Debug)]
pub(super) struct Ceiling {
    places: usize,
    bulkheads: Mutex<Bulkheads>,
    /// Those whose calls take them. No more than there are models in the settings.
    lines: Mutex<Vec<Weak<Line>>>,
}

impl Ceiling {
    pub(super) fn new(places: usize, bulkheads: Bulkheads) -> Self {
        Self { places, bulkheads: Mutex::new(bulkheads), lines: Mutex::default() }
    }

    /// This line is told when there are places for it again.
    pub(super) fn add(&self, line: Weak<Line>) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// Places that nobody has.
    pub(super) fn free(&self) -> usize {
        self.lock().free(self.places)
    }

    pub(super) fn admits(&self, purpose: usize) -> bool {
        self.lock().admits(purpose, self.places)
    }

    /// Takes a place, if there is one.
    pub(super) fn take(&self, purpose: usize) -> bool {
        let mut bulkheads = self.lock();
        let admitted = bulkheads.admits(purpose, self.places);
        if admitted {
            bulkheads.opened(purpose);
        }
        admitted
    }

    /// Somebody waits: the places that are reserved for that purpose are no longer there for others.
    pub(super) fn waits(&self, purpose: usize) {
        self.lock().waits(purpose);
    }

    /// A call of `line` has ended. Called without any line's lock.
    pub(super) fn closed(&self, line: &Line, purpose: usize) {
        self.make_free(line, |bulkheads| bulkheads.closed(purpose));
    }

    /// Somebody in `line` does no longer wait. Called without any line's lock.
    pub(super) fn waits_no_more(&self, line: &Line, purpose: usize) {
        self.make_free(line, |bulkheads| bulkheads.waits_no_more(purpose));
    }

    /// Does what makes places free, and calls those in other lines for whom there was none.
    fn make_free(&self, own: &Line, change: impl FnOnce(&mut Bulkheads)) {
        let mut bulkheads = self.lock();
        let scarce = (0..super::purposes::PURPOSES).any(|other| !bulkheads.admits(other, self.places));
        change(&mut bulkheads);
        drop(bulkheads);
        if scarce {
            let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for line in lines.iter().filter_map(Weak::upgrade).filter(|line| !std::ptr::eq(&**line, own)) {
                line.call_first();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Bulkheads> {
        self.bulkheads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
