//! Which tenants have a budget, and for how long it lasts.

use super::budget::Budget;
use starling_protocol::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a tenant may take in each window of time. When a window ends, what was not taken is gone, and the next one has
/// the whole again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TenantBudget {
    /// How much.
    pub budget: Budget,
    /// Length of a window. Windows begin at multiples of it since 1970.
    pub per: Duration,
}

/// A stretch of time, its end not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) starts: Timestamp,
    pub(super) ends: Timestamp,
}

impl TenantBudget {
    /// The window that an instant lies in.
    pub(super) fn window(&self, at: Timestamp) -> Window {
        let per = i64::try_from(self.per.as_millis()).unwrap_or(i64::MAX).max(1);
        let starts = at.0.div_euclid(per).saturating_mul(per);
        Window { starts: Timestamp(starts), ends: Timestamp(starts.saturating_add(per)) }
    }
}

impl std::fmt::Display for TenantBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.per.as_secs();
        let (count, unit) = match seconds {
            0 => return write!(f, "{} in {} ms", self.budget, self.per.as_millis()),
            _ if seconds.is_multiple_of(86_400) => (seconds / 86_400, "d"),
            _ if seconds.is_multiple_of(3_600) => (seconds / 3_600, "h"),
            _ if seconds.is_multiple_of(60) => (seconds / 60, "m"),
            _ => (seconds, "s"),
        };
        write!(f, "{} in {count}{unit}", self.budget)
    }
}

/// The budgets of all tenants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantBudgets {
    /// That of each tenant that is not named; `None` bounds nothing.
    pub others: Option<TenantBudget>,
    /// Those of named tenants; `None` bounds nothing.
    pub named: BTreeMap<String, Option<TenantBudget>>,
}

impl TenantBudgets {
    /// The budget of a tenant, if it has one.
    #[must_use]
    pub fn of(&self, tenant: &str) -> Option<&TenantBudget> {
        self.named.get(tenant).unwrap_or(&self.others).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daily(calls: i64) -> TenantBudget {
        let budget = Budget { calls: Some(calls), ..Budget::default() };
        TenantBudget { budget, per: Duration::from_secs(86_400) }
    }

    #[test]
    fn windows_begin_at_multiples_of_their_length() {
        const DAY: i64 = 86_400_000;
        for (at, starts) in [(0, 0), (DAY - 1, 0), (DAY, DAY), (20_453 * DAY + 7, 20_453 * DAY), (-1, -DAY)] {
            let window = daily(1).window(Timestamp(at));
            assert_eq!((window.starts.0, window.ends.0), (starts, starts + DAY), "{at}");
        }
    }

    #[test]
    fn a_tenant_that_is_named_is_none_of_the_others() {
        let named = BTreeMap::from([("shop".to_owned(), Some(daily(9))), ("lab".to_owned(), None)]);
        let budgets = TenantBudgets { others: Some(daily(5)), named };
        let of = |tenant: &str| budgets.of(tenant).and_then(|tenant| tenant.budget.calls);
        assert_eq!((of("shop"), of("lab"), of("anybody")), (Some(9), None, Some(5)));
        assert_eq!(TenantBudgets::default().of("anybody"), None);
        assert_eq!(daily(9).to_string(), "9 calls in 1d");
    }
}
