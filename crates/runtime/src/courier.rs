//! Sends records until they are acknowledged or refused for good.

use crate::{
    content::ContentReader,
    metrics::{Metrics, TopicLabel},
    router::{RouteError, Router, key_of},
    telemetry::{ActiveSpan, Spans},
    wire::{self, Context},
};
use bytes::Bytes;
use starling_bus::{Bus, Delivered, DeliveryFuture, OutRecord, PartitionId, SendError};
use starling_protocol::{Body, Codec, EncodeError, Envelope, Topic};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

/// When to send again what was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRetry {
    /// First wait; doubles each time. Default 50 ms.
    pub backoff_min: Duration,
    /// Longest wait. Default 2 s.
    pub backoff_max: Duration,
    /// After so long it is given up. Default 2 min.
    pub give_up_after: Duration,
}

impl Default for SendRetry {
    fn default() -> Self {
        Self {
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            give_up_after: Duration::from_secs(120),
        }
    }
}

/// What a process sends with: one for all its handlers.
#[derive(Clone)]
pub struct Courier {
    bus: Arc<dyn Bus>,
    codec: Codec,
    router: Router,
    spans: Spans,
    content: Arc<ContentReader>,
    metrics: Arc<Metrics>,
    retry: SendRetry,
}

/// Why an envelope is not on its way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// It can never be sent: too large, no such topic, not allowed.
    #[error("{0}")]
    Refused(String),
    /// The broker did not acknowledge it in time.
    #[error("{0}")]
    TimedOut(String),
    /// Whoever sent it has lost its partition or its process ends.
    #[error("sending was given up because the record that caused it was let go")]
    Abandoned,
    /// It is written, but the broker did not say where.
    #[error("the broker did not say where the record lies")]
    Unlocated,
}

impl From<RouteError> for EmitError {
    fn from(error: RouteError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<EncodeError> for EmitError {
    fn from(error: EncodeError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// A record in its final form, with its span.
pub(crate) struct Parcel {
    pub(crate) record: OutRecord,
    pub(crate) value: Bytes,
    pub(crate) span: ActiveSpan,
}

impl Courier {
    /// What `process` sends with.
    pub fn new(
        bus: Arc<dyn Bus>,
        codec: Codec,
        router: Router,
        spans: Spans,
        content: Arc<ContentReader>,
        metrics: Arc<Metrics>,
        retry: SendRetry,
    ) -> Self {
        Self { bus, codec, router, spans, content, metrics, retry }
    }

    /// Where its records go.
    #[must_use]
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// Encodes and addresses an envelope, under a `send` span below that of `trace`.
    pub(crate) fn pack(
        &self,
        to: &Topic,
        partition: Option<i32>,
        envelope: &Envelope,
        context: &Context<'_>,
    ) -> Result<Parcel, EmitError> {
        let key = key_of(to, envelope);
        let to = self.router.route(to, key, partition)?;
        let value = Bytes::from(self.codec.encode(envelope)?);
        let mut span = self.spans.send(&to, context.parent);
        span.set_with("starling.intent_id", || envelope.intent_id.as_str().to_owned());
        span.set_with("messaging.message.id", || envelope.id.as_str().to_owned());
        span.set("messaging.message.body.size", i64::try_from(value.len()).unwrap_or(i64::MAX));
        let record = OutRecord {
            to,
            key: key.map(|key| Bytes::copy_from_slice(key.as_bytes())),
            headers: wire::headers_within(envelope, &Context { parent: span.traceparent(), ..*context }),
            payload: Some(value.clone()),
        };
        Ok(Parcel { record, value, span })
    }

    /// Enqueues a record now.
    pub(crate) fn enqueue(&self, record: &OutRecord) -> DeliveryFuture {
        self.bus.send(record.clone())
    }

    /// Waits for the acknowledgement of `delivery`, which is of `record`; sends it again, byte for byte the
    /// same, as long as that can help.
    pub(crate) async fn settle(
        &self,
        record: &OutRecord,
        mut delivery: DeliveryFuture,
    ) -> Result<Delivered, EmitError> {
        let since = Instant::now();
        let mut wait = self.retry.backoff_min;
        loop {
            let trouble = match delivery.await {
                Ok(delivered) => return Ok(delivered),
                Err(refused @ SendError::Refused { .. }) => {
                    return Err(EmitError::Refused(refused.to_string()));
                }
                Err(trouble @ (SendError::NotSent { .. } | SendError::Unknown { .. })) => trouble,
            };
            if since.elapsed() + wait > self.retry.give_up_after {
                return Err(EmitError::TimedOut(trouble.to_string()));
            }
            tracing::warn!(error = %trouble, "sending the record again");
            self.metrics.resent.get_or_create(&TopicLabel { topic: record.to.topic.to_string() }).inc();
            sleep(wait).await;
            wait = (wait * 2).min(self.retry.backoff_max);
            delivery = self.bus.send(record.clone());
        }
    }

    /// Sends a record that is no envelope, such as a dead letter.
    ///
    /// # Errors
    /// It is refused, or was not acknowledged in time.
    pub async fn send_raw(&self, record: OutRecord) -> Result<Delivered, EmitError> {
        let delivery = self.enqueue(&record);
        let delivered = self.settle(&record, delivery).await;
        if delivered.is_ok() {
            self.count_sent(&record.to);
        }
        delivered
    }

    /// Something that others may refer to was written: a reader in this process need not fetch it.
    pub(crate) fn delivered(
        &self,
        to: &PartitionId,
        delivered: Delivered,
        envelope: Arc<Envelope>,
        bytes: usize,
    ) {
        self.count_sent(to);
        let is_referred_to =
            matches!(envelope.body, Body::TaskResult(_) | Body::Intent(_) | Body::TaskTurn(_));
        if let (true, Some(offset)) = (is_referred_to, delivered.offset) {
            self.content.remember(to.clone(), offset, envelope, bytes);
        }
    }

    fn count_sent(&self, to: &PartitionId) {
        self.metrics.sent.get_or_create(&TopicLabel { topic: to.topic.to_string() }).inc();
    }
}
