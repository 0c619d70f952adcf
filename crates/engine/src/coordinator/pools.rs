//! Worker pools: each has an inbox of its own, and what is sent there is counted for itself.

use std::collections::BTreeMap;

/// How many partitions the inbox of each worker pool has. The default pool is always among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerInboxes {
    /// Of the default pool.
    default: usize,
    /// Of the others, by their names.
    named: BTreeMap<String, usize>,
}

impl WorkerInboxes {
    /// The same with another pool.
    #[must_use]
    pub fn with(mut self, pool: impl Into<String>, partitions: i32) -> Self {
        self.named.insert(pool.into(), count(partitions));
        self
    }
}

/// The default pool alone.
impl From<i32> for WorkerInboxes {
    fn from(partitions: i32) -> Self {
        Self { default: count(partitions), named: BTreeMap::new() }
    }
}

fn count(partitions: i32) -> usize {
    usize::try_from(partitions).unwrap_or(1).max(1)
}

/// A pool, by its place among those of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pool(usize);

/// The pools of an installation, and how many tasks each has.
#[derive(Clone, Debug)]
pub(super) struct Pools {
    /// In the order of their names, without the default pool.
    names: Vec<String>,
    /// Of each, the default pool first.
    counts: Vec<Outstanding>,
}

/// Tasks with the workers of a pool.
#[derive(Clone, Debug)]
struct Outstanding {
    by_partition: Vec<u32>,
    /// Those of intents of which somebody waits for the outcome, and those of batches.
    by_class: [usize; 2],
}

impl Pools {
    pub(super) fn new(inboxes: WorkerInboxes) -> Self {
        let WorkerInboxes { default, named } = inboxes;
        let counts = std::iter::once(default).chain(named.values().copied());
        let none = |partitions| Outstanding { by_partition: vec![0; partitions], by_class: [0; 2] };
        let counts = counts.map(none).collect();
        Self { names: named.into_keys().collect(), counts }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Pool> + use<> {
        (0..self.counts.len()).map(Pool)
    }

    /// Whether there is no other than the default one.
    pub(super) fn is_one(&self) -> bool {
        self.names.is_empty()
    }

    /// The pool of a task that names it so. One that is not there any more is the default one: somebody has to do what was
    /// planned for it.
    pub(super) fn named(&self, name: &str) -> Pool {
        Pool(self.names.binary_search_by(|known| known.as_str().cmp(name)).map_or(0, |at| at + 1))
    }

    /// Its name; none for the default one.
    pub(super) fn name(&self, pool: Pool) -> Option<&str> {
        self.names.get(pool.0.checked_sub(1)?).map(String::as_str)
    }

    /// Tasks with its workers, by partition.
    pub(super) fn outstanding(&self, pool: Pool) -> &[u32] {
        self.counts.get(pool.0).map_or(&[], |of| of.by_partition.as_slice())
    }

    /// Tasks with its workers that are of batches, or that are not.
    pub(super) fn outstanding_of(&self, pool: Pool, batch: bool) -> usize {
        self.counts.get(pool.0).map_or(0, |of| of.by_class[usize::from(batch)])
    }

    pub(super) fn add(&mut self, pool: Pool, partition: i32, batch: bool) {
        if let Some((count, total)) = self.in_partition(pool, partition, batch) {
            *count += 1;
            *total += 1;
        }
    }

    pub(super) fn remove(&mut self, pool: Pool, partition: i32, batch: bool) {
        if let Some((count, total)) = self.in_partition(pool, partition, batch) {
            *count -= 1;
            *total -= 1;
        }
    }

    fn in_partition(&mut self, pool: Pool, partition: i32, batch: bool) -> Option<(&mut u32, &mut usize)> {
        let of_pool = self.counts.get_mut(pool.0)?;
        // What was sent when there were more partitions is counted for the last one.
        let last = of_pool.by_partition.len().checked_sub(1)?;
        let count = of_pool.by_partition.get_mut(usize::try_from(partition).unwrap_or(0).min(last))?;
        Some((count, &mut of_pool.by_class[usize::from(batch)]))
    }
}

/// Something for each pool.
#[derive(Clone, Debug)]
pub(super) struct ByPool<T>(Vec<T>);

impl<T: Default> ByPool<T> {
    pub(super) fn of(pools: &Pools) -> Self {
        Self(pools.all().map(|_| T::default()).collect())
    }
}

impl<T> ByPool<T> {
    pub(super) fn get(&self, pool: Pool) -> Option<&T> {
        self.0.get(pool.0)
    }

    pub(super) fn get_mut(&mut self, pool: Pool) -> Option<&mut T> {
        self.0.get_mut(pool.0)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pool_is_counted_for_itself_and_one_that_is_gone_is_the_default_one() {
        let mut pools = Pools::new(WorkerInboxes::from(2).with("research", 3).with("code", 1));
        assert_eq!(
            pools.all().map(|pool| pools.name(pool)).collect::<Vec<_>>(),
            [None, Some("code"), Some("research")]
        );
        let (default, research) = (pools.named(""), pools.named("research"));
        assert_eq!(pools.named("gone"), default);
        pools.add(research, 2, false);
        pools.add(default, 0, true);
        pools.add(default, 9, false);
        assert_eq!((pools.outstanding(default), pools.outstanding(research)), (&[1, 1][..], &[0, 0, 1][..]));
        pools.remove(default, 9, false);
        let of = |pool| [false, true].map(|batch| pools.outstanding_of(pool, batch));
        assert_eq!((of(default), of(research)), ([0, 1], [1, 0]));
    }
}
