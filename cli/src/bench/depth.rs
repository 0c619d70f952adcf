//! Layers of tasks, each on all of the layer before, one intent after the other: how long an intent takes.

use super::{
    measure::{Figures, Percentiles, rss_mb},
    probe::Probe,
    scene::BenchModel,
    stage::Stage,
};
use crate::{args::DepthArgs, exit::CliError, session::Session};
use starling_llm::mock::{MockOptions, scripts, scripts::Latencies};
use starling_protocol::IntentId;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub(super) async fn run(session: &Session, args: &DepthArgs) -> Result<Figures, CliError> {
    let latency = Duration::from_millis(args.model_latency);
    let model = if args.swarm.model_in_process {
        BenchModel::InProcess(Arc::new(Probe::layers(args.layers, args.width, latency)))
    } else {
        BenchModel::Http(MockOptions::new(scripts::layered(args.layers, args.width, Latencies::all(latency))))
    };
    let stage = Stage::set(session, &args.swarm, model).await?;
    let mut times = Vec::with_capacity(args.intents);
    let begun = Instant::now();
    for n in 0..=args.intents {
        let id = IntentId::from_string(format!("intent-{n}"));
        let start = Instant::now();
        stage.submit(&id).await?;
        let (_, _, at) = stage.success().await?;
        // The first one opens connections and fills caches.
        if n > 0 {
            times.push(at - start);
        }
    }
    let subtasks = ((args.intents + 1) * args.layers * args.width) as f64;
    let mut figures = Figures::new("depth", args.swarm.bus.name());
    figures.workers = args.swarm.workers;
    figures.slots = args.swarm.slots;
    figures.subtasks_per_s = Some((subtasks / begun.elapsed().as_secs_f64()).round());
    figures.intent = Percentiles::of(times);
    figures.rss_mb = rss_mb();
    stage.strike().await;
    Ok(figures)
}
