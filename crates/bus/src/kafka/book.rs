//! What a polling thread knows of its partitions.

use crate::{GroupEvent, PartitionId};
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

#[derive(Default)]
pub(super) struct Book {
    places: HashMap<PartitionId, Place>,
    /// One allocation for each topic's name, however many records come.
    topics: Vec<Arc<str>>,
    /// Partitions whose wish to be paused has changed and was not yet told to the client.
    changed: BTreeSet<PartitionId>,
    /// Events that were taken from the client and did not fit; while there are any, all is paused.
    pub(super) in_hand: VecDeque<GroupEvent>,
    pub(super) throttled: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// The offset that comes next; `None` if it was never known (from the beginning, nothing came yet).
    pub(super) position: Option<i64>,
    paused: bool,
    /// Out of range: nothing more will come.
    pub(super) stopped: bool,
}

impl Book {
    pub(super) fn insert(&mut self, at: PartitionId, position: Option<i64>) {
        self.places.insert(at, Place { position, ..Place::default() });
    }

    pub(super) fn remove(&mut self, at: &PartitionId) -> bool {
        self.changed.remove(at);
        self.in_hand.retain(|event| match event {
            GroupEvent::Record(record) => record.at != *at,
            GroupEvent::End { at: other, .. } | GroupEvent::OutOfRange { at: other, .. } => other != at,
            _ => true,
        });
        self.places.remove(at).is_some()
    }

    pub(super) fn contains(&self, at: &PartitionId) -> bool {
        self.places.contains_key(at)
    }

    pub(super) fn all(&self) -> Vec<PartitionId> {
        let mut all: Vec<_> = self.places.keys().cloned().collect();
        all.sort();
        all
    }

    /// Those that deliver unless the whole client is throttled.
    pub(super) fn running(&self) -> Vec<PartitionId> {
        let runs = |place: &Place| !place.paused && !place.stopped;
        self.places.iter().filter(|(_, place)| runs(place)).map(|(at, _)| at.clone()).collect()
    }

    /// Every partition of that number that still delivers, whatever its topic.
    pub(super) fn numbered(&self, partition: i32) -> Vec<(PartitionId, Place)> {
        let fits = |at: &PartitionId, place: &Place| at.partition == partition && !place.stopped;
        self.places.iter().filter(|(at, place)| fits(at, place)).map(|(at, place)| (at.clone(), *place)).collect()
    }

    pub(super) fn places(&self) -> Vec<(PartitionId, Place)> {
        self.places.iter().map(|(at, place)| (at.clone(), *place)).collect()
    }

    /// The partition's name if it is read here, noting that `offset` has come.
    pub(super) fn came(&mut self, topic: &str, partition: i32, offset: i64) -> Option<PartitionId> {
        let topic = match self.topics.iter().find(|known| &***known == topic) {
            Some(known) => known.clone(),
            None => {
                let name: Arc<str> = topic.into();
                self.topics.push(name.clone());
                name
            }
        };
        let at = PartitionId { topic, partition };
        let place = self.places.get_mut(&at)?;
        place.position = Some(offset + 1);
        Some(at)
    }

    pub(super) fn stop(&mut self, at: &PartitionId) {
        if let Some(place) = self.places.get_mut(at) {
            place.stopped = true;
        }
    }

    pub(super) fn want_paused(&mut self, partitions: &[PartitionId], paused: bool) {
        for at in partitions {
            if let Some(place) = self.places.get_mut(at)
                && place.paused != paused
            {
                place.paused = paused;
                self.changed.insert(at.clone());
            }
        }
    }

    /// What is to be paused and what is to be resumed, and forgets it.
    pub(super) fn take_changes(&mut self) -> (Vec<PartitionId>, Vec<PartitionId>) {
        let changed = std::mem::take(&mut self.changed);
        let (pause, resume): (Vec<_>, Vec<_>) = changed
            .into_iter()
            .filter(|at| self.places.get(at).is_some_and(|place| !place.stopped))
            .partition(|at| self.places.get(at).is_some_and(|place| place.paused));
        // A throttled client resumes all that run when it has room again.
        (pause, if self.throttled { Vec::new() } else { resume })
    }
}
