//! Asking the bank of a tenant for more, and giving back what is not needed.
//!
//! A request says all that the purse holds, without what nobody has reserved: that is given back by it. So it may be
//! lost, repeated or overtaken, and the next one puts it right. One is under way at a time. What is leased and not
//! reserved comes back after `lease_time`, and whoever waits asks again after `lease_retry`.
//!
//! An intent that lacks something waits as long as others may give it back. It is refused what could not be there even
//! then; and where nothing is under way any more, one that has begun makes its answer, which frees what was kept for it.

use super::admission::Header;
use super::budget::{minus, plus};
use super::purse::{held, means, new_purse, taken};
use super::reserve::{Cover, cover};
use super::tenants::TenantBudget;
use super::{Coordinator, Destination, counters::Stale};
use starling_protocol::state::{Amount, PurseEntity};
use starling_protocol::{
    Body, Envelope, EnvelopeId, IntentId, LeaseGrant, LeaseRequest, OutcomeStatus, Role, Tag,
};
use std::collections::{BTreeMap, BTreeSet};

/// Who lacks what. Soft state: a successor finds it out again.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    /// By tenant, the intents whose next step its purse does not cover, with what that takes.
    pub(super) lacking: BTreeMap<String, BTreeMap<IntentId, Amount>>,
    /// Tenants whose purses have more than before.
    pub(super) freed: BTreeSet<String>,
    /// What the bank said in this step, as long as somebody may be stopped for it.
    said: Option<Answer>,
    /// The same, until it is known whether it was enough.
    unmet: Option<Answer>,
    /// How many more intents may begin or be stopped for it in this step, so that what one step decides stays small.
    turns: usize,
}

#[derive(Clone, Debug)]
struct Answer {
    purse: IntentId,
    tenant: String,
    grant: LeaseGrant,
}

impl Leases {
    /// A step begins.
    pub(super) fn begin(&mut self, turns: usize) {
        self.turns = turns;
    }

    pub(super) fn lacks(&mut self, tenant: &str, id: &IntentId, need: Amount) {
        self.lacking.entry(tenant.to_owned()).or_default().insert(id.clone(), need);
    }

    pub(super) fn forget(&mut self, tenant: &str, id: &IntentId) {
        if let Some(lacking) = self.lacking.get_mut(tenant) {
            lacking.remove(id);
            if lacking.is_empty() {
                self.lacking.remove(tenant);
            }
        }
    }
}

impl Coordinator {
    /// Opens the purse of a tenant for the present window, if it has a budget. The error says why that cannot be.
    pub(super) fn open_purse(&mut self, tenant: &str) -> Result<(), String> {
        let Some(window) = self.settings.tenants.of(tenant).map(|of| of.window(self.now)) else {
            return Ok(());
        };
        if self.store.ledgers().purse_of(tenant, window.starts).is_some() {
            return Ok(());
        }
        let (most, partitions) = (self.settings.max_tenants, self.settings.coordinator_partitions);
        self.store.forget_purses(tenant, window.starts);
        if self.store.ledgers().purses_count() >= most {
            return Err(format!("there are purses of {most} tenants, and no room for that of another one"));
        }
        self.store.insert_purse(new_purse(tenant, window, self.partition, partitions));
        Ok(())
    }

    pub(super) fn on_lease_grant(&mut self, header: Header, grant: LeaseGrant) {
        let purse = &header.intent_id;
        let Some(known) = self.store.ledgers().purse(purse) else { return self.counters.stale(Stale::Late) };
        // One that another request has overtaken speaks of what is no longer so.
        if known.answered >= grant.asked || known.asked != grant.asked {
            return self.counters.stale(Stale::Late);
        }
        let (tenant, now, leased) = (known.tenant.clone(), self.now, grant.leased);
        let spare = minus(leased, taken(known));
        let gives_back = self.settings.tenants.of(&tenant).is_some_and(|of| of.budget.counts(spare));
        self.store.edit_purse(purse, |purse| {
            purse.leased = leased;
            purse.answered = purse.asked;
            purse.asked_at = None;
            if gives_back {
                purse.moved_at.get_or_insert(now);
            }
        });
        self.leases.freed.insert(tenant.clone());
        let answer = Answer { purse: purse.clone(), tenant, grant };
        self.leases.unmet = Some(answer.clone());
        self.leases.said = Some(answer);
    }

    /// Looks for intents that lack something, where it is not known who does.
    pub(super) fn find_lacking(&mut self) {
        let wanted = self.store.all_live().filter(|(_, live)| live.run.plan_wanted);
        let wanted: Vec<_> = wanted.map(|(id, live)| (id.clone(), live.intent.tenant.clone())).collect();
        for (id, tenant) in wanted {
            self.leases.lacks(&tenant, &id, Amount::default());
            self.leases.freed.insert(tenant);
        }
    }

    /// Lets those go on whose tenants' purses have more than before, as far as that goes. Returns whether there were any.
    pub(super) fn serve_lacking(&mut self) -> bool {
        let mut any = false;
        for tenant in std::mem::take(&mut self.leases.freed) {
            for (id, need) in self.leases.lacking.remove(&tenant).unwrap_or_default() {
                match self.store.live(&id).map(|live| (live.run.plan_wanted, live.priority())) {
                    Some((true, _)) if self.leases.turns == 0 => {
                        self.leases.lacks(&tenant, &id, need);
                        self.leases.freed.insert(tenant.clone());
                    }
                    Some((true, _)) => {
                        any = true;
                        self.leases.turns -= 1;
                        let trace = self.trace_of(&id);
                        self.request_plan(&id, &trace);
                    }
                    Some((false, priority)) => {
                        any = true;
                        self.queue.wake(&id, priority);
                    }
                    None => {}
                }
            }
        }
        any
    }

    /// Ends the work of those who lack what the bank has just said is not to be had. Returns whether there were any.
    pub(super) fn stop_refused(&mut self) -> bool {
        if self.leases.turns == 0 {
            return false;
        }
        let Some(Answer { purse, tenant, grant }) = self.leases.said.clone() else { return false };
        let (Some(of), Some(purse)) =
            (self.settings.tenants.of(&tenant).copied(), self.store.ledgers().purse(&purse))
        else {
            self.leases.said = None;
            return false;
        };
        let quiet = !grant.moving && !of.budget.counts(purse.open);
        let most = of.budget.counting(minus(grant.most, purse.spent));
        let lacking = self.leases.lacking.get(&tenant).into_iter().flatten();
        let can_stop = |id: &IntentId| {
            let live = self.store.live(id);
            live.is_some_and(|live| live.running() == 0 && live.run.plan_reserved.is_none())
        };
        let hopeless = |need: Amount| grant.refusal.is_some() || most.fits(need) < 1;
        let stopped = lacking.clone().find(|(id, need)| can_stop(id) && hopeless(**need)).or_else(|| {
            let begun = |id: &IntentId| self.store.live(id).is_some_and(|live| live.run.kept.is_some());
            lacking.clone().find(|(id, _)| quiet && !grant.granted && can_stop(id) && begun(id))
        });
        let Some((id, need)) = stopped.map(|(id, need)| (id.clone(), *need)) else {
            self.leases.said = None;
            return false;
        };
        if !hopeless(need) {
            self.leases.said = None; // what it frees may be enough for the others
        }
        let why = grant.refusal.unwrap_or_else(|| used_up(&tenant, &of));
        self.leases.turns -= 1;
        self.leases.forget(&tenant, &id);
        self.stop(&id, why);
        true
    }

    fn stop(&mut self, id: &IntentId, why: String) {
        self.store.edit_run(id, |run| run.refused.clone_from(&why));
        if self.store.live(id).is_some_and(|live| live.run.plan_wanted) {
            let trace = self.trace_of(id);
            let reason = format!("{why} before there was a plan");
            return self.end(id, OutcomeStatus::OverBudget, String::new(), reason, &trace);
        }
        self.leave_out(id);
    }

    /// Asks for what is lacking, where nothing was asked a short while ago.
    pub(super) fn ask_for_leases(&mut self) {
        let tenants: Vec<String> = self.leases.lacking.keys().cloned().collect();
        for tenant in tenants {
            let Some(of) = self.settings.tenants.of(&tenant).copied() else { continue };
            // It is there but for a window that has just begun; then there is room, as the one before makes place.
            if self.open_purse(&tenant).is_err() {
                continue;
            }
            let purse = self.store.ledgers().purse_of(&tenant, of.window(self.now).starts).cloned();
            let Some(purse) = purse.filter(|purse| purse.asked_at.is_none()) else { continue };
            let needs = self.needs(&tenant);
            // The smallest first: it is the likeliest to be had.
            let least = needs.iter().min_by(|a, b| (a.1.tokens, a.1.calls).cmp(&(b.1.tokens, b.1.calls)));
            let Some((id, need)) = least else { continue };
            let trace = self.trace_of(id);
            self.ask(&purse, &of, Some(*need), trace);
        }
    }

    /// What is lacking still: some may have failed or lost their tasks meanwhile.
    fn needs(&mut self, tenant: &str) -> Vec<(IntentId, Amount)> {
        let ids: Vec<IntentId> =
            self.leases.lacking.get(tenant).map(|of| of.keys().cloned().collect()).unwrap_or_default();
        let mut needs = Vec::new();
        for id in ids {
            match self.lack_of(&id) {
                Some(need) => needs.push((id, need)),
                None => self.leases.forget(tenant, &id),
            }
        }
        needs
    }

    fn lack_of(&self, id: &IntentId) -> Option<Amount> {
        let live = self.store.live(id)?;
        if live.run.plan_wanted {
            let means = means(&self.settings, &self.store, self.now, live)?;
            let once = super::estimate::of_plan(&self.settings.costs, live);
            return Some(plus(once, means.to_keep));
        }
        match cover(&self.settings, &self.store, self.now, live, live.first_ready()?) {
            Cover::Lacking(need) => Some(need),
            Cover::Granted(_) | Cover::OverOwn => None,
        }
    }

    fn ask(&mut self, purse: &PurseEntity, of: &TenantBudget, need: Option<Amount>, trace: String) {
        let (held, asked, now) = (held(purse, &of.budget), purse.asked + 1, self.now);
        self.store.edit_purse(&purse.purse, |purse| {
            purse.leased = held;
            purse.asked = asked;
            purse.asked_at = Some(now);
            purse.moved_at = None;
        });
        let bank = IntentId::bank(&purse.tenant, purse.window);
        let cause = [purse.purse.as_str(), &asked.to_string()];
        let envelope = Envelope {
            id: EnvelopeId::derive("lease_request", &cause),
            tag: Tag::role(Role::Coordinator).with_lane(bank.as_str()),
            intent_id: bank,
            hop: 0,
            created_at: now,
            deadline: purse.ends,
            tenant: purse.tenant.clone(),
            body: Body::LeaseRequest(LeaseRequest {
                purse: purse.purse.clone(),
                partition: self.partition,
                window: purse.window,
                asked,
                held,
                spent: purse.spent,
                kept: purse.kept,
                need,
            }),
        };
        self.send(Destination::Coordinator, envelope, trace);
    }

    /// The purse's timer: its window is over, it may ask again, or it tells the bank how things stand.
    pub(super) fn on_purse_timer(&mut self, id: &IntentId) {
        let Some(purse) = self.store.ledgers().purse(id).cloned() else { return };
        let of = self.settings.tenants.of(&purse.tenant).copied();
        match of {
            Some(of) if purse.ends > self.now => {
                if purse.asked_at.is_some() {
                    let now = self.now;
                    self.store.edit_purse(id, |purse| {
                        purse.asked_at = None;
                        if purse.answered < purse.asked {
                            purse.moved_at.get_or_insert(now); // it was not heard
                        }
                    });
                } else {
                    self.ask(&purse, &of, None, String::new());
                }
            }
            _ => self.store.remove_purse(id),
        }
    }

    /// After an answer that did not cover what was lacking, the next request comes a while later.
    pub(super) fn pause_asking(&mut self) {
        self.leases.said = None;
        let Some(Answer { purse, tenant, grant }) = self.leases.unmet.take() else { return };
        let now = self.now;
        let had_turns = self.leases.turns > 0;
        if had_turns && !grant.granted && self.leases.lacking.contains_key(&tenant) {
            self.store.edit_purse(&purse, |purse| purse.asked_at = Some(now));
        }
    }

    fn trace_of(&self, id: &IntentId) -> String {
        self.store.live(id).map(|live| live.intent.trace.clone()).unwrap_or_default()
    }
}

fn used_up(tenant: &str, of: &TenantBudget) -> String {
    format!("the budget of tenant {tenant}, {of}, was used up")
}
