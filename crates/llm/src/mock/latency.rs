//! How long replies take.

use super::draw::Draw;
use std::time::Duration;

/// The 99th percentile of the standard normal distribution.
const Z99: f64 = 2.326_347_874_040_841;

/// A distribution of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// Always the same.
    Fixed(Duration),
    /// Anything from the first up to the second, equally likely.
    Uniform(Duration, Duration),
    /// Log-normal, as the latencies of real services mostly are, by its percentiles.
    LogNormal {
        /// The median.
        p50: Duration,
        /// The 99th percentile.
        p99: Duration,
    },
}

/// The figures make no distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLatency {
    /// Of a range.
    #[error("the end of a range of latencies must not be below its beginning")]
    Range,
    /// Of percentiles.
    #[error("p50 of a latency must be above 0, and p99 not below it")]
    Percentiles,
}

impl Latency {
    /// Whether there is such a distribution.
    ///
    /// # Errors
    /// Says why not.
    pub fn check(self) -> Result<(), NoLatency> {
        match self {
            Latency::Uniform(from, to) if to < from => Err(NoLatency::Range),
            Latency::LogNormal { p50, p99 } if p50.is_zero() || p99 < p50 => Err(NoLatency::Percentiles),
            _ => Ok(()),
        }
    }

    pub(super) fn draw(self, draw: &mut Draw) -> Duration {
        match self {
            Latency::Fixed(latency) => latency,
            Latency::Uniform(from, to) => from + to.saturating_sub(from).mul_f64(draw.fraction()),
            Latency::LogNormal { p50, p99 } => {
                let deviation = (p99.as_secs_f64() / p50.as_secs_f64()).ln() / Z99;
                let factor = (deviation * draw.normal()).exp();
                Duration::try_from_secs_f64(p50.as_secs_f64() * factor).unwrap_or(p99)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn percentiles_are_those_that_were_asked_for() {
        let quantiles = |latency: Latency| {
            let mut draw = Draw::of(&[3]);
            let mut drawn: Vec<_> = (0..10_000).map(|_| latency.draw(&mut draw)).collect();
            drawn.sort_unstable();
            [0, 5_000, 9_900, 9_999].map(|rank| drawn.get(rank).copied().unwrap_or_default())
        };
        assert_eq!(quantiles(Latency::Fixed(ms(7))), [ms(7); 4]);
        let [least, p50, _, most] = quantiles(Latency::Uniform(ms(100), ms(200)));
        assert!(least >= ms(100) && most < ms(200) && p50 > ms(147) && p50 < ms(153), "{p50:?}");
        let [_, p50, p99, most] = quantiles(Latency::LogNormal { p50: ms(300), p99: ms(2_000) });
        assert!(p50 > ms(290) && p50 < ms(310), "{p50:?}");
        assert!(p99 > ms(1_800) && p99 < ms(2_200) && most > p99, "{p99:?}");
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        assert_eq!(Latency::Uniform(ms(2), ms(1)).check(), Err(NoLatency::Range));
        for (p50, p99) in [(0, 1), (2, 1)] {
            let latency = Latency::LogNormal { p50: ms(p50), p99: ms(p99) };
            assert_eq!(latency.check(), Err(NoLatency::Percentiles));
        }
        assert_eq!(Latency::LogNormal { p50: ms(1), p99: ms(1) }.check(), Ok(()));
    }
}
