//! The `main` of a service.

use crate::{
    AgentsInForce, Chosen,
    cache_figures::CacheCollector,
    cached, choose_models,
    model::AskedModel,
    model_from,
    rate::{RateCollector, share_with_fleet},
    traced,
};
use starling_agents::{AgentCatalogue, CatalogueError};
use starling_llm::Model;
use starling_playbooks::Playbooks;
use starling_runtime::{
    Node, Settings,
    process::{UsageError, run_main},
};
use std::{error::Error, future::Future, process::ExitCode, sync::Arc};

/// What a service is built from, beside the node.
#[derive(Clone)]
pub struct Parts {
    /// The model, with a span and counts for each call.
    pub model: Arc<dyn Model>,
    /// The agents.
    pub agents: AgentsInForce,
    /// The playbooks.
    pub playbooks: Arc<Playbooks>,
}

impl Parts {
    /// Makes the model and reads the agents and playbooks that the node's settings name. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Everything that is wrong with any of them.
    pub fn of(node: &Node) -> Result<Self, UsageError> {
        let model =
            model_from(&node.settings.model).map_err(|error| format!("the model cannot be used: {error}"));
        let model = model.and_then(|asked| with_cache(asked, node));
        let library = library(&node.settings);
        match (model, library) {
            (Ok(AskedModel { model, limiters }), Ok((catalogue, playbooks))) => {
                if !limiters.is_empty() {
                    let (fleet, process) = (node.fleet.clone(), node.process.clone());
                    tokio::spawn(share_with_fleet(limiters.clone(), fleet, process));
                    let rates = Box::new(RateCollector(limiters));
                    node.metrics.with_registry(|registry| registry.register_collector(rates));
                }
                let (agents, playbooks) = (Arc::new(catalogue).into(), Arc::new(playbooks));
                Ok(Self { model: traced(model, node), agents, playbooks })
            }
            (model, library) => {
                let faults = model.err().into_iter().chain(library.err());
                Err(UsageError(faults.collect::<Vec<_>>().join("\n")))
            }
        }
    }
}

/// Reads the agents and playbooks that the settings name.
///
/// # Errors
/// Everything that is wrong with either.
pub fn library(settings: &Settings) -> Result<(AgentCatalogue, Playbooks), String> {
    let catalogue = load_agents(settings);
    // Without agents, all that can be said of playbooks is whether they are well-formed.
    let is_worker = |name: &str| catalogue.as_ref().map_or(true, |catalogue| catalogue.is_worker(name));
    let playbooks = Playbooks::load(settings.playbooks_dir.as_deref(), is_worker);
    match (catalogue, playbooks) {
        (Ok(catalogue), Ok(playbooks)) => Ok((catalogue, playbooks)),
        (catalogue, playbooks) => {
            let faults = catalogue.err().map(|error| error.to_string()).into_iter();
            let faults: Vec<String> = faults.chain(playbooks.err().map(|error| error.to_string())).collect();
            Err(faults.join("\n"))
        }
    }
}

/// Reads the agents of the settings, each of which has a pool of the settings.
///
/// # Errors
/// All faults of all files at once.
pub fn load_agents(settings: &Settings) -> Result<AgentCatalogue, CatalogueError> {
    let catalogue = AgentCatalogue::load(settings.agents_dir.as_deref())?;
    let faults = catalogue.outside_of(settings.topics.pools.iter().map(String::as_str));
    if faults.is_empty() { Ok(catalogue) } else { Err(CatalogueError { faults }) }
}

/// Stands in front of an endpoint, so that what is kept neither waits for a turn nor is counted as a call.
fn with_cache(asked: AskedModel, node: &Node) -> Result<AskedModel, String> {
    if asked.model.info().offline {
        return Ok(asked);
    }
    let model = cached(asked.model, &node.settings.model.cache).map_err(|error| error.to_string())?;
    let figures = Box::new(CacheCollector(model.clone()));
    node.metrics.with_registry(|registry| registry.register_collector(figures));
    Ok(AskedModel { model, ..asked })
}

/// The settings with the models that they leave open.
async fn with_models(mut settings: Settings) -> Result<Settings, UsageError> {
    let choices = choose_models(&mut settings.model).await.map_err(|error| UsageError(error.to_string()))?;
    for Chosen { section, endpoint, model } in choices.chosen {
        tracing::info!(section, endpoint, model, "the newest model of the endpoint was chosen");
    }
    for error in choices.left_out {
        tracing::warn!(%error, "this provider does not stand in for others");
    }
    Ok(settings)
}

/// Runs a service as a process of its own: flags, settings, connection, `serve` until it ends.
pub fn run_service<F, Served, E>(service: &'static str, serve: F) -> ExitCode
where
    F: FnOnce(Node, Parts) -> Served,
    Served: Future<Output = Result<(), E>>,
    E: Error + Send + Sync + 'static,
{
    run_main(service, |mut node| async move {
        node.settings = Arc::new(with_models(Settings::clone(&node.settings)).await?);
        let parts = Parts::of(&node)?;
        let info = parts.model.info();
        if info.offline {
            tracing::warn!(
                "the offline model answers, which is no LLM: set OPENAI_API_KEY or OPENAI_BASE_URL"
            );
        } else {
            tracing::info!(model = info.model, endpoint = info.endpoint, "the model");
        }
        serve(node, parts).await.map_err(Into::into)
    })
}
