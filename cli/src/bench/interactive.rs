//! Somebody who waits for an answer, on an idle swarm and while a batch keeps it busy.

use super::{
    fanout::latencies_of,
    measure::{Figures, rank},
    scene::{BenchModel, limits},
    stage::Stage,
};
use crate::{args::InteractiveArgs, exit::CliError, session::Session};
use starling_llm::mock::{MockOptions, scripts};
use starling_protocol::{IntentId, Priority};
use std::time::{Duration, Instant};

/// What the ids of the intents of the batch begin with.
const BATCH: &str = "batch-";

pub(super) async fn run(session: &Session, args: &InteractiveArgs) -> Result<Figures, CliError> {
    let mut options = MockOptions::new(scripts::fanout(args.tasks, latencies_of(args.model_latency)));
    options.limits = args.provider_rate.map(limits);
    let stage = Stage::set(session, &args.swarm, BenchModel::Http(options)).await?;
    let mut run = Run { stage, submitted: 0, ended: 0 };
    run.interactive("warm", 2).await?;
    let idle = run.interactive("idle", args.intents).await?;
    for _ in 0..args.live {
        run.submit().await?;
    }
    // From here on as many end as begin.
    while run.ended < args.live / 2 {
        run.batch_outcome().await?;
    }
    let (before, start) = (run.ended, Instant::now());
    let busy = run.interactive("busy", args.intents).await?;
    let rate = (run.ended - before) as f64 / start.elapsed().as_secs_f64();
    let p95 = |times: &[Duration]| rank(times, 0.95).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3);
    let p50 = |times: &[Duration]| rank(times, 0.5).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3);
    let mut figures = Figures::new("interactive", args.swarm.bus.name());
    figures.workers = args.swarm.workers;
    figures.slots = args.swarm.slots;
    figures.more = vec![
        ("idle_p50_ms", p50(&idle)),
        ("idle_p95_ms", p95(&idle)),
        ("busy_p50_ms", p50(&busy)),
        ("busy_p95_ms", p95(&busy)),
        ("p95_ratio", p95(&busy) / p95(&idle)),
        ("batch_intents_per_s", rate),
    ];
    run.stage.strike().await;
    Ok(figures)
}

struct Run {
    stage: Stage,
    /// Intents of the batch, and those of them that have ended.
    submitted: usize,
    ended: usize,
}

impl Run {
    /// Times of so many intents, one after the other, while the batch goes on.
    async fn interactive(&mut self, name: &str, intents: usize) -> Result<Vec<Duration>, CliError> {
        let mut times = Vec::with_capacity(intents);
        for n in 0..intents {
            let id = IntentId::from_string(format!("{name}-{n}"));
            let start = Instant::now();
            self.stage.submit_at(&id, Priority::default()).await?;
            loop {
                let (ended, _, at) = self.stage.success().await?;
                if ended == id {
                    times.push(at - start);
                    break;
                }
                self.batch_ended(&ended).await?;
            }
        }
        Ok(times)
    }

    async fn batch_outcome(&mut self) -> Result<(), CliError> {
        let (id, ..) = self.stage.success().await?;
        self.batch_ended(&id).await
    }

    /// Another one takes its place.
    async fn batch_ended(&mut self, id: &IntentId) -> Result<(), CliError> {
        if id.as_str().starts_with(BATCH) {
            self.ended += 1;
            self.submit().await?;
        }
        Ok(())
    }

    async fn submit(&mut self) -> Result<(), CliError> {
        let id = IntentId::from_string(format!("{BATCH}{}", self.submitted));
        self.submitted += 1;
        self.stage.submit_at(&id, Priority::BATCH).await
    }
}
