//! Chance from a seed: the same seed and the same call have the same luck, whatever happens beside them.

/// A row of random numbers: splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    /// The row of these parts.
    pub(super) fn of(parts: &[u64]) -> Draw {
        parts.iter().fold(Draw(0), |mut draw, part| {
            draw.0 ^= part;
            Draw(draw.bits())
        })
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// From 0 up to 1, without it.
    #[allow(clippy::cast_precision_loss)] // 53 bits fit
    pub(super) fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One of them; `None` of none.
    pub(super) fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(all.len()).ok().filter(|count| *count > 0)?;
        all.get(usize::try_from(self.bits() % count).ok()?)
    }

    /// Normally distributed with mean 0 and deviation 1 (Box and Muller, 1958).
    pub(super) fn normal(&mut self) -> f64 {
        // Not 0, which has no logarithm.
        let (a, b) = (1.0 - self.fraction(), self.fraction());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_differ_by_their_parts_and_are_even() {
        let row = |parts: &[u64]| Draw::of(parts).bits();
        assert_eq!(row(&[1, 2]), row(&[1, 2]));
        assert_ne!(row(&[1, 2]), row(&[2, 1]));
        assert_ne!(row(&[0]), row(&[0, 0]));
        let mut draw = Draw::of(&[7]);
        let below = (0..10_000).filter(|_| draw.fraction() < 0.25).count();
        assert!((2_300..2_700).contains(&below), "{below}");
        let sum: f64 = (0..10_000).map(|_| draw.normal()).sum();
        assert!((sum / 10_000.0).abs() < 0.05, "{sum}");
        assert_eq!(draw.one_of::<u8>(&[]), None);
    }
}
