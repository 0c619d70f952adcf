//! What an operator can set about the coordinator.

use super::estimate::CallCosts;
use super::tenants::TenantBudgets;
use std::{collections::BTreeMap, time::Duration};

/// Every limit and choice of the coordinator. All coordinators of an installation must agree on them.
#[derive(Clone, Debug, PartialEq)]
pub struct CoordinatorSettings {
    /// Partitions of the coordinator's inbox; an envelope that belongs to another one is a dead letter.
    pub coordinator_partitions: i32,

    /// Deadline of an intent that names none, counted from its creation.
    pub default_deadline: Duration,
    /// Latest deadline that an intent may name, counted from its creation.
    pub max_deadline: Duration,
    /// How long an intent that ended stays remembered, so that a duplicate of it is recognised. Older
    /// intents are dead letters.
    pub dedup_horizon: Duration,
    /// Most intents that one partition knows: live, waiting, ended, and cancelled before they came. From
    /// seven eighths of it on, intake has to pause.
    pub max_remembered: usize,
    /// Most cancellations of unseen intents that are remembered for one tenant.
    pub max_cancelled_per_tenant: usize,
    /// Intents that one partition works on at a time; more wait unplanned.
    pub max_live: usize,
    /// Most intents that wait in one partition. From seven eighths of it on, intake has to pause.
    pub max_waiting: usize,
    /// Timers that one tick may fire, so that what one step decides stays small; the rest fires with the
    /// next tick, which is due at once.
    pub max_timers_per_tick: usize,

    /// Tasks of one intent that may be with workers at a time.
    pub intent_window: usize,
    /// Tasks with workers at a time, as a multiple of the slots that the fleet has for this partition.
    pub window_factor: f64,
    /// Tasks that may be with workers while no worker is known.
    pub min_window: usize,
    /// Shortest time between two progress reports of one intent.
    pub progress_interval: Duration,

    /// Most tasks in a plan, and the default of an intent's own limit.
    pub max_tasks: i32,
    /// Most tasks in a chain of dependencies.
    pub max_depth: i32,
    /// Longest instruction of a task, in bytes.
    pub max_instruction_bytes: usize,
    /// Longest title of a task, in bytes.
    pub max_title_bytes: usize,
    /// Longest key of a task, in bytes.
    pub max_key_bytes: usize,
    /// Refused plans after which the intent fails.
    pub max_plan_attempts: i32,
    /// How long a plan may stand still before it is asked for again.
    pub plan_timeout: Duration,
    /// Times that a silent or broken plan is asked for again.
    pub max_plan_silences: i32,
    /// Runs of the planner, crashed ones included, after which the intent fails.
    pub max_runs: usize,

    /// Attempts for one task, where the intent says nothing.
    pub max_attempts: i32,
    /// Most attempts that an intent may ask for.
    pub attempts_limit: i32,
    /// Score below which a result is tried again, where the intent says nothing.
    pub min_score: f64,
    /// The share of the results that a critic scores where their plan wants that, 0 to 1. Which tasks these are follows from
    /// their ids.
    pub critic_rate: f64,
    /// How long after its acceptance an intent that does not say so itself takes results as they come; `None`: never.
    pub degrade_after: Option<Duration>,
    /// From the third attempt on: an attempt that improves on the best before by less than this is the last.
    pub plateau_delta: f64,
    /// How long one attempt may take, its time in the worker's inbox included.
    pub attempt_timeout: Duration,
    /// How much later than the worker's deadline the coordinator gives an attempt up.
    pub attempt_grace: Duration,
    /// Pause after the first failed attempt; doubles with each further one.
    pub retry_backoff: Duration,
    /// Longest pause after a failed attempt.
    pub max_retry_backoff: Duration,
    /// Envelopes in a row after which an intent is taken for a runaway and fails.
    pub max_hops: i32,
    /// Notes in the `degraded` list of one outcome.
    pub max_notes: usize,

    /// The agent of tasks whose plan names none or an unknown one.
    pub worker_agent: String,
    /// The agent that makes the answer out of the results.
    pub synthesizer_agent: String,
    /// The agent that condenses results.
    pub reducer_agent: String,
    /// The agents that workers know, by name.
    pub agents: BTreeMap<String, AgentRules>,

    /// Most model calls of an intent that names no limit of its own; `None` bounds nothing.
    pub max_calls: Option<i64>,
    /// Most tokens of an intent that names no limit of its own; `None` bounds nothing.
    pub max_tokens: Option<i64>,
    /// Most US dollars for an intent that names no limit of its own; `None` bounds nothing.
    pub max_cost_usd: Option<f64>,
    /// What model calls take at most.
    pub costs: CallCosts,
    /// Steps of one intent that were given up before they said what they took, and that are remembered until they do.
    /// What does not find a place counts as spent in full, for good.
    pub max_unsettled: usize,

    /// What tenants may take, all of their intents together.
    pub tenants: TenantBudgets,
    /// Most tenants with a budget of which one partition keeps books.
    pub max_tenants: usize,
    /// How long a partition keeps what it has of a tenant's budget and has not reserved.
    pub lease_time: Duration,
    /// How long a partition waits before it asks for more again, answered or not.
    pub lease_retry: Duration,
}

/// What the tasks of one agent go by, where it differs from those of others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentRules {
    /// The worker pool that does them; `None` is the default one.
    pub pool: Option<String>,
    /// Takes the place of [`CoordinatorSettings::attempt_timeout`].
    pub timeout: Option<Duration>,
    /// Most attempts, where the intent allows more.
    pub max_attempts: Option<i32>,
    /// Takes the place of [`CoordinatorSettings::critic_rate`].
    pub critic_rate: Option<f64>,
}

/// The agents of an installation, as they are from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownAgents {
    /// See [`CoordinatorSettings::agents`].
    pub agents: BTreeMap<String, AgentRules>,
    /// See [`CoordinatorSettings::costs`].
    pub costs: CallCosts,
}

impl Default for CoordinatorSettings {
    fn default() -> Self {
        const MINUTE: u64 = 60;
        const DAY: u64 = 24 * 60 * MINUTE;
        Self {
            coordinator_partitions: 12,
            default_deadline: Duration::from_secs(15 * MINUTE),
            max_deadline: Duration::from_secs(DAY),
            dedup_horizon: Duration::from_secs(7 * DAY),
            max_remembered: 100_000,
            max_cancelled_per_tenant: 1_000,
            max_live: 256,
            max_waiting: 10_000,
            max_timers_per_tick: 16,
            intent_window: 100,
            window_factor: 3.0,
            min_window: 64,
            progress_interval: Duration::from_millis(100),
            max_tasks: 100,
            max_depth: 32,
            max_instruction_bytes: 8 * 1024,
            max_title_bytes: 200,
            max_key_bytes: 100,
            max_plan_attempts: 2,
            plan_timeout: Duration::from_secs(2 * MINUTE),
            max_plan_silences: 2,
            max_runs: 16,
            max_attempts: 3,
            attempts_limit: 10,
            min_score: 0.6,
            critic_rate: 1.0,
            degrade_after: None,
            plateau_delta: 0.02,
            attempt_timeout: Duration::from_secs(5 * MINUTE),
            attempt_grace: Duration::from_secs(2),
            retry_backoff: Duration::from_millis(200),
            max_retry_backoff: Duration::from_secs(30),
            max_hops: 1_000,
            max_notes: 200,
            worker_agent: "worker".into(),
            synthesizer_agent: "synthesizer".into(),
            reducer_agent: "reducer".into(),
            agents: ["worker", "synthesizer", "reducer"]
                .map(|name| (name.to_owned(), AgentRules::default()))
                .into(),
            max_calls: None,
            max_tokens: None,
            max_cost_usd: None,
            costs: CallCosts::default(),
            max_unsettled: 64,
            tenants: TenantBudgets::default(),
            max_tenants: 10_000,
            lease_time: Duration::from_secs(2),
            lease_retry: Duration::from_secs(1),
        }
    }
}
