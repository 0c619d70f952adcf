//! Handles one record: from its bytes to everything that follows from it being acknowledged.

use super::config::ParallelConfig;
use crate::{
    courier::EmitError,
    dead_letter::Reason,
    handler::{EnvelopeHandler, HandleError, HandlerContext, RecordHandler},
    metrics::TopicMetrics,
    node::Node,
    outbox::{Outbox, ScopeGuard},
    registry::Unreadable,
    router::{attempt_of, task_of},
    telemetry::{ActiveSpan, Processed, TraceContext},
    wire,
};
use futures::FutureExt as _;
use starling_bus::InRecord;
use starling_engine::dead_letters::{Burials, Excess};
use starling_protocol::{DeadReason, Envelope, Priority, headers::STARLING_PRIORITY};
use std::{
    any::Any,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// A record that waits for others is looked at as rarely as one that has failed so often.
const WAITING: u32 = 4;

/// What handles the records of an inbox.
pub(super) enum Work {
    Records(Arc<dyn RecordHandler>),
    Envelopes(Arc<dyn EnvelopeHandler>),
}

/// A record in hand.
pub(super) struct Job {
    pub(super) record: InRecord,
    /// How often it was handled.
    pub(super) tries: u32,
    /// How urgent it is, if it says so.
    pub(super) priority: Option<Priority>,
    /// Whose turn it is: the lowest.
    pub(super) rank: Rank,
}

/// Where a record stands among those that wait: behind those that came before it, except that one of a higher priority is
/// ahead of a bounded number of those before it. So nothing waits for ever.
pub(super) type Rank = i64;

/// How many records one may overtake for each level of priority that it is above them.
const LEAD: i64 = 256;

impl Job {
    /// A record that came after `before` others.
    pub(super) fn new(record: InRecord, before: u64) -> Self {
        let priority = record.header(STARLING_PRIORITY).map(|level| Priority::of_header(Some(level)));
        let lead = LEAD * i64::from(priority.unwrap_or_default().level());
        let rank = i64::try_from(before).unwrap_or(i64::MAX).saturating_sub(lead);
        Self { record, tries: 0, priority, rank }
    }
}

/// What becomes of a record.
pub(super) enum End {
    /// It is done.
    Done,
    /// It is to be handled again after a while.
    Again { job: Job, wait: Duration },
    /// The process cannot go on.
    Fatal(String),
    /// So much of the inbox becomes dead letters that it must not go on.
    TooManyDead(Excess),
}

/// What follows from the end of a handler.
#[allow(clippy::large_enum_variant)] // one at a time, taken apart at once
enum Concluded<'r> {
    Ended(End),
    /// The record is to become a dead letter.
    Dead(Running<'r>, Reason),
}

/// Why a handler did not do its work.
enum Stopped {
    Handler(HandleError),
    Panicked(String),
    OutOfTime,
    Cancelled,
}

/// Handles records one by one; shared by all that run.
pub(super) struct Runner {
    pub(super) node: Node,
    pub(super) config: ParallelConfig,
    pub(super) work: Work,
    pub(super) metrics: TopicMetrics,
    /// What became of the last records.
    pub(super) burials: Mutex<Burials>,
}

/// One record while it is handled.
pub(super) struct Running<'r> {
    pub(super) runner: &'r Runner,
    pub(super) job: Job,
    pub(super) span: ActiveSpan,
    outbox: Outbox,
    scope: ScopeGuard,
}

impl Runner {
    /// Handles a record. `slot` is dropped as soon as the handler has returned: waiting for
    /// acknowledgements takes no slot.
    pub(super) async fn run<S>(&self, job: Job, slot: S) -> End {
        if job.tries == 0 {
            self.metrics.hops.observe(job.record.timestamp, self.node.clock.now());
        }
        match &self.work {
            Work::Records(handler) => self.run_record(handler.as_ref(), job, slot).await,
            Work::Envelopes(handler) => match self.node.schemas.read::<Envelope>(job.record.value()).await {
                Ok(envelope) => self.run_envelope(handler.as_ref(), envelope, job, slot).await,
                Err(Unreadable::Never(why)) => {
                    drop(slot);
                    self.begin(job, None).bury(Reason::new(DeadReason::Undecodable, why), None).await
                }
                Err(Unreadable::Later(why) | Unreadable::Newer(why)) => self.later(job, &why),
            },
        }
    }

    async fn run_record<S>(&self, handler: &dyn RecordHandler, job: Job, slot: S) -> End {
        if let Err(why) = self.node.schemas.meet(job.record.value()).await {
            return self.later(job, &why);
        }
        let record = job.record.clone();
        let running = self.begin(job, None);
        let cx = running.context(CancellationToken::new());
        let never = CancellationToken::new();
        let about = running.about(None);
        let work = handler.handle(record, &cx).instrument(about);
        let handled = self.guarded(work, self.config.handler_timeout, &never, slot).await;
        match running.conclude(handled).await {
            Concluded::Ended(end) => end,
            Concluded::Dead(running, reason) => {
                let failure = handler.failed(&running.job.record, &reason.text);
                running.bury(reason, failure).await
            }
        }
    }

    async fn run_envelope<S>(
        &self,
        handler: &dyn EnvelopeHandler,
        envelope: Envelope,
        job: Job,
        slot: S,
    ) -> End {
        let running = self.begin(job, Some(&envelope));
        let now = self.node.clock.now();
        if now > envelope.deadline {
            drop(slot);
            let failure = handler.failed(&envelope, "deadline passed before the work began");
            return running.supersede("late", failure).await;
        }
        let Some(wanted) = self.node.control.begin(&envelope.intent_id) else {
            drop(slot);
            return running.supersede("cancelled", None).await;
        };
        let at = wire::reference(&running.job.record, &envelope);
        let cancelled = wanted.token();
        let cx = running.context(cancelled.clone());
        let limit = envelope.deadline.since(now).saturating_add(self.config.deadline_slack);
        let about = running.about(Some(&envelope));
        let work = handler.handle(envelope.clone(), at, &cx).instrument(about);
        let handled = self.guarded(work, limit, &cancelled, slot).await;
        match running.conclude(handled).await {
            Concluded::Ended(end) => end,
            Concluded::Dead(running, reason) => {
                let failure = handler.failed(&envelope, &reason.text);
                running.bury(reason, failure).await
            }
        }
    }

    pub(super) fn burials(&self) -> MutexGuard<'_, Burials> {
        self.burials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a handler within its limits, whatever it does.
    async fn guarded<S>(
        &self,
        work: impl Future<Output = Result<(), HandleError>>,
        limit: Duration,
        cancelled: &CancellationToken,
        slot: S,
    ) -> Result<(), Stopped> {
        let began = Instant::now();
        let overdue = async {
            cancelled.cancelled().await;
            sleep(self.config.cancel_grace).await;
        };
        let handled = tokio::select! {
            biased;
            handled = timeout(limit, AssertUnwindSafe(work).catch_unwind()) => match handled {
                Ok(Ok(Ok(()))) if cancelled.is_cancelled() => Err(Stopped::Cancelled),
                Ok(Ok(result)) => result.map_err(Stopped::Handler),
                Ok(Err(panic)) => Err(Stopped::Panicked(panic_text(panic.as_ref()))),
                Err(_) => Err(Stopped::OutOfTime),
            },
            () = overdue => Err(Stopped::Cancelled),
        };
        self.metrics.observe(began.elapsed());
        drop(slot);
        handled
    }

    /// The record waits for something that others have to bring. Nothing is wrong with it, and nothing has
    /// happened yet: no span, and no line in the log, which tells of the cause.
    fn later(&self, job: Job, why: &str) -> End {
        self.metrics.retried.inc();
        tracing::debug!(at = %job.record.at, offset = job.record.offset, why, "the record waits");
        End::Again { job, wait: self.config.backoff(WAITING) }
    }

    fn begin(&self, job: Job, envelope: Option<&Envelope>) -> Running<'_> {
        let record = &job.record;
        let mut span = self.node.spans.process(Processed {
            at: &record.at,
            offset: record.offset,
            group: &self.config.group,
            traceparent: record.header("traceparent"),
            intent: envelope.map(|envelope| &envelope.intent_id),
        });
        if let Some(envelope) = envelope {
            span.set("starling.hop", i64::from(envelope.hop));
            if let Some(task) = task_of(&envelope.body) {
                span.set_with("starling.task_id", || task.to_owned());
            }
            if let Some(attempt) = attempt_of(&envelope.body) {
                span.set("starling.attempt", i64::from(attempt));
            }
        }
        let outbox = Outbox::within(
            self.node.courier.clone(),
            span.traceparent().clone(),
            record.header("tracestate"),
            job.priority,
        );
        let scope = outbox.guard();
        Running { runner: self, job, span, outbox, scope }
    }
}

impl<'r> Running<'r> {
    /// What every line that the handler logs is about.
    fn about(&self, envelope: Option<&Envelope>) -> tracing::Span {
        let trace = TraceContext::parse(self.span.traceparent()).map(|context| context.trace_id_text());
        tracing::info_span!(
            "record",
            topic = %self.job.record.at.topic,
            intent = envelope.map(|envelope| envelope.intent_id.as_str()),
            task = envelope.and_then(|envelope| task_of(&envelope.body)),
            trace,
        )
    }

    fn context(&self, cancelled: CancellationToken) -> HandlerContext {
        HandlerContext {
            outbox: self.outbox.clone(),
            content: self.runner.node.content.clone(),
            cancelled,
            traceparent: self.span.traceparent().to_string(),
            process: self.runner.node.process.clone(),
            priority: self.job.priority.unwrap_or_default(),
        }
    }

    async fn conclude(mut self, handled: Result<(), Stopped>) -> Concluded<'r> {
        let stopped = match handled {
            Ok(()) => match self.scope.settled().await {
                Ok(()) => return Concluded::Ended(self.done()),
                Err(EmitError::Refused(why)) => return self.dead(DeadReason::Refused, why),
                Err(passing) => return Concluded::Ended(self.again(&passing.to_string(), false)),
            },
            Err(stopped) => stopped,
        };
        match stopped {
            Stopped::Handler(HandleError::Retry(why)) => {
                let tries = self.job.tries + 1;
                if tries < self.runner.config.tries {
                    return Concluded::Ended(self.again(&why, true));
                }
                self.dead(DeadReason::Tries, format!("handled {tries} times without success, at last: {why}"))
            }
            Stopped::Handler(HandleError::Wait(why)) => {
                self.span.fail(&why);
                Concluded::Ended(self.runner.later(self.job, &why))
            }
            Stopped::Handler(HandleError::DeadLetter(why)) => self.dead(DeadReason::Handler, why),
            Stopped::Handler(HandleError::Fatal(why)) => {
                self.span.fail(&why);
                Concluded::Ended(End::Fatal(why))
            }
            Stopped::Panicked(why) => self.dead(DeadReason::Panic, format!("the handler panicked: {why}")),
            Stopped::OutOfTime => {
                self.dead(DeadReason::Deadline, "the handler was stopped because its time was up".to_owned())
            }
            Stopped::Cancelled => Concluded::Ended(self.supersede("cancelled", None).await),
        }
    }

    fn dead(self, code: DeadReason, text: String) -> Concluded<'r> {
        Concluded::Dead(self, Reason::new(code, text))
    }

    fn done(self) -> End {
        self.runner.burials().handled();
        self.runner.metrics.done.inc();
        End::Done
    }

    pub(super) fn again(mut self, why: &str, counts: bool) -> End {
        self.span.fail(why);
        self.runner.metrics.retried.inc();
        let record = &self.job.record;
        tracing::warn!(at = %record.at, offset = record.offset, tries = self.job.tries, why, "handling the record again");
        let mut job = self.job;
        job.tries += u32::from(counts);
        let wait = self.runner.config.backoff(job.tries.max(1));
        End::Again { job, wait }
    }

    /// Nobody needs the record any more.
    async fn supersede(mut self, kind: &'static str, failure: Option<Envelope>) -> End {
        self.span.set("starling.superseded", kind);
        if let Some(failure) = failure {
            self.outbox.emit(failure); // acknowledged below, with everything else
        }
        match self.scope.settled().await {
            Ok(()) | Err(EmitError::Refused(_)) => {
                self.runner.burials().handled();
                self.runner.metrics.superseded.inc();
                self.runner.node.metrics.count_superseded(kind);
                End::Done
            }
            Err(passing) => self.again(&passing.to_string(), false),
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use starling_bus::PartitionId;
    use starling_protocol::Timestamp;

    fn rank(priority: Option<&'static str>, before: u64) -> Rank {
        let header =
            |level: &'static str| (STARLING_PRIORITY.to_owned(), Bytes::from_static(level.as_bytes()));
        let record = InRecord {
            at: PartitionId::new("t", 0),
            offset: 0,
            timestamp: Timestamp(0),
            key: None,
            headers: priority.map(header).into_iter().collect(),
            payload: None,
        };
        Job::new(record, before).rank
    }

    #[test]
    fn a_more_urgent_record_overtakes_some_and_not_all() {
        assert!(rank(Some("5"), 1_000) < rank(Some("0"), 0));
        assert!(rank(Some("5"), 2_000) > rank(Some("0"), 0), "nothing waits for ever");
        assert!(rank(Some("1"), 200) < rank(Some("0"), 0));
        assert_eq!(rank(None, 7), rank(Some("5"), 7), "what says nothing is like most");
        assert!(rank(None, 7) < rank(None, 8));
    }
}
