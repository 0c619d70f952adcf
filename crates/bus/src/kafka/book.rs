//! What a polling thread knows of its partitions.

use crate::{GroupEvent, PartitionId};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

#[derive(Default)]
pub(super) struct Book {
    places: HashMap<PartitionId, Place>,
    /// Counts what was begun: a partition that went and came back is another one.
    begun: u64,
    /// One allocation for each topic's name, however many records come.
    topics: Vec<Arc<str>>,
    /// Whether some partition may have to be paused or resumed.
    unsettled: bool,
    /// Events that were taken from the client and did not fit; while there are any, all is paused.
    pub(super) in_hand: VecDeque<GroupEvent>,
    throttled: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// The offset that comes next; `None` if it was never known (from the beginning, nothing came yet).
    pub(super) position: Option<i64>,
    number: u64,
    /// What the application wants.
    paused: bool,
    /// What the client was told. It must never be told to resume what is not paused: it would begin
    /// again at an older offset.
    held: bool,
    /// Out of range: nothing more will come.
    pub(super) stopped: bool,
}

impl Book {
    /// Begins a partition that the client has just been told to read, and (`held`) to pause.
    pub(super) fn insert(&mut self, at: PartitionId, position: Option<i64>, held: bool) {
        self.begun += 1;
        self.places.insert(at, Place { position, number: self.begun, held, ..Place::default() });
        self.unsettled = true;
    }

    pub(super) fn remove(&mut self, at: &PartitionId) -> bool {
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

    /// Which assignment of each partition this is; `None` of one that is not assigned.
    pub(super) fn assignments<'a>(&self, of: impl Iterator<Item = &'a PartitionId>) -> Vec<Option<u64>> {
        of.map(|at| self.places.get(at).map(|place| place.number)).collect()
    }

    pub(super) fn all(&self) -> Vec<PartitionId> {
        let mut all: Vec<_> = self.places.keys().cloned().collect();
        all.sort();
        all
    }

    /// Those of `partitions` that the client holds paused. It would remember that beyond the assignment.
    pub(super) fn held(&self, partitions: &[PartitionId]) -> Vec<PartitionId> {
        let held = |at: &&PartitionId| self.places.get(at).is_some_and(|place| place.held);
        partitions.iter().filter(held).cloned().collect()
    }

    pub(super) fn is_throttled(&self) -> bool {
        self.throttled
    }

    /// Stops everything, or lets everything run that the application wants.
    pub(super) fn throttle(&mut self, throttled: bool) {
        self.throttled = throttled;
        self.unsettled = true;
    }

    /// Every partition of that number that still delivers, whatever its topic.
    pub(super) fn numbered(&self, partition: i32) -> Vec<(PartitionId, Place)> {
        let fits = |at: &PartitionId, place: &Place| at.partition == partition && !place.stopped;
        self.places
            .iter()
            .filter(|(at, place)| fits(at, place))
            .map(|(at, place)| (at.clone(), *place))
            .collect()
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
            if let Some(place) = self.places.get_mut(at) {
                place.paused = paused;
                self.unsettled = true;
            }
        }
    }

    /// The topic of each partition.
    pub(super) fn topics(&self) -> Vec<String> {
        self.places.keys().map(|at| at.topic.to_string()).collect()
    }

    /// What the client is now to pause and to resume.
    pub(super) fn settle(&mut self) -> (Vec<PartitionId>, Vec<PartitionId>) {
        let (mut pause, mut resume) = (Vec::new(), Vec::new());
        if std::mem::take(&mut self.unsettled) {
            for (at, place) in self.places.iter_mut().filter(|(_, place)| !place.stopped) {
                let hold = place.paused || self.throttled;
                if hold != place.held {
                    place.held = hold;
                    if hold { &mut pause } else { &mut resume }.push(at.clone());
                }
            }
        }
        (pause, resume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_hears_only_of_changes() {
        let (one, two) = (PartitionId::new("t", 1), PartitionId::new("t", 2));
        let mut book = Book::default();
        book.insert(one.clone(), None, false);
        book.insert(two.clone(), None, false);
        assert_eq!(book.settle(), (vec![], vec![]));

        book.want_paused(std::slice::from_ref(&one), true);
        book.want_paused(std::slice::from_ref(&one), false);
        assert_eq!(book.settle(), (vec![], vec![]), "resumed before it was paused");

        book.want_paused(std::slice::from_ref(&one), true);
        assert_eq!(book.settle(), (vec![one.clone()], vec![]));
        book.throttle(true);
        assert_eq!(book.settle(), (vec![two.clone()], vec![]));
        book.want_paused(std::slice::from_ref(&one), false);
        assert_eq!(book.settle(), (vec![], vec![]), "all is held while throttled");
        book.want_paused(std::slice::from_ref(&two), true);
        book.throttle(false);
        assert_eq!(book.settle(), (vec![], vec![one]));
        assert_eq!(book.held(&book.all()), [two]);
    }
}
