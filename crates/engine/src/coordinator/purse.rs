//! The purse: what this partition has of a tenant's budget in the present window. Intents of the tenant reserve out of
//! it and out of nothing else, so that no partition need know what the others do.
//!
//! Every reservation remembers the window that it is charged to. What comes back of it after that window has ended is
//! gone with it.

use super::budget::{Budget, amount_of, minus, plus};
use super::live::Live;
use super::store::Store;
use super::{Coordinator, CoordinatorSettings, estimate};
use starling_protocol::state::{Amount, Charge, Phase, PurseEntity};
use starling_protocol::{IntentId, Timestamp};
use std::collections::BTreeMap;

/// Of the tenant's budget, the answer of one intent may have no more than this part kept for it.
const PART_OF_ANSWER: i64 = 32;

/// How tenants are called that the settings do not name.
const OTHER_TENANTS: &str = "default";

/// What one intent may reserve of its tenant's budget now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Means {
    /// What the tenant may take in a window.
    pub(super) budget: Budget,
    /// When the present one starts.
    pub(super) window: Timestamp,
    /// What nobody has reserved yet of what the partition has.
    pub(super) left: Budget,
    /// What is kept for the intent's answer.
    pub(super) kept: Amount,
    /// What is still to be kept for it before anything else is begun.
    pub(super) to_keep: Amount,
}

impl Means {
    /// What there is for the answer.
    pub(super) fn for_answer(&self) -> Budget {
        self.left.more(self.kept)
    }
}

/// What a step takes out of a purse beside its reservation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Draw {
    /// The window.
    pub(super) window: Timestamp,
    /// What is kept for the answer from now on.
    pub(super) keep: Amount,
    /// Whether it is the answer, for which it was kept.
    pub(super) answers: bool,
}

/// What has been taken out of it.
pub(super) fn taken(purse: &PurseEntity) -> Amount {
    plus(plus(purse.spent, purse.open), purse.kept)
}

/// The means of an intent; `None` if its tenant has no budget.
pub(super) fn means(
    settings: &CoordinatorSettings,
    store: &Store,
    now: Timestamp,
    live: &Live,
) -> Option<Means> {
    let of = settings.tenants.of(&live.intent.tenant)?;
    let window = of.window(now).starts;
    let purse = store.ledgers().purse_of(&live.intent.tenant, window);
    let left = purse.map_or(Amount::default(), |purse| minus(purse.leased, taken(purse)));
    let kept = live.run.kept.filter(|kept| kept.window == window).map(|kept| kept.amount);
    let needs_none = live.is_single() || live.run.phase == Phase::Synthesizing || kept.is_some();
    let to_keep = if needs_none { Amount::default() } else { kept_for_answer(settings, live, &of.budget) };
    let left = of.budget.counting(left);
    Some(Means { budget: of.budget, window, left, kept: kept.unwrap_or_default(), to_keep })
}

/// What is kept for an answer, whatever becomes of the plan.
fn kept_for_answer(settings: &CoordinatorSettings, live: &Live, budget: &Budget) -> Amount {
    estimate::of_answer_to_come(&settings.costs, live, &budget.part(PART_OF_ANSWER))
}

impl Coordinator {
    /// Takes a reservation out of the tenant's purse, and what must be kept with it.
    pub(super) fn draw(&mut self, id: &IntentId, draw: Draw, amount: Amount) {
        let Some(live) = self.store.live(id) else { return };
        let (tenant, kept) = (live.intent.tenant.clone(), live.run.kept);
        self.move_purse(&tenant, Some(draw.window), |purse| purse.open = plus(purse.open, amount));
        if draw.answers {
            self.release_kept(id);
        } else if draw.keep != Amount::default() {
            // What an earlier window kept is gone with it.
            debug_assert!(kept.is_none_or(|kept| kept.window != draw.window));
            self.move_purse(&tenant, Some(draw.window), |purse| purse.kept = plus(purse.kept, draw.keep));
            let kept = Some(Charge { window: draw.window, amount: draw.keep });
            self.store.edit_run(id, |run| run.kept = kept);
        }
    }

    /// A reservation has become what was `spent` of it.
    pub(super) fn settle_charge(
        &mut self,
        id: &IntentId,
        charged: Option<Timestamp>,
        reserved: Amount,
        spent: Amount,
    ) {
        let Some(tenant) = self.store.live(id).map(|live| live.intent.tenant.clone()) else { return };
        self.move_purse(&tenant, charged, |purse| {
            purse.open = minus(purse.open, reserved);
            purse.spent = plus(purse.spent, spent);
        });
    }

    /// What counted as spent in full has turned out to be `spent`.
    pub(super) fn correct_charge(
        &mut self,
        id: &IntentId,
        charged: Option<Timestamp>,
        counted: Amount,
        spent: Amount,
    ) {
        let Some(tenant) = self.store.live(id).map(|live| live.intent.tenant.clone()) else { return };
        self.move_purse(&tenant, charged, |purse| purse.spent = plus(minus(purse.spent, counted), spent));
    }

    /// Something is reserved on top of what the purse has: it cannot be refused any more.
    pub(super) fn overdraw(&mut self, id: &IntentId, charged: Option<Timestamp>, amount: Amount) {
        let Some(tenant) = self.store.live(id).map(|live| live.intent.tenant.clone()) else { return };
        self.move_purse(&tenant, charged, |purse| purse.open = plus(purse.open, amount));
    }

    /// Nothing more is kept for the answer.
    fn release_kept(&mut self, id: &IntentId) {
        let Some(live) = self.store.live(id) else { return };
        let (Some(kept), tenant) = (live.run.kept, live.intent.tenant.clone()) else { return };
        self.store.edit_run(id, |run| run.kept = None);
        self.move_purse(&tenant, Some(kept.window), |purse| purse.kept = minus(purse.kept, kept.amount));
    }

    /// The intent ends: nobody will hear what its open steps took, so they count in full.
    pub(super) fn close_charges(&mut self, id: &IntentId) {
        self.release_kept(id);
        for (charged, amount) in self.store.live(id).map(open_charges).unwrap_or_default() {
            self.settle_charge(id, Some(charged), amount, amount);
        }
    }

    /// What tenants with a budget have spent in its present window. Those that the settings do not name are one, so that
    /// there are no more names than settings.
    #[must_use]
    pub fn spending(&self) -> BTreeMap<String, Amount> {
        let mut spent: BTreeMap<String, Amount> = BTreeMap::new();
        for purse in self.store.ledgers().purses().filter(|purse| purse.ends > self.now) {
            let named = self.settings.tenants.named.contains_key(&purse.tenant);
            let name = if named { purse.tenant.as_str() } else { OTHER_TENANTS };
            let sum = spent.entry(name.to_owned()).or_default();
            *sum = plus(*sum, purse.spent);
        }
        spent
    }

    fn move_purse(
        &mut self,
        tenant: &str,
        charged: Option<Timestamp>,
        change: impl FnOnce(&mut PurseEntity),
    ) {
        let Some(purse) = charged.and_then(|window| self.store.ledgers().purse_of(tenant, window)) else {
            return;
        };
        let (key, now, before) = (purse.purse.clone(), self.now, taken(purse));
        self.store.edit_purse(&key, |purse| {
            change(purse);
            purse.moved_at.get_or_insert(now);
        });
        let after = self.store.ledgers().purse(&key).map_or(before, taken);
        if after.calls < before.calls || after.tokens < before.tokens || after.cost_usd < before.cost_usd {
            self.leases.freed.insert(tenant.to_owned());
        }
    }
}

/// What is reserved for the steps of an intent that are under way, by the window that it is charged to.
pub(super) fn open_charges(live: &Live) -> Vec<(Timestamp, Amount)> {
    let plan = live.run.plan_charged.zip(live.run.plan_reserved);
    let tasks = live.tasks().filter_map(|task| task.charged.zip(task.reserved));
    plan.into_iter().chain(tasks).collect()
}

/// A purse in which nothing is yet.
pub(super) fn new_purse(
    tenant: &str,
    window: super::tenants::Window,
    partition: i32,
    partitions: i32,
) -> PurseEntity {
    PurseEntity {
        purse: IntentId::purse(tenant, window.starts, partition, partitions),
        tenant: tenant.to_owned(),
        window: window.starts,
        ends: window.ends,
        leased: Amount::default(),
        spent: Amount::default(),
        open: Amount::default(),
        kept: Amount::default(),
        asked: 0,
        answered: 0,
        asked_at: None,
        moved_at: None,
    }
}

/// What a purse that asks goes on holding: everything but what nobody has reserved.
pub(super) fn held(purse: &PurseEntity, budget: &Budget) -> Amount {
    amount_of(&budget.counting(taken(purse)))
}
