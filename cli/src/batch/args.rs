//! The flags of `starling batch`.

use super::rehearsal::RehearsalArgs;
use crate::args::playbook;
use clap::{Args, ValueEnum};
use starling_protocol::{PlanStrategy, Timestamp};
use starling_runtime::{Clock, settings::parse_duration};
use std::{path::PathBuf, time::Duration};

/// `starling batch`.
#[derive(Clone, Debug, Args)]
pub struct BatchArgs {
    /// The rows: CSV or TSV with a line of column names, or JSON Lines with an object in each line.
    pub input: PathBuf,
    /// What is wanted of each row, with its columns in double braces: "Describe {{name}}". A playbook may have a goal of its
    /// own.
    #[arg(long, value_name = "TEMPLATE", required_unless_present = "playbook")]
    pub goal: Option<String>,
    /// Where the outcomes go, one JSON object in each line. If it is there already, the batch goes on where it ended.
    #[arg(long, value_name = "FILE", required_unless_present = "rehearse")]
    pub out: Option<PathBuf>,
    /// How the rows are written; without it, as the file's name ends.
    #[arg(long, value_enum)]
    pub format: Option<RowFormat>,
    /// How to plan each row: single (one task), llm (a model writes the plan), map (the goal for each item), auto (one of
    /// these, by what the row has), or playbook:NAME.
    #[arg(long, default_value_t = PlanStrategy::Single)]
    pub strategy: PlanStrategy,
    /// Plan each row by this playbook, whose parameters are the columns; short for --strategy playbook:NAME.
    #[arg(long, value_name = "NAME", value_parser = playbook, conflicts_with = "strategy")]
    pub playbook: Option<PlanStrategy>,
    /// The column with the things to treat one by one: a JSON array, or the text of one.
    #[arg(long, value_name = "COLUMN")]
    pub items: Option<String>,
    /// The batch's name: a row that was done under it is not done again. Without it, it follows from goal, strategy and
    /// the name of the input file.
    #[arg(long)]
    pub name: Option<String>,
    /// Rows under way at once; instead of the setting batch.concurrency.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub concurrency: Option<u32>,
    /// Write the outcomes in the order of the rows instead of that in which they come.
    #[arg(long)]
    pub in_order: bool,
    /// Run rows again whose last outcome is not a success.
    #[arg(long)]
    pub retry_failed: bool,
    /// Submit no more rows than these; what is in the output already does not count.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Submit no more when what was spent and what is under way would cost more US dollars; model.prices must have a price
    /// for every model.
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub budget: Option<f64>,
    /// When all must be done: an instant such as 2026-12-01T06:00:00Z, or how long from now, such as 4h.
    #[arg(long, value_name = "TIME", value_parser = due)]
    pub deadline: Option<Timestamp>,
    /// Who pays.
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// 0 (batch) to 9 (somebody waits).
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..=9))]
    pub priority: i32,
    /// How long a row may take; without it, coordinator.default_deadline.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Most tasks in the plan of a row.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=100))]
    pub max_tasks: Option<i32>,
    /// Most attempts for one task.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=10))]
    pub max_attempts: Option<i32>,
    /// Most model calls of a row, retries included.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub max_calls: Option<i64>,
    /// Most tokens of a row, sent and received.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub max_tokens: Option<i64>,
    /// Most US dollars of a row.
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub max_cost: Option<f64>,
    /// One JSON object on stdout at the end, nothing else.
    #[arg(long)]
    pub json: bool,
    /// Whether it is in earnest.
    #[command(flatten)]
    pub rehearsal: RehearsalArgs,
}

impl BatchArgs {
    /// How to plan.
    #[must_use]
    pub fn strategy(&self) -> &PlanStrategy {
        self.playbook.as_ref().unwrap_or(&self.strategy)
    }
}

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    /// Separated by commas, with a line of column names.
    Csv,
    /// The same, separated by tabs.
    Tsv,
    /// A JSON object in each line.
    Jsonl,
}

fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok().filter(|usd| usd.is_finite() && *usd > 0.0);
    amount.ok_or_else(|| "expected a number of US dollars above 0".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).filter(|duration| *duration >= Duration::from_secs(1));
    duration.ok_or_else(|| "expected a time of at least a second, such as 90s or 15m".to_owned())
}

fn due(text: &str) -> Result<Timestamp, String> {
    let from_now = parse_duration(text).map(|within| Clock::system().now().plus(within));
    from_now.or_else(|| Timestamp::from_rfc3339(text)).ok_or_else(|| {
        "expected an instant such as 2026-12-01T06:00:00Z, or how long from now, such as 90s or 4h".to_owned()
    })
}
