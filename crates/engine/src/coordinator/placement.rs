//! Which worker partition a task goes to: 100 hashed keys would leave a third of 100 members idle, so the
//! coordinator chooses.

use super::event::FleetView;

/// Tasks that a member gets in one partition before the next of its partitions is used. What goes to one
/// partition goes in one request, and a member runs any number of one partition's tasks at a time.
const PACK: u32 = 32;

/// Who reads which partition of the worker inbox, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Placement {
    /// Index into `slots`, by partition.
    owner: Vec<Option<usize>>,
    slots: Vec<u64>,
    /// Partition that wins a tie, so that coordinators do not all begin with the same worker.
    first: usize,
}

/// How attractive a member is; the least is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Crowding {
    /// Has free slots: this many fewer than the greatest number.
    Free(u64),
    /// All slots are taken: this many thousandths of its slots are queued.
    Queued(u64),
    /// Nobody is known to read the partition.
    Unowned,
}

impl Placement {
    pub(super) fn new(view: &FleetView, pool: Option<&str>, partitions: usize, first: usize) -> Self {
        let mut placement = Self { owner: vec![None; partitions], slots: Vec::new(), first };
        let readers = view.workers.iter().filter(|worker| worker.pool.as_deref() == pool && worker.slots > 0);
        for worker in readers {
            let member = placement.slots.len();
            placement.slots.push(u64::try_from(worker.slots).unwrap_or(0));
            for &partition in &worker.partitions {
                let owner = usize::try_from(partition).ok().and_then(|p| placement.owner.get_mut(p));
                if let Some(owner) = owner {
                    *owner = Some(member);
                }
            }
        }
        placement
    }

    /// The partition for the next task, given how many tasks are outstanding in each: of the member with
    /// the most free slots, the first of its partitions that is not too full; of partitions that nobody is
    /// known to read, the one with the fewest.
    pub(super) fn choose(&self, outstanding: &[u32]) -> usize {
        let mut taken = vec![0_u64; self.slots.len()];
        for (owner, count) in self.owner.iter().zip(outstanding) {
            if let Some(member) = owner {
                taken[*member] += u64::from(*count);
            }
        }
        let partitions = outstanding.len().max(1);
        let crowding = |partition: usize| match self.owner.get(partition).copied().flatten() {
            None => Crowding::Unowned,
            Some(member) if taken[member] < self.slots[member] => {
                Crowding::Free(u64::MAX - (self.slots[member] - taken[member]))
            }
            Some(member) => Crowding::Queued(taken[member] * 1_000 / self.slots[member]),
        };
        (0..outstanding.len())
            .map(|step| (self.first + step) % partitions)
            .min_by_key(|&partition| {
                let owned = self.owner.get(partition).copied().flatten().is_some();
                let fill = if owned { outstanding[partition] / PACK } else { outstanding[partition] };
                (crowding(partition), fill)
            })
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::WorkerMember;

    fn fleet(members: &[(i32, &[i32])]) -> FleetView {
        let workers = members.iter().enumerate().map(|(at, (slots, partitions))| WorkerMember {
            process: format!("w{at}"),
            pool: None,
            slots: *slots,
            partitions: partitions.to_vec(),
        });
        FleetView { workers: workers.collect(), active_coordinators: 1 }
    }

    #[test]
    fn chooses_by_free_slots_then_by_outstanding() {
        let cases: &[(&str, FleetView, &[u32], usize, usize)] = &[
            ("nothing known, all empty: the first", fleet(&[]), &[0, 0, 0], 2, 2),
            ("nothing known: fewest outstanding", fleet(&[]), &[2, 1, 3], 0, 1),
            ("most free slots", fleet(&[(1, &[0]), (4, &[1])]), &[0, 2], 0, 1),
            ("its first partition", fleet(&[(8, &[0, 2]), (1, &[1])]), &[2, 0, 1], 0, 0),
            ("its next one when that is full", fleet(&[(80, &[0, 2]), (1, &[1])]), &[32, 0, 1], 0, 2),
            ("a free slot beats a queue", fleet(&[(1, &[0]), (4, &[1])]), &[0, 4], 0, 0),
            ("all full: the relatively shortest queue", fleet(&[(1, &[0]), (8, &[1])]), &[2, 9], 0, 1),
            ("unowned last", fleet(&[(1, &[1])]), &[0, 5, 0], 0, 1),
            ("unknown partition numbers are ignored", fleet(&[(1, &[9, -1, 1])]), &[0, 0], 0, 1),
        ];
        for (name, view, outstanding, first, expected) in cases {
            let placement = Placement::new(view, None, outstanding.len(), *first);
            assert_eq!(placement.choose(outstanding), *expected, "{name}");
        }
    }

    #[test]
    fn a_hundred_tasks_reach_a_hundred_members() {
        let members: Vec<Vec<i32>> = (0..100).map(|m| (0..128).filter(|p| p % 100 == m).collect()).collect();
        let members: Vec<(i32, &[i32])> = members.iter().map(|p| (1, p.as_slice())).collect();
        let placement = Placement::new(&fleet(&members), None, 128, 17);
        let mut outstanding = vec![0_u32; 128];
        for _ in 0..100 {
            let chosen = placement.choose(&outstanding);
            outstanding[chosen] += 1;
        }
        for member in &members {
            let tasks: u32 = member.1.iter().map(|p| outstanding[*p as usize]).sum();
            assert_eq!(tasks, 1);
        }
    }
}
