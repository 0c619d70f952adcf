//! The bank: to whom a tenant's budget of one window is leased. It is kept by the partition that its address belongs to.
//!
//! What a partition holds it says itself, and never more than it was given; what it asks for it gets only if that is
//! free. So what all of them hold together never exceeds the budget: only what was spent beyond a reservation does.

use super::admission::Header;
use super::budget::{Budget, amount_of, minus, plus};
use super::{Coordinator, Destination, counters::Stale, tenants::TenantBudget};
use starling_protocol::state::{Amount, BankAccount, BankEntity};
use starling_protocol::{
    Body, DeadReason, Envelope, EnvelopeId, IntentId, LeaseGrant, LeaseRequest, RecordRef, Role, Tag,
    Timestamp,
};

/// Banks of one tenant that there may be at a time: of the present window, of the one before and of the next, because
/// clocks differ.
const WINDOWS: usize = 3;

/// What a bank says to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Answer {
    leased: Amount,
    granted: bool,
    most: Amount,
    moving: bool,
}

/// Takes a request into the accounts. `None` if it is not the latest of its partition.
fn lease(
    budget: &Budget,
    partitions: i32,
    accounts: &mut Vec<BankAccount>,
    request: &LeaseRequest,
) -> Option<Answer> {
    let known = accounts.iter().position(|account| account.partition == request.partition);
    if known.and_then(|at| accounts.get(at)).is_some_and(|account| account.asked >= request.asked) {
        return None;
    }
    let others = |part: fn(&BankAccount) -> Amount| {
        let others = accounts.iter().filter(|account| account.partition != request.partition);
        others.map(part).fold(Amount::default(), plus)
    };
    let (leased, spent, kept) = (others(|a| a.leased), others(|a| a.spent), others(|a| a.kept));
    let free = budget.less(plus(leased, request.held));
    let granted = request.need.is_none_or(|need| free.fits(need) > 0);
    let more = match request.need {
        Some(need) if granted => {
            // Some more than it needs, so that it need not ask for each step; the less, the less there is.
            let rest = amount_of(&free.less(need).part(i64::from(partitions.max(1))));
            plus(need, rest)
        }
        _ => Amount::default(),
    };
    let account = BankAccount {
        partition: request.partition,
        asked: request.asked,
        leased: plus(request.held, more),
        spent: request.spent,
        kept: request.kept,
    };
    let answer = Answer {
        leased: account.leased,
        granted,
        most: amount_of(&budget.less(spent)),
        moving: budget.counts(minus(leased, plus(spent, kept))),
    };
    match known.and_then(|at| accounts.get_mut(at)) {
        Some(known) => *known = account,
        None => accounts.push(account),
    }
    Some(answer)
}

impl Coordinator {
    pub(super) fn on_lease_request(
        &mut self,
        header: Header,
        request: &LeaseRequest,
        at: &RecordRef,
        trace: &str,
    ) {
        let (id, tenant) = (&header.intent_id, header.tenant.as_str());
        if *id != IntentId::bank(tenant, request.window) {
            let reason = format!("{id} is not the bank of tenant {tenant} for that window");
            return self.dead_letter(at.partition, at.offset, DeadReason::Misplaced, reason);
        }
        // Where coordinators have different settings for a while, or clocks that are a window apart: later.
        let later = LeaseGrant {
            window: request.window,
            asked: request.asked,
            leased: request.held,
            granted: request.need.is_none(),
            most: Amount { calls: i64::MAX, tokens: i64::MAX, cost_usd: f64::MAX },
            moving: true,
            refusal: None,
        };
        let grant = match self.settings.tenants.of(tenant).copied() {
            Some(of) if is_answered(&of, request.window, self.now) => {
                if self.store.ledgers().bank(id).is_none() {
                    self.open_bank(id, tenant, &of, request.window);
                }
                if self.store.ledgers().bank(id).is_none() {
                    let most = self.settings.max_tenants;
                    let refusal = Some(format!(
                        "there are books of {most} tenants, and no room for those of another one"
                    ));
                    LeaseGrant { most: request.held, moving: false, refusal, ..later }
                } else {
                    let partitions = self.settings.coordinator_partitions;
                    let mut answer = None;
                    self.store.edit_bank(id, |bank| {
                        answer = lease(&of.budget, partitions, &mut bank.accounts, request);
                    });
                    let Some(Answer { leased, granted, most, moving }) = answer else {
                        return self.counters.stale(Stale::Duplicate);
                    };
                    LeaseGrant { leased, granted, most, moving, ..later }
                }
            }
            _ => later,
        };
        self.answer(&header, request, grant, trace);
    }

    fn open_bank(&mut self, id: &IntentId, tenant: &str, of: &TenantBudget, window: Timestamp) {
        if self.store.ledgers().banks_count() >= self.settings.max_tenants.saturating_mul(WINDOWS) {
            return;
        }
        self.store.insert_bank(BankEntity {
            bank: id.clone(),
            tenant: tenant.to_owned(),
            window,
            forget_at: of.window(window).ends.plus(of.per),
            accounts: Vec::new(),
        });
    }

    fn answer(&mut self, header: &Header, request: &LeaseRequest, grant: LeaseGrant, trace: &str) {
        let cause = [request.purse.as_str(), &request.asked.to_string()];
        let envelope = Envelope {
            id: EnvelopeId::derive("lease_grant", &cause),
            intent_id: request.purse.clone(),
            tag: Tag::role(Role::Coordinator).with_lane(request.purse.as_str()),
            hop: 0,
            created_at: self.now,
            deadline: header.deadline,
            tenant: header.tenant.clone(),
            body: Body::LeaseGrant(grant),
        };
        self.send(Destination::Coordinator, envelope, trace.to_owned());
    }
}

/// Whether requests for a window are answered: from the window before it, as clocks differ, until the one after it has
/// ended. A bank is forgotten no earlier, so that none is opened twice.
fn is_answered(of: &TenantBudget, window: Timestamp, now: Timestamp) -> bool {
    let asked = of.window(window);
    asked.starts == window && window <= now.plus(of.per) && now < asked.ends.plus(of.per)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn calls(calls: i64) -> Amount {
        Amount { calls, tokens: calls * 100, cost_usd: 0.0 }
    }

    fn request(partition: i32, asked: i64, [held, spent, kept]: [i64; 3], need: Option<i64>) -> LeaseRequest {
        LeaseRequest {
            purse: IntentId::from_string(""),
            partition,
            window: Timestamp(0),
            asked,
            held: calls(held),
            spent: calls(spent),
            kept: calls(kept),
            need: need.map(calls),
        }
    }

    /// Request by request: who, its number, what it holds, has spent and keeps, what it needs; what it gets in calls,
    /// how many it could ever have, and whether something may come back.
    type Row = (i32, i64, [i64; 3], Option<i64>, Option<(i64, i64, bool)>);

    #[test]
    fn what_is_leased_is_never_more_than_the_budget_and_comes_back() {
        let budget = Budget { calls: Some(100), ..Budget::default() };
        let mut accounts = Vec::new();
        let table: [Row; 12] = [
            (0, 1, [0, 0, 0], Some(4), Some((4 + 24, 100, false))),
            (0, 1, [0, 0, 0], Some(4), None), // the same again
            (1, 1, [0, 0, 0], Some(60), Some((60 + 3, 100, true))),
            (2, 1, [0, 0, 0], Some(30), Some((0, 100, true))), // all or nothing
            (0, 2, [5, 3, 2], None, Some((5, 100, true))),     // gives 23 back
            (2, 2, [0, 0, 0], Some(30), Some((30, 97, true))),
            (1, 2, [60, 60, 0], None, Some((60, 97, true))),
            (0, 3, [5, 3, 2], Some(2), Some((5 + 2, 40, true))),
            (0, 2, [0, 0, 0], None, None), // overtaken
            (2, 3, [30, 30, 0], Some(9), Some((30, 37, true))),
            (0, 4, [5, 3, 2], None, Some((5, 10, false))),
            (2, 4, [30, 30, 0], Some(9), Some((30, 37, false))), // what is kept for answers does not move
        ];
        for (number, (partition, asked, what, need, expected)) in table.into_iter().enumerate() {
            let answer = lease(&budget, 4, &mut accounts, &request(partition, asked, what, need));
            let answer = answer.map(|answer| (answer.leased.calls, answer.most.calls, answer.moving));
            assert_eq!(answer, expected, "row {number}");
            let leased: i64 = accounts.iter().map(|account| account.leased.calls).sum();
            assert!(leased <= 100, "row {number}: {leased}");
        }
    }

    #[test]
    fn what_was_spent_beyond_a_reservation_is_taken_from_what_is_left() {
        let budget = Budget { calls: Some(10), ..Budget::default() };
        let mut accounts = Vec::new();
        lease(&budget, 4, &mut accounts, &request(0, 1, [0, 0, 0], Some(10))).unwrap();
        let answer = lease(&budget, 4, &mut accounts, &request(0, 2, [13, 13, 0], Some(1))).unwrap();
        assert_eq!(answer.leased.calls, 13);
        let answer = lease(&budget, 4, &mut accounts, &request(1, 1, [0, 0, 0], Some(1))).unwrap();
        assert_eq!((answer.leased.calls, answer.most.calls, answer.moving), (0, -3, false));
    }

    #[test]
    fn windows_that_are_over_are_not_opened_again() {
        let of = TenantBudget { budget: Budget::default(), per: std::time::Duration::from_millis(100) };
        for (window, now, answered) in [
            (200, 200, true),
            (200, 100, true),
            (200, 99, false),
            (200, 399, true),
            (200, 400, false),
            (250, 250, false),
        ] {
            assert_eq!(is_answered(&of, Timestamp(window), Timestamp(now)), answered, "{window} at {now}");
        }
    }
}
