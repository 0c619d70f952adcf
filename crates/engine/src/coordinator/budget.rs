//! Budgets: what an intent may take in calls, tokens and money, and how much of it a step may take.
//!
//! What a step may take is reserved before it is sent, and settled by what it reports. So what is reserved and what
//! is reported never exceed the budget together, however much runs at once. Everything here is a function of what the
//! entities say.

use super::estimate::TokenPrice;
use starling_protocol::state::{Amount, IntentEntity, RunEntity};
use starling_protocol::{Allowance, CallReport};

/// Of the plan and of the answer: several tries may be reserved for them only where these take no more than this share
/// of the whole.
const SHARE_OF_ENDS: i64 = 10;

/// What an intent may take; what is absent is not bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// Model calls, retries included.
    pub calls: Option<i64>,
    /// Tokens, sent and received.
    pub tokens: Option<i64>,
    /// US dollars.
    pub cost_usd: Option<f64>,
}

impl Budget {
    /// That of an intent; `None` if nothing is bounded.
    #[must_use]
    pub fn of(intent: &IntentEntity) -> Option<Self> {
        let budget =
            Self { calls: intent.max_calls, tokens: intent.max_tokens, cost_usd: intent.max_cost_usd };
        budget.is_bounded().then_some(budget)
    }

    /// Whether anything is bounded.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.calls.is_some() || self.tokens.is_some() || self.cost_usd.is_some()
    }

    /// What is left of it once `taken` is gone; may be negative.
    #[must_use]
    pub fn less(&self, taken: Amount) -> Self {
        Self {
            calls: self.calls.map(|calls| calls.saturating_sub(taken.calls)),
            tokens: self.tokens.map(|tokens| tokens.saturating_sub(taken.tokens)),
            cost_usd: self.cost_usd.map(|cost| cost - taken.cost_usd),
        }
    }

    /// What it is with `given` on top.
    #[must_use]
    pub(super) fn more(&self, given: Amount) -> Self {
        self.less(minus(Amount::default(), given))
    }

    /// The parts of `amount` that this budget bounds.
    #[must_use]
    pub fn counting(&self, amount: Amount) -> Self {
        Self {
            calls: self.calls.map(|_| amount.calls),
            tokens: self.tokens.map(|_| amount.tokens),
            cost_usd: self.cost_usd.map(|_| amount.cost_usd),
        }
    }

    /// Whether there is anything in `amount` that this budget bounds.
    #[must_use]
    pub(super) fn counts(&self, amount: Amount) -> bool {
        let Self { calls, tokens, cost_usd } = self.counting(amount);
        // Sums of money are off by the last digit.
        calls.is_some_and(|n| n > 0)
            || tokens.is_some_and(|n| n > 0)
            || cost_usd.is_some_and(|cost| cost > 1e-9)
    }

    /// Bounds what either of them bounds.
    #[must_use]
    pub(super) fn or(&self, other: &Self) -> Self {
        Self {
            calls: self.calls.or(other.calls),
            tokens: self.tokens.or(other.tokens),
            cost_usd: self.cost_usd.or(other.cost_usd),
        }
    }

    /// One part of `parts` of it.
    #[must_use]
    pub(super) fn part(&self, parts: i64) -> Self {
        #[allow(clippy::cast_precision_loss)] // a few parts
        Self {
            calls: self.calls.map(|calls| calls / parts),
            tokens: self.tokens.map(|tokens| tokens / parts),
            cost_usd: self.cost_usd.map(|cost| cost / parts as f64),
        }
    }

    /// How often `once` fits into it.
    #[must_use]
    pub fn fits(&self, once: Amount) -> i64 {
        let whole = |left: Option<i64>, once: i64| match left {
            Some(left) if left < 0 => 0,
            Some(left) if once > 0 => left / once,
            _ => i64::MAX,
        };
        let money = match self.cost_usd {
            // Sums of money are off by the last digit: that is no reason to leave a step out.
            Some(left) if left < -1e-9 => 0,
            #[allow(clippy::cast_possible_truncation)] // a float that is no i64 becomes the nearest that is
            Some(left) if once.cost_usd > 0.0 => ((left.max(0.0) / once.cost_usd) + 1e-6).floor() as i64,
            _ => i64::MAX,
        };
        whole(self.calls, once.calls).min(whole(self.tokens, once.tokens)).min(money)
    }

    /// What a step gets of `amount`: only what is bounded, and tokens also where money is, by which they are counted.
    #[must_use]
    pub fn allowance(&self, amount: Amount) -> Allowance {
        Allowance {
            calls: amount.calls,
            tokens: (self.tokens.is_some() || self.cost_usd.is_some()).then_some(amount.tokens),
            cost_usd: self.cost_usd.map(|_| amount.cost_usd),
        }
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = [
            self.calls.map(|calls| format!("{calls} calls")),
            self.tokens.map(|tokens| format!("{tokens} tokens")),
            self.cost_usd.map(|cost| format!("${cost}")),
        ]
        .into_iter()
        .flatten()
        .collect();
        f.write_str(&parts.join(", "))
    }
}

/// How many tries of each call a step may have: as many as leave one try for each of `steps`, this one included, but no
/// more than `most`. Where it is scarce, that is one try, so that as many steps as possible run at once. `None` if not
/// even one fits.
#[must_use]
pub fn tries(left: &Budget, once: Amount, steps: usize, most: i64) -> Option<i64> {
    let fits = left.fits(once);
    if fits < 1 {
        return None;
    }
    let steps = i64::try_from(steps).unwrap_or(i64::MAX).max(1);
    Some((fits / steps).clamp(1, most.max(1)))
}

/// The same for what an intent cannot do without, its plan and its answer, in view of the whole `budget`.
#[must_use]
pub fn tries_of_ends(budget: &Budget, once: Amount, most: i64) -> i64 {
    budget.part(SHARE_OF_ENDS).fits(once).clamp(1, most.max(1))
}

/// `amount`, so many times.
#[must_use]
pub fn times(amount: Amount, count: i64) -> Amount {
    #[allow(clippy::cast_precision_loss)] // a few tries
    Amount {
        calls: amount.calls.saturating_mul(count),
        tokens: amount.tokens.saturating_mul(count),
        cost_usd: amount.cost_usd * count as f64,
    }
}

/// Both together.
#[must_use]
pub fn plus(a: Amount, b: Amount) -> Amount {
    Amount {
        calls: a.calls.saturating_add(b.calls),
        tokens: a.tokens.saturating_add(b.tokens),
        cost_usd: a.cost_usd + b.cost_usd,
    }
}

/// The first without the second.
#[must_use]
pub(super) fn minus(a: Amount, b: Amount) -> Amount {
    Amount {
        calls: a.calls.saturating_sub(b.calls),
        tokens: a.tokens.saturating_sub(b.tokens),
        cost_usd: a.cost_usd - b.cost_usd,
    }
}

/// The same as an amount; of what is not bounded, nothing.
#[must_use]
pub(super) fn amount_of(budget: &Budget) -> Amount {
    Amount {
        calls: budget.calls.unwrap_or(0),
        tokens: budget.tokens.unwrap_or(0),
        cost_usd: budget.cost_usd.unwrap_or(0.0),
    }
}

/// What reports say together.
#[must_use]
pub(super) fn reported(reports: &[&CallReport]) -> Amount {
    reports.iter().fold(Amount::default(), |sum, report| {
        let tokens = report.usage.total();
        plus(sum, Amount { calls: report.calls, tokens, cost_usd: report.cost_usd })
    })
}

/// What a call takes that sends and receives so many tokens.
#[must_use]
pub(super) fn call(prompt: i64, reply: i64, price: Option<TokenPrice>) -> Amount {
    #[allow(clippy::cast_precision_loss)] // far below 2^52 tokens
    let cost_usd =
        price.map_or(0.0, |price| (prompt as f64 * price.input + reply as f64 * price.output) / 1_000_000.0);
    Amount { calls: 1, tokens: prompt.saturating_add(reply), cost_usd }
}

/// What was spent for certain, or counts as spent.
#[must_use]
pub fn spent(run: &RunEntity) -> Amount {
    let reported = Amount { calls: run.calls, tokens: run.usage.total(), cost_usd: run.cost_usd };
    let unsettled = run.unsettled.iter().fold(Amount::default(), |sum, step| plus(sum, step.amount));
    plus(plus(reported, run.written_off.unwrap_or_default()), unsettled)
}

/// How much the reports of a step say of what it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// All.
    All,
    /// How many calls; the last of them broke off.
    Calls,
    /// Nothing: its process could not say.
    Nothing,
}

/// What counts as spent of a reservation beside what the reports say: what they do not say, in full.
#[must_use]
pub(super) fn unsaid(reserved: Amount, reports: &[&CallReport], said: Said) -> Amount {
    let Amount { calls, tokens, cost_usd: cost } = reported(reports);
    let unpriced = reports.iter().any(|report| report.unpriced_calls > 0);
    let known = said == Said::All || (said == Said::Calls && calls == 0);
    Amount {
        calls: if said == Said::Nothing { (reserved.calls - calls).max(0) } else { 0 },
        tokens: if known { 0 } else { (reserved.tokens - tokens).max(0) },
        cost_usd: if known && !unpriced { 0.0 } else { (reserved.cost_usd - cost).max(0.0) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_protocol::Usage;

    fn amount(calls: i64, tokens: i64, cost_usd: f64) -> Amount {
        Amount { calls, tokens, cost_usd }
    }

    #[test]
    fn a_scarce_budget_gives_one_try_and_an_ample_one_several() {
        let calls = |calls| Budget { calls: Some(calls), ..Budget::default() };
        let tokens = |tokens| Budget { tokens: Some(tokens), ..Budget::default() };
        let money = |cost| Budget { cost_usd: Some(cost), ..Budget::default() };
        let step = amount(2, 1_000, 0.01);
        let table = [
            // what is left, steps to come, most tries, expected
            ("nothing is bounded", Budget::default(), 100, 4, Some(4)),
            ("nothing is left", calls(0), 1, 4, None),
            ("more is gone than there was", calls(-3), 1, 4, None),
            ("one call of two", calls(1), 1, 4, None),
            ("just one step", calls(2), 1, 4, Some(1)),
            ("just one step, and many want it", calls(3), 100, 4, Some(1)),
            ("half of the steps", calls(100), 100, 4, Some(1)),
            ("all of the steps, no more", calls(200), 100, 4, Some(1)),
            ("twice all of the steps", calls(400), 100, 4, Some(2)),
            ("not quite three times", calls(598), 100, 4, Some(2)),
            ("as much as is of use", calls(8_000), 100, 4, Some(4)),
            ("the last step takes what is left", calls(9), 1, 4, Some(4)),
            ("no step is known", calls(9), 0, 1, Some(1)),
            ("tokens: too few", tokens(999), 1, 4, None),
            ("tokens: for three", tokens(3_500), 1, 4, Some(3)),
            ("money: too little", money(0.009), 1, 4, None),
            ("money: a sum with an error in its last digit", money(0.03 - 1e-12), 3, 4, Some(1)),
            ("money: for two each", money(0.2), 10, 4, Some(2)),
            ("money: gone", money(-0.01), 1, 4, None),
            (
                "the scarcest decides",
                Budget { calls: Some(100), tokens: Some(1_500), cost_usd: Some(9.0) },
                1,
                4,
                Some(1),
            ),
        ];
        for (name, left, steps, most, expected) in table {
            assert_eq!(tries(&left, step, steps, most), expected, "{name}");
        }
        assert_eq!(tries(&money(0.0), amount(1, 10, 0.0), 1, 2), Some(2), "a model that costs nothing");
    }

    #[test]
    fn plan_and_answer_have_several_tries_where_these_are_a_small_part_of_the_whole() {
        let calls = |calls| Budget { calls: Some(calls), ..Budget::default() };
        let once = amount(1, 1_000, 0.01);
        for (budget, expected) in
            [(calls(3), 1), (calls(19), 1), (calls(20), 2), (calls(50), 4), (calls(900), 4)]
        {
            assert_eq!(tries_of_ends(&budget, once, 4), expected, "{budget}");
        }
        let tokens = Budget { calls: Some(900), tokens: Some(25_000), cost_usd: None };
        assert_eq!(tries_of_ends(&tokens, once, 4), 2);
    }

    #[test]
    fn what_a_report_does_not_say_counts_in_full() {
        let report = |calls, tokens, cost_usd, unpriced_calls| CallReport {
            calls,
            usage: Usage { prompt_tokens: tokens, ..Usage::default() },
            cost_usd,
            unpriced_calls,
            ..CallReport::default()
        };
        let reserved = amount(4, 1_000, 0.5);
        let table = [
            (Said::All, report(1, 100, 0.1, 0), amount(0, 0, 0.0)),
            (Said::All, report(1, 100, 0.0, 1), amount(0, 0, 0.5)),
            (Said::Calls, report(1, 100, 0.125, 0), amount(0, 900, 0.375)),
            (Said::Calls, report(0, 0, 0.0, 0), amount(0, 0, 0.0)),
            (Said::Nothing, report(0, 0, 0.0, 0), reserved),
            (Said::Nothing, report(9, 9_000, 9.0, 0), amount(0, 0, 0.0)),
        ];
        for (said, report, expected) in table {
            assert_eq!(unsaid(reserved, &[&report], said), expected, "{said:?} {report:?}");
        }
    }

    #[test]
    fn an_allowance_names_what_is_bounded() {
        let whole = amount(2, 900, 0.25);
        let of = |budget: Budget| budget.allowance(whole);
        let calls = of(Budget { calls: Some(9), ..Budget::default() });
        assert_eq!(calls, Allowance { calls: 2, tokens: None, cost_usd: None });
        let money = of(Budget { cost_usd: Some(9.0), ..Budget::default() });
        assert_eq!(money, Allowance { calls: 2, tokens: Some(900), cost_usd: Some(0.25) });
    }
}
