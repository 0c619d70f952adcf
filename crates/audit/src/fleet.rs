//! Who had which worker partition when, as the beats of the fleet tell it.

use starling_protocol::fleet::FleetBeat;
use starling_protocol::{Timestamp, Topic};
use std::collections::BTreeMap;
use std::sync::Arc;

/// From when on somebody had a partition.
type Since = (Timestamp, Arc<str>);

/// Owners of worker partitions, as far as beats are left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners(BTreeMap<(Topic, i32), Vec<Since>>);

impl Owners {
    pub(crate) fn hear(&mut self, at: Timestamp, beat: FleetBeat) {
        if beat.role != "worker" {
            return;
        }
        let topic = Topic::Worker((!beat.pool.is_empty()).then_some(beat.pool));
        // A process may have several voices; results bear the name of the process.
        let process: Arc<str> = beat.process.split('/').next().unwrap_or_default().into();
        for partition in beat.partitions {
            let owners = self.0.entry((topic.clone(), partition)).or_default();
            if owners.last().is_none_or(|(_, owner)| *owner != process) {
                owners.push((at, process.clone()));
            }
        }
    }

    /// The process that had the partition then, as far as it is known.
    pub(crate) fn at(&self, topic: &Topic, partition: i32, time: Timestamp) -> Option<&str> {
        let owners = self.0.get(&(topic.clone(), partition))?;
        owners.iter().rev().find(|(since, _)| *since <= time).map(|(_, owner)| owner.as_ref())
    }
}
