//! The coordinator as a loop of this service: its settings, and what it tells of itself.

use starling_agents::{AgentCatalogue, DEFAULT_WORKER, SYNTHESIZER};
use starling_engine::coordinator::{Coordinator, CoordinatorSettings};
use starling_protocol::Topic;
use starling_runtime::{
    Node,
    router::RouteError,
    settings::Settings,
    stateful::{StatefulError, StatefulOptions, StatefulParts, StatefulProcessor, StatefulReport},
};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Name of the coordinator's group and of its voice in the fleet.
const COORDINATOR: &str = "coordinator";
/// The role under which the fleet looks for coordinators.
const PLANNER: &str = "planner";

/// Why the coordinator does not run.
#[derive(Debug, thiserror::Error)]
pub enum CoordinationError {
    /// A topic is not part of this installation.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// It cannot start, or cannot go on.
    #[error(transparent)]
    Stateful(#[from] StatefulError),
}

/// Coordinates until `stop`.
///
/// # Errors
/// See [`CoordinationError`].
pub(crate) async fn coordinate(
    node: Node,
    catalogue: Arc<AgentCatalogue>,
    stop: CancellationToken,
) -> Result<(), CoordinationError> {
    let settings = Arc::new(coordinator_settings(&node, &catalogue)?);
    let worker_partitions = node.router.partitions(&Topic::Worker(None))?;
    let processor = StatefulProcessor::join(StatefulParts {
        bus: node.bus.clone(),
        codec: node.codec.clone(),
        router: node.router.clone(),
        spans: node.spans.clone(),
        metrics: node.metrics.clone(),
        clock: node.clock.clone(),
        fleet: node.fleet.view(),
        make: Arc::new(move |partition| Coordinator::new(settings.clone(), partition, worker_partitions)),
        options: stateful_options(&node.settings, node.router.names().group(COORDINATOR)),
    })
    .await?;
    let telling = tokio::spawn(tell(node, processor.report()));
    let ended = processor.run(stop).await;
    telling.abort();
    Ok(ended?)
}

/// Tells the fleet how many partitions have work, and the health whether the state is read.
async fn tell(node: Node, report: StatefulReport) {
    let ready = node.health.gate("the coordinator's state to be read");
    let announcer = node.fleet.announce(&format!("{}/{COORDINATOR}", node.process), PLANNER, None, 0);
    let mut partitions = report.partitions();
    loop {
        let (owned, active) = {
            let partitions = partitions.borrow_and_update();
            let has_work = |load: &starling_engine::coordinator::Load| load.ready + load.outstanding > 0;
            let active = partitions.values().filter(|status| has_work(&status.load)).count();
            (partitions.keys().copied().collect(), i32::try_from(active).unwrap_or(i32::MAX))
        };
        announcer.partitions(owned);
        announcer.active(active);
        ready.set(report.is_ready());
        if partitions.changed().await.is_err() {
            return; // the processor has ended
        }
    }
}

fn coordinator_settings(node: &Node, catalogue: &AgentCatalogue) -> Result<CoordinatorSettings, RouteError> {
    let mut known_agents: std::collections::BTreeSet<String> =
        catalogue.workers().map(|agent| agent.name.clone()).collect();
    known_agents.insert(SYNTHESIZER.to_owned());
    Ok(CoordinatorSettings {
        coordinator_partitions: node.router.partitions(&Topic::Coordinator)?,
        worker_agent: DEFAULT_WORKER.to_owned(),
        synthesizer_agent: SYNTHESIZER.to_owned(),
        known_agents,
        ..node.settings.coordinator.clone()
    })
}

fn stateful_options(settings: &Settings, group: String) -> StatefulOptions {
    StatefulOptions {
        instance: settings.kafka.instance.clone(),
        session_timeout: settings.kafka.session_timeout,
        revoke_timeout: settings.kafka.revoke_timeout,
        leave_timeout: settings.processor.grace,
        max_batch: settings.statelog.max_batch,
        max_record: settings.statelog.max_record,
        snapshot_decisions: settings.statelog.snapshot_every,
        ..StatefulOptions::new(group)
    }
}
