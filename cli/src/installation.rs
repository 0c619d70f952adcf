//! What an operator sees of an installation: its inboxes, who reads them, how far they are.

use starling_bus::{
    Bus, BusError, Committed, GroupDescription, Inspector, LogReader, PartitionId, ReaderEvent, StartAt,
    Watermarks,
};
use starling_protocol::{Codec, Timestamp, Topic, TopicNames, fleet::FleetBeat};
use starling_runtime::{fleet::LOOK_BACK, settings::TopicSettings};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A topic and the group that reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbox {
    /// For people, such as `worker` or `worker.gpu`.
    pub role: String,
    /// The consumer group.
    pub group: String,
    /// The topic.
    pub topic: Topic,
    /// Its full name.
    pub name: String,
}

/// Every inbox that a service of this installation reads.
#[must_use]
pub fn inboxes(settings: &TopicSettings) -> Vec<Inbox> {
    let names = TopicNames::new(settings.prefix.as_str());
    let read = |topic| reader_of(&topic).map(|role| (role, topic));
    Topic::all_with(&settings.pools)
        .into_iter()
        .filter_map(read)
        .map(|(role, topic)| Inbox { group: names.group(&role), name: names.name(&topic), role, topic })
        .collect()
}

/// The role of the group that reads a topic; `None` if no group does.
#[must_use]
pub fn reader_of(topic: &Topic) -> Option<String> {
    match topic {
        Topic::Intents => Some("intake".to_owned()),
        Topic::Coordinator | Topic::Planner | Topic::Worker(_) | Topic::Critic => Some(topic.suffix()),
        _ => None,
    }
}

/// The group that a beat speaks for: the last part of the process's name.
#[must_use]
pub fn role_of(beat: &FleetBeat, names: &TopicNames) -> String {
    let last = beat.process.rsplit_once('/').map_or("", |(_, last)| last);
    let prefix = names.group("");
    match last.strip_prefix(prefix.as_str()).unwrap_or(last) {
        "" if beat.pool.is_empty() => beat.role.clone(),
        "" => format!("{}.{}", beat.role, beat.pool),
        role => role.to_owned(),
    }
}

/// What is known of an inbox.
#[derive(Clone, Debug)]
pub struct InboxState {
    /// Which one.
    pub inbox: Inbox,
    /// How many partitions it has.
    pub partitions: i32,
    /// Its group; `None` if the cluster does not tell.
    pub group: Result<Option<GroupDescription>, BusError>,
    /// First and next offset of each partition.
    pub marks: Result<Vec<Option<Watermarks>>, BusError>,
    /// What the group has committed for each partition.
    pub committed: Result<Vec<Option<i64>>, BusError>,
}

impl InboxState {
    /// Asks.
    pub async fn ask(inspector: &dyn Inspector, inbox: Inbox, partitions: i32) -> Self {
        let at: Vec<PartitionId> = all_partitions(&inbox.name, partitions);
        let (group, marks, committed) = futures::join!(
            inspector.group(&inbox.group),
            inspector.watermarks(&at),
            inspector.committed(&inbox.group, &at)
        );
        let offset = |committed: Option<Committed>| committed.map(|committed| committed.offset);
        let committed = committed.map(|all| all.into_iter().map(offset).collect());
        Self { inbox, partitions, group, marks, committed }
    }

    /// Records that the group has not done, if that is known.
    #[must_use]
    pub fn lag(&self) -> Option<i64> {
        let (Ok(marks), Ok(committed)) = (&self.marks, &self.committed) else { return None };
        lag(marks, committed)
    }

    /// Members and the partitions that none of them has; `None` if the cluster does not tell.
    #[must_use]
    pub fn members(&self) -> Option<(usize, Vec<i32>)> {
        let Ok(Some(group)) = &self.group else { return None };
        let read: BTreeSet<i32> = group
            .members
            .iter()
            .flat_map(|member| &member.partitions)
            .filter(|at| *at.topic == *self.inbox.name)
            .map(|at| at.partition)
            .collect();
        Some((group.members.len(), unread(&read, self.partitions)))
    }
}

/// All partitions of a topic.
#[must_use]
pub fn all_partitions(topic: &str, count: i32) -> Vec<PartitionId> {
    let topic: Arc<str> = topic.into();
    (0..count).map(|partition| PartitionId::new(topic.clone(), partition)).collect()
}

/// Partitions that are not among those read.
#[must_use]
pub fn unread(read: &BTreeSet<i32>, partitions: i32) -> Vec<i32> {
    (0..partitions).filter(|partition| !read.contains(partition)).collect()
}

/// Records between what is committed and the end. Where nothing is committed, a group begins at the first
/// record that is there. `None` if the end of a partition is unknown.
#[must_use]
pub fn lag(marks: &[Option<Watermarks>], committed: &[Option<i64>]) -> Option<i64> {
    marks
        .iter()
        .zip(committed)
        .map(|(marks, committed)| {
            let marks = (*marks)?;
            Some((marks.high - committed.unwrap_or(marks.low).max(marks.low)).max(0))
        })
        .sum()
}

/// What one listens to the fleet with.
pub struct FleetReader {
    reader: Arc<dyn LogReader>,
    codec: Codec,
    at: PartitionId,
    /// Beats from here on were said after listening began.
    pub live_from: i64,
}

/// A beat as it was heard.
#[derive(Clone, Debug)]
pub struct HeardBeat {
    /// What was said.
    pub beat: FleetBeat,
    /// The time in its record.
    pub stamped: Timestamp,
    /// Whether it was said after listening began.
    pub live: bool,
}

impl FleetReader {
    /// Begins a little before the end of the topic.
    ///
    /// # Errors
    /// The topic is missing, or the broker is unreachable.
    pub async fn open(bus: &dyn Bus, names: &TopicNames) -> Result<Self, BusError> {
        let at = PartitionId::new(names.name(&Topic::Fleet), 0);
        // Of a topic that must not be seen, the offsets look as if it did not exist; this tells the difference.
        bus.partitions(&at.topic).await?;
        let marks = bus.watermarks(&at).await?;
        let reader = bus.reader().await?;
        reader.add(at.clone(), StartAt::Offset(marks.low.max(marks.high - LOOK_BACK))).await?;
        Ok(Self { reader, codec: Codec::default(), at, live_from: marks.high })
    }

    /// The next beat. What is no beat is passed over.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub async fn next(&self) -> Result<HeardBeat, BusError> {
        loop {
            match self.reader.next().await {
                ReaderEvent::Record(record) => {
                    if let Ok(beat) = self.codec.decode(record.value()) {
                        let live = record.offset >= self.live_from;
                        return Ok(HeardBeat { beat, stamped: record.timestamp, live });
                    }
                }
                ReaderEvent::End { .. } => {}
                ReaderEvent::OutOfRange { .. } => {
                    self.reader.remove(&self.at).await;
                    self.reader.add(self.at.clone(), StartAt::End).await?;
                }
                ReaderEvent::Trouble(error) => return Err(error),
            }
        }
    }
}

/// How many of what, in the order of their names: `2 critics, 1 planner`.
#[must_use]
pub fn counted<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let texts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    texts.join(", ")
}

/// Numbers as people write them: `0-3, 7`.
#[must_use]
pub fn ranges(numbers: &[i32]) -> String {
    let mut spans: Vec<(i32, i32)> = Vec::new();
    for number in numbers {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => spans.push((*number, *number)),
        }
    }
    let text = |(first, last): &(i32, i32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    spans.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_counts_from_the_commit_or_from_what_is_there() {
        let marks = |low, high| Some(Watermarks { low, high });
        for (of, committed, expected) in [
            (vec![marks(0, 10), marks(5, 9)], vec![Some(7), None], Some(3 + 4)),
            (vec![marks(5, 9)], vec![Some(2)], Some(4)),
            (vec![marks(0, 3)], vec![Some(5)], Some(0)),
            (vec![marks(0, 3), None], vec![Some(3), Some(0)], None),
            (vec![], vec![], Some(0)),
        ] {
            assert_eq!(lag(&of, &committed), expected, "{of:?} {committed:?}");
        }
    }

    #[test]
    fn numbers_and_names_for_people() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(ranges(&[]), "");
        assert_eq!(counted(["worker", "critic", "worker"].into_iter()), "1 critic, 2 worker");
        assert_eq!(unread(&BTreeSet::from([0, 2]), 4), [1, 3]);
    }
}
