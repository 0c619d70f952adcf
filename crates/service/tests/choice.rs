//! Models that the settings leave open, and an Ollama that nobody has set, played by a mock endpoint at a port of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use starling_llm::mock::{MockAction, MockCall, MockOptions, MockServer};
use starling_runtime::settings::{ModelSettings, Nearby, Offline, ProviderSettings, Settings, Sources};
use starling_service::{choose_models, ollama_nearby};
use std::{net::TcpListener, sync::Arc};

/// The settings that these flags make, with nothing else around.
fn settings(flags: &[(&str, &str)]) -> ModelSettings {
    let overrides = flags.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect();
    Settings::load(&Sources { overrides, ..Sources::default() }).unwrap().model
}

fn endpoint(models: &[&str]) -> MockServer {
    let script = Arc::new(|_: &MockCall| MockAction::reply("fine"));
    let models = Some(models.iter().map(|name| (*name).to_owned()).collect());
    MockServer::start(MockOptions { models, ..MockOptions::new(script) }).unwrap()
}

/// An address at which nobody answers.
fn nobody() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("http://127.0.0.1:{port}/v1")
}

#[tokio::test]
async fn a_preset_without_a_name_takes_the_first_model_that_talks() {
    let server = endpoint(&["nomic-embed-text:latest", "llama3.2:3b", "qwen3:8b"]);
    let url = server.base_url();
    let mut open = settings(&[("model.preset", "ollama"), ("model.base_url", &url)]);
    assert!(open.provider.is_open() && !open.is_offline());
    let choices = choose_models(&mut open).await.unwrap();
    assert_eq!(open.provider.name, "llama3.2:3b");
    assert_eq!((choices.chosen.len(), choices.left_out.len()), (1, 0));
    assert_eq!(
        (choices.chosen[0].endpoint.as_str(), choices.chosen[0].section.as_str()),
        (url.as_str(), "model")
    );

    // Who names one has it, whatever is there.
    let mut named = settings(&[("model.preset", "ollama"), ("model.base_url", &url), ("model.name", "phi4")]);
    assert_eq!(choose_models(&mut named).await.unwrap(), Default::default());
    assert_eq!(named.provider.name, "phi4");
}

#[tokio::test]
async fn an_endpoint_without_a_model_is_named_with_what_to_do() {
    let (gone, empty) = (nobody(), endpoint(&["all-minilm"]));
    for (url, unreachable, said) in
        [(gone.as_str(), true, "nobody answers there"), (&empty.base_url(), false, "ollama pull")]
    {
        let url = url.replace("http://", "http://me:hunter2@");
        let mut open = settings(&[("model.preset", "ollama"), ("model.base_url", &url)]);
        let error = choose_models(&mut open).await.unwrap_err();
        let text = error.to_string();
        assert_eq!(error.unreachable, unreachable, "{text}");
        assert!(text.contains(said) && text.contains("model.name"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn who_only_stands_in_is_left_out_and_keeps_nobody_from_work() {
    let server = endpoint(&["llama3.2"]);
    let mut model = settings(&[("model.base_url", &server.base_url()), ("model.name", "m")]);
    let stand_in = |section: &str, url: String| ProviderSettings {
        section: section.to_owned(),
        base_url: Some(url),
        newest: true,
        ..ProviderSettings::default()
    };
    model.fallbacks = vec![stand_in("providers.a", nobody()), stand_in("providers.b", server.base_url())];
    let choices = choose_models(&mut model).await.unwrap();
    let left: Vec<&str> = model.fallbacks.iter().map(|provider| provider.section.as_str()).collect();
    assert_eq!((left, model.fallbacks[0].name.as_str()), (vec!["providers.b"], "llama3.2"));
    assert_eq!(choices.left_out[0].section, "providers.a");
}

#[tokio::test]
async fn an_ollama_that_nobody_has_set_is_told_of_used_or_not_looked_for() {
    let server = endpoint(&["llama3.2"]);
    let url = server.base_url();
    let with = |nearby: Nearby| {
        let mut model = settings(&[("model.ollama.base_url", &url)]);
        model.ollama.nearby = nearby;
        model
    };
    assert_eq!(settings(&[]).ollama.nearby, Nearby::Tell);
    assert_eq!(settings(&[]).ollama.base_url, "http://localhost:11434/v1");

    let mut told = with(Nearby::Tell);
    assert_eq!(choose_models(&mut told).await.unwrap(), Default::default());
    assert!(told.is_offline(), "nobody is switched to another model without having said so");
    let found = ollama_nearby(&told).await.unwrap();
    assert_eq!((found.chosen.model.as_str(), found.chosen.endpoint.as_str()), ("llama3.2", url.as_str()));
    assert_eq!(found.flags(), format!("--set model.preset=ollama --set model.base_url={url}"));

    let mut used = with(Nearby::Use);
    let choices = choose_models(&mut used).await.unwrap();
    assert_eq!(choices.chosen[0].model, "llama3.2");
    assert!(!used.is_offline());
    assert_eq!(
        (used.provider.name.as_str(), used.provider.base_url.as_deref()),
        ("llama3.2", Some(url.as_str()))
    );

    // Whoever has said what is to be asked is not asked about anything else.
    let mut explicit = with(Nearby::Use);
    explicit.offline = Offline::Yes;
    let mut elsewhere = with(Nearby::Use);
    elsewhere.provider.base_url = Some(nobody());
    for model in [with(Nearby::Off), explicit, elsewhere] {
        assert_eq!(ollama_nearby(&model).await, None, "{:?}", model.ollama);
    }
    let mut gone = with(Nearby::Use);
    gone.ollama.base_url = nobody();
    assert_eq!(choose_models(&mut gone).await.unwrap(), Default::default());
    assert!(gone.is_offline());
}
