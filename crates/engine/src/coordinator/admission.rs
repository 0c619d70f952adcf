//! What comes in from users: intents, rejections, cancellations. Which of them are new, and which intent is
//! worked on next.

use super::{Coordinator, CoordinatorSettings, budget::Budget, counters::Stale, live::Live};
use starling_protocol::state::{CancelledEntity, IntentEntity, Phase};
use starling_protocol::{
    DeadReason, Intent, IntentId, OutcomeStatus, PlanStrategy, Priority, RecordRef, Rejection, Timestamp,
    UnknownStrategy,
};
use std::time::Duration;

/// The parts of an envelope that say where its body belongs.
pub(super) struct Header {
    pub(super) intent_id: IntentId,
    pub(super) hop: i32,
    pub(super) created_at: Timestamp,
    pub(super) deadline: Timestamp,
    pub(super) tenant: String,
}

/// The limits of an intent with all defaults filled in.
#[derive(Debug, PartialEq)]
struct EffectiveLimits {
    max_tasks: i32,
    max_attempts: i32,
    min_score: f64,
    degrade_after: Option<Duration>,
    budget: Budget,
}

impl Coordinator {
    pub(super) fn on_intent(&mut self, header: Header, intent: Intent, at: RecordRef, trace: &str) {
        if !self.is_new(&header, &at) {
            return;
        }
        let cancelled = self.store.cancelled(&header.intent_id).map(|cancelled| cancelled.reason.clone());
        let deadline = effective_deadline(&header, &self.settings);
        let refusal = match (cancelled, effective_limits(&intent, &self.settings)) {
            (Some(reason), _) => Err((OutcomeStatus::Cancelled, reason)),
            (_, Err(message)) => Err((OutcomeStatus::Rejected, message)),
            _ if header.hop > self.settings.max_hops => Err((
                OutcomeStatus::Failed,
                format!("more than {} messages in a row", self.settings.max_hops),
            )),
            _ if deadline <= self.now => {
                Err((OutcomeStatus::Expired, "the deadline had passed before the work began".into()))
            }
            (_, Ok(limits)) => match self.uncovered(&intent, &limits.budget, &at) {
                Some(reason) => Err((OutcomeStatus::OverBudget, reason)),
                None => self.refused_to_tenant(&header.tenant, &intent, &at).map_or(Ok(limits), Err),
            },
        };
        let limits = match refusal {
            Ok(limits) => limits,
            Err((status, reason)) => return self.end_unseen(&header, status, reason, trace),
        };
        let id = header.intent_id.clone();
        let has_inputs = has_texts(&intent);
        self.store.insert_intent(IntentEntity {
            intent_id: header.intent_id,
            goal: intent.goal,
            strategy: intent.strategy,
            tenant: header.tenant,
            priority: intent.priority,
            created_at: header.created_at,
            accepted_at: self.now,
            deadline,
            max_tasks: limits.max_tasks,
            max_attempts: limits.max_attempts,
            min_score: limits.min_score,
            intent_ref: has_inputs.then_some(at),
            hop: header.hop,
            trace: trace.to_owned(),
            max_calls: limits.budget.calls,
            max_tokens: limits.budget.tokens,
            max_cost_usd: limits.budget.cost_usd,
            degrade_at: limits.degrade_after.map(|after| self.now.plus(after)),
        });
        self.touch(&id, None);
    }

    /// Why a tenant's budget rules an intent out from the beginning. Opens its purse if it does not.
    fn refused_to_tenant(
        &mut self,
        tenant: &str,
        intent: &Intent,
        at: &RecordRef,
    ) -> Option<(OutcomeStatus, String)> {
        let of = *self.settings.tenants.of(tenant)?;
        let unpriced = self.settings.costs.without_price(&strategy_of(&intent.strategy));
        if of.budget.cost_usd.is_some() && !unpriced.is_empty() {
            let models = unpriced.join(", ");
            let reason = format!(
                "the budget of tenant {tenant}, {of}, cannot be kept: model.prices has no price for {models}"
            );
            return Some((OutcomeStatus::Rejected, reason));
        }
        if let Some(shortfall) = self.uncovered(intent, &of.budget, at) {
            return Some((OutcomeStatus::OverBudget, format!("tenant {tenant} has {of}: {shortfall}")));
        }
        self.open_purse(tenant).err().map(|reason| (OutcomeStatus::OverBudget, reason))
    }

    pub(super) fn on_rejection(
        &mut self,
        header: Header,
        rejection: &Rejection,
        at: &RecordRef,
        trace: &str,
    ) {
        if self.is_new(&header, at) {
            let reason = format!("{}: {}", rejection.code, rejection.message);
            self.end_unseen(&header, OutcomeStatus::Rejected, reason, trace);
        }
    }

    pub(super) fn on_cancel(&mut self, header: Header, reason: &str, at: &RecordRef, trace: &str) {
        let id = &header.intent_id;
        let reason = if reason.is_empty() { "cancelled by the user" } else { reason };
        if self.store.live(id).is_some() {
            return self.end(id, OutcomeStatus::Cancelled, String::new(), reason.to_owned(), trace);
        }
        if let Some(status) = self.store.ended(id).map(|ended| ended.status) {
            self.answer_cancel(&header, status);
            let repeated = status == OutcomeStatus::Cancelled;
            return self.counters.stale(if repeated { Stale::Duplicate } else { Stale::Late });
        }
        if self.store.cancelled(id).is_some() {
            self.answer_cancel(&header, OutcomeStatus::Cancelled);
            return self.counters.stale(Stale::Duplicate);
        }
        let refusal = self.out_of_time(&header).or_else(|| self.memory_full()).or_else(|| {
            (self.store.cancelled_of(&header.tenant) >= self.settings.max_cancelled_per_tenant).then(|| {
                (DeadReason::Full, "the tenant has too many cancellations of unknown intents".to_owned())
            })
        });
        match refusal {
            Some((code, reason)) => self.dead_letter(at.partition, at.offset, code, reason),
            None => {
                self.answer_cancel(&header, OutcomeStatus::Cancelled);
                self.store.insert_cancelled(CancelledEntity {
                    intent_id: header.intent_id,
                    tenant: header.tenant,
                    reason: reason.to_owned(),
                    forget_at: self.forget_at(header.created_at),
                });
            }
        }
    }

    /// Lets waiting intents in while there is room, the most urgent first.
    pub(super) fn admit_waiting(&mut self) {
        while let Some(id) = self.store.first_waiting() {
            let priority = self.store.live(&id).map(Live::priority).unwrap_or_default();
            if self.store.admitted_count() >= places(self.settings.max_live, priority) {
                return;
            }
            self.admit(&id);
        }
    }

    fn admit(&mut self, id: &IntentId) {
        let Some(live) = self.store.live(id) else { return };
        let (single, trace) = (live.is_single(), live.intent.trace.clone());
        self.touch(id, None);
        if single {
            self.plan_single(id, &trace);
        } else {
            let now = self.now;
            self.store.edit_run(id, |run| {
                run.phase = Phase::Planning;
                run.plan_attempt = 1;
                run.plan_moved_at = now;
            });
            self.request_plan(id, &trace);
        }
    }

    /// When an intent that ends now, or that was cancelled now, can be forgotten.
    pub(super) fn forget_at(&self, created_at: Timestamp) -> Timestamp {
        self.now.max(created_at).plus(self.settings.dedup_horizon)
    }

    /// Whether an intent was not seen before and can be remembered; disposes of it if not.
    fn is_new(&mut self, header: &Header, at: &RecordRef) -> bool {
        let id = &header.intent_id;
        if self.store.live(id).is_some() || self.store.ended(id).is_some() {
            self.counters.stale(Stale::Duplicate);
            return false;
        }
        let cancelled = self.store.cancelled(id).is_some(); // then it has its place in the memory
        let full = || if cancelled { None } else { self.memory_full() };
        if let Some((code, reason)) = self.out_of_time(header).or_else(full) {
            self.dead_letter(at.partition, at.offset, code, reason);
            return false;
        }
        true
    }

    /// Why a creation time is one whose duplicates could not be recognised.
    fn out_of_time(&self, header: &Header) -> Option<(DeadReason, String)> {
        let horizon = self.settings.dedup_horizon;
        let reason = if header.created_at.plus(horizon) < self.now {
            format!("created more than {} s ago: it may have run before", horizon.as_secs())
        } else if header.created_at > self.now.plus(horizon) {
            format!("created more than {} s in the future", horizon.as_secs())
        } else {
            return None;
        };
        Some((DeadReason::Stale, reason))
    }

    fn memory_full(&self) -> Option<(DeadReason, String)> {
        let load = self.load();
        let known = load.live + load.waiting + load.remembered;
        (known >= self.settings.max_remembered || load.waiting >= self.settings.max_waiting)
            .then(|| (DeadReason::Full, "the coordinator's memory is full: send it again later".to_owned()))
    }
}

/// How an intent is planned; names are checked before it is accepted.
pub(super) fn strategy_of(name: &str) -> PlanStrategy {
    name.parse().unwrap_or_default()
}

/// Whether tasks have something to read in an intent's own record.
pub(super) fn has_texts(intent: &Intent) -> bool {
    !(intent.inputs.is_empty() && intent.items.is_empty() && intent.parameters.is_empty())
}

/// How many of the places for live intents those of a priority may have. Batches leave an eighth to intents of which somebody
/// waits for the outcome: these begin at once, however large the backlog is.
fn places(all: usize, priority: Priority) -> usize {
    if priority.is_batch() { all - all / 8 } else { all }
}

fn effective_deadline(header: &Header, settings: &CoordinatorSettings) -> Timestamp {
    if header.deadline == Timestamp::MAX {
        header.created_at.plus(settings.default_deadline)
    } else {
        header.deadline.min(header.created_at.plus(settings.max_deadline))
    }
}

/// Fills in the defaults; the error names the field and what was expected.
fn effective_limits(intent: &Intent, settings: &CoordinatorSettings) -> Result<EffectiveLimits, String> {
    if intent.goal.trim().is_empty() {
        return Err("goal is empty: expected is what you want, in words".into());
    }
    match intent.strategy.parse() {
        Ok(PlanStrategy::Auto) => {
            return Err("strategy is \"auto\": expected is one that the intake has chosen".into());
        }
        Ok(_) => {}
        Err(UnknownStrategy) => {
            let strategy: String = intent.strategy.chars().take(60).collect();
            return Err(format!("strategy is {strategy:?}: {UnknownStrategy}"));
        }
    }
    if !(0..=9).contains(&intent.priority) {
        return Err(format!("priority is {}: expected is 0 to 9", intent.priority));
    }
    let within = |name: &str, value: Option<i32>, default: i32, limit: i32| match value {
        None => Ok(default.min(limit)),
        Some(value) if (1..=limit).contains(&value) => Ok(value),
        Some(value) => Err(format!("limits.{name} is {value}: expected is 1 to {limit}")),
    };
    let limits = &intent.limits;
    Ok(EffectiveLimits {
        max_tasks: within("max_tasks", limits.max_tasks, settings.max_tasks, settings.max_tasks)?,
        max_attempts: within(
            "max_attempts",
            limits.max_attempts,
            settings.max_attempts,
            settings.attempts_limit,
        )?,
        min_score: match limits.min_score {
            None => settings.min_score,
            Some(score) if (0.0..=1.0).contains(&score) => score,
            Some(score) => return Err(format!("limits.min_score is {score}: expected is 0 to 1")),
        },
        degrade_after: match limits.degrade_after_ms {
            None => settings.degrade_after,
            Some(ms) => Some(Duration::from_millis(u64::try_from(ms).map_err(|_| {
                format!("limits.degrade_after_ms is {ms}: expected is a number of milliseconds of at least 0")
            })?)),
        },
        budget: effective_budget(intent, settings)?,
    })
}

/// The budget of an intent. One of money needs the prices of all models that it may ask: without them, nobody could
/// keep it.
fn effective_budget(intent: &Intent, settings: &CoordinatorSettings) -> Result<Budget, String> {
    let count = |name: &str, value: Option<i64>, default: Option<i64>| match value {
        Some(value) if value < 1 => Err(format!("limits.{name} is {value}: expected is 1 or more")),
        value => Ok(value.or(default)),
    };
    let limits = &intent.limits;
    let cost_usd = match limits.max_cost_usd {
        Some(cost) if !(cost.is_finite() && cost > 0.0) => {
            return Err(format!("limits.max_cost_usd is {cost}: expected is a number of US dollars above 0"));
        }
        cost => cost.or(settings.max_cost_usd),
    };
    let unpriced = settings.costs.without_price(&strategy_of(&intent.strategy));
    if cost_usd.is_some() && !unpriced.is_empty() {
        let models = unpriced.join(", ");
        return Err(format!(
            "limits.max_cost_usd cannot be kept: model.prices has no price for {models}; set it, or bound calls or tokens"
        ));
    }
    Ok(Budget {
        calls: count("max_calls", limits.max_calls, settings.max_calls)?,
        tokens: count("max_tokens", limits.max_tokens, settings.max_tokens)?,
        cost_usd,
    })
}
