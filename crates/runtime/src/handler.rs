//! What a service gives to the parallel processor: a handler from one record to a stream of envelopes.

use crate::{content::ContentReader, outbox::Outbox};
use async_trait::async_trait;
use starling_bus::InRecord;
use starling_protocol::{Envelope, Priority, RecordRef};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Handles raw records: for inboxes that take more than envelopes, such as the input topic.
#[async_trait]
pub trait RecordHandler: Send + Sync + 'static {
    /// Handles one record. The record is done when this returned `Ok` and everything that was emitted is
    /// acknowledged.
    ///
    /// # Errors
    /// See [`HandleError`].
    async fn handle(&self, record: InRecord, cx: &HandlerContext) -> Result<(), HandleError>;

    /// What the coordinator is told when `record` was dead-lettered and its intent can be read. `None` if
    /// nobody waits.
    fn failed(&self, record: &InRecord, reason: &str) -> Option<Envelope> {
        let _ = (record, reason);
        None
    }
}

/// Handles envelopes: what most services are. Undecodable records never reach it.
#[async_trait]
pub trait EnvelopeHandler: Send + Sync + 'static {
    /// Handles one envelope, which lies at `at`.
    ///
    /// # Errors
    /// See [`HandleError`].
    async fn handle(&self, envelope: Envelope, at: RecordRef, cx: &HandlerContext)
    -> Result<(), HandleError>;

    /// What the coordinator is told when `envelope` was dead-lettered, so that nobody waits for it, such
    /// as a failed result. `None` if nobody waits.
    fn failed(&self, envelope: &Envelope, reason: &str) -> Option<Envelope>;
}

/// What a handler works with.
#[derive(Clone)]
pub struct HandlerContext {
    /// Takes what the handler has to say.
    pub outbox: Outbox,
    /// Reads what envelopes refer to.
    pub content: Arc<ContentReader>,
    /// Fires when the work is not wanted any more: the intent was cancelled. The handler then returns
    /// `Ok` without a result as soon as it can. (When the partition is lost, the handler is dropped.)
    pub cancelled: CancellationToken,
    /// W3C traceparent of the span in which the record is processed: parent of what the handler does.
    pub traceparent: String,
    /// Name of this process, for results.
    pub process: Arc<str>,
    /// How urgent the work is. What is emitted is as urgent.
    pub priority: Priority,
}

/// Why a record could not be handled, by the reaction that it calls for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// Handle it again after a while; something passing is wrong on our side.
    #[error("{0}")]
    Retry(String),
    /// Handle it again, however often: something that others need for it is not there yet, such as the
    /// schema of a record that it refers to.
    #[error("{0}")]
    Wait(String),
    /// Nobody can handle it: put it into the dead letters with this reason.
    #[error("{0}")]
    DeadLetter(String),
    /// This process cannot go on.
    #[error("{0}")]
    Fatal(String),
}
