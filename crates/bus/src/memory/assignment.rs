//! Who of a group gets which partitions: balanced, and moving as few as possible.

use crate::PartitionId;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A member as the plan sees it.
pub(super) struct Candidate {
    pub(super) id: u64,
    pub(super) topics: Vec<Arc<str>>,
    /// What it has and need not give back.
    pub(super) keeps: BTreeSet<PartitionId>,
}

pub(super) type Plan = BTreeMap<u64, BTreeSet<PartitionId>>;

/// Plans the partitions of `topics` (name and count). `turn` rotates who is served first.
pub(super) fn plan(candidates: &[Candidate], topics: &[(Arc<str>, i32)], turn: usize) -> Plan {
    let mut plan: Plan = candidates.iter().map(|candidate| (candidate.id, BTreeSet::new())).collect();
    for (topic, count) in topics {
        let mut free: BTreeSet<PartitionId> =
            (0..*count).map(|partition| PartitionId::new(topic.clone(), partition)).collect();
        let shares = shares(candidates, topic, free.len(), turn, &plan);
        let mut room = Vec::with_capacity(shares.len());
        for (candidate, share) in shares {
            let own = plan.entry(candidate.id).or_default();
            let mut left = share;
            for at in candidate.keeps.iter().filter(|at| at.topic == *topic).take(share) {
                if free.remove(at) {
                    own.insert(at.clone());
                    left -= 1;
                }
            }
            room.push((candidate.id, left));
        }
        for (id, left) in room {
            let own = plan.entry(id).or_default();
            own.extend((0..left).map_while(|_| free.pop_first()));
        }
    }
    plan
}

/// How many partitions each subscriber of a topic gets: equal parts, and the remainder to those that
/// already have more of this topic, else to those that have fewest in all.
fn shares<'a>(
    candidates: &'a [Candidate],
    topic: &Arc<str>,
    partitions: usize,
    turn: usize,
    so_far: &Plan,
) -> Vec<(&'a Candidate, usize)> {
    let mut subscribers: Vec<&Candidate> =
        candidates.iter().filter(|candidate| candidate.topics.contains(topic)).collect();
    if subscribers.is_empty() {
        return Vec::new();
    }
    let count = subscribers.len();
    subscribers.rotate_left(turn % count);
    subscribers.sort_by_key(|candidate| {
        let kept = candidate.keeps.iter().filter(|at| at.topic == *topic).count();
        (Reverse(kept), so_far.get(&candidate.id).map_or(0, BTreeSet::len))
    });
    let (each, remainder) = (partitions / count, partitions % count);
    subscribers
        .into_iter()
        .enumerate()
        .map(|(rank, candidate)| (candidate, each + usize::from(rank < remainder)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, keeps: &[i32]) -> Candidate {
        Candidate {
            id,
            topics: vec!["t".into()],
            keeps: keeps.iter().map(|partition| PartitionId::new("t", *partition)).collect(),
        }
    }

    fn counts(plan: &Plan) -> Vec<usize> {
        plan.values().map(BTreeSet::len).collect()
    }

    #[test]
    fn a_newcomer_takes_only_its_share() {
        let candidates = [member(1, &[0, 1, 2, 3]), member(2, &[])];
        let plan = plan(&candidates, &[("t".into(), 4)], 0);
        assert_eq!(counts(&plan), [2, 2]);
        assert!(plan[&1].is_subset(&candidates[0].keeps), "what stays is not moved");
    }

    #[test]
    fn a_balanced_group_stays_as_it_is() {
        let candidates = [member(1, &[3, 4]), member(2, &[0, 1, 2])];
        for turn in 0..3 {
            let plan = plan(&candidates, &[("t".into(), 5)], turn);
            assert_eq!((&plan[&1], &plan[&2]), (&candidates[0].keeps, &candidates[1].keeps));
        }
    }

    #[test]
    fn a_hundred_members_share_128_partitions() {
        let candidates: Vec<_> = (0..100).map(|id| member(id, &[])).collect();
        let plan = plan(&candidates, &[("t".into(), 128)], 7);
        assert!(counts(&plan).iter().all(|count| (1..=2).contains(count)));
        assert_eq!(counts(&plan).iter().sum::<usize>(), 128);
    }
}
