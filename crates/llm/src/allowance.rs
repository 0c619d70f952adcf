//! Whether a question may be asked once more, where what it may take is bounded.

use crate::openai::Price;
use starling_protocol::{Allowance, CallReport};

/// Why an attempt is not made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Shortfall {
    /// It does not fit into what is left.
    #[error("the allowance of this step does not cover another call: {0}")]
    Used(String),
    /// Money is bounded, and nobody knows what a call costs.
    #[error("the cost of this step is bounded, and model.prices has no price for {0}")]
    Unpriced(String),
}

/// Whether an attempt that takes `prompt` and at most `reply` tokens fits into `allowance` beside what `report` says was
/// taken already.
pub(crate) fn check(
    allowance: &Allowance,
    report: &CallReport,
    (prompt, reply): (i64, i64),
    price: Option<Price>,
) -> Result<(), Shortfall> {
    if report.calls >= allowance.calls {
        return Err(Shortfall::Used(format!("{} of {} calls are made", report.calls, allowance.calls)));
    }
    let taken = report.usage.total();
    let tokens = prompt.saturating_add(reply);
    if let Some(most) = allowance.tokens.filter(|most| taken.saturating_add(tokens) > *most) {
        return Err(Shortfall::Used(format!("{taken} of {most} tokens are taken, and it may take {tokens}")));
    }
    if let Some(most) = allowance.cost_usd {
        let Some(price) = price else { return Err(Shortfall::Unpriced(report.model.clone())) };
        #[allow(clippy::cast_precision_loss)] // far below 2^52 tokens
        let cost = (prompt as f64 * price.input + reply as f64 * price.output) / 1_000_000.0;
        let spent = report.cost_usd;
        // The last digit of a sum is no reason.
        if spent + cost > most * (1.0 + 1e-9) {
            return Err(Shortfall::Used(format!("${spent} of ${most} are spent, and it may cost ${cost}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_protocol::Usage;

    #[test]
    fn another_attempt_is_made_as_long_as_it_fits() {
        let report = |calls, tokens, cost_usd| CallReport {
            model: "m".into(),
            calls,
            usage: Usage { prompt_tokens: tokens, ..Usage::default() },
            cost_usd,
            ..CallReport::default()
        };
        let bounds = |calls, tokens, cost_usd| Allowance { calls, tokens, cost_usd };
        let price = Some(Price { input: 1_000.0, cached_input: 1_000.0, output: 10_000.0 }); // a call costs $1.1
        let table = [
            (bounds(1, None, None), report(0, 0, 0.0), price, true),
            (bounds(1, None, None), report(1, 0, 0.0), price, false),
            (bounds(0, None, None), report(0, 0, 0.0), price, false),
            (bounds(9, Some(200), None), report(0, 0, 0.0), price, true),
            (bounds(9, Some(200), None), report(1, 1, 0.0), price, false),
            (bounds(9, None, Some(1.1)), report(0, 0, 0.0), price, true),
            (bounds(9, None, Some(2.2)), report(1, 0, 1.1), price, true),
            (bounds(9, None, Some(2.2)), report(1, 0, 1.2), price, false),
            (bounds(9, None, None), report(5, 9_999, 9.0), None, true),
        ];
        for (allowance, report, price, expected) in table {
            let found = check(&allowance, &report, (100, 100), price);
            assert_eq!(found.is_ok(), expected, "{allowance:?} {report:?} {found:?}");
        }
        let unpriced = check(&bounds(1, None, Some(9.0)), &report(0, 0, 0.0), (1, 1), None);
        assert_eq!(unpriced, Err(Shortfall::Unpriced("m".into())));
    }
}
