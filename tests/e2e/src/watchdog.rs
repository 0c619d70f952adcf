//! An end for a test that waits for ever. It would hold its place on the machine, and whoever waits for all places
//! would wait with it, until somebody stops the whole run and nobody knows which test it was.

use crate::process;
use std::{
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

/// Ends this program, and its processes, unless it is dropped in time.
#[derive(Debug)]
pub(crate) struct Watchdog {
    _dropped: Sender<()>,
}

impl Watchdog {
    /// Watches the test that runs on this thread.
    pub(crate) fn start(limit: Duration) -> Self {
        let test = thread::current().name().unwrap_or("a test").to_owned();
        let (sender, dropped) = channel();
        thread::spawn(move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!(
                    "{test} has not ended within {limit:?}: this program ends, and its processes with it"
                );
                process::kill_all();
                std::process::exit(70);
            }
        });
        Self { _dropped: sender }
    }
}
