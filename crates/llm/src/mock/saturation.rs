//! An endpoint that is full: calls wait for a place, and are told nothing.

use std::time::Duration;
use tokio::{sync::Semaphore, time::sleep};

/// So many calls are served at once, each for so long, before what its action says. The others wait in the order of
/// coming, so that calls take longer the more of them are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MockSaturation {
    /// Calls that are served at once.
    pub places: usize,
    /// How long each keeps its place.
    pub service: Duration,
}

pub(super) struct Places {
    free: Semaphore,
    service: Duration,
}

impl Places {
    pub(super) fn new(MockSaturation { places, service }: MockSaturation) -> Self {
        Self { free: Semaphore::new(places.min(Semaphore::MAX_PERMITS)), service }
    }

    /// Returns once a call was served. A client that goes away leaves its place to the next.
    pub(super) async fn serve(&self) {
        // It is never closed.
        let _place = self.free.acquire().await;
        sleep(self.service).await;
    }
}
