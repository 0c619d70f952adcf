//! Several coordinators that share the budgets of tenants and know of each other only by what they send, amid services
//! that do as they are allowed, and everything that can go wrong between them.

use crate::builders::*;
use crate::invariants::{i5_replay_is_life, i7_successor_decides_the_same};
use starling_engine::coordinator::{Changes, Coordinator, CoordinatorSettings, Destination, Effect, Event};
use starling_protocol::state::{Amount, Entity, PurseEntity};
use starling_protocol::topic::partition_of;
use starling_protocol::{
    Body, CallReport, Envelope, IntentId, Limits, Outcome, OutcomeStatus, PlanEnd, TaskSpec, Timestamp, Usage,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// What becomes of the steps of one intent. Lists are used round and round.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) tenant: &'static str,
    pub(crate) single: bool,
    pub(crate) limits: Limits,
    pub(crate) tasks: Vec<TaskSpec>,
    pub(crate) fates: Vec<Fate>,
}

/// What comes of one step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// It succeeds and takes that share, in eighths, of the calls and tokens that it may.
    Takes(i64),
    /// It fails, and takes as much.
    Fails(i64),
    /// Nothing is heard of it.
    Silent,
    /// What it took is heard after its time.
    Late,
}

struct Member {
    coordinator: Coordinator,
    inbox: Vec<Envelope>,
    /// Next input, and the next one of the last decision.
    at: usize,
    decided_at: usize,
    now: Timestamp,
    log: Vec<Changes>,
    effects: Vec<Effect>,
    last_effects: Vec<Effect>,
    /// How far its clock is from the right time, in milliseconds.
    skew: i64,
}

pub(crate) struct TenantsWorld {
    settings: Arc<CoordinatorSettings>,
    now: Timestamp,
    members: Vec<Member>,
    wishes: BTreeMap<IntentId, Wish>,
    /// Records on their way, in any order; those with a time come no earlier.
    under_way: Vec<(Timestamp, Envelope)>,
    steps: usize,
    runs: u128,
    pub(crate) outcomes: BTreeMap<IntentId, Outcome>,
    /// Records between coordinators.
    pub(crate) leases: usize,
    /// Of ten of these, so many are lost.
    losing: usize,
}

impl TenantsWorld {
    pub(crate) fn new(
        settings: CoordinatorSettings,
        wishes: BTreeMap<IntentId, Wish>,
        losing: usize,
    ) -> Self {
        let partitions = settings.coordinator_partitions;
        let settings = Arc::new(settings);
        let member = |partition: i32| Member {
            coordinator: Coordinator::new(Arc::clone(&settings), partition, 8),
            inbox: Vec::new(),
            at: 0,
            decided_at: 0,
            now: Timestamp(0),
            log: Vec::new(),
            effects: Vec::new(),
            last_effects: Vec::new(),
            skew: i64::from(partition % 3 - 1) * 700,
        };
        let members = (0..partitions).map(member).collect();
        let published = wishes.iter().map(|(id, wish)| {
            let mut envelope = intent(id.as_str(), if wish.single { "single" } else { "llm" }, 5);
            envelope.tenant = wish.tenant.to_owned();
            if let Body::Intent(intent) = &mut envelope.body {
                intent.limits = wish.limits.clone();
            }
            (START, envelope)
        });
        Self {
            under_way: published.collect(),
            settings,
            now: START,
            members,
            wishes,
            steps: 0,
            runs: 0,
            outcomes: BTreeMap::new(),
            leases: 0,
            losing,
        }
    }

    /// One thing happens, chosen by two numbers.
    pub(crate) fn happen(&mut self, what: u8, which: usize) {
        let member = which % self.members.len();
        match what % 16 {
            0..=4 => self.arrive(which, false),
            5 => self.arrive(which, true),
            6..=11 => self.read(member),
            12 => self.now = Timestamp(self.now.0 + i64::try_from(which % 3_000).unwrap()),
            13 => self.tick(member),
            14 => self.crash(member),
            _ => self.hand_over(member),
        }
        if which.is_multiple_of(3) {
            self.decide(member);
        }
    }

    /// Lets everything arrive and time go by until all intents have ended and everything is given back.
    pub(crate) fn drain(&mut self) {
        self.losing = 0;
        (0..self.members.len()).for_each(|member| self.decide(member));
        for _ in 0..200_000 {
            let reading =
                (0..self.members.len()).find(|at| self.members[*at].at < self.members[*at].inbox.len());
            let due = self.under_way.iter().position(|(at, _)| *at <= self.now);
            let timer = self.members.iter().enumerate().filter_map(|(at, m)| {
                let due = m.coordinator.next_timer()?.0 - m.skew;
                (due < START.plus(Duration::from_secs(3_600)).0).then_some((due, at))
            });
            let timer = timer.min();
            let busy = self.members.iter().any(|m| {
                let load = m.coordinator.load();
                load.live + load.waiting > 0
            });
            if let Some(member) = reading {
                self.read(member);
                self.decide(member);
            } else if let Some(at) = due {
                self.arrive(at, false);
            } else if !busy && self.under_way.is_empty() && self.is_given_back() {
                return self.ended();
            } else {
                let later = self.under_way.iter().map(|(at, _)| at.0).min();
                let next =
                    timer.map(|(at, _)| at).into_iter().chain(later).min().expect("something is waited for");
                self.now = Timestamp(self.now.0.max(next));
                if let Some((at, member)) = timer
                    && at <= self.now.0
                {
                    self.tick(member);
                    self.decide(member);
                }
            }
        }
        panic!("it never ends: {:#?}", self.entities());
    }

    fn ended(&self) {
        for id in self.wishes.keys() {
            let outcome = self.outcomes.get(id).unwrap_or_else(|| panic!("I6: {id} has no outcome"));
            // Whoever waits for what others hold waits no longer than they do.
            let prompt = |fate: &Fate| matches!(fate, Fate::Takes(_) | Fate::Fails(_));
            let all_prompt = self.wishes.values().all(|wish| wish.fates.iter().all(prompt));
            let expired = outcome.status == OutcomeStatus::Expired;
            assert!(!(expired && all_prompt), "I54: {id} waited for ever: {outcome:?}");
        }
        for purse in self.purses() {
            assert_eq!((purse.open.calls, purse.kept.calls), (0, 0), "I54: {purse:?}");
        }
    }

    /// Whether no purse holds anything that is not spent.
    fn is_given_back(&self) -> bool {
        self.purses().iter().all(|purse| purse.leased.calls <= purse.spent.calls.max(0))
    }

    fn arrive(&mut self, which: usize, twice: bool) {
        let due: Vec<usize> =
            (0..self.under_way.len()).filter(|at| self.under_way[*at].0 <= self.now).collect();
        let Some(at) = (!due.is_empty()).then(|| due[which % due.len()]) else { return };
        let envelope = if twice { self.under_way[at].1.clone() } else { self.under_way.swap_remove(at).1 };
        let home = partition_of(envelope.intent_id.as_str(), self.settings.coordinator_partitions);
        self.members[usize::try_from(home).unwrap()].inbox.push(envelope);
    }

    fn read(&mut self, member: usize) {
        let of = &mut self.members[member];
        let Some(envelope) = of.inbox.get(of.at).cloned() else { return };
        of.at += 1;
        let offset = i64::try_from(of.at).unwrap();
        self.step(member, received(offset, envelope));
    }

    fn tick(&mut self, member: usize) {
        self.step(member, Event::Tick);
    }

    fn step(&mut self, member: usize, event: Event) {
        self.now = Timestamp(self.now.0 + 1);
        let of = &mut self.members[member];
        let effects = of.coordinator.step(Timestamp(self.now.0 + of.skew), event);
        let dead = effects.iter().find(|effect| matches!(effect, Effect::DeadLetter { .. }));
        assert!(dead.is_none(), "{dead:?}");
        of.effects.extend(effects);
        self.i54_tenants_keep_within_their_budgets();
    }

    fn decide(&mut self, member: usize) {
        let of = &mut self.members[member];
        of.log.push(of.coordinator.take_changes());
        of.decided_at = of.at;
        of.now = of.coordinator.now();
        let effects = std::mem::take(&mut of.effects);
        of.last_effects.clone_from(&effects);
        self.perform(&effects, true);
    }

    fn successor(&self, member: usize) -> Coordinator {
        let of = &self.members[member];
        let mut new = Coordinator::new(Arc::clone(&self.settings), i32::try_from(member).unwrap(), 8);
        for changes in &of.log {
            new.apply(&changes.changed, &changes.deleted);
        }
        new.resume_at(of.now);
        new
    }

    /// What was not written down never happened; what was is performed again.
    fn crash(&mut self, member: usize) {
        self.members[member].coordinator = self.successor(member);
        let of = &mut self.members[member];
        of.at = of.decided_at;
        of.effects.clear();
        let effects = of.last_effects.clone();
        self.perform(&effects, false);
    }

    fn hand_over(&mut self, member: usize) {
        self.decide(member);
        let successor = self.successor(member);
        i5_replay_is_life(&self.members[member].coordinator, &successor);
        let mut old = std::mem::replace(&mut self.members[member].coordinator, successor);
        let of = &self.members[member];
        let Some(envelope) = of.inbox.get(of.at).cloned() else { return };
        let (at, now) = (i64::try_from(of.at + 1).unwrap(), Timestamp(self.now.0 + 1 + of.skew));
        let lived = old.step(now, received(at, envelope));
        self.read(member);
        // When somebody asks is soft: a successor finds out anew who lacks something.
        let hard = |effects: &[Effect]| -> Vec<Effect> {
            let asks = |effect: &&Effect| matches!(effect, Effect::Send { envelope, .. } if matches!(envelope.body, Body::LeaseRequest(_)));
            effects.iter().filter(|effect| !asks(effect)).cloned().collect()
        };
        i7_successor_decides_the_same(&hard(&lived), &hard(&self.members[member].effects));
    }

    fn perform(&mut self, effects: &[Effect], first: bool) {
        for effect in effects {
            let Effect::Send { to, envelope, .. } = effect else { continue };
            match (to, &envelope.body) {
                (Destination::Coordinator, _) => {
                    self.leases += usize::from(first);
                    self.steps += 1;
                    if self.steps % 10 >= self.losing {
                        self.under_way.push((self.now, envelope.clone()));
                    }
                }
                (Destination::Planner, _) => self.plan(envelope),
                (Destination::Worker { .. }, _) => self.work(envelope),
                (Destination::Outcomes, Body::Outcome(outcome)) => {
                    let before = self.outcomes.insert(envelope.intent_id.clone(), outcome.clone());
                    let same = before.is_none_or(|before| !first && before == *outcome);
                    assert!(same, "I1: {} has two outcomes", envelope.intent_id);
                }
                _ => {}
            }
        }
    }

    fn fate(&self, about: &Envelope, nth: usize) -> Fate {
        let fates = &self.wishes[&about.intent_id].fates;
        fates[nth % fates.len()]
    }

    fn plan(&mut self, envelope: &Envelope) {
        let Body::PlanRequest(request) = &envelope.body else { panic!("no plan request") };
        let tasks = self.wishes[&envelope.intent_id].tasks.clone();
        self.runs += 1;
        let (run, name, attempt) = (run(self.runs), envelope.intent_id.as_str(), request.plan_attempt);
        let allowed = request.allowance.map(|allowance| (allowance.calls, allowance.tokens));
        let (share, failure) = match self.fate(envelope, usize::try_from(attempt).unwrap() * 7) {
            Fate::Takes(share) => (share, None),
            Fate::Fails(share) => (share, Some(failure(true))),
            Fate::Silent | Fate::Late => return,
        };
        let end = PlanEnd { report: share_of(allowed, share), failure: failure.clone(), answer: None };
        let tasks = if failure.is_some() { Vec::new() } else { tasks };
        let mut fragment = fragment(name, attempt, &run, 0, tasks, Some(end));
        fragment.tenant = envelope.tenant.clone();
        self.under_way.push((self.now, fragment));
    }

    fn work(&mut self, task: &Envelope) {
        let of = job(task).clone();
        let ordinal = of.title.bytes().map(usize::from).sum::<usize>();
        let mut at = self.now;
        let (share, failure) = match self.fate(task, ordinal + usize::try_from(of.attempt).unwrap() * 3) {
            Fate::Takes(share) => (share, None),
            Fate::Fails(share) => (share, Some(failure(true))),
            Fate::Silent => return,
            Fate::Late => {
                at = self.now.plus(self.settings.attempt_timeout * 2);
                (4, Some(failure(true)))
            }
        };
        let allowed = of.allowance.map(|allowance| (allowance.calls, allowance.tokens));
        let work = share_of(allowed, share);
        let judged = of.next_tag.role == starling_protocol::Role::Critic;
        let mut reply = if failure.is_some() || !judged {
            let mut reply = result(task, failure);
            if let Body::TaskResult(result) = &mut reply.body {
                result.report = work;
            }
            reply
        } else {
            let allowed = of.critic_allowance.map(|allowance| (allowance.calls, allowance.tokens));
            let mut reply = verdict(task, scored(0.9));
            if let Body::Verdict(verdict) = &mut reply.body {
                (verdict.work, verdict.report) = (work, share_of(allowed, share));
            }
            reply
        };
        reply.tenant.clone_from(&task.tenant);
        self.under_way.push((at, reply));
    }

    fn entities(&self) -> Vec<Entity> {
        self.members.iter().flat_map(|member| member.coordinator.entities()).collect()
    }

    pub(crate) fn purses(&self) -> Vec<PurseEntity> {
        let purse = |entity| match entity {
            Entity::Purse(purse) => Some(purse),
            _ => None,
        };
        self.entities().into_iter().filter_map(purse).collect()
    }

    /// I54: what all partitions together have reserved, spent and kept of a tenant's budget in one window is never more
    /// than it, and neither is what they hold; and each purse counts what its intents have open and kept.
    fn i54_tenants_keep_within_their_budgets(&self) {
        let mut sums: HashMap<(String, Timestamp), (Amount, Amount)> = HashMap::new();
        for member in &self.members {
            let (mut open, mut kept) = (HashMap::new(), HashMap::new());
            let (mut tenants, mut purses) = (HashMap::new(), Vec::new());
            for entity in member.coordinator.entities() {
                match entity {
                    Entity::Intent(intent) => drop(tenants.insert(intent.intent_id, intent.tenant)),
                    Entity::Run(run) => {
                        let tenant = tenants[&run.intent_id].clone();
                        if let Some(window) = run.plan_charged {
                            let of: &mut Amount = open.entry((tenant.clone(), window)).or_default();
                            *of = add(*of, run.plan_reserved.unwrap());
                        }
                        if let Some(charge) = run.kept {
                            let of: &mut Amount = kept.entry((tenant, charge.window)).or_default();
                            *of = add(*of, charge.amount);
                        }
                    }
                    Entity::Task(task) => {
                        if let Some(window) = task.charged {
                            let tenant = tenants[&task.intent_id].clone();
                            let of: &mut Amount = open.entry((tenant, window)).or_default();
                            *of = add(*of, task.reserved.unwrap());
                        }
                    }
                    Entity::Purse(purse) => purses.push(purse),
                    _ => {}
                }
            }
            for purse in purses {
                let name = (purse.tenant.clone(), purse.window);
                let found = |of: &HashMap<_, Amount>| of.get(&name).copied().unwrap_or_default();
                assert!(same(purse.open, found(&open)), "I54: {purse:?} has open {:?}", found(&open));
                assert!(same(purse.kept, found(&kept)), "I54: {purse:?} keeps {:?}", found(&kept));
                let taken = add(add(purse.spent, purse.open), purse.kept);
                let sum = sums.entry(name).or_default();
                *sum = (add(sum.0, taken), add(sum.1, purse.leased));
            }
        }
        for ((tenant, window), (taken, leased)) in sums {
            let budget = self.settings.tenants.of(&tenant).unwrap().budget;
            for (what, amount) in [("taken", taken), ("leased", leased)] {
                let left = budget.less(amount);
                let within = left.calls.is_none_or(|n| n >= 0)
                    && left.tokens.is_none_or(|n| n >= 0)
                    && left.cost_usd.is_none_or(|n| n >= -1e-6);
                assert!(within, "I54: of {tenant}'s {budget}, {amount:?} is {what} in the window {window:?}");
            }
        }
    }
}

fn add(a: Amount, b: Amount) -> Amount {
    starling_engine::coordinator::budget::plus(a, b)
}

fn same(a: Amount, b: Amount) -> bool {
    (a.calls, a.tokens) == (b.calls, b.tokens) && (a.cost_usd - b.cost_usd).abs() < 1e-6
}

/// What a step reports that takes so many eighths of what it may, and at least a call.
fn share_of(allowed: Option<(i64, Option<i64>)>, share: i64) -> CallReport {
    let (calls, tokens) = allowed.unwrap_or((1, None));
    let prompt_tokens = tokens.map_or(1, |tokens| tokens * share / 8);
    CallReport {
        calls: (calls * share / 8).max(1),
        usage: Usage { prompt_tokens, ..Usage::default() },
        ..report(1)
    }
}

impl TenantsWorld {
    pub(crate) fn described(&self) -> String {
        format!("{:?} of {:#?} losing {}", self.settings.tenants, self.wishes, self.losing)
    }
}
