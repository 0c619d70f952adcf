//! What the model layer costs: processor time of a call through all that stands between a worker and its endpoint (limits,
//! breaker, retries, spans, counts), beside a call of a plain HTTP client to the same endpoint.

use super::{
    measure::{Figures, cpu_time, mock_cpu_time, rss_mb},
    scene::{BenchModel, Scene},
};
use crate::{
    args::{BenchMockArgs, BusKind, SwarmArgs},
    exit::CliError,
    session::Session,
    swarm::{Shape, Swarm},
};
use starling_llm::{
    ChatRequest, Format, Message, Model, Purpose, Reuse, Speaker,
    mock::{self, MockOptions, Rehearsal},
};
use starling_runtime::topics::topic_specs;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{task::JoinSet, time::Instant};

/// Each way is measured so often, in turn: machines are noisy.
const ROUNDS: usize = 5;
/// Nothing takes so long.
const DEADLINE: Duration = Duration::from_secs(600);

pub(super) async fn run(session: &Session, args: &BenchMockArgs) -> Result<Figures, CliError> {
    let script = Rehearsal::new(0).script().map_err(|error| CliError::Usage(error.to_string()))?;
    let swarm = SwarmArgs {
        workers: 1, // as many calls at once as it has slots; it does nothing else
        slots: usize::from(args.connections),
        bus: BusKind::Memory,
        model_in_process: false,
        json: args.json,
    };
    let scene = Scene::of(session, &swarm, BenchModel::Http(MockOptions::new(script)))?;
    let base_url = scene.server().map(mock::MockServer::base_url).unwrap_or_default();
    let (bus, litter) = scene.bus(&topic_specs(&scene.settings.topics)).await?;
    let shape = Shape { planner: false, workers: 0, model: None };
    let swarm = Swarm::start(scene.settings.clone(), bus, session.spans().clone(), shape).await?;

    let each = args.requests / ROUNDS + 1;
    let (mut layer, mut plain) = (Duration::ZERO, Duration::ZERO);
    // The first round opens connections and fills caches.
    for round in 0..=ROUNDS {
        let before = client_time();
        through_layer(&swarm.model(), args, each).await?;
        let between = client_time();
        let asked = mock::plain_load(&base_url, each, args.connections, args.prompt).await;
        asked.map_err(|error| CliError::Failed(format!("the plain client: {error}")))?;
        if round > 0 {
            layer += between.saturating_sub(before);
            plain += client_time().saturating_sub(between);
        }
    }
    swarm.stop().await;
    litter.clear().await;
    let us = |time: Duration| time.as_secs_f64() * 1e6 / (each * ROUNDS) as f64;
    let mut figures = Figures::new("model-call", "loopback");
    figures.slots = usize::from(args.connections);
    figures.rss_mb = rss_mb();
    figures.more = vec![
        ("layer_cpu_us_per_call", us(layer)),
        ("plain_cpu_us_per_call", us(plain)),
        ("overhead_cpu_us_per_call", us(layer) - us(plain)),
    ];
    Ok(figures)
}

/// Processor time of this process without that of the endpoint, so far.
fn client_time() -> Duration {
    cpu_time().unwrap_or_default().saturating_sub(mock_cpu_time().unwrap_or_default())
}

/// Asks so many times, over as many connections at once as the plain client.
async fn through_layer(
    model: &Arc<dyn Model>,
    args: &BenchMockArgs,
    requests: usize,
) -> Result<(), CliError> {
    let left = Arc::new(AtomicUsize::new(requests));
    let mut clients = JoinSet::new();
    for client in 0..args.connections {
        let (model, left, padding) = (model.clone(), left.clone(), args.prompt);
        clients.spawn(async move {
            let take = |left: usize| left.checked_sub(1);
            while let Ok(number) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
                model.chat(request(client, number, padding)).await?;
            }
            Ok::<_, starling_llm::ModelError>(())
        });
    }
    while let Some(ended) = clients.join_next().await {
        let ended = ended.map_err(|error| CliError::Failed(error.to_string()))?;
        ended.map_err(|error| CliError::Failed(error.to_string()))?;
    }
    Ok(())
}

fn request(client: u16, number: usize, padding: usize) -> ChatRequest {
    let (system, user) = mock::question(client, number, padding);
    let message = |speaker, text: String| Message { speaker, text };
    ChatRequest {
        purpose: Purpose::Work,
        messages: vec![message(Speaker::System, system.to_owned()), message(Speaker::User, user)],
        tools: Vec::new(),
        format: Format::Text,
        max_tokens: Some(1_000),
        temperature: Some(0.2),
        deadline: Instant::now() + DEADLINE,
        traceparent: None,
        allowance: None,
        reuse: Reuse::Allowed,
        priority: starling_protocol::Priority::default(),
        model: None,
    }
}
