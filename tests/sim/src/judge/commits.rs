//! Nothing counts as done before what follows from it is there.

use super::{Judge, Verdict, Violation, group_of};
use starling_bus::PartitionId;
use starling_engine::offsets::{MAX_METADATA_BYTES, OffsetTracker, Taken};

impl Judge {
    /// Judges what the groups have committed since the last time.
    pub(super) fn commits(&mut self) -> Verdict {
        let partitions: Vec<(PartitionId, &'static str, i64)> = self
            .cursors
            .iter()
            .filter_map(|(at, cursor)| Some((at.clone(), group_of(self.topics.get(&at.topic)?)?, *cursor)))
            .collect();
        for (at, group, end) in partitions {
            let now = self.network.committed_of(&self.names.group(group), &at);
            let before = self.committed.get(&at).cloned().unwrap_or_default();
            if now == before {
                continue;
            }
            if now.0 < before.0 {
                let how = format!("{at}: committed {} after {}", now.0, before.0);
                return Err(Violation::new("commit", how));
            }
            let (mut tracker, _) = OffsetTracker::restore(now.0, &now.1, MAX_METADATA_BYTES);
            let done_above: Vec<i64> =
                (now.0..end).filter(|offset| tracker.taken(*offset) == Taken::AlreadyDone).collect();
            let open = |offset: i64| offset >= now.0 && !done_above.contains(&offset);
            for offset in (before.0..now.0).chain(done_above.iter().copied()) {
                if let Some(missing) = self.accounts.missing(&(at.clone(), offset), open) {
                    return Err(Violation::new("commit", format!("{missing}, which is not there")));
                }
            }
            self.committed.insert(at, now);
        }
        Ok(())
    }
}
