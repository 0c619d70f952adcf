//! A model that works on nothing until it is told to, and takes its time then.

use super::probe::Probe;
use async_trait::async_trait;
use starling_llm::{ChatReply, ChatRequest, Model, ModelError, ModelInfo, Purpose, TextStream};
use std::time::Duration;
use tokio::sync::watch;

/// Holds the work; judges at once.
pub(super) struct Held {
    model: Probe,
    latency: Duration,
    released: watch::Sender<bool>,
}

impl Held {
    /// `latency` is the time of a call, once it is not held any more: on average, or calls that were released together
    /// would come together for ever.
    pub(super) fn new(model: Probe, latency: Duration) -> Self {
        Self { model, latency, released: watch::Sender::new(false) }
    }

    /// Holds nothing any more.
    pub(super) fn release(&self) {
        self.released.send_replace(true);
    }
}

#[async_trait]
impl Model for Held {
    fn info(&self) -> ModelInfo {
        self.model.info()
    }

    async fn chat(&self, request: ChatRequest) -> Result<ChatReply, ModelError> {
        if request.purpose == Purpose::Work {
            let mut released = self.released.subscribe();
            let _ = released.wait_for(|released| *released).await; // the sender is this model's own
            tokio::time::sleep(self.latency.mul_f64(0.5 + rand::random::<f64>())).await;
        }
        self.model.chat(request).await
    }

    async fn stream(&self, request: ChatRequest) -> Result<TextStream, ModelError> {
        self.model.stream(request).await
    }
}
