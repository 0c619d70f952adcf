//! A model in this process that knows its plan by heart and remembers when it was asked.

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use serde_json::json;
use starling_llm::{
    ChatReply, ChatRequest, Deeds, Model, ModelError, ModelInfo, Purpose, StreamEvent, TextStream,
};
use starling_protocol::{CallReport, Usage};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Plans layers of tasks, does nothing, finds it good.
pub(super) struct Probe {
    plan: String,
    latency: Duration,
    times: Mutex<BTreeMap<String, Times>>,
}

#[derive(Default)]
struct Times {
    work: Option<(Instant, Instant)>,
    judge: Option<(Instant, Instant)>,
}

/// Times between two model calls.
#[derive(Default)]
pub(super) struct Hops {
    /// From a worker's reply to the critic's question.
    pub(super) plain: Vec<Duration>,
    /// From a critic's reply to the question of the worker of the next task.
    pub(super) coordinator: Vec<Duration>,
}

impl Probe {
    /// `layers` of `width` tasks, each on all of the layer before.
    pub(super) fn layers(layers: usize, width: usize, latency: Duration) -> Self {
        let title = |layer: usize, n: usize| format!("task-{layer:04}-{n:04}");
        let tasks: Vec<_> = (0..layers)
            .flat_map(|layer| (0..width).map(move |n| (layer, n)))
            .map(|(layer, n)| {
                let before = layer.checked_sub(1);
                let depends_on: Vec<_> =
                    before.iter().flat_map(|b| (0..width).map(|m| title(*b, m))).collect();
                json!({
                    "key": title(layer, n), "title": title(layer, n), "instruction": "nothing",
                    "agent": "worker", "depends_on": depends_on, "critic": true,
                })
            })
            .collect();
        Self { plan: json!({ "tasks": tasks }).to_string(), latency, times: Mutex::default() }
    }

    /// The hops since the last call.
    pub(super) fn take_hops(&self) -> Hops {
        let times = std::mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner));
        let mut hops = Hops::default();
        let mut judged = None;
        // In a chain the titles' order is the order of execution.
        for task in times.values() {
            if let (Some(judged), Some((asked, _))) = (judged, task.work) {
                hops.coordinator.extend(asked.checked_duration_since(judged));
            }
            if let (Some((_, worked)), Some((asked, replied))) = (task.work, task.judge) {
                hops.plain.extend(asked.checked_duration_since(worked));
                judged = Some(replied);
            }
        }
        hops
    }

    fn report(&self) -> CallReport {
        let usage = Usage { prompt_tokens: 1, completion_tokens: 1, cached_tokens: 0 };
        let latency_ms = i64::try_from(self.latency.as_millis()).unwrap_or(i64::MAX);
        CallReport { model: "probe".into(), calls: 1, usage, latency_ms, ..CallReport::default() }
    }

    fn remember(&self, request: &ChatRequest, asked: Instant) {
        let title = request.messages.iter().rev().find_map(|message| {
            let mut lines = message.text.lines();
            lines.find(|line| *line == "## Task")?;
            lines.find(|line| !line.trim().is_empty())
        });
        let Some(title) = title else { return };
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let task = times.entry(title.trim().to_owned()).or_default();
        match request.purpose {
            Purpose::Work => task.work = Some((asked, Instant::now())),
            Purpose::Judge => task.judge = Some((asked, Instant::now())),
            Purpose::Plan | Purpose::Synthesize => {}
        }
    }
}

#[async_trait]
impl Model for Probe {
    fn info(&self) -> ModelInfo {
        ModelInfo { model: "probe".into(), offline: false, endpoint: "in process".into() }
    }

    async fn chat(&self, request: ChatRequest) -> Result<ChatReply, ModelError> {
        let asked = Instant::now();
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        let text = match request.purpose {
            Purpose::Plan => self.plan.clone(),
            Purpose::Judge => r#"{"score":0.9,"feedback":""}"#.to_owned(),
            Purpose::Work | Purpose::Synthesize => "done".to_owned(),
        };
        self.remember(&request, asked);
        Ok(ChatReply { text, deeds: Deeds::default(), report: self.report() })
    }

    async fn stream(&self, request: ChatRequest) -> Result<TextStream, ModelError> {
        let reply = self.chat(request).await?;
        Ok(stream::iter([Ok(StreamEvent::Text(reply.text)), Ok(StreamEvent::Done(reply.report))]).boxed())
    }
}
