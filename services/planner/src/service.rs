//! The service as a whole: three loops that know each other only by topics.

use crate::{
    CoordinationError, IntakeHandler, PlanHandler, PlanOptions, Strategies, coordination::coordinate,
    pace::pace,
};
use starling_agents::PromptBudget;
use starling_protocol::{Topic, incoming::IntentLimits};
use starling_runtime::{
    Node,
    parallel::{Admission, ParallelConfig, ParallelProcessor, ProcessorError},
};
use starling_service::Parts;
use std::sync::Arc;
use tokio::task::{JoinError, JoinSet};

/// Why the service ended, other than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum PlannerError {
    /// The intake or the plan loop failed.
    #[error(transparent)]
    Processor(#[from] ProcessorError),
    /// The coordinator failed.
    #[error(transparent)]
    Coordination(#[from] CoordinationError),
    /// A loop panicked.
    #[error("a loop of the planner service broke: {0}")]
    Broken(#[from] JoinError),
}

/// Takes intents, makes plans and coordinates until the node is shut down. If one loop fails, the others
/// are stopped in order and the failure is returned.
///
/// # Errors
/// See [`PlannerError`].
pub async fn serve(node: Node, parts: Parts) -> Result<(), PlannerError> {
    let stop = node.shutdown.child_token();
    let mut loops: JoinSet<Result<(), PlannerError>> = JoinSet::new();
    let admission = Admission::default();
    let pacing = tokio::spawn(pace(admission.clone(), node.fleet.beats(), node.settings.fleet.interval));
    let (intake, plan) = (intake(&node, &parts, admission), plan_loop(&node, &parts));
    let (token, other) = (stop.clone(), stop.clone());
    loops.spawn(async move { Ok(intake.run(token).await?) });
    loops.spawn(async move { Ok(plan.run(other).await?) });
    let coordinator = coordinate(node, parts.agents, stop.clone());
    loops.spawn(async move { Ok(coordinator.await?) });

    let mut outcome = Ok(());
    while let Some(ended) = loops.join_next().await {
        stop.cancel(); // one alone is of no use
        outcome = outcome.and(ended.map_err(PlannerError::from).and_then(|result| result));
    }
    pacing.abort();
    outcome
}

fn intake(node: &Node, parts: &Parts, admission: Admission) -> ParallelProcessor {
    let settings = &node.settings;
    let limits = IntentLimits { max_bytes: settings.intake.max_intent, ..IntentLimits::default() };
    let strategies = Strategies::new(parts.playbooks.clone(), &settings.coordinator, settings.agents_prompt);
    let handler = IntakeHandler::new(node.codec.clone(), limits, strategies, node.clock.clone());
    let slots = settings.processor.slots.intake;
    let config =
        ParallelConfig { admission, ..ParallelConfig::new(settings, Topic::Intents, "intake", slots) };
    ParallelProcessor::records(config, node.clone(), Arc::new(handler))
}

fn plan_loop(node: &Node, parts: &Parts) -> ParallelProcessor {
    let settings = &node.settings;
    let options = PlanOptions {
        prompt: PromptBudget::of_bytes(settings.agents_prompt),
        max_instruction_tokens: settings.agents_max_instruction_tokens,
        ..PlanOptions::default()
    };
    let handler = PlanHandler::new(
        parts.model.clone(),
        parts.agents.clone(),
        parts.playbooks.clone(),
        node.spans.clone(),
        node.clock.clone(),
        node.random.clone(),
        options,
    );
    let config = ParallelConfig::new(settings, Topic::Planner, "planner", settings.processor.slots.planner);
    ParallelProcessor::envelopes(config, node.clone(), Arc::new(handler))
}
