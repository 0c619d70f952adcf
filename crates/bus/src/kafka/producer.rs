//! Sending.

use super::{
    KafkaOptions,
    access::Access,
    context,
    errors::{is_of_batch, send_error},
};
use crate::{BusError, Delivered, DeliveryFuture, OutRecord, SendError};
use futures::{FutureExt, future::BoxFuture};
use rdkafka::{
    ClientConfig, ClientContext, Message,
    config::{FromClientConfigAndContext, RDKafkaLogLevel},
    error::{KafkaError, RDKafkaErrorCode},
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer},
};
use std::{
    future::ready,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};

type Sent = Result<Delivered, Failure>;
type Answer = oneshot::Sender<Sent>;
type Client = ThreadedProducer<Deliveries>;

/// Several idempotent producers side by side. librdkafka puts only one partition into a request, and an
/// idempotent producer has at most five requests under way: one alone would send a fan-out over a hundred
/// partitions in twenty rounds. A partition always has the same producer, so that its order holds.
pub(super) struct Sender {
    lines: Vec<Line>,
    /// For the topics that wait behind no others.
    urgent: Option<(Vec<String>, Line)>,
    lone: Arc<Lone>,
    outstanding: Arc<Outstanding>,
}

/// A record was not delivered.
struct Failure {
    error: SendError,
    /// It may have been refused only because others of its batch were.
    in_company: bool,
}

/// A producer that puts each record into a batch of its own; made when it is needed first. A broker refuses a whole batch
/// for one record that is too large or invalid, and one that has become larger than its topic allows.
struct Lone {
    options: KafkaOptions,
    line: Mutex<Option<Arc<Line>>>,
    outstanding: Arc<Outstanding>,
}

impl Lone {
    /// `None` if there can be none.
    fn line(&self) -> Option<Arc<Line>> {
        let mut slot = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            match Line::new(self.options.clone(), KafkaOptions::lone_producer, self.outstanding.clone()) {
                Ok(line) => *slot = Some(Arc::new(line)),
                Err(error) => tracing::error!(%error, "no producer for single records could be made"),
            }
        }
        slot.clone()
    }
}

/// An idempotent producer that survives fatal errors of its client by making another one.
struct Line {
    options: KafkaOptions,
    config: fn(&KafkaOptions) -> ClientConfig,
    access: Access,
    client: RwLock<Arc<Live>>,
    outstanding: Arc<Outstanding>,
}

struct Live {
    client: Client,
    broken: Arc<AtomicBool>,
    /// Records of this client that are not acknowledged.
    under_way: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Outstanding {
    count: AtomicUsize,
    none_left: Notify,
}

impl Outstanding {
    fn one_less(&self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.none_left.notify_waiters();
        }
    }
}

impl Sender {
    pub(super) fn new(options: &KafkaOptions) -> Result<Self, BusError> {
        let outstanding = Arc::new(Outstanding::default());
        let line = |_| Line::new(options.clone(), KafkaOptions::producer, outstanding.clone());
        let lines = (0..options.producers.max(1)).map(line).collect::<Result<Vec<_>, _>>()?;
        let urgent = match options.urgent_topics.as_slice() {
            [] => None,
            topics => Some((topics.to_vec(), line(0)?)),
        };
        let lone =
            Lone { options: options.clone(), line: Mutex::default(), outstanding: outstanding.clone() };
        Ok(Self { lines, urgent, lone: Arc::new(lone), outstanding })
    }

    pub(super) fn send(&self, record: OutRecord) -> DeliveryFuture {
        if let Some((topics, line)) = &self.urgent
            && topics.iter().any(|topic| **topic == *record.to.topic)
        {
            // A decision is never larger than its topic allows, and nothing may overtake it.
            return line.send(record).map(|sent| sent.map_err(|failure| failure.error)).boxed();
        }
        let mut hasher = DefaultHasher::new();
        record.to.hash(&mut hasher);
        let line = usize::try_from(hasher.finish() % self.lines.len() as u64).unwrap_or(0);
        let (again, lone) = (record.clone(), self.lone.clone());
        let sent = self.lines[line].send(record);
        async move {
            let failure = match sent.await {
                Ok(delivered) => return Ok(delivered),
                Err(failure) => failure,
            };
            let lone = if failure.in_company { lone.line() } else { None };
            match lone {
                Some(line) => line.send(again).await.map_err(|failure| failure.error),
                None => Err(failure.error),
            }
        }
        .boxed()
    }

    pub(super) async fn flush(&self, within: Duration) {
        let drained = async {
            loop {
                let none_left = self.outstanding.none_left.notified();
                tokio::pin!(none_left);
                none_left.as_mut().enable();
                if self.outstanding.count.load(Ordering::Acquire) == 0 {
                    return;
                }
                none_left.await;
            }
        };
        let _ = timeout(within, drained).await; // the bound is the caller's wish
    }
}

impl Line {
    fn new(
        options: KafkaOptions,
        config: fn(&KafkaOptions) -> ClientConfig,
        outstanding: Arc<Outstanding>,
    ) -> Result<Self, BusError> {
        let client = RwLock::new(Arc::new(Live::new(&options, config, &outstanding)?));
        Ok(Self { access: Access::of(&options), options, config, client, outstanding })
    }

    fn send(&self, record: OutRecord) -> BoxFuture<'static, Sent> {
        let live = self.live();
        let (answer, answered) = oneshot::channel();
        let mut headers = OwnedHeaders::new_with_capacity(record.headers.len());
        for (key, value) in &record.headers {
            headers = headers.insert(Header { key, value: Some(value.as_ref()) });
        }
        let mut out = BaseRecord::with_opaque_to(&record.to.topic, Box::new(answer))
            .partition(record.to.partition)
            .headers(headers);
        out.key = record.key.as_deref();
        out.payload = record.payload.as_deref();
        self.outstanding.count.fetch_add(1, Ordering::AcqRel);
        live.under_way.fetch_add(1, Ordering::AcqRel);
        match live.client.send(out) {
            Ok(()) => {
                let to = record.to;
                answered
                    .map(move |result| {
                        let gone = "the client ended before the answer came".to_owned();
                        result.unwrap_or_else(|_| {
                            let error = SendError::Unknown { to: to.to_string(), reason: gone };
                            Err(Failure { error, in_company: false })
                        })
                    })
                    .boxed()
            }
            Err((error, _)) => {
                live.under_way.fetch_sub(1, Ordering::AcqRel);
                self.outstanding.one_less();
                let to = record.to.to_string();
                let error = if is_fatal(&error) {
                    live.broken.store(true, Ordering::Release);
                    let reason = "the producer had failed; the next record gets a new one".to_owned();
                    SendError::NotSent { to, reason }
                } else {
                    send_error(&self.access, to, &error)
                };
                ready(Err(Failure { error, in_company: false })).boxed()
            }
        }
    }

    /// The client that works; a broken one is replaced first.
    fn live(&self) -> Arc<Live> {
        let live = self.client.read().unwrap_or_else(PoisonError::into_inner).clone();
        if !live.broken.load(Ordering::Acquire) {
            return live;
        }
        let mut slot = self.client.write().unwrap_or_else(PoisonError::into_inner);
        if slot.broken.load(Ordering::Acquire) {
            match Live::new(&self.options, self.config, &self.outstanding) {
                Ok(fresh) => {
                    *slot = Arc::new(fresh);
                }
                Err(error) => tracing::error!(%error, "no new producer could be made"),
            }
        }
        slot.clone()
    }
}

impl Live {
    fn new(
        options: &KafkaOptions,
        config: fn(&KafkaOptions) -> ClientConfig,
        outstanding: &Arc<Outstanding>,
    ) -> Result<Self, BusError> {
        let (broken, under_way) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let access = Access::of(options);
        let context = Deliveries {
            access,
            broken: broken.clone(),
            under_way: under_way.clone(),
            outstanding: outstanding.clone(),
        };
        let client = Client::from_config_and_context(&config(options), context)
            .map_err(|error| super::errors::bus_error(&options.brokers, &error))?;
        Ok(Self { client, broken, under_way })
    }
}

/// Answers senders from librdkafka's delivery reports.
struct Deliveries {
    access: Access,
    broken: Arc<AtomicBool>,
    under_way: Arc<AtomicUsize>,
    outstanding: Arc<Outstanding>,
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        context::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if is_fatal(&error) {
            tracing::warn!(%error, reason, "the producer failed for good and will be replaced");
            self.broken.store(true, Ordering::Release);
        } else {
            tracing::debug!(target: "librdkafka", %error, reason);
        }
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<Answer>;

    fn delivery(&self, result: &DeliveryResult<'_>, answer: Box<Answer>) {
        let answered = match result {
            Ok(message) => Ok(Delivered { offset: Some(message.offset()).filter(|offset| *offset >= 0) }),
            Err((error, message)) => {
                if is_fatal(error) {
                    self.broken.store(true, Ordering::Release);
                }
                let to = format!("{}[{}]", message.topic(), message.partition());
                let in_company = is_of_batch(error);
                Err(Failure { error: send_error(&self.access, to, error), in_company })
            }
        };
        self.under_way.fetch_sub(1, Ordering::AcqRel);
        let _ = answer.send(answered); // the sender may not care
        self.outstanding.one_less();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let records = self.under_way.load(Ordering::Acquire);
        if records > 0 {
            tracing::warn!(records, "unacknowledged records are dropped with their producer; flush first");
        }
        let client = self.client.clone();
        thread::spawn(move || drop(client)); // waits for its thread, which this one may not
    }
}

fn is_fatal(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal)
}
