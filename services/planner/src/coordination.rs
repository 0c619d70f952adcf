//! The coordinator as a loop of this service: its settings, and what it tells of itself.

use crate::costs::call_costs;
use starling_agents::{Agent, AgentCatalogue, DEFAULT_WORKER, REDUCER, SYNTHESIZER};
use starling_engine::coordinator::{
    AgentRules, Coordinator, CoordinatorSettings, KnownAgents, WorkerInboxes,
};
use starling_protocol::Topic;
use starling_runtime::{
    Node, Settings,
    router::RouteError,
    stateful::{PartitionPhase, StatefulError, StatefulParts, StatefulProcessor, StatefulReport},
};
use starling_service::AgentsInForce;
use std::sync::Arc;
use tokio::sync::watch;
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
    let settings = coordinator_settings(&node)?;
    let inboxes = worker_inboxes(&node)?;
    let known = watch::Sender::new(Arc::new(known_agents(&node.settings, &agents.now())));
    let present = known.subscribe();
    let make = Arc::new(move |partition| {
        let KnownAgents { agents, costs } = KnownAgents::clone(&present.borrow());
        let settings = CoordinatorSettings { agents, costs, ..settings.clone() };
        Coordinator::new(Arc::new(settings), partition, inboxes.clone())
    });
    let parts = StatefulParts { agents: Some(known.subscribe()), ..StatefulParts::on(&node, make) };
    let mut processor = StatefulProcessor::join(parts).await?;
    processor.tell(&node.health);
    let following = tokio::spawn(follow(node.settings.clone(), agents, known));
    let telling = tokio::spawn(tell(node, processor.report()));
    let ended = processor.run(stop).await;
    telling.abort();
    following.abort();
    Ok(ended?)
}

/// Tells the coordinator of agents that have changed.
async fn follow(settings: Arc<Settings>, mut agents: AgentsInForce, known: watch::Sender<Arc<KnownAgents>>) {
    loop {
        let catalogue = agents.next().await;
        known.send_replace(Arc::new(known_agents(&settings, &catalogue)));
    }
}

fn worker_inboxes(node: &Node) -> Result<WorkerInboxes, RouteError> {
    let partitions = |pool: Option<&String>| node.router.partitions(&Topic::Worker(pool.cloned()));
    let pools = &node.settings.topics.pools;
    pools.iter().try_fold(WorkerInboxes::from(partitions(None)?), |inboxes, pool| {
        Ok(inboxes.with(pool.as_str(), partitions(Some(pool))?))
    })
}

/// What the coordinator goes by, of these agents.
fn known_agents(settings: &Settings, catalogue: &AgentCatalogue) -> KnownAgents {
    let agents = catalogue.workers().chain([catalogue.synthesizer(), catalogue.reducer()]);
    let rules = |agent: &Agent| AgentRules {
        pool: agent.pool.clone(),
        timeout: agent.timeout,
        max_attempts: agent.max_attempts,
        critic_rate: agent.critic_rate,
    };
    KnownAgents {
        agents: agents.map(|agent| (agent.name.clone(), rules(agent))).collect(),
        costs: call_costs(settings, catalogue),
    }
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

fn coordinator_settings(node: &Node) -> Result<CoordinatorSettings, RouteError> {
    Ok(CoordinatorSettings {
        coordinator_partitions: node.router.partitions(&Topic::Coordinator)?,
        worker_agent: DEFAULT_WORKER.to_owned(),
        synthesizer_agent: SYNTHESIZER.to_owned(),
        reducer_agent: REDUCER.to_owned(),
        ..node.settings.coordinator.clone()
    })
}
