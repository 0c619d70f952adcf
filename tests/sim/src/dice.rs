//! Chance, all of it from one seed: each thing that draws has a stream of its own, so that taking one fault away leaves
//! what others draw as it was.

use rand::{Rng as _, RngCore as _, SeedableRng as _, rngs::StdRng};
use std::time::Duration;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Dice(StdRng);

impl Dice {
    /// The stream `name` of a seed.
    #[must_use]
    pub(crate) fn of(seed: u64, name: &str) -> Self {
        // FNV-1a: only has to tell the names apart.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(StdRng::seed_from_u64(seed ^ hash.rotate_left(17)))
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// True with that probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        // Draws always, so that a probability of 0 does not shift what comes after.
        self.0.random::<f64>() < probability
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        self.0.random_range(low..=high.max(low))
    }

    /// The same as an index or a count.
    pub(crate) fn count(&mut self, low: usize, high: usize) -> usize {
        self.0.random_range(low..=high.max(low))
    }

    /// From `low` to `high` milliseconds.
    pub(crate) fn millis(&mut self, low: i64, high: i64) -> Duration {
        Duration::from_millis(u64::try_from(self.between(low, high)).unwrap_or(0))
    }

    /// One of several.
    ///
    /// # Panics
    /// There is none to choose from.
    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.count(0, of.len() - 1)].clone()
    }

    /// In another order.
    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.count(0, at));
        }
    }
}
