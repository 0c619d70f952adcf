//! Takes what a handler has to say, and knows when all of it is written.

use crate::{
    courier::{Courier, EmitError, Parcel},
    wire,
};
use bytes::Bytes;
use futures::future::{FutureExt as _, ready};
use starling_bus::{Delivered, PartitionId};
use starling_protocol::{Envelope, Priority, RecordRef, Topic};
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Sends envelopes on behalf of one record. Cheap to clone.
///
/// Every envelope is under way, in the order of the calls, when the call returns; nothing needs to be
/// awaited. The record counts as done once everything that was emitted is acknowledged.
#[derive(Clone)]
pub struct Outbox {
    courier: Courier,
    scope: Arc<Scope>,
}

/// What was emitted on behalf of one record.
struct Scope {
    parent: Arc<str>,
    state: Option<Arc<str>>,
    priority: Option<Priority>,
    pending: AtomicUsize,
    settled: Notify,
    fault: Mutex<Option<EmitError>>,
    abandoned: CancellationToken,
}

/// Gives up what is still being sent again when the record is let go.
pub(crate) struct ScopeGuard {
    scope: Arc<Scope>,
    _abandon: DropGuard,
}

/// An envelope on its way, whatever becomes of this value. May be awaited, to learn where the record lies.
pub struct Emission(Pending);

enum Pending {
    Failed(EmitError),
    Written(Result<Written, EmitError>),
    Waiting(oneshot::Receiver<Result<Written, EmitError>>),
}

#[derive(Clone)]
struct Written {
    to: PartitionId,
    delivered: Delivered,
    value: Bytes,
    envelope: Arc<Envelope>,
}

impl Outbox {
    /// An outbox that stands on its own: nobody waits for what is emitted but the caller. `parent` is the
    /// traceparent of what is sent.
    #[must_use]
    pub fn new(courier: Courier, parent: Arc<str>) -> Self {
        Self::within(courier, parent, None, None)
    }

    /// As [`Outbox::new`], passing on the `tracestate` of the record that is handled, and how urgent it is.
    pub(crate) fn within(
        courier: Courier,
        parent: Arc<str>,
        state: Option<&str>,
        priority: Option<Priority>,
    ) -> Self {
        let scope = Scope {
            parent,
            state: state.map(Arc::from),
            priority,
            pending: AtomicUsize::new(0),
            settled: Notify::new(),
            fault: Mutex::new(None),
            abandoned: CancellationToken::new(),
        };
        Self { courier, scope: Arc::new(scope) }
    }

    /// Sends an envelope to the inbox that its tag names.
    pub fn emit(&self, envelope: Envelope) -> Emission {
        self.emit_to(Topic::from(&envelope.tag), envelope)
    }

    /// Sends an envelope to a topic that no tag names, such as progress.
    #[allow(clippy::needless_pass_by_value)] // a topic is made for the call in every caller
    pub fn emit_to(&self, topic: Topic, envelope: Envelope) -> Emission {
        self.dispatch(&topic, None, envelope)
    }

    /// Sends an envelope to one partition of a topic.
    #[allow(clippy::needless_pass_by_value)] // as above
    pub fn emit_to_partition(&self, topic: Topic, partition: i32, envelope: Envelope) -> Emission {
        self.dispatch(&topic, Some(partition), envelope)
    }

    /// The traceparent below which it sends.
    #[must_use]
    pub fn traceparent(&self) -> &Arc<str> {
        &self.scope.parent
    }

    fn dispatch(&self, topic: &Topic, partition: Option<i32>, envelope: Envelope) -> Emission {
        let Scope { parent, state, priority, .. } = &*self.scope;
        let context = wire::Context { parent, state: state.as_deref(), priority: *priority };
        let parcel = match self.courier.pack(topic, partition, &envelope, &context) {
            Ok(parcel) => parcel,
            Err(error) => {
                self.scope.fail(error.clone());
                return Emission(Pending::Failed(error));
            }
        };
        let envelope = Arc::new(envelope);
        let mut delivery = self.courier.enqueue(&parcel.record);
        // Some buses answer at once; then no task is needed.
        match delivery.poll_unpin(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(delivered)) => {
                return Emission(Pending::Written(Ok(self.courier.written(parcel, delivered, envelope))));
            }
            Poll::Ready(Err(error)) => delivery = ready(Err(error)).boxed(),
            Poll::Pending => {}
        }
        Emission(Pending::Waiting(self.follow(parcel, envelope, delivery)))
    }

    /// Waits for the acknowledgement on a task of its own, so that it is had whether or not anybody awaits
    /// the emission.
    fn follow(
        &self,
        mut parcel: Parcel,
        envelope: Arc<Envelope>,
        delivery: starling_bus::DeliveryFuture,
    ) -> oneshot::Receiver<Result<Written, EmitError>> {
        let (report, reported) = oneshot::channel();
        let (courier, scope) = (self.courier.clone(), self.scope.clone());
        scope.pending.fetch_add(1, Ordering::AcqRel);
        tokio::spawn(async move {
            let sent = tokio::select! {
                biased;
                sent = courier.settle(&parcel.record, delivery) => sent,
                () = scope.abandoned.cancelled() => Err(EmitError::Abandoned),
            };
            let written = match sent {
                Ok(delivered) => Ok(courier.written(parcel, delivered, envelope)),
                Err(error) => {
                    parcel.span.fail(&error.to_string());
                    scope.fail(error.clone());
                    Err(error)
                }
            };
            let _ = report.send(written); // nobody has to wait for it
            scope.release();
        });
        reported
    }

    /// Gives up sending when the guard is dropped.
    pub(crate) fn guard(&self) -> ScopeGuard {
        ScopeGuard { scope: self.scope.clone(), _abandon: self.scope.abandoned.clone().drop_guard() }
    }
}

impl ScopeGuard {
    /// Waits until everything that was emitted is acknowledged.
    ///
    /// # Errors
    /// The first thing that cannot be sent.
    pub(crate) async fn settled(&self) -> Result<(), EmitError> {
        loop {
            let changed = self.scope.settled.notified();
            if self.scope.pending.load(Ordering::Acquire) == 0 {
                break;
            }
            changed.await;
        }
        match self.scope.fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl Scope {
    fn fail(&self, error: EmitError) {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn release(&self) {
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.settled.notify_waiters();
        }
    }
}

impl Courier {
    fn written(&self, parcel: Parcel, delivered: Delivered, envelope: Arc<Envelope>) -> Written {
        let Parcel { record, value, mut span } = parcel;
        if let Some(offset) = delivered.offset {
            span.set("messaging.kafka.offset", offset);
        }
        span.end();
        self.delivered(&record.to, delivered, envelope.clone(), value.len());
        Written { to: record.to, delivered, value, envelope }
    }
}

impl Written {
    fn reference(&self) -> Result<RecordRef, EmitError> {
        let offset = self.delivered.offset.ok_or(EmitError::Unlocated)?;
        Ok(wire::reference_at(&self.to.topic, self.to.partition, offset, &self.value, &self.envelope))
    }
}

impl Future for Emission {
    type Output = Result<RecordRef, EmitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let written = match &mut self.0 {
            Pending::Failed(error) => return Poll::Ready(Err(error.clone())),
            Pending::Written(written) => written.clone(),
            Pending::Waiting(receiver) => match receiver.poll_unpin(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(written)) => written,
                Poll::Ready(Err(_)) => Err(EmitError::Abandoned),
            },
        };
        Poll::Ready(written.and_then(|written| written.reference()))
    }
}
