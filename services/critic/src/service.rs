//! The service as a whole.

use crate::{CriticHandler, CriticOptions};
use starling_agents::PromptBudget;
use starling_protocol::Topic;
use starling_runtime::{
    Node,
    parallel::{ParallelConfig, ParallelProcessor, ProcessorError},
};
use starling_service::Parts;
use std::sync::Arc;

/// Scores results until the node is shut down.
///
/// # Errors
/// The bus does not work, for good.
pub async fn serve(node: Node, parts: Parts) -> Result<(), ProcessorError> {
    let handler = CriticHandler::new(
        parts.model,
        parts.agents,
        node.spans.clone(),
        node.metrics.clone(),
        node.clock.clone(),
        CriticOptions {
            prompt: PromptBudget::of_bytes(node.settings.agents_prompt),
            panel: node.settings.critic_panel,
        },
    );
    let slots = node.settings.processor.slots.critic;
    let config = ParallelConfig::new(&node.settings, Topic::Critic, "critic", slots);
    let shutdown = node.shutdown.clone();
    ParallelProcessor::envelopes(config, node, Arc::new(handler)).run(shutdown).await
}
