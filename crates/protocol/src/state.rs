//! The coordinator's state log: what it remembers, record by record.
//!
//! Entities are both what is written and what the coordinator works on, so that replay cannot differ
//! from life. An entity is always written whole.

use crate::{
    AnswerSpec, Failure, IntentId, OutcomeStatus, RecordRef, RunId, TaskId, TaskKind, TaskState, TaskTerms,
    Timestamp, Usage,
};
use serde::{Deserialize, Serialize};

mod tenants;

pub use tenants::{BankAccount, BankEntity, PurseEntity};

/// One record of a state partition. The order of the variants is the order of the Avro union.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)] // read one at a time
pub enum StateRecord {
    /// A process takes the partition over. The record's offset is the epoch.
    EpochStart(EpochStart),
    /// What was decided for a batch of inputs.
    Decision(Decision),
    /// A part of the whole state.
    SnapshotChunk(SnapshotChunk),
}

/// A new owner announces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochStart {
    /// Random, made by the owner for this epoch.
    pub nonce: String,
    /// Number of coordinator partitions; it can never change under a log.
    pub partitions: i32,
    /// Starling's version.
    pub version: String,
    /// When.
    pub at: Timestamp,
}

/// All or nothing: the state after a batch of inputs, and the effects that follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Offset of the [`EpochStart`] that this belongs to.
    pub epoch: i64,
    /// Its nonce.
    pub nonce: String,
    /// Counts decisions over all epochs, without gaps, from 1.
    pub seq: i64,
    /// The coordinator's time; never falls.
    pub now: Timestamp,
    /// Inbox offset to read next.
    pub next_input: i64,
    /// Entities that are new or changed, whole.
    pub changed: Vec<Entity>,
    /// Entities that are gone.
    pub deleted: Vec<EntityKey>,
    /// What is to be sent, in order.
    pub effects: Vec<LoggedEffect>,
    /// The effects of all decisions up to this one are done.
    pub effects_done: i64,
}

/// A part of the state at one seq. A snapshot counts once its last chunk is confirmed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotChunk {
    /// Offset of the [`EpochStart`] that this belongs to.
    pub epoch: i64,
    /// Its nonce.
    pub nonce: String,
    /// Seq of the last decision that is in the snapshot.
    pub seq: i64,
    /// The coordinator's time at that decision.
    pub now: Timestamp,
    /// Inbox offset to read next.
    pub next_input: i64,
    /// Number of coordinator partitions.
    pub partitions: i32,
    /// Position of this chunk, from 0.
    pub part: i32,
    /// Number of chunks.
    pub parts: i32,
    /// Entities of this chunk.
    pub entities: Vec<Entity>,
    /// Effects that were not done at that seq.
    pub pending: Vec<PendingEffects>,
    /// The effects of all decisions up to this one are done.
    pub effects_done: i64,
}

/// Undone effects of one decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingEffects {
    /// Seq of the decision.
    pub seq: i64,
    /// Its effects.
    pub effects: Vec<LoggedEffect>,
}

/// A record to be produced, in its final form: performed again it is byte for byte the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedEffect {
    /// Topic name.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Kafka key.
    #[serde(with = "apache_avro::serde::bytes_opt")]
    pub key: Option<Vec<u8>>,
    /// Headers.
    pub headers: Vec<LoggedHeader>,
    /// Value.
    #[serde(with = "apache_avro::serde::bytes")]
    pub payload: Vec<u8>,
}

/// One header of a [`LoggedEffect`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedHeader {
    /// Name.
    pub name: String,
    /// Value.
    #[serde(with = "apache_avro::serde::bytes")]
    pub value: Vec<u8>,
}

/// What the coordinator remembers. The order of the variants is the order of the Avro union.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)] // stored behind maps of their own
pub enum Entity {
    /// What an intent asked for; never changes.
    Intent(IntentEntity),
    /// How far an intent is.
    Run(RunEntity),
    /// One task.
    Task(TaskEntity),
    /// An intent that ended, kept until duplicates of it cannot come any more.
    Ended(EndedEntity),
    /// A cancellation that came before its intent.
    Cancelled(CancelledEntity),
    /// What this partition has of a tenant's budget.
    Purse(PurseEntity),
    /// To whom a tenant's budget is leased.
    Bank(BankEntity),
}

/// Names an entity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EntityKey {
    /// The intent; of a tenant's budget, the address.
    pub intent_id: IntentId,
    /// Which of its entities.
    pub kind: EntityKind,
    /// The task, for tasks.
    pub task_id: Option<TaskId>,
}

/// The kinds of [`Entity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EntityKind {
    /// [`IntentEntity`].
    Intent,
    /// [`RunEntity`].
    Run,
    /// [`TaskEntity`].
    Task,
    /// [`EndedEntity`].
    Ended,
    /// [`CancelledEntity`].
    Cancelled,
    /// [`PurseEntity`].
    Purse,
    /// [`BankEntity`].
    Bank,
}

impl Entity {
    /// The entity's name.
    #[must_use]
    pub fn key(&self) -> EntityKey {
        let (intent_id, kind, task_id) = match self {
            Entity::Intent(e) => (&e.intent_id, EntityKind::Intent, None),
            Entity::Run(e) => (&e.intent_id, EntityKind::Run, None),
            Entity::Task(e) => (&e.intent_id, EntityKind::Task, Some(e.task_id.clone())),
            Entity::Ended(e) => (&e.intent_id, EntityKind::Ended, None),
            Entity::Cancelled(e) => (&e.intent_id, EntityKind::Cancelled, None),
            Entity::Purse(e) => (&e.purse, EntityKind::Purse, None),
            Entity::Bank(e) => (&e.bank, EntityKind::Bank, None),
        };
        EntityKey { intent_id: intent_id.clone(), kind, task_id }
    }
}

/// What an intent asked for, with every default filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntentEntity {
    /// Which intent.
    pub intent_id: IntentId,
    /// The wish.
    pub goal: String,
    /// How to plan.
    pub strategy: String,
    /// Who pays.
    pub tenant: String,
    /// 0 to 9.
    pub priority: i32,
    /// When the user sent it.
    pub created_at: Timestamp,
    /// When the coordinator accepted it.
    pub accepted_at: Timestamp,
    /// Effective deadline.
    pub deadline: Timestamp,
    /// Most tasks in the plan.
    pub max_tasks: i32,
    /// Most attempts for one task.
    pub max_attempts: i32,
    /// Score below which a result is tried again.
    pub min_score: f64,
    /// Its record in the coordinator's inbox, if it has inputs or items.
    pub intent_ref: Option<RecordRef>,
    /// Hop count of its envelope.
    pub hop: i32,
    /// W3C traceparent under which it was accepted.
    pub trace: String,
    /// Most model calls; absent where they are not bounded.
    pub max_calls: Option<i64>,
    /// Most tokens; absent where they are not bounded.
    pub max_tokens: Option<i64>,
    /// Most that it may cost in US dollars; absent where that is not bounded.
    pub max_cost_usd: Option<f64>,
    /// From when on results are taken as they come; absent where that is never.
    pub degrade_at: Option<Timestamp>,
}

/// Model calls, and what they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Amount {
    /// Calls, retries included.
    pub calls: i64,
    /// Tokens, sent and received.
    pub tokens: i64,
    /// Cost in US dollars.
    pub cost_usd: f64,
}

/// A step that was given up before it said what it took; it counts in full until it does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unsettled {
    /// Which step.
    pub step: String,
    /// What was reserved for it.
    pub amount: Amount,
    /// Start of the window of its tenant's budget that this is charged to; absent where that is not bounded.
    pub charged: Option<Timestamp>,
}

/// What is kept of a tenant's budget.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Charge {
    /// Start of the window that it is charged to.
    pub window: Timestamp,
    /// How much.
    pub amount: Amount,
}

/// How far an intent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Admitted later.
    Waiting,
    /// A plan is asked for or comes in; its tasks may already run.
    Planning,
    /// The plan is complete.
    Running,
    /// The answer is being made.
    Synthesizing,
    /// The tasks of the plan have ended, and their results are condensed.
    Reducing,
}

/// The mutable part of an intent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEntity {
    /// Which intent.
    pub intent_id: IntentId,
    /// How far it is.
    pub phase: Phase,
    /// The plan attempt that was asked for last, from 1; 0 before.
    pub plan_attempt: i32,
    /// The run whose plan is in force.
    pub run: Option<RunId>,
    /// Fragment of that run that comes next.
    pub next_fragment: i32,
    /// Runs that are given up for good.
    pub abandoned: Vec<RunId>,
    /// When the plan last moved, for its timeout.
    pub plan_moved_at: Timestamp,
    /// Why earlier plans were refused; empty if none was.
    pub plan_feedback: String,
    /// Highest hop count seen.
    pub hop: i32,
    /// Model calls so far.
    pub calls: i64,
    /// Tokens so far.
    pub usage: Usage,
    /// Cost so far in US dollars, without unpriced calls.
    pub cost_usd: f64,
    /// Sum of all model steps' times so far, in milliseconds.
    pub serial_ms: i64,
    /// The model that answered last.
    pub model: String,
    /// Whether the offline model answered any of it.
    pub offline: bool,
    /// What was left out or done more cheaply.
    pub degraded: Vec<String>,
    /// Those of the calls of which nobody knows what they cost.
    pub unpriced_calls: i64,
    /// What is reserved for the plan that is asked for; absent if it has said what it took, or nothing is bounded.
    pub plan_reserved: Option<Amount>,
    /// What counts as spent although nobody said that it was; absent if there is none.
    pub written_off: Option<Amount>,
    /// Steps that were given up before they said what they took.
    pub unsettled: Vec<Unsettled>,
    /// Whether work was left out because the budget did not cover it.
    pub over_budget: bool,
    /// Questions answered without a call so far.
    pub cached_calls: i64,
    /// Prompt tokens of those replies, which are not in `usage`.
    pub cached_prompt_tokens: i64,
    /// Start of the window of the tenant's budget that `plan_reserved` is charged to; absent where that is not bounded.
    pub plan_charged: Option<Timestamp>,
    /// What is kept of the tenant's budget for the answer; absent where that is not bounded, or nothing has begun.
    pub kept: Option<Charge>,
    /// Whether a plan is to be asked for once the tenant's budget covers it.
    pub plan_wanted: bool,
    /// Why the tenant's budget does not cover more; empty if it was not refused.
    pub refused: String,
    /// How the answer is to be made; absent where nothing but the goal says it.
    pub answer: Option<AnswerSpec>,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskEntity {
    /// Which intent.
    pub intent_id: IntentId,
    /// Which task.
    pub task_id: TaskId,
    /// Sort of node.
    pub kind: TaskKind,
    /// Position in the plan; after all others for the synthesis.
    pub ordinal: i32,
    /// The planner's name for it.
    pub key: String,
    /// A few words for people.
    pub title: String,
    /// What to do.
    pub instruction: String,
    /// Name of the agent.
    pub agent: String,
    /// Keys of the tasks it builds on.
    pub depends_on: Vec<String>,
    /// Whether a critic scores the result.
    pub critic: bool,
    /// Where it is.
    pub state: TaskState,
    /// Present attempt, from 1; 0 before the first.
    pub attempt: i32,
    /// Present step.
    pub step: i32,
    /// Worker partition of the present attempt.
    pub partition: i32,
    /// When it was dispatched first; 0 before.
    pub started_at: Timestamp,
    /// When the present attempt counts as failed.
    pub attempt_deadline: Timestamp,
    /// When a retry may be dispatched; 0 for at once.
    pub not_before: Timestamp,
    /// The best attempt so far.
    pub best: Option<BestAttempt>,
    /// Score and advice of the last attempt that was scored.
    pub last_score: Option<f64>,
    /// Advice of the last attempt that was scored.
    pub feedback: String,
    /// Failure of the last attempt that failed.
    pub failure: Option<Failure>,
    /// From first dispatch to the end, in milliseconds; 0 before the end.
    pub latency_ms: i64,
    /// W3C traceparent of what made it ready.
    pub trace: String,
    /// What is reserved for the present attempt, its critic included; absent if none is under way, or nothing is
    /// bounded.
    pub reserved: Option<Amount>,
    /// Start of the window of the tenant's budget that this is charged to; absent where that is not bounded.
    pub charged: Option<Timestamp>,
    /// What it reads, how long it may take, and what stands in for its output.
    pub terms: TaskTerms,
    /// Worker pool that does it; empty for the default one.
    pub pool: String,
    /// Whether its results are left out of those that a critic scores, of which only a share is scored.
    pub unjudged: bool,
}

/// An attempt worth keeping.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestAttempt {
    /// Which attempt.
    pub attempt: i32,
    /// Its score; absent if nobody scored it.
    pub score: Option<f64>,
    /// Where its result lies.
    pub result: RecordRef,
}

/// An intent that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedEntity {
    /// Which intent.
    pub intent_id: IntentId,
    /// Who paid.
    pub tenant: String,
    /// How it ended.
    pub status: OutcomeStatus,
    /// When it can be forgotten.
    pub forget_at: Timestamp,
}

/// A cancellation that came before its intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelledEntity {
    /// Which intent.
    pub intent_id: IntentId,
    /// Who asked.
    pub tenant: String,
    /// Why.
    pub reason: String,
    /// When it can be forgotten.
    pub forget_at: Timestamp,
}
