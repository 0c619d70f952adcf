//! How long a call takes beside other calls, whatever the load: by what it is for, and by how much was said.
//!
//! A model that is not busy takes a second for a verdict and a minute for a plan. So the time that calls take says something
//! about the load only beside the time that calls of their kind take. A kind is a role, and an octave of tokens in the
//! reply: within it, times differ by a factor of two at most where they grow with the tokens.

use std::collections::BTreeMap;

/// So many calls of a kind weigh as much as what was known before.
const WEIGHT: f64 = 8.0;

/// A role and the number of bits of the tokens that were received: at most 64 for each role.
type Kind = (usize, u32);

/// How long some calls took.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(BTreeMap<Kind, Sum>);

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: f64,
    seconds: f64,
}

impl Times {
    pub(super) fn note(&mut self, role: usize, tokens: i64, seconds: f64) {
        let bits = i64::BITS - tokens.max(0).leading_zeros();
        let sum = self.0.entry((role, bits)).or_default();
        sum.calls += 1.0;
        sum.seconds += seconds;
    }

    /// The mean of all, in seconds.
    pub(super) fn mean(&self) -> Option<f64> {
        let calls: f64 = self.0.values().map(|sum| sum.calls).sum();
        let seconds: f64 = self.0.values().map(|sum| sum.seconds).sum();
        (calls > 0.0).then(|| seconds / calls)
    }
}

/// What calls of each kind take in relation to each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    lengths: BTreeMap<Kind, f64>,
    /// How slow the endpoint was last.
    slowness: Option<f64>,
}

impl Lengths {
    /// How slow the endpoint was while calls took these times: the sum of these by the sum of what calls of their kinds
    /// take. Only what it is beside other times means something. `None` if there are none.
    ///
    /// What a kind takes is learnt on the way, relative to all others: neither a load nor a kind that is seen for the first
    /// time changes the unit.
    pub(super) fn slowness(&mut self, times: &Times) -> Option<f64> {
        times.mean().filter(|mean| *mean > 0.0)?;
        let known = times.0.iter().filter_map(|(kind, sum)| Some((self.lengths.get(kind)?, sum)));
        let (expected, took) = known.fold((0.0, 0.0), |(expected, took), (length, sum)| {
            (expected + length * sum.calls, took + sum.seconds)
        });
        let slowness = if expected > 0.0 && took > 0.0 {
            took / expected
        } else {
            // Nothing to compare with. The first of all are the unit; later ones came under the load of those before.
            self.slowness.unwrap_or(1.0)
        };
        for (kind, sum) in &times.0 {
            let length = sum.seconds / sum.calls / slowness;
            let known = self.lengths.entry(*kind).or_insert(length);
            *known += (length - *known) * sum.calls / (sum.calls + WEIGHT);
        }
        self.slowness = Some(slowness);
        Some(slowness)
    }
}
