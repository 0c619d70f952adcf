//! `starling dlq` on the command line.

use super::LetterId;
use crate::instant::instant;
use clap::{Args, Subcommand};
use starling_protocol::Timestamp;

/// What to do with the dead letters.
#[derive(Debug, Subcommand)]
pub enum DlqCommand {
    /// List them, the newest last.
    List(ListArgs),
    /// Show single ones with everything that can be read of them.
    Show(ShowArgs),
    /// Send them again to where they came from, with their keys, headers and ids.
    Replay(SettleArgs),
    /// Mark them as done with: nobody wants them. They stay in the topic until its retention removes them.
    Drop(SettleArgs),
}

/// Which dead letters.
#[derive(Clone, Debug, Default, Args)]
pub struct FilterArgs {
    /// Only those that were buried for this reason, such as `undecodable` or `panic`; may be given several times.
    #[arg(long, value_name = "WORD")]
    pub reason: Vec<String>,
    /// Only those that came from this topic, such as `worker` or `starling.worker`; may be given several times.
    #[arg(long)]
    pub topic: Vec<String>,
    /// Only those of this intent.
    #[arg(long, value_name = "ID")]
    pub intent: Option<String>,
    /// Only those buried since then: an instant such as 2026-11-30T09:30:00Z, or how long ago, such as 2h.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub since: Option<Timestamp>,
    /// Only those buried before then.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub until: Option<Timestamp>,
}

/// `starling dlq list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Which.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// The newest so many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// Also those that were replayed or dropped.
    #[arg(long)]
    pub settled: bool,
    /// One JSON object on stdout, nothing else.
    #[arg(long)]
    pub json: bool,
}

/// `starling dlq show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Which: partition and offset among the dead letters, as `list` tells them.
    #[arg(required = true, value_name = "PARTITION:OFFSET")]
    pub letters: Vec<LetterId>,
    /// One JSON object on stdout, nothing else.
    #[arg(long)]
    pub json: bool,
}

/// `starling dlq replay` and `starling dlq drop`.
#[derive(Debug, Args)]
pub struct SettleArgs {
    /// Single ones: partition and offset among the dead letters, as `list` tells them.
    #[arg(value_name = "PARTITION:OFFSET")]
    pub letters: Vec<LetterId>,
    /// Which.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// All of them, where neither single ones nor a filter are given.
    #[arg(long)]
    pub all: bool,
    /// Also those that were replayed or dropped before.
    #[arg(long)]
    pub again: bool,
    /// Only say what would be done.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
}
