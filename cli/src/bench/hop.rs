//! A chain of tasks with a model that answers at once: the time between two model calls is what the swarm
//! itself adds.

use super::{
    measure::{Figures, Percentiles, rss_mb},
    probe::Probe,
    scene::BenchModel,
    stage::Stage,
};
use crate::{
    args::{HopArgs, SwarmArgs},
    exit::CliError,
    session::Session,
};
use starling_protocol::IntentId;
use std::{sync::Arc, time::Duration};

pub(super) async fn run(session: &Session, args: &HopArgs) -> Result<Figures, CliError> {
    let probe = Arc::new(Probe::layers(args.tasks, 1, Duration::ZERO));
    let swarm = SwarmArgs { workers: 1, slots: 4, bus: args.bus, model_in_process: true, json: args.json };
    let stage = Stage::set(session, &swarm, BenchModel::InProcess(probe.clone())).await?;
    let (mut plain, mut coordinator) = (Vec::new(), Vec::new());
    for n in 0..=args.intents {
        let id = IntentId::from_string(format!("intent-{n}"));
        stage.submit(&id).await?;
        stage.success().await?;
        let hops = probe.take_hops();
        // The first one opens connections and fills caches.
        if n > 0 {
            plain.extend(hops.plain);
            coordinator.extend(hops.coordinator);
        }
    }
    let mut figures = Figures::new("hop", args.bus.name());
    figures.slots = swarm.slots;
    figures.plain_hop = Percentiles::of(plain);
    figures.coordinator_hop = Percentiles::of(coordinator);
    figures.rss_mb = rss_mb();
    stage.strike().await;
    Ok(figures)
}
