//! `[tenants]`: what each tenant may take.

use super::reader::Reader;
use starling_engine::coordinator::{TenantBudget, TenantBudgets, budget::Budget};
use std::time::Duration;

/// The section of all tenants that have none of their own.
const OTHERS: &str = "default";

/// Reads the sections, one a tenant.
pub(super) fn read(r: &mut Reader) -> TenantBudgets {
    let mut budgets = TenantBudgets::default();
    for name in r.sections("tenants") {
        let budget = r.within("tenants", &name, budget).flatten();
        if name == OTHERS {
            budgets.others = budget;
        } else {
            budgets.named.insert(name, budget);
        }
    }
    budgets
}

fn budget(r: &mut Reader) -> Option<TenantBudget> {
    const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
    let budget = Budget {
        calls: Some(r.integer("max_calls", 0..=i64::MAX)).filter(|most| *most > 0),
        tokens: Some(r.integer("max_tokens", 0..=i64::MAX)).filter(|most| *most > 0),
        cost_usd: Some(r.number("max_cost_usd", 0.0..=1e12)).filter(|most| *most > 0.0),
    };
    let per = r.duration("per", Duration::from_secs(10)..=LONGEST);
    if budget.is_bounded() && per.is_zero() && !r.is_faulty("per") {
        r.complain("per", "how long the budget is for, such as \"1d\"", "nothing", "the settings");
    }
    budget.is_bounded().then_some(TenantBudget { budget, per })
}
