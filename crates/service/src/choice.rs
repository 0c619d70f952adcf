//! Which model is asked, where the settings leave that to an endpoint; and an Ollama that nobody has set.
//!
//! A choice is made once, before anything else reads the settings: prices, budgets and reports go by the name of a model.

use crate::model::options;
use starling_llm::{Model, ModelErrorKind, OpenAiModel, OptionsError};
use starling_runtime::settings::{ModelSettings, Nearby, Offline, ProviderSettings};
use std::time::Duration;
use tokio::time::timeout;

/// How long an Ollama that nobody has set is waited for. On one machine it answers at once, or nobody does.
const GLANCE: Duration = Duration::from_millis(500);

/// How long an endpoint that is to be used is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the preset has it.
const USUAL: &str = "http://localhost:11434/v1";

/// Asked for while it is not known what to ask for. A list of models is the same whatever model is asked for.
const ANY_MODEL: &str = "any";

/// Parts of the names of models that make vectors or scores, not words.
const EMBEDDING: [&str; 6] = ["embed", "rerank", "minilm", "bge-", "gte-", "-e5-"];

/// A model that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The section of the settings that leaves it open.
    pub section: String,
    /// Where it is.
    pub endpoint: String,
    /// Its name.
    pub model: String,
}

/// An Ollama that nobody has set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundOllama {
    /// Its address, as it would be set.
    base_url: String,
    /// The model that would be asked.
    pub chosen: Chosen,
}

impl FoundOllama {
    /// The flags that have it used.
    #[must_use]
    pub fn flags(&self) -> String {
        let preset = "--set model.preset=ollama";
        match self.chosen.endpoint.as_str() {
            USUAL => preset.to_owned(),
            other => format!("{preset} --set model.base_url={other}"),
        }
    }
}

/// No model could be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no model can be chosen for [{section}]: {reason}; or set {section}.name")]
pub struct NoModel {
    /// The section of the settings that leaves it open.
    pub section: String,
    /// Why, and what to do.
    pub reason: String,
    /// Whether that is because nobody answers.
    pub unreachable: bool,
}

/// What came of choosing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// The models.
    pub chosen: Vec<Chosen>,
    /// Providers that would only stand in for another one, and are not asked because no model could be chosen for them.
    pub left_out: Vec<NoModel>,
}

/// Puts in the models that the settings leave open, and an Ollama of this machine if it is to be used.
///
/// # Errors
/// The first provider's endpoint does not answer, or has no model.
pub async fn choose_models(settings: &mut ModelSettings) -> Result<Choices, NoModel> {
    let mut choices = Choices::default();
    if settings.ollama.nearby == Nearby::Use
        && let Some(found) = ollama_nearby(settings).await
    {
        settings.provider.base_url = Some(found.base_url);
        settings.provider.name.clone_from(&found.chosen.model);
        choices.chosen.push(found.chosen);
    }
    if settings.is_offline() {
        return Ok(choices);
    }
    if settings.provider.is_open() {
        let chosen = choose(settings, &settings.provider).await?;
        settings.provider.name.clone_from(&chosen.model);
        choices.chosen.push(chosen);
    }
    for mut provider in std::mem::take(&mut settings.fallbacks) {
        if provider.is_open() {
            match choose(settings, &provider).await {
                Ok(chosen) => {
                    provider.name.clone_from(&chosen.model);
                    choices.chosen.push(chosen);
                }
                // Nobody who only stands in may keep the first one from its work.
                Err(error) => {
                    choices.left_out.push(error);
                    continue;
                }
            }
        }
        settings.fallbacks.push(provider);
    }
    Ok(choices)
}

/// An Ollama that answers on this machine and has a model, where the settings name no endpoint and do not forbid to look.
pub async fn ollama_nearby(settings: &ModelSettings) -> Option<FoundOllama> {
    let wanted = settings.ollama.nearby != Nearby::Off && settings.offline == Offline::Auto;
    if !wanted || !settings.is_offline() {
        return None;
    }
    let base_url = settings.ollama.base_url.trim_end_matches('/').to_owned();
    let provider = ProviderSettings {
        section: "model".to_owned(),
        base_url: Some(base_url.clone()),
        ..ProviderSettings::default()
    };
    let endpoint = endpoint(settings, &provider).ok()?;
    let listed = timeout(GLANCE, endpoint.models()).await.ok()?.ok()??;
    let model = newest_that_talks(&listed)?.to_owned();
    Some(FoundOllama {
        base_url,
        chosen: Chosen { section: provider.section, endpoint: endpoint.info().endpoint, model },
    })
}

async fn choose(settings: &ModelSettings, provider: &ProviderSettings) -> Result<Chosen, NoModel> {
    let section = provider.section.clone();
    let failed =
        |reason: String, unreachable| NoModel { section: provider.section.clone(), reason, unreachable };
    let endpoint = endpoint(settings, provider).map_err(|error| failed(error.to_string(), false))?;
    let url = endpoint.info().endpoint;
    let listed = match timeout(PATIENCE, endpoint.models()).await {
        Ok(Ok(listed)) => listed.unwrap_or_default(),
        Ok(Err(error)) => {
            return Err(failed(error.to_string(), error.kind == ModelErrorKind::Unreachable));
        }
        Err(_) => {
            let seconds = PATIENCE.as_secs();
            return Err(failed(format!("{url} has not told its models within {seconds} s"), true));
        }
    };
    match newest_that_talks(&listed) {
        Some(model) => Ok(Chosen { section, endpoint: url, model: model.to_owned() }),
        None => Err(failed(format!("{url} lists none that talks; get one (ollama pull llama3.2)"), false)),
    }
}

/// An endpoint of which it is not known yet what to ask it for.
fn endpoint(settings: &ModelSettings, provider: &ProviderSettings) -> Result<OpenAiModel, OptionsError> {
    let provider = ProviderSettings { name: ANY_MODEL.to_owned(), ..provider.clone() };
    OpenAiModel::new(options(&provider, settings))
}

/// The first one, of a list with the newest first, that is no embedding model.
fn newest_that_talks(listed: &[String]) -> Option<&str> {
    let embeds = |name: &str| {
        let name = name.to_lowercase();
        EMBEDDING.iter().any(|part| name.contains(part))
    };
    listed.iter().map(String::as_str).find(|name| !name.trim().is_empty() && !embeds(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_make_vectors_are_not_chosen() {
        for (listed, expected) in [
            (&["nomic-embed-text:latest", "all-minilm", "llama3.2:3b", "qwen3"][..], Some("llama3.2:3b")),
            (&["mxbai-embed-large", "BGE-m3"], None),
            (&["", "phi4"], Some("phi4")),
            (&[], None),
        ] {
            let listed: Vec<String> = listed.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(newest_that_talks(&listed), expected, "{listed:?}");
        }
    }
}
