//! The coordinator as a loop of this service: its settings, and what it tells of itself.

use crate::costs::call_costs;
use starling_agents::{AgentCatalogue, DEFAULT_WORKER, REDUCER, SYNTHESIZER};
use starling_engine::coordinator::{Coordinator, CoordinatorSettings};
use starling_protocol::Topic;
use starling_runtime::{
    Node,
    router::RouteError,
    stateful::{PartitionPhase, StatefulError, StatefulParts, StatefulProcessor, StatefulReport},
};
use starling_service::AgentsInForce;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Name of the coordinator's voice in the fleet.
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
    agents: AgentsInForce,
    stop: CancellationToken,
) -> Result<(), CoordinationError> {
    let settings = Arc::new(coordinator_settings(&node, &agents.now())?);
    let worker_partitions = node.router.partitions(&Topic::Worker(None))?;
    let make = Arc::new(move |partition| Coordinator::new(settings.clone(), partition, worker_partitions));
    let mut processor = StatefulProcessor::join(StatefulParts::on(&node, make)).await?;
    processor.tell(&node.health);
    let telling = tokio::spawn(tell(node, processor.report()));
    let ended = processor.run(stop).await;
    telling.abort();
    Ok(ended?)
}

/// Tells the fleet how many partitions have work, and how much room for intents there is.
async fn tell(node: Node, report: StatefulReport) {
    let announcer = node.fleet.announce(&format!("{}/{COORDINATOR}", node.process), PLANNER, None, 0);
    let mut partitions = report.partitions();
    loop {
        let (owned, active, room) = {
            let partitions = partitions.borrow_and_update();
            let has_work = |load: &starling_engine::coordinator::Load| load.ready + load.outstanding > 0;
            let active = partitions.values().filter(|status| has_work(&status.load)).count();
            let knowing = partitions.values().filter(|status| status.phase == PartitionPhase::Live);
            let room = knowing.map(|status| status.load.room).min();
            (partitions.keys().copied().collect(), i32::try_from(active).unwrap_or(i32::MAX), room)
        };
        announcer.partitions(owned);
        announcer.active(active);
        announcer.room(room);
        if partitions.changed().await.is_err() {
            return; // the processor has ended
        }
    }
}

fn coordinator_settings(node: &Node, catalogue: &AgentCatalogue) -> Result<CoordinatorSettings, RouteError> {
    let mut known_agents: std::collections::BTreeSet<String> =
        catalogue.workers().map(|agent| agent.name.clone()).collect();
    known_agents.extend([SYNTHESIZER, REDUCER].map(String::from));
    Ok(CoordinatorSettings {
        coordinator_partitions: node.router.partitions(&Topic::Coordinator)?,
        worker_agent: DEFAULT_WORKER.to_owned(),
        synthesizer_agent: SYNTHESIZER.to_owned(),
        reducer_agent: REDUCER.to_owned(),
        known_agents,
        costs: call_costs(&node.settings, catalogue),
        ..node.settings.coordinator.clone()
    })
}
