//! A real endpoint: run with `OPENAI_BASE_URL` (and `OPENAI_MODEL`, `OPENAI_API_KEY` where needed) and
//! `--ignored`, for example after `scripts/local-model start`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use futures::StreamExt;
use serde_json::json;
use starling_llm::{
    Format, Message, Model, ModelErrorKind, OpenAiModel, OpenAiOptions, Purpose, Speaker, StreamEvent,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

fn real() -> OpenAiModel {
    let base = std::env::var("OPENAI_BASE_URL").expect("OPENAI_BASE_URL names the endpoint");
    let name = std::env::var("OPENAI_MODEL").unwrap_or_else(|_| "default".to_owned());
    let mut options = OpenAiOptions::new(base, name);
    options.api_key = std::env::var("OPENAI_API_KEY").ok().map(Into::into);
    OpenAiModel::new(options).unwrap()
}

#[tokio::test]
#[ignore = "needs a real endpoint, see the head of the file"]
async fn a_real_model_answers_in_every_form() {
    let model = real();
    let mut prose = support::request(Purpose::Work);
    prose.deadline = Instant::now() + Duration::from_secs(120);
    let reply = model.chat(prose.clone()).await.unwrap();
    println!("prose: {reply:?}");
    assert!(reply.report.usage.completion_tokens > 0);

    let stream = model.stream(prose.clone()).await.unwrap();
    let events: Vec<_> = stream.map(Result::unwrap).collect().await;
    println!("stream: {} events, last {:?}", events.len(), events.last());
    assert!(matches!(events.last(), Some(StreamEvent::Done(report)) if report.usage.prompt_tokens > 0));

    let mut verdict = prose.clone();
    verdict.max_tokens = Some(200);
    verdict.format = Format::Json {
        name: "verdict".to_owned(),
        schema: Arc::new(json!({
            "type": "object",
            "properties": {"score": {"type": "number"}, "feedback": {"type": "string", "maxLength": 80}},
            "required": ["score", "feedback"],
            "additionalProperties": false
        })),
        check: None,
    };
    let reply = model.chat(verdict).await.unwrap();
    println!("json: {reply:?}");
    let value: serde_json::Value = serde_json::from_str(&reply.text).unwrap();
    assert!(value["score"].is_number());

    let mut long = prose;
    long.messages.push(Message { speaker: Speaker::User, text: "word ".repeat(200_000) });
    let error = model.chat(long).await.unwrap_err();
    println!("too long: {error}");
    assert_eq!(error.kind, ModelErrorKind::ContextTooLong);
}
