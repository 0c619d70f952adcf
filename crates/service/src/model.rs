//! The model that the settings ask for.

use crate::{EndpointLimits, RateLimiter, TracedModel};
use starling_llm::{
    CacheBounds, CacheFolderError, CacheOptions, CachedModel, DiskOptions, Hedge, HedgedModel, JsonForm,
    Link, Model, ModelChain, ModelNames, OfflineModel, OpenAiModel, OpenAiOptions, OptionsError, Price,
    Purpose, Purposes,
};
use starling_runtime::{
    Node,
    settings::{CacheSettings, JsonAsked, ModelPrice, ModelSettings, ProviderSettings},
};
use std::sync::Arc;

/// Where OpenAI itself is.
const OPENAI: &str = "https://api.openai.com/v1";

/// Makes the model: the OpenAI-compatible endpoints of the settings where a key or an address is set, else the offline one,
/// which needs no limits.
///
/// # Errors
/// A setting of an endpoint is wrong.
pub fn model_from(settings: &ModelSettings) -> Result<AskedModel, OptionsError> {
    if settings.is_offline() {
        return Ok(AskedModel { model: Arc::new(OfflineModel::new()), limiters: Vec::new() });
    }
    let mut limiters = Vec::new();
    let mut link = |provider, stand_ins| {
        let limiter = RateLimiter::new(EndpointLimits::of(settings));
        let options = OpenAiOptions { stand_ins, ..options(provider, settings) };
        let model = OpenAiModel::limited_by(limiter.clone(), options)?;
        limiters.push((model.info().endpoint, limiter));
        Ok(Link { model: Arc::new(model), purposes: purposes(provider) })
    };
    // From the last one on, so that each knows for which purposes somebody comes after it.
    let mut stand_ins = Purposes::NONE;
    let mut rest = Vec::new();
    for fallback in settings.fallbacks.iter().rev() {
        let after = link(fallback, stand_ins)?;
        stand_ins = stand_ins.or(after.purposes);
        rest.push(after);
    }
    let first = link(&settings.provider, stand_ins)?;
    rest.reverse();
    limiters.reverse();
    let model: Arc<dyn Model> =
        if rest.is_empty() { first.model } else { Arc::new(ModelChain::new(first, rest)) };
    let hedge = Hedge { share: settings.hedge_share, quantile: settings.hedge_quantile };
    let model = if hedge.share > 0.0 { Arc::new(HedgedModel::new(model, hedge)) } else { model };
    Ok(AskedModel { model, limiters })
}

/// What a provider is asked for.
fn purposes(provider: &ProviderSettings) -> Purposes {
    let named = |purpose: &Purpose| provider.roles.iter().any(|role| role == purpose.name());
    let named: Purposes = Purpose::ALL.into_iter().filter(named).collect();
    if named == Purposes::NONE { Purposes::ALL } else { named }
}

pub(crate) fn options(provider: &ProviderSettings, settings: &ModelSettings) -> OpenAiOptions {
    let base_url = provider.base_url.as_deref().unwrap_or(OPENAI);
    OpenAiOptions {
        api_key: provider.api_key.clone(),
        models: ModelNames {
            default: provider.name.clone(),
            planner: provider.plan.clone(),
            worker: provider.work.clone(),
            critic: provider.judge.clone(),
            synthesizer: provider.synthesize.clone(),
        },
        json: match provider.json {
            JsonAsked::Schema => JsonForm::Schema,
            JsonAsked::Object => JsonForm::Object,
            JsonAsked::Prompt => JsonForm::Prompt,
        },
        replay_reasoning: provider.replay_reasoning,
        encoding: provider.encoding,
        // A chat template and a schema are in it as well.
        window: provider.window.map(|window| (window - settings.window_margin).max(1)),
        omit: provider.omit.clone(),
        extra_body: provider.extra_body.clone(),
        extra_headers: provider.extra_headers.clone(),
        prices: settings.prices.iter().map(|(model, price)| (model.clone(), price_of(*price))).collect(),
        call_timeout: settings.timeout,
        connect_timeout: settings.connect_timeout,
        first_token_timeout: settings.first_token_timeout,
        token_timeout: settings.token_timeout,
        max_attempts: settings.tries,
        max_in_flight: settings.max_in_flight,
        max_idle_connections: settings.max_in_flight,
        ..OpenAiOptions::new(base_url, provider.name.as_str())
    }
}

fn price_of(price: ModelPrice) -> Price {
    Price { input: price.input, cached_input: price.cached_input, output: price.output }
}

/// The model that the settings ask for.
#[derive(Clone)]
pub struct AskedModel {
    /// The model.
    pub model: Arc<dyn Model>,
    /// How fast each endpoint is asked, by its address. None for the offline model.
    pub limiters: Vec<(String, Arc<RateLimiter>)>,
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
    let kept = |purpose: &Purpose| match purpose {
        Purpose::Plan => settings.plan,
        Purpose::Work => settings.work,
        Purpose::Judge => settings.judge,
        Purpose::Synthesize => settings.synthesize,
    };
    let purposes = Purpose::ALL.into_iter().filter(kept).collect();
    let memory = bounds(settings.memory, settings.memory_entries);
    CachedModel::new(model, CacheOptions { purposes, ttl: settings.ttl, memory, disk }).map(Arc::new)
}

/// The same model for the services of `node`, with a span and counts for each call.
#[must_use]
pub fn traced(model: Arc<dyn Model>, node: &Node) -> Arc<dyn Model> {
    Arc::new(TracedModel::new(model, node.spans.clone(), node.metrics.clone()))
}
