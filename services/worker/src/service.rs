//! The service as a whole.

use crate::{WorkHandler, WorkOptions};
use starling_agents::PromptBudget;
use starling_protocol::Topic;
use starling_runtime::{
    Node,
    parallel::{ParallelConfig, ParallelProcessor, ProcessorError},
};
use starling_service::Parts;
use std::sync::Arc;

/// Works on the tasks of `pool` (`None` is the default one) until the node is shut down.
///
/// # Errors
/// The bus does not work, for good, or the pool is unknown.
pub async fn serve(node: Node, parts: Parts, pool: Option<String>) -> Result<(), ProcessorError> {
    let options = WorkOptions {
        prompt: PromptBudget::of_bytes(node.settings.agents_prompt),
        max_output_bytes: node.settings.worker_max_output,
    };
    let handler =
        WorkHandler::new(parts.model, parts.agents, node.spans.clone(), node.clock.clone(), options);
    let slots = node.settings.processor.slots.worker;
    let config = ParallelConfig::new(&node.settings, Topic::Worker(pool), "worker", slots);
    let shutdown = node.shutdown.clone();
    ParallelProcessor::envelopes(config, node, Arc::new(handler)).run(shutdown).await
}
