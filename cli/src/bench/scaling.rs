//! What numbers of workers make of the same model: whether twice the workers do twice the work.

use super::{fanout, measure::Figures};
use crate::{
    args::{FanoutArgs, ScalingArgs, SwarmArgs},
    exit::CliError,
    session::Session,
};
use serde_json::Value;
use std::fmt::Write as _;

/// Tasks of an intent.
const TASKS: usize = 100;

/// One run for each number of workers.
///
/// # Errors
/// One of them cannot run to its end.
pub(super) async fn run(session: &Session, args: &ScalingArgs) -> Result<Vec<Figures>, CliError> {
    let mut rows = Vec::with_capacity(args.workers.len());
    for &workers in &args.workers {
        rows.push(fanout::run(session, &fanout_of(args, workers)).await?);
    }
    Ok(rows)
}

fn fanout_of(args: &ScalingArgs, workers: usize) -> FanoutArgs {
    let latency = usize::try_from(args.model_latency).unwrap_or(usize::MAX).max(1);
    let tasks = (workers * args.seconds * 1_000).div_ceil(latency);
    FanoutArgs {
        intents: tasks.div_ceil(TASKS),
        tasks: TASKS,
        // So many that workers never wait for a plan, a verdict or an answer.
        live: Some(2 + (workers * 15).div_ceil(100)),
        model_latency: args.model_latency,
        only_work: false,
        provider_rate: None,
        no_bare: true,
        swarm: SwarmArgs { workers, slots: 1, bus: args.bus, model_in_process: false, json: args.json },
    }
}

pub(super) fn json(rows: &[Figures]) -> Value {
    rows.iter().map(Figures::json).collect()
}

pub(super) fn text(rows: &[Figures]) -> String {
    let mut out = String::from(
        "| workers | intent p50 | p99 | requests/s | of the workers | of workers ÷ latency | success | context_reuse |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let figure =
            |name: &str| row.more.iter().find(|(known, _)| *known == name).map(|(_, figure)| *figure);
        let shown = |figure: Option<f64>, digits: usize| {
            figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
        };
        let seconds = |ms: Option<f64>| shown(ms.map(|ms| ms / 1e3), 2);
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| {} | {} s | {} s | {} | {} | {} | {} | {} |",
            row.workers,
            seconds(row.intent.map(|times| times.p50)),
            seconds(row.intent.map(|times| times.p99)),
            shown(figure("requests_per_s"), 0),
            shown(figure("worker_requests_per_s"), 0),
            shown(figure("of_workers_by_latency"), 3),
            shown(figure("success"), 3),
            shown(figure("context_reuse"), 3),
        );
    }
    out
}
