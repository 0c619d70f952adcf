//! Intents with many independent tasks: how many criticised subtasks the swarm does in a second.

use super::{
    measure::{Figures, Percentiles, cpu_time, rss_mb},
    probe::Probe,
    stage::{BenchModel, Stage},
};
use crate::{args::FanoutArgs, exit::CliError, session::Session};
use starling_llm::mock::{MockOptions, scripts, scripts::Latencies};
use starling_protocol::{IntentId, OutcomeStatus};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

pub(super) async fn run(session: &Session, args: &FanoutArgs) -> Result<Figures, CliError> {
    let latency = Duration::from_millis(args.model_latency);
    let model = if args.swarm.model_in_process {
        BenchModel::InProcess(Arc::new(Probe::layers(1, args.tasks, latency)))
    } else {
        BenchModel::Http(MockOptions::new(scripts::fanout(args.tasks, Latencies::all(latency))))
    };
    let stage = Stage::set(session, &args.swarm, model).await?;
    // One intent beforehand opens connections and fills caches.
    measure(&stage, "warm", 1).await?;
    let cpu = cpu_time();
    let start = Instant::now();
    let times = measure(&stage, "intent", args.intents).await?;
    let wall = start.elapsed();
    let subtasks = (args.intents * args.tasks) as f64;
    let mut figures = Figures::new("fanout", args.swarm.bus.name());
    figures.workers = args.swarm.workers;
    figures.slots = args.swarm.slots;
    figures.subtasks_per_s = Some((subtasks / wall.as_secs_f64()).round());
    figures.intent = Percentiles::of(times);
    figures.cpu_s_per_1000 =
        cpu.zip(cpu_time()).map(|(before, after)| (after - before).as_secs_f64() * 1000.0 / subtasks);
    figures.rss_mb = rss_mb();
    stage.strike().await;
    Ok(figures)
}

/// Submits all at once and waits for all; how long each took.
async fn measure(stage: &Stage, name: &str, intents: usize) -> Result<Vec<Duration>, CliError> {
    let mut submitted = HashMap::new();
    for n in 0..intents {
        let id = IntentId::from_string(format!("{name}-{n}"));
        submitted.insert(id.clone(), Instant::now());
        stage.submit(&id).await?;
    }
    let mut times = Vec::with_capacity(intents);
    while !submitted.is_empty() {
        let (id, outcome, at) = stage.outcome().await?;
        if outcome.status != OutcomeStatus::Succeeded {
            return Err(CliError::Failed(format!("{id} {}: {}", outcome.status.name(), outcome.reason)));
        }
        if let Some(since) = submitted.remove(&id) {
            times.push(at - since);
        }
    }
    Ok(times)
}
