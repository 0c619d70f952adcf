//! The coordinator: one serial state machine for each partition of the coordinator's inbox. It turns
//! intents into plans, plans into tasks, and results into one outcome for each intent.
//!
//! [`Coordinator::step`] is the only door. What it remembers are the entities of
//! [`starling_protocol::state`]; everything else is derived from them, so that a successor that read them
//! decides the same. Two things are soft, and only influence order and place: whose turn it is to
//! dispatch, and what the fleet looks like.
//!
//! Where to look:
//!
//! | question | file |
//! |---|---|
//! | is a result accepted, tried again or given up? | `attempt.rs` |
//! | is a plan sound? | `plan.rs` |
//! | is this input new, a duplicate, too late? | `admission.rs`, `results.rs` |
//! | which run of the planner counts? | `planning.rs` |
//! | when may a task start, when is an intent done? | `progression.rs` |
//! | what if the results are too many for one prompt? | `reduction.rs` |
//! | which tasks does an answer cite? | `citations.rs` |
//! | whose task goes next, and to which worker? | `fair_queue.rs`, `dispatch.rs`, `placement.rs` |
//! | what happens when time goes by? | `timers.rs` |
//! | what does a call take, how many tries does a step get? | `estimate.rs`, `budget.rs` |
//! | what is reserved, spent and left? | `reserve.rs` |
//! | what has this partition of a tenant's budget? | `purse.rs` |
//! | who leases it, and how is it asked for? | `bank.rs`, `lease.rs` |
//! | what stands in the outcome? | `outcome.rs` |

mod admission;
mod attempt;
mod bank;
pub mod budget;
mod citations;
mod counters;
mod dispatch;
mod estimate;
mod event;
mod fair_queue;
mod lease;
mod ledgers;
mod live;
mod message;
mod outcome;
mod placement;
mod plan;
mod planning;
mod pools;
mod progress;
mod progression;
mod purse;
mod reduction;
mod refusal;
mod reserve;
mod results;
mod settings;
mod store;
mod tenants;
mod timers;

pub use attempt::{AttemptDecision, AttemptReport, AttemptRules, is_judged, judge_attempt};
pub use counters::Counters;
pub use estimate::{AgentCost, CallCosts, Step, StepCost, TokenPrice};
pub use event::{Changes, Destination, Effect, Event, FleetView, Load, Milestone, WorkerMember};
pub use plan::{PlanFault, PlanLimits, validate, validate_answer};
pub use pools::WorkerInboxes;
pub use settings::{AgentRules, CoordinatorSettings, KnownAgents};
pub use tenants::{TenantBudget, TenantBudgets};

use admission::Header;
use counters::Stale;
use dispatch::Lane;
use lease::Leases;
use pools::{ByPool, Pools};
use progress::Untold;
use starling_protocol::state::{Entity, EntityKey, RunEntity, TaskEntity};
use starling_protocol::topic::partition_of;
use starling_protocol::{
    Body, CallReport, DeadReason, Envelope, IntentId, OutcomeStatus, RecordRef, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::Store;

/// The state machine of one partition. See the module's documentation.
#[derive(Clone, Debug)]
pub struct Coordinator {
    settings: Arc<CoordinatorSettings>,
    partition: i32,
    store: Store,
    now: Timestamp,
    counters: Counters,
    // Soft state.
    lanes: ByPool<Lane>,
    /// The pool whose turn it is to dispatch first.
    first_pool: usize,
    /// Whether the queues have still to be filled from the entities.
    cold: bool,
    // Of the step that is under way.
    effects: Vec<Effect>,
    /// Intents that changed, with the tasks that did.
    touched: BTreeMap<IntentId, BTreeSet<i32>>,
    milestones: Vec<Milestone>,
    // Soft state again.
    untold: Untold,
    leases: Leases,
}

impl Coordinator {
    /// A coordinator that remembers nothing, for `partition` of its inbox, dispatching over the partitions of these
    /// inboxes of workers.
    #[must_use]
    pub fn new(
        settings: Arc<CoordinatorSettings>,
        partition: i32,
        workers: impl Into<WorkerInboxes>,
    ) -> Self {
        let pools = Pools::new(workers.into());
        let lanes = ByPool::of(&pools);
        let store = Store::new(pools, &settings);
        let mut new = Self {
            settings,
            partition,
            store,
            now: Timestamp(0),
            counters: Counters::default(),
            lanes,
            first_pool: 0,
            cold: true,
            effects: Vec::new(),
            touched: BTreeMap::new(),
            milestones: Vec::new(),
            untold: Untold::default(),
            leases: Leases::default(),
        };
        new.on_fleet(&FleetView::default());
        new
    }

    /// Takes one event in and says what to do. `now` may lie before that of an earlier step, when a clock
    /// jumped; the coordinator's own time never falls.
    pub fn step(&mut self, now: Timestamp, event: Event) -> Vec<Effect> {
        self.now = self.now.max(now);
        self.milestones.clear();
        self.leases.begin(self.settings.max_timers_per_tick);
        match event {
            Event::Received { envelope, at, trace } => self.on_received(envelope, at, &trace),
            Event::Undecodable { at_partition, at_offset, reason } => {
                self.dead_letter(at_partition, at_offset, DeadReason::Undecodable, reason);
            }
            Event::Fleet(view) => self.on_fleet(&view),
            Event::Agents(known) => self.on_agents(&known),
            Event::EffectRefused { envelope_id, intent_id, task_id, reason } => {
                self.on_effect_refused(&envelope_id, &intent_id, task_id.as_ref(), &reason);
            }
            Event::Tick => self.on_tick(),
        }
        self.admit_waiting();
        self.dispatch();
        self.report_progress();
        std::mem::take(&mut self.effects)
    }

    /// What changed since the last call, in whole new values, ordered by key.
    pub fn take_changes(&mut self) -> Changes {
        self.store.take_changes()
    }

    /// What the last step brought to its end.
    pub fn take_milestones(&mut self) -> Vec<Milestone> {
        std::mem::take(&mut self.milestones)
    }

    /// Takes over what an earlier owner remembered: a snapshot's entities, then the changes of each
    /// decision after it. Applied entities are no changes of this coordinator's own.
    pub fn apply(&mut self, changed: &[Entity], deleted: &[EntityKey]) {
        self.store.apply(changed, deleted);
        self.cold = true;
    }

    /// Sets the coordinator's time to that of the last decision that was applied, if it is later: a
    /// successor with another clock must not decide in the past of what was decided.
    pub fn resume_at(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// Everything that is remembered, in a fixed order: an intent stands before its run, and its run before
    /// its tasks.
    #[must_use]
    pub fn entities(&self) -> Vec<Entity> {
        self.store.entities()
    }

    /// When the next [`Event::Tick`] is needed; may lie in the past.
    #[must_use]
    pub fn next_timer(&self) -> Option<Timestamp> {
        self.store.next_timer()
    }

    /// How much there is to do.
    #[must_use]
    pub fn load(&self) -> Load {
        let (live, waiting) = (self.store.admitted_count(), self.store.waiting_count());
        let remembered = self.store.remembered_count();
        let most = |limit: usize| limit - limit / 8;
        Load {
            live,
            waiting,
            outstanding: self.store.outstanding_total(),
            ready: self.store.ready_total(),
            remembered,
            room: most(self.settings.max_remembered)
                .saturating_sub(live + waiting + remembered)
                .min(most(self.settings.max_waiting).saturating_sub(waiting)),
        }
    }

    /// What was counted since this coordinator was made.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The coordinator's time: the latest that it was given.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    fn on_agents(&mut self, known: &KnownAgents) {
        let settings = Arc::make_mut(&mut self.settings);
        settings.agents.clone_from(&known.agents);
        settings.costs.clone_from(&known.costs);
        // What was not covered may be now.
        self.cold = true;
    }

    fn on_received(&mut self, envelope: Envelope, at: RecordRef, trace: &str) {
        let Envelope { intent_id, hop, created_at, deadline, tenant, body, .. } = envelope;
        let home = partition_of(intent_id.as_str(), self.settings.coordinator_partitions);
        if home != self.partition {
            let partitions = self.settings.coordinator_partitions;
            let reason = format!("belongs to partition {home} of {partitions}, not {}", self.partition);
            return self.dead_letter(at.partition, at.offset, DeadReason::Misplaced, reason);
        }
        let header = Header { intent_id, hop, created_at, deadline, tenant };
        match body {
            Body::Intent(intent) => self.on_intent(header, intent, at, trace),
            Body::Rejection(rejection) => self.on_rejection(header, &rejection, &at, trace),
            Body::Cancel(cancel) => self.on_cancel(header, &cancel.reason, &at, trace),
            Body::PlanFragment(fragment) if self.reaches_live(&header, trace) => {
                self.on_fragment(&header.intent_id, fragment, trace);
            }
            Body::TaskResult(result) if self.reaches_live(&header, trace) => {
                self.on_task_result(&header.intent_id, result, at, trace);
            }
            Body::Verdict(verdict) if self.reaches_live(&header, trace) => {
                self.on_verdict(&header.intent_id, verdict, trace);
            }
            Body::TaskTurn(turn) if self.reaches_live(&header, trace) => {
                self.on_task_turn(&header.intent_id, &turn, trace);
            }
            Body::LeaseRequest(request) => self.on_lease_request(header, &request, &at, trace),
            Body::LeaseGrant(grant) => self.on_lease_grant(header, grant),
            Body::PlanFragment(_) | Body::TaskResult(_) | Body::Verdict(_) | Body::TaskTurn(_) => {}
            other => {
                let reason = format!("the coordinator takes no {}", other.kind());
                self.dead_letter(at.partition, at.offset, DeadReason::Misplaced, reason);
            }
        }
    }

    /// Whether an input about an intent finds it live; counts it if not. Ends the intent if it ran away.
    fn reaches_live(&mut self, header: &Header, trace: &str) -> bool {
        let id = &header.intent_id;
        let Some(live) = self.store.live(id) else {
            let cancelled = self.store.ended(id).is_some_and(|e| e.status == OutcomeStatus::Cancelled);
            self.counters.stale(if cancelled { Stale::Cancelled } else { Stale::Late });
            return false;
        };
        if header.hop > live.run.hop {
            self.store.edit_run(id, |run| run.hop = header.hop);
        }
        if header.hop > self.settings.max_hops {
            let reason = format!("more than {} messages in a row", self.settings.max_hops);
            self.end(id, OutcomeStatus::Failed, String::new(), reason, trace);
            return false;
        }
        true
    }

    fn dead_letter(&mut self, at_partition: i32, at_offset: i64, code: DeadReason, reason: String) {
        self.counters.dead_letters += 1;
        self.effects.push(Effect::DeadLetter { at_partition, at_offset, code, reason });
    }

    fn edit_task(&mut self, id: &IntentId, ordinal: i32, change: impl FnOnce(&mut TaskEntity)) {
        self.store.edit_task(id, ordinal, change);
        self.touch(id, Some(ordinal));
    }

    /// Notes that watchers of an intent have something to see, and that it may have something to dispatch.
    fn touch(&mut self, id: &IntentId, ordinal: Option<i32>) {
        if !self.touched.contains_key(id) {
            self.touched.insert(id.clone(), BTreeSet::new());
        }
        if let Some(touched) = self.touched.get_mut(id) {
            touched.extend(ordinal);
        }
    }

    fn add_note(&mut self, id: &IntentId, note: String) {
        let room = self.settings.max_notes;
        self.store.edit_run(id, |run| {
            if run.degraded.len() < room && !run.degraded.contains(&note) {
                run.degraded.push(note);
            }
        });
    }

    fn add_report(&mut self, id: &IntentId, report: &CallReport) {
        self.store.edit_run(id, |run| add_report(run, report));
    }
}

fn add_report(run: &mut RunEntity, report: &CallReport) {
    run.calls = run.calls.saturating_add(report.calls);
    run.usage.add(report.usage);
    run.cost_usd += report.cost_usd;
    run.unpriced_calls = run.unpriced_calls.saturating_add(report.unpriced_calls);
    run.cached_calls = run.cached_calls.saturating_add(report.cached_calls);
    run.cached_prompt_tokens = run.cached_prompt_tokens.saturating_add(report.cached_prompt_tokens);
    run.serial_ms = run.serial_ms.saturating_add(report.latency_ms);
    run.offline |= report.offline;
    if !report.model.is_empty() && run.model != report.model {
        run.model.clone_from(&report.model);
    }
}
