//! The model that the settings ask for.

use crate::{EndpointLimits, RateLimiter, TracedModel};
use starling_llm::{Model, ModelNames, OfflineModel, OpenAiModel, OpenAiOptions, OptionsError, Price};
use starling_runtime::{Node, settings::ModelSettings};
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
        prices: settings
            .prices
            .iter()
            .map(|(model, price)| (model.clone(), Price { input: price.input, output: price.output }))
            .collect(),
        call_timeout: settings.timeout,
        first_token_timeout: defaults.first_token_timeout.min(settings.timeout),
        max_attempts: settings.tries,
        max_in_flight: settings.max_in_flight,
        max_idle_connections: settings.max_in_flight,
        ..defaults
    };
    let limiter = RateLimiter::new(EndpointLimits::of(settings));
    Ok(AskedModel {
        model: Arc::new(OpenAiModel::limited_by(limiter.clone(), options)?),
        limiter: Some(limiter),
    })
}

/// The model that the settings ask for.
#[derive(Clone)]
pub struct AskedModel {
    /// The model.
    pub model: Arc<dyn Model>,
    /// How fast it is asked, if there are limits.
    pub limiter: Option<Arc<RateLimiter>>,
}

/// The same model for the services of `node`, with a span and counts for each call.
#[must_use]
pub fn traced(model: Arc<dyn Model>, node: &Node) -> Arc<dyn Model> {
    Arc::new(TracedModel::new(model, node.spans.clone(), node.metrics.clone()))
}
