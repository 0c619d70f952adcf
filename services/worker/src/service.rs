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
use tokio::task::{JoinError, JoinSet};

/// Why the service ended, other than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The bus does not work, for good, or a pool is unknown.
    #[error(transparent)]
    Processor(#[from] ProcessorError),
    /// A loop panicked.
    #[error("a loop of the worker service broke: {0}")]
    Broken(#[from] JoinError),
}

/// Works on the tasks of the pools of the settings until the node is shut down. If that fails for one pool, the others
/// are stopped in order and the failure is returned.
///
/// # Errors
/// See [`WorkerError`].
pub async fn serve(node: Node, parts: Parts) -> Result<(), WorkerError> {
    let options = WorkOptions {
        prompt: PromptBudget::of_bytes(node.settings.agents_prompt),
        max_output_bytes: node.settings.worker_max_output,
    };
    let agents = parts.agents;
    let handler =
        Arc::new(WorkHandler::new(parts.model, agents, node.spans.clone(), node.clock.clone(), options));
    let slots = node.settings.processor.slots.worker;
    let stop = node.shutdown.child_token();
    let mut loops = JoinSet::new();
    for pool in node.settings.pools_of_worker() {
        let config = ParallelConfig::new(&node.settings, Topic::Worker(pool), "worker", slots);
        let processor = ParallelProcessor::envelopes(config, node.clone(), handler.clone());
        loops.spawn(processor.run(stop.clone()));
    }
    let mut outcome = Ok(());
    while let Some(ended) = loops.join_next().await {
        stop.cancel();
        outcome = outcome.and(ended.map_err(WorkerError::from).and_then(|result| Ok(result?)));
    }
    outcome
}
