//! How far everything is read. The order of the questions matters: see [`starling_audit::Cut`].

use crate::installation::{all_partitions, reader_of};
use crate::scan::{ScanError, watermarks};
use starling_audit::{Cut, Extent};
use starling_bus::{Bus, BusError, PartitionId};
use starling_protocol::{Timestamp, Topic, TopicNames};
use std::time::Duration;

/// Clocks of producers differ: so much earlier may lie what belongs to a time.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// Asks how far everything is, and from where it is to be read.
///
/// # Errors
/// A topic is missing, or the broker does not tell.
pub(super) async fn take_cut(
    bus: &dyn Bus,
    names: &TopicNames,
    topics: &[Topic],
    since: Option<Timestamp>,
) -> Result<Cut, ScanError> {
    let inspector = bus.inspector();
    let mut cut = Cut::default();
    for topic in topics {
        // The coordinator's position is in its own log.
        let Some(role) = reader_of(topic).filter(|_| *topic != Topic::Coordinator) else { continue };
        let at = partitions(bus, names, topic).await?;
        let committed = inspector.committed(&names.group(&role), &at).await?;
        for (at, next) in at.iter().zip(committed) {
            if let Some(next) = next {
                cut.handled.insert((topic.clone(), at.partition), next.offset);
            }
        }
    }
    let state = partitions(bus, names, &Topic::State).await?;
    for (at, marks) in watermarks(inspector.as_ref(), &state).await? {
        cut.done_by.insert(at.partition, marks.high);
    }
    // Causes after their consequences; the topics stand in the order of causes.
    let others = topics.iter().filter(|topic| **topic != Topic::State);
    for topic in others.rev().chain([&Topic::State]) {
        let at = partitions(bus, names, topic).await?;
        let starts = match since.filter(|_| !matches!(topic, Topic::State | Topic::Content)) {
            Some(since) => {
                let since = Timestamp(since.0.saturating_sub(CLOCK_SKEW.as_millis() as i64));
                inspector.offsets_since(&at, since).await?
            }
            None => vec![Some(0); at.len()],
        };
        for ((at, marks), start) in watermarks(inspector.as_ref(), &at).await?.into_iter().zip(starts) {
            let extent = Extent { low: marks.low.max(start.unwrap_or(0)), high: marks.high };
            cut.extents.insert((topic.clone(), at.partition), extent);
        }
    }
    Ok(cut)
}

async fn partitions(bus: &dyn Bus, names: &TopicNames, topic: &Topic) -> Result<Vec<PartitionId>, BusError> {
    let name = names.name(topic);
    let count = bus.partitions(&name).await?;
    Ok(all_partitions(&name, count))
}
