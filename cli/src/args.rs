//! The command line.

use crate::{batch::BatchArgs, dlq::DlqCommand, instant::instant, mock_llm::MockLlmArgs};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use starling_protocol::{PlanStrategy, Timestamp};
use starling_runtime::process::CommonFlags;
use std::path::PathBuf;

/// One intent in, one answer out: a swarm of LLM agents over Kafka.
#[derive(Debug, Parser)]
#[command(name = "starling", version, about, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Where settings come from.
    #[command(flatten)]
    pub settings: CommonFlags,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an intent and wait for the answer: in this process, or with --brokers by a running swarm.
    Run(RunArgs),
    /// Run an intent for each row of a file; started again, it goes on where it ended: in this process, or with --brokers by a
    /// running swarm.
    Batch(BatchArgs),
    /// Publish an intent and print its id.
    Submit(IntentArgs),
    /// Show the plan of an intent without running it: as a tree, a graph or data.
    Plan(PlanArgs),
    /// List the playbooks, and what each takes.
    Playbooks(PlaybooksArgs),
    /// Follow an intent until it ends.
    Watch(WatchArgs),
    /// Print the outcome of an intent that has ended.
    Result(ResultArgs),
    /// Cancel an intent.
    Cancel(CancelArgs),
    /// Work with Starling's topics.
    Topics {
        /// What to do with them.
        #[command(subcommand)]
        command: TopicsCommand,
    },
    /// Look at the dead letters: records that nobody could handle.
    Dlq {
        /// What to do with them.
        #[command(subcommand)]
        command: DlqCommand,
    },
    /// Account for every record of an intent, or of all intents of a time: exit code 1 if one is unaccounted for.
    Audit(AuditArgs),
    /// Look whether everything that the swarm needs is there, and say what to do where it is not.
    Doctor(DoctorArgs),
    /// Watch the swarm: services, lag, intents, failures, cost.
    Top(TopArgs),
    /// List the agents, or check a folder of them.
    Agents(AgentsArgs),
    /// Run all services in one process against a real broker.
    Dev(DevArgs),
    /// Serve a model endpoint that is no LLM and misbehaves as it is told, to rehearse with.
    MockLlm(MockLlmArgs),
    /// Ask a service on this machine whether it is ready: exit code 0 or 1. For health checks of containers.
    Health(HealthArgs),
    /// Measure.
    Bench {
        /// What to measure.
        #[command(subcommand)]
        command: BenchCommand,
    },
}

/// An intent.
#[derive(Debug, Args)]
pub struct IntentArgs {
    /// What is wanted, in words. A playbook may have a goal of its own.
    pub goal: Option<String>,
    /// A file that comes with it: text, Markdown, CSV, JSON, JSON lines, HTML or PDF; may be given several times.
    #[arg(long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Something to treat one by one; may be given several times.
    #[arg(long = "item", value_name = "TEXT")]
    pub items: Vec<String>,
    /// A file of such things: one a line, a column of CSV, a JSON array, or JSON lines; may be given several times.
    #[arg(long = "items", value_name = "FILE")]
    pub item_files: Vec<PathBuf>,
    /// The column of CSV, or the field of JSON objects, that the items of --items are in.
    #[arg(long, value_name = "NAME", requires = "item_files")]
    pub items_column: Option<String>,
    /// Most tokens of a part of a long file; instead of the setting inputs.chunk_tokens.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(100..=32_000))]
    pub chunk_tokens: Option<u32>,
    /// Tokens of the end of a part that the next one has as well; instead of inputs.overlap_tokens.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(0..=16_000))]
    pub overlap: Option<u32>,
    /// Id of the intent; a second intent with the same id is the same intent.
    #[arg(long)]
    pub id: Option<String>,
    /// Who pays.
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// 0 (batch) to 9 (somebody waits).
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(i32).range(0..=9))]
    pub priority: i32,
    /// How to plan: llm (a model writes the plan), single (one task), map (the goal for each item), auto (one of these, by
    /// what the intent has), or playbook:NAME.
    #[arg(long, default_value_t = PlanStrategy::Llm)]
    pub strategy: PlanStrategy,
    /// Plan by this playbook; short for --strategy playbook:NAME.
    #[arg(long, value_name = "NAME", value_parser = playbook, conflicts_with = "strategy")]
    pub playbook: Option<PlanStrategy>,
    /// A named value, above all for a playbook; may be given several times. A list is a JSON array: 'languages=["de","fr"]'.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
    pub parameters: Vec<(String, String)>,
    /// Seconds after which the intent expires.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub timeout: Option<u64>,
    /// Seconds after which results are taken as they come: no critic, no further attempt for a better score.
    #[arg(long, value_name = "SECONDS")]
    pub degrade_after: Option<f64>,
    /// Most tasks in the plan.
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..=100))]
    pub max_tasks: Option<i32>,
    /// Most attempts for one task.
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..=10))]
    pub max_attempts: Option<i32>,
    /// Score from 0 to 1 below which a result is tried again.
    #[arg(long)]
    pub min_score: Option<f64>,
    /// Most model calls, retries included.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub max_calls: Option<i64>,
    /// Most tokens, sent and received.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub max_tokens: Option<i64>,
    /// Most US dollars; model.prices must have a price for every model.
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub max_cost: Option<f64>,
}

impl IntentArgs {
    /// How to plan.
    #[must_use]
    pub fn strategy(&self) -> &PlanStrategy {
        self.playbook.as_ref().unwrap_or(&self.strategy)
    }
}

/// A strategy by the name of its playbook.
pub(crate) fn playbook(name: &str) -> Result<PlanStrategy, String> {
    format!("playbook:{name}").parse().map_err(|_| "a name of a-z 0-9 - _ is expected".to_owned())
}

fn parameter(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is expected")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

/// `starling run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The intent.
    #[command(flatten)]
    pub intent: IntentArgs,
    /// Only plan, in this process, and tell what the plan would take: one call of the planner, none where no model makes the
    /// plan.
    #[arg(long)]
    pub dry_run: bool,
    /// One JSON object on stdout, nothing else.
    #[arg(long)]
    pub json: bool,
}

/// `starling plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The intent.
    #[command(flatten)]
    pub intent: IntentArgs,
    /// How it is shown.
    #[arg(long, value_enum, default_value_t = PlanFormat::Tree)]
    pub format: PlanFormat,
    /// Also write it as a playbook of this name into playbooks.dir, or ./playbooks where that is not set.
    #[arg(long, value_name = "NAME")]
    pub save: Option<String>,
}

/// How a plan is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// A tree for the terminal, from the answer down to what is done first.
    Tree,
    /// A graph for Graphviz.
    Dot,
    /// A flow chart for Mermaid.
    Mermaid,
    /// One JSON object.
    Json,
}

/// `starling playbooks`.
#[derive(Clone, Copy, Debug, Args)]
pub struct PlaybooksArgs {
    /// One JSON object on stdout, nothing else.
    #[arg(long)]
    pub json: bool,
}

/// `starling watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Id of the intent.
    pub id: String,
    /// One JSON object on stdout at the end, nothing else.
    #[arg(long)]
    pub json: bool,
}

/// `starling result`.
#[derive(Debug, Args)]
pub struct ResultArgs {
    /// Id of the intent.
    pub id: String,
    /// One JSON object on stdout, nothing else.
    #[arg(long)]
    pub json: bool,
}

/// `starling cancel`.
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// Id of the intent.
    pub id: String,
    /// Who asks.
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// Why.
    #[arg(long, default_value = "cancelled by the user")]
    pub reason: String,
    /// How long to wait for the coordinator's answer.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub wait: u64,
}

/// `starling topics`.
#[derive(Debug, Subcommand)]
pub enum TopicsCommand {
    /// Create the topics that are missing.
    Create,
}

/// `starling audit`.
#[derive(Clone, Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).multiple(true).args(["intent", "since", "until", "all"])))]
pub struct AuditArgs {
    /// One intent: every record of it, in the order of causes.
    #[arg(long, value_name = "ID", conflicts_with_all = ["since", "until", "all"])]
    pub intent: Option<String>,
    /// All intents that began since then: an instant such as 2026-11-30T09:30:00Z, or how long ago, such as 2h.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub since: Option<Timestamp>,
    /// All intents that began before then.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub until: Option<Timestamp>,
    /// All intents that anything is left of.
    #[arg(long, conflicts_with_all = ["since", "until"])]
    pub all: bool,
    /// Nothing goes on any more: what is pending is unaccounted for.
    #[arg(long, visible_alias = "strict")]
    pub ended: bool,
    /// Intents that are held in memory at once; instead of the setting audit.at_once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub at_once: Option<u32>,
    /// One JSON object on stdout, nothing else.
    #[arg(long)]
    pub json: bool,
}

/// `starling doctor`.
#[derive(Clone, Copy, Debug, Args)]
pub struct DoctorArgs {
    /// One JSON object on stdout, nothing else.
    #[arg(long)]
    pub json: bool,
    /// Ask each model, and try out what its endpoint does of the protocol: some six small calls for each, which cost what they
    /// cost.
    #[arg(long)]
    pub call_model: bool,
}

/// `starling top`.
#[derive(Clone, Copy, Debug, Args)]
pub struct TopArgs {
    /// Print the state once as plain text and leave; also what happens where there is no terminal.
    #[arg(long)]
    pub once: bool,
}

/// `starling agents`.
#[derive(Debug, Args)]
pub struct AgentsArgs {
    /// Whether the agents in this folder could be used: exit code 64 if not, with all faults. Otherwise those are listed
    /// that agents.dir names.
    #[arg(long, value_name = "DIR")]
    pub check: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `starling dev`.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// Do not create missing topics.
    #[arg(long)]
    pub no_topics: bool,
}

/// `starling health`.
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// Ask only whether it is alive, not whether it is ready for work.
    #[arg(long)]
    pub alive: bool,
    /// Where the service serves its health; without it, the setting http.listen says so.
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,
}

/// `starling bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Intents with many independent tasks: throughput.
    Fanout(FanoutArgs),
    /// A file of rows, an intent for each: time and memory, and whether each is in the output once.
    Batch(BenchBatchArgs),
    /// Numbers of workers: what each makes of a model that takes its time.
    Scaling(ScalingArgs),
    /// Layers of tasks, each on all of the layer before: latency of an intent.
    Depth(DepthArgs),
    /// A chain of tasks with a model that answers at once: latency of a hop.
    Hop(HopArgs),
    /// Somebody who waits for an answer, on an idle swarm and while a batch keeps it busy.
    Interactive(InteractiveArgs),
    /// A provider that cuts its limit, raises it again, and is down for a while: how soon the swarm follows.
    Provider(ProviderArgs),
    /// The model layer beside a plain HTTP client: processor time of a call.
    ModelCall(BenchMockArgs),
    /// State-log decisions against Kafka transactions over the same partitions.
    Decision(DecisionArgs),
    /// A coordinator killed in the middle of many live intents: how soon the next one goes on, and what it sends again.
    Takeover(TakeoverArgs),
    /// The mock endpoint alone: processor time of a request.
    MockLlm(BenchMockArgs),
}

/// The bus of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BusKind {
    /// In this process.
    Memory,
    /// The broker of --brokers.
    Kafka,
}

impl BusKind {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            BusKind::Memory => "memory",
            BusKind::Kafka => "kafka",
        }
    }
}

/// What all benches of the swarm share.
#[derive(Clone, Debug, Args)]
pub struct SwarmArgs {
    /// Worker members.
    #[arg(long, default_value_t = 4)]
    pub workers: usize,
    /// Slots of each worker member.
    #[arg(long, default_value_t = 25)]
    pub slots: usize,
    /// The bus.
    #[arg(long, value_enum, default_value_t = BusKind::Memory)]
    pub bus: BusKind,
    /// Call the model in this process instead of over HTTP.
    #[arg(long)]
    pub model_in_process: bool,
    /// One JSON object on stdout, nothing else.
    #[arg(long)]
    pub json: bool,
}

/// `starling bench fanout`.
#[derive(Clone, Debug, Args)]
pub struct FanoutArgs {
    /// Intents.
    #[arg(long, default_value_t = 50)]
    pub intents: usize,
    /// How many of them are under way at once; without it, all.
    #[arg(long, value_name = "INTENTS")]
    pub live: Option<usize>,
    /// Tasks of each intent.
    #[arg(long, default_value_t = 100)]
    pub tasks: usize,
    /// Milliseconds that each model call takes.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub model_latency: u64,
    /// Only tasks take that long; plans, verdicts and answers come at once.
    #[arg(long, conflicts_with = "model_in_process")]
    pub only_work: bool,
    /// Requests a second beyond which the endpoint says 429; the swarm has to find that out. Leaves the bare pipeline out.
    #[arg(long, value_name = "PER_SECOND", conflicts_with = "model_in_process")]
    pub provider_rate: Option<u32>,
    /// Leave out the bare pipeline that the swarm is compared with.
    #[arg(long)]
    pub no_bare: bool,
    /// The swarm.
    #[command(flatten)]
    pub swarm: SwarmArgs,
}

/// `starling bench batch`.
#[derive(Clone, Debug, Args)]
pub struct BenchBatchArgs {
    /// Rows.
    #[arg(long, default_value_t = 12_000)]
    pub rows: usize,
    /// Tasks of each row's plan.
    #[arg(long, default_value_t = 4)]
    pub tasks: usize,
    /// Rows under way at once.
    #[arg(long, default_value_t = 100)]
    pub concurrency: usize,
    /// Write the outcomes in the order of the rows.
    #[arg(long)]
    pub in_order: bool,
    /// The swarm.
    #[command(flatten)]
    pub swarm: SwarmArgs,
}

/// `starling bench interactive`.
#[derive(Clone, Debug, Args)]
pub struct InteractiveArgs {
    /// Intents of which somebody waits for the outcome, one after the other; so many on the idle swarm, and so many beside the
    /// batch.
    #[arg(long, default_value_t = 40, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub intents: usize,
    /// Intents of the batch that are under way at any time.
    #[arg(long, default_value_t = 200)]
    pub live: usize,
    /// Tasks of each intent.
    #[arg(long, default_value_t = 4)]
    pub tasks: usize,
    /// Milliseconds that each model call takes.
    #[arg(long, value_name = "MS", default_value_t = 300)]
    pub model_latency: u64,
    /// Requests a second that the provider allows; without it, any number.
    #[arg(long, value_name = "PER_SECOND")]
    pub provider_rate: Option<u32>,
    /// The swarm.
    #[command(flatten)]
    pub swarm: SwarmArgs,
}

/// `starling bench scaling`.
#[derive(Clone, Debug, Args)]
pub struct ScalingArgs {
    /// Worker members of one slot, one run for each number.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 50, 100])]
    pub workers: Vec<usize>,
    /// Milliseconds that each model call takes.
    #[arg(long, value_name = "MS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub model_latency: u64,
    /// For how many seconds there is work for them.
    #[arg(long, default_value_t = 20)]
    pub seconds: usize,
    /// The bus.
    #[arg(long, value_enum, default_value_t = BusKind::Memory)]
    pub bus: BusKind,
    /// A JSON array with one object for each run on stdout, nothing else.
    #[arg(long)]
    pub json: bool,
}

/// `starling bench provider`. Takes about three minutes.
#[derive(Clone, Debug, Args)]
pub struct ProviderArgs {
    /// Intents of a hundred tasks that are under way at any time.
    #[arg(long, default_value_t = 12)]
    pub live: usize,
    /// Milliseconds that each model call takes.
    #[arg(long, value_name = "MS", default_value_t = 300)]
    pub model_latency: u64,
    /// Requests a second that the provider allows.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 500)]
    pub rate: u32,
    /// What it allows for half a minute in between.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 100)]
    pub cut: u32,
    /// For how long it is down.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub down: usize,
    /// The swarm.
    #[command(flatten)]
    pub swarm: SwarmArgs,
}

/// `starling bench depth`.
#[derive(Clone, Debug, Args)]
pub struct DepthArgs {
    /// Intents, one after the other.
    #[arg(long, default_value_t = 20)]
    pub intents: usize,
    /// Layers.
    #[arg(long, default_value_t = 5)]
    pub layers: usize,
    /// Tasks of each layer.
    #[arg(long, default_value_t = 20)]
    pub width: usize,
    /// Milliseconds that each model call takes.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub model_latency: u64,
    /// The swarm.
    #[command(flatten)]
    pub swarm: SwarmArgs,
}

/// `starling bench hop`.
#[derive(Clone, Debug, Args)]
pub struct HopArgs {
    /// Length of the chain.
    #[arg(long, default_value_t = 50)]
    pub tasks: usize,
    /// Chains, one after the other.
    #[arg(long, default_value_t = 10)]
    pub intents: usize,
    /// The bus.
    #[arg(long, value_enum, default_value_t = BusKind::Memory)]
    pub bus: BusKind,
    /// One JSON object on stdout, nothing else.
    #[arg(long)]
    pub json: bool,
}

/// `starling bench takeover`. Runs on the broker of --brokers, and starts `starling-planner` from beside this program.
#[derive(Clone, Debug, Args)]
pub struct TakeoverArgs {
    /// Intents, all live at once.
    #[arg(long, default_value_t = 1_000)]
    pub intents: usize,
    /// Tasks of each intent.
    #[arg(long, default_value_t = 50)]
    pub tasks: usize,
    /// Milliseconds that the model works on a task.
    #[arg(long, value_name = "MS", default_value_t = 300)]
    pub work_latency: u64,
    /// Worker members.
    #[arg(long, default_value_t = 4)]
    pub workers: usize,
    /// Slots of each worker member.
    #[arg(long, default_value_t = 25)]
    pub slots: usize,
    /// One JSON object on stdout, nothing else.
    #[arg(long)]
    pub json: bool,
}

/// `starling bench decision`.
#[derive(Clone, Debug, Args)]
pub struct DecisionArgs {
    /// How many of each.
    #[arg(long, default_value_t = 500)]
    pub decisions: usize,
    /// Partitions that the effects of one decision go to.
    #[arg(long, default_value_t = 100)]
    pub partitions: i32,
    /// One JSON object on stdout, nothing else.
    #[arg(long)]
    pub json: bool,
}

/// `starling bench mock-llm` and `starling bench model-call`.
#[derive(Clone, Debug, Args)]
pub struct BenchMockArgs {
    /// Requests.
    #[arg(long, default_value_t = 100_000)]
    pub requests: usize,
    /// Connections, each with one request at a time.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub connections: u16,
    /// Characters of a prompt beside what makes it one.
    #[arg(long, value_name = "CHARACTERS", default_value_t = 1_000)]
    pub prompt: usize,
    /// One JSON object on stdout, nothing else.
    #[arg(long)]
    pub json: bool,
}
