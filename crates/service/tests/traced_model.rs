//! That each question to a model is counted, however it ends.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use futures::StreamExt as _;
use starling_llm::{ChatRequest, Format, Message, Model, ModelErrorKind, Purpose, Reuse, Speaker};
use starling_runtime::{Metrics, Settings, settings::Sources, telemetry::Spans};
use starling_service::{
    CacheCollector, TracedModel, cached,
    testing::{Answer, ScriptedModel},
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

fn request(purpose: Purpose) -> ChatRequest {
    ChatRequest {
        purpose,
        messages: vec![Message { speaker: Speaker::User, text: "x".into() }],
        tools: Vec::new(),
        format: Format::Text,
        max_tokens: None,
        temperature: None,
        deadline: Instant::now() + Duration::from_secs(5),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
        allowance: None,
        reuse: Reuse::Allowed,
        priority: starling_protocol::Priority::default(),
        model: None,
    }
}

#[tokio::test]
async fn replies_streams_failures_and_abandoned_calls_are_counted() {
    let script = ScriptedModel::new(|request| match request.purpose {
        Purpose::Judge => Answer::Fail(ModelErrorKind::Server),
        Purpose::Synthesize => Answer::Hang,
        _ => Answer::Say("fine".into()),
    });
    let metrics = Arc::new(Metrics::new());
    let model = TracedModel::new(script.clone(), Spans::off(), metrics.clone());
    model.chat(request(Purpose::Work)).await.unwrap();
    model.chat(request(Purpose::Judge)).await.unwrap_err();
    assert_eq!(model.stream(request(Purpose::Plan)).await.unwrap().count().await, 2);
    let hanging = model.chat(request(Purpose::Synthesize));
    tokio::time::timeout(Duration::from_millis(10), hanging).await.unwrap_err();

    let text = metrics.encode();
    for purpose in ["work", "judge", "plan", "synthesize"] {
        let line = format!("starling_model_calls_total{{model=\"scripted\",purpose=\"{purpose}\"}} 1");
        assert!(text.contains(&line), "{line}\n{text}");
    }
    for line in [
        "starling_model_call_seconds_count{model=\"scripted\",purpose=\"judge\"} 1",
        "starling_model_failures_total{model=\"scripted\",purpose=\"judge\",kind=\"model_server_error\"} 1",
        "starling_model_attempt_failures_total{model=\"scripted\",kind=\"rate_limited\"} 2",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    // Nobody knows how long an abandoned call would have taken.
    assert!(!text.contains("model_call_seconds_count{model=\"scripted\",purpose=\"synthesize\"}"), "{text}");
    // Nor what an abandoned call costs.
    assert!(text.contains("starling_cost_usd_total{model=\"scripted\",purpose=\"work\"} 0"), "{text}");
    assert!(!text.contains("starling_cost_usd_total{model=\"scripted\",purpose=\"synthesize\"}"), "{text}");
    // Nothing is recorded, so what came is passed on.
    assert_eq!(script.asked()[0].traceparent, request(Purpose::Work).traceparent);
}

#[tokio::test]
async fn what_a_cache_answers_is_no_call_and_is_seen_all_the_same() {
    let settings = Settings::load(&Sources {
        overrides: vec![("model.cache.work".to_owned(), "true".to_owned())],
        ..Sources::default()
    })
    .unwrap();
    let cached = cached(ScriptedModel::saying("fine"), &settings.model.cache).unwrap();
    let metrics = Arc::new(Metrics::new());
    let figures = Box::new(CacheCollector(cached.clone()));
    metrics.with_registry(|registry| registry.register_collector(figures));
    let model = TracedModel::new(cached, Spans::off(), metrics.clone());
    for _ in 0..2 {
        model.chat(request(Purpose::Work)).await.unwrap();
        model.chat(request(Purpose::Plan)).await.unwrap();
    }
    let text = metrics.encode();
    for line in [
        "starling_model_calls_total{model=\"scripted\",purpose=\"work\"} 1",
        "starling_model_calls_total{model=\"scripted\",purpose=\"plan\"} 2",
        "starling_model_call_seconds_count{model=\"scripted\",purpose=\"work\"} 1",
        "starling_prompt_tokens_total{model=\"scripted\",purpose=\"work\"} 10",
        "starling_reused_prompt_tokens_total{model=\"scripted\",purpose=\"work\"} 10",
        "starling_cached_prompt_tokens_total{model=\"scripted\",purpose=\"work\"} 0",
        "starling_context_reuse 0.25",
        "starling_model_cache_hits_total{purpose=\"work\",source=\"memory\"} 1",
        "starling_model_cache_hits_total{purpose=\"work\",source=\"flight\"} 0",
        "starling_model_cache_misses_total{purpose=\"work\"} 1",
        "starling_model_cache_misses_total{purpose=\"plan\"} 0",
        "starling_model_cache_entries{store=\"memory\"} 1",
        "starling_model_cache_bytes{store=\"memory\"} ",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("store=\"disk\""), "there is none: {text}");
}
