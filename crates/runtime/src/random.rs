//! Chance, as a parameter.

use std::{fmt, sync::Arc};

/// Where random numbers come from: run ids, the nonces of epochs, jitter. A simulation draws them from its seed.
#[derive(Clone)]
pub struct Random(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Random {
    /// The machine's.
    #[must_use]
    pub fn system() -> Self {
        Self(Arc::new(rand::random))
    }

    /// What `draw` draws.
    pub fn of(draw: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(draw))
    }

    /// 64 random bits.
    #[must_use]
    pub fn bits(&self) -> u64 {
        (self.0)()
    }

    /// 128 random bits: enough for a name that nobody else has.
    #[must_use]
    pub fn name(&self) -> u128 {
        u128::from(self.bits()) << 64 | u128::from(self.bits())
    }

    /// A number from 0 up to, but not, 1.
    #[must_use]
    pub fn fraction(&self) -> f64 {
        // As many bits as fit into the mantissa, so that each step is the same.
        #[allow(clippy::cast_precision_loss)] // 53 bits are exact
        let bits = (self.bits() >> 11) as f64;
        bits / (1_u64 << 53) as f64
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_below_one() {
        assert!(Random::of(|| u64::MAX).fraction() < 1.0);
        assert_eq!(Random::of(|| 0).fraction().to_bits(), 0.0_f64.to_bits());
    }
}
