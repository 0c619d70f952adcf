//! The model that the settings ask for.

use crate::{RateLimiter, TracedModel};
use starling_llm::{
    CacheBounds, CacheFolderError, CacheOptions, CachedModel, CachedPurposes, DiskOptions, Model, ModelNames,
    OfflineModel, OpenAiModel, OpenAiOptions, OptionsError, Price,
};
use starling_runtime::{
    Node,
    settings::{CacheSettings, ModelPrice, ModelSettings},
};
use std::sync::Arc;

/// Where OpenAI itself is.
const OPENAI: &str = "https://api.openai.com/v1";

/// Makes the model: an OpenAI-compatible endpoint where a key or an address is set, else the offline one, which needs
/// no limits.
///
/// # Errors
/// A setting of the endpoint is wrong.
pub fn model_from(settings: &ModelSettings) -> Result<AskedModel, OptionsError> {
    if settings.is_offline() {
        return Ok(AskedModel { model: Arc::new(OfflineModel::new()), limiter: None });
    }
    let base_url = settings.base_url.as_deref().unwrap_or(OPENAI);
    let defaults = OpenAiOptions::new(base_url, settings.name.as_str());
    let options = OpenAiOptions {
        api_key: settings.api_key.clone(),
        models: ModelNames {
            default: settings.name.clone(),
            planner: settings.plan.clone(),
            worker: settings.work.clone(),
            critic: settings.judge.clone(),
            synthesizer: settings.synthesize.clone(),
        },
        prices: settings.prices.iter().map(|(model, price)| (model.clone(), price_of(*price))).collect(),
        call_timeout: settings.timeout,
        first_token_timeout: defaults.first_token_timeout.min(settings.timeout),
        max_attempts: settings.tries,
        max_in_flight: settings.max_in_flight,
        max_idle_connections: settings.max_in_flight,
        ..defaults
    };
    let limiter = RateLimiter::new(&settings.rate, settings.breaker, settings.max_in_flight);
    Ok(AskedModel {
        model: Arc::new(OpenAiModel::limited_by(limiter.clone(), options)?),
        limiter: Some(limiter),
    })
}

fn price_of(price: ModelPrice) -> Price {
    Price { input: price.input, cached_input: price.cached_input, output: price.output }
}

/// The model that the settings ask for.
#[derive(Clone)]
pub struct AskedModel {
    /// The model.
    pub model: Arc<dyn Model>,
    /// How fast it is asked, if there are limits.
    pub limiter: Option<Arc<RateLimiter>>,
}

/// The same model, with those replies kept that the settings want. The offline one needs that as little as limits.
///
/// # Errors
/// The folder for replies cannot be used.
pub fn cached(model: Arc<dyn Model>, settings: &CacheSettings) -> Result<Arc<CachedModel>, CacheFolderError> {
    let bounds = |bytes: usize, entries| CacheBounds { bytes: bytes as u64, entries };
    // A folder that nobody needs is not looked for.
    let disk = settings.folder.as_ref().filter(|_| settings.is_on()).map(|folder| {
        let bounds = bounds(settings.disk, settings.disk_entries);
        DiskOptions { folder: folder.clone(), bounds }
    });
    let purposes = CachedPurposes {
        plan: settings.plan,
        work: settings.work,
        judge: settings.judge,
        synthesize: settings.synthesize,
    };
    let memory = bounds(settings.memory, settings.memory_entries);
    CachedModel::new(model, CacheOptions { purposes, ttl: settings.ttl, memory, disk }).map(Arc::new)
}

/// The same model for the services of `node`, with a span and counts for each call.
#[must_use]
pub fn traced(model: Arc<dyn Model>, node: &Node) -> Arc<dyn Model> {
    Arc::new(TracedModel::new(model, node.spans.clone(), node.metrics.clone()))
}
