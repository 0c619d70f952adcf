//! Keeps the intake from taking in more than the coordinators have room for.

use starling_engine::intake::allowance;
use starling_protocol::fleet::FleetBeat;
use starling_runtime::parallel::Admission;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

/// Grants `admission` its share of the room that the coordinators announce, anew every `every`, which is the time
/// between two of their beats. Returns when the fleet is not listened to any more.
pub(crate) async fn pace(
    admission: Admission,
    mut beats: watch::Receiver<Arc<Vec<FleetBeat>>>,
    every: Duration,
) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut granted = None;
    loop {
        let in_turn = tokio::select! {
            biased;
            _ = ticks.tick() => true,
            heard = beats.changed() => match heard {
                Ok(()) => false,
                Err(_) => return,
            },
        };
        let allowed = allowance(&beats.borrow_and_update());
        // In between it only goes down: what was granted for this interval is granted once.
        if in_turn || granted == Some(0) {
            if allowed == Some(0) && granted != Some(0) {
                tracing::warn!("the memory of a coordinator is full: intents wait in the input topic");
            }
            granted = allowed;
            admission.allow(allowed);
        } else {
            if allowed == Some(0) {
                granted = allowed;
            }
            admission.restrict(allowed);
        }
    }
}
