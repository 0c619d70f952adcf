//! One question: its attempts, its deadline and what it costs.

use super::Endpoint;
use super::amend::amended;
use super::body::{MAX_ERROR_BYTES, read_body, read_up_to, unanswered};
use super::dialect::Dialect;
use super::fault::{self, Fault};
use super::hints;
use super::options::Price;
use super::reply::{self, Reply, Wanted};
use super::retry::wait_before_next;
use crate::allowance::{self, Shortfall};
use crate::{
    Answer, Ask, ChatReply, ChatRequest, Encoding, Format, Hints, Leave, Message, ModelError, ModelErrorKind,
    NotSent, estimated_tokens,
};
use reqwest::Response;
use reqwest::header::HeaderValue;
use serde_json::Value;
use starling_protocol::{CallReport, Usage};
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout_at};

pub(super) struct Call {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) request: ChatRequest,
    streams: bool,
    dialect: Dialect,
    encoding: Encoding,
    /// Tokens of the prompt, once they were counted.
    prompt_tokens: OnceLock<i64>,
    /// Failed attempts that were worth another one.
    attempt: u32,
    /// Those of them that were refused, if somebody sees to it that there are not too many.
    refused: u32,
    /// Those that failed because the endpoint as a whole did.
    excused: u32,
    /// A stale connection was met; the next one is an ordinary failure.
    renewed: bool,
    /// A reply was of no use, and the model was asked once more.
    amended: bool,
    /// The next attempt follows one that failed, or whose reply was of no use.
    retries: bool,
    ledger: Ledger,
    permit: Option<OwnedSemaphorePermit>,
}

/// What was spent so far.
struct Ledger {
    started: Instant,
    asked: String,
    replied: Option<String>,
    calls: i64,
    usage: Usage,
}

impl Call {
    /// Waits for its turn.
    pub(super) async fn begin(
        endpoint: Arc<Endpoint>,
        request: ChatRequest,
        streams: bool,
    ) -> Result<Call, ModelError> {
        let asked = endpoint.options.models.for_request(&request).to_owned();
        let mut call = Call {
            dialect: endpoint.dialects.of(&asked),
            encoding: endpoint.options.encoding_of(&asked),
            prompt_tokens: OnceLock::new(),
            ledger: Ledger {
                started: Instant::now(),
                asked,
                replied: None,
                calls: 0,
                usage: Usage::default(),
            },
            endpoint,
            request,
            streams,
            attempt: 0,
            refused: 0,
            excused: 0,
            renewed: false,
            amended: false,
            retries: false,
            permit: None,
        };
        if call.endpoint.limiter.is_some() {
            return Ok(call); // which knows how many may be open, and who is next
        }
        let in_flight = Arc::clone(&call.endpoint.in_flight);
        match timeout_at(call.request.deadline, in_flight.acquire_owned()).await {
            Ok(permit) => call.permit = permit.ok(),
            Err(_) => {
                let most = call.endpoint.options.max_in_flight;
                let message = format!(
                    "the deadline came while {most} other calls were open; raise the limit of calls in flight"
                );
                return Err(call.error(Fault::new(ModelErrorKind::Deadline, message)));
            }
        }
        Ok(call)
    }

    /// Asks for a whole reply until there is one.
    pub(super) async fn whole(mut self) -> Result<ChatReply, ModelError> {
        loop {
            let mut leave = self.admit().await?;
            let limit = self.attempt_limit();
            let attempt = async {
                let response = self.send(&mut leave).await?;
                let most = self.endpoint.options.max_response_bytes;
                let body = read_body(response, most).await?;
                reply::read_completion(&body, &Wanted::by(&self.request))
            };
            let outcome = timeout_at(limit, attempt).await;
            self.ledger.calls += 1;
            match outcome.unwrap_or_else(|_| Err(self.too_slow(limit).into())) {
                Ok(reply) => {
                    let usage = reply.usage.unwrap_or_else(|| self.counted(&reply));
                    leave.used(usage);
                    self.spend(reply.model, usage);
                    return Ok(ChatReply { text: reply.text, deeds: reply.deeds, report: self.report() });
                }
                Err(spoiled) => {
                    spoiled.usage.into_iter().for_each(|usage| leave.used(usage));
                    let excused = leave.failed(&spoiled.fault);
                    drop(leave);
                    self.spend(spoiled.model.map(String::from), spoiled.usage.unwrap_or_default());
                    self.recover(spoiled.fault, excused).await?;
                }
            }
        }
    }

    /// When an attempt that begins now must be over.
    pub(super) fn attempt_limit(&self) -> Instant {
        earlier(self.request.deadline, Instant::now().checked_add(self.endpoint.options.call_timeout))
    }

    /// When the reply to an attempt that begins now must have begun.
    pub(super) fn first_token_limit(&self, attempt_limit: Instant) -> Instant {
        earlier(attempt_limit, Instant::now().checked_add(self.endpoint.options.first_token_timeout))
    }

    /// The fault of an attempt that did not make it until `limit`.
    pub(super) fn too_slow(&self, limit: Instant) -> Fault {
        if limit >= self.request.deadline {
            return Fault::new(ModelErrorKind::Deadline, "the deadline came before the reply was complete");
        }
        let limit = self.endpoint.options.call_timeout;
        Fault::new(ModelErrorKind::Server, format!("no complete reply within {limit:?}, the limit of a call"))
    }

    /// The fault of an attempt that was silent until `silent`, where all of it may take until `limit`.
    pub(super) fn too_silent(&self, silent: Instant, limit: Instant, has_begun: bool) -> Fault {
        if silent >= limit {
            return self.too_slow(limit);
        }
        let options = &self.endpoint.options;
        let message = if has_begun {
            format!("the reply began, and nothing more came within {:?}", options.token_timeout)
        } else {
            format!("no text within {:?}", options.first_token_timeout)
        };
        Fault::new(ModelErrorKind::Server, message)
    }

    /// Waits until an attempt may begin.
    pub(super) async fn admit(&self) -> Result<Admitted, ModelError> {
        if let Some(beyond) = self.beyond_allowance(None) {
            return Err(self.error(beyond));
        }
        let Some(limiter) = &self.endpoint.limiter else { return Ok(Admitted(None)) };
        let reply = self.request.max_tokens.map_or(0, i64::from);
        let model = &self.ledger.asked;
        let sent = if limiter.counts_tokens(model) { self.prompt_tokens() } else { self.guessed_tokens() };
        let ask = Ask {
            model: self.ledger.asked.clone(),
            purpose: self.request.purpose,
            tokens: sent.saturating_add(reply),
            deadline: self.request.deadline,
            priority: self.request.priority,
            failed: self.attempt + self.excused,
            retry: self.retries,
            patient: !self.has_stand_in(),
        };
        match limiter.admit(ask).await {
            Ok(leave) => Ok(Admitted(Some(leave))),
            Err(not_sent) => {
                let kind = match not_sent {
                    NotSent::NoTurn { .. } | NotSent::TooLate { .. } | NotSent::NoRetry => {
                        ModelErrorKind::Deadline
                    }
                    NotSent::Down => ModelErrorKind::Server,
                    NotSent::Full(_) => ModelErrorKind::RateLimited,
                };
                Err(self.error(Fault::new(kind, format!("not sent: {not_sent}"))))
            }
        }
    }

    /// Whether somebody else answers if this endpoint does not, so that it need not be waited for.
    fn has_stand_in(&self) -> bool {
        self.endpoint.options.stand_ins.contains(self.request.purpose)
    }

    /// Why another attempt is more than the question may take, if it is. After a `fault` that nothing would be tried again
    /// for, that is what is to be told, not this.
    fn beyond_allowance(&self, fault: Option<&Fault>) -> Option<Fault> {
        let allowance = self.request.allowance.as_ref()?;
        let again = |fault: &Fault| fault.retry || fault.stale || fault.amend.is_some() && !self.amended;
        if fault.is_some_and(|fault| !again(fault)) {
            return None;
        }
        let reply = self.request.max_tokens.map_or(0, i64::from);
        let counts = allowance.tokens.is_some() || allowance.cost_usd.is_some();
        let next = (if counts { self.prompt_tokens() } else { 0 }, reply);
        let shortfall = allowance::check(allowance, &self.report(), next, self.price()).err()?;
        let kind = match shortfall {
            Shortfall::Used(_) => ModelErrorKind::OverAllowance,
            Shortfall::Unpriced(_) => ModelErrorKind::Unpriced,
        };
        if let Some(fault) = fault {
            self.count_failure(fault.kind);
        }
        let after = fault.map(|fault| format!("{}; ", fault.message)).unwrap_or_default();
        Some(Fault::new(kind, format!("{after}{shortfall}")))
    }

    /// Sends the question once; a reply that is not 2xx is a fault.
    pub(super) fn send<'a>(
        &self,
        leave: &'a mut Admitted,
    ) -> impl Future<Output = Result<Response, Fault>> + Send + use<'a> {
        let options = &self.endpoint.options;
        let body = self.dialect.body(&self.request, &self.ledger.asked, self.streams, options);
        let format = body.pointer("/response_format/type").and_then(Value::as_str);
        tracing::debug!(
            endpoint = self.endpoint.target.endpoint,
            model = self.ledger.asked,
            purpose = self.request.purpose.name(),
            response_format = format.unwrap_or("none"),
            streams = self.streams,
            "asking a model"
        );
        let mut request = self.endpoint.post(&body);
        let trace = self.request.traceparent.as_deref();
        if let Some(trace) = trace.and_then(|trace| HeaderValue::from_str(trace).ok()) {
            request = request.header("traceparent", trace);
        }
        async move {
            let response = request.send().await.map_err(unanswered)?;
            let status = response.status();
            let hints = hints::read(response.headers(), SystemTime::now());
            if status.is_success() {
                leave.answered(Answer::Accepted, hints);
                return Ok(response);
            }
            let body = read_up_to(response, MAX_ERROR_BYTES).await;
            let body = String::from_utf8_lossy(&body);
            let fault = fault::of_status(status.as_u16(), hints.retry_after, &body);
            leave.answered(fault.answer(), hints);
            Err(fault)
        }
    }

    /// After a failed attempt: returns once the next one may begin, or gives up with the error.
    pub(super) async fn recover(&mut self, fault: Fault, excused: bool) -> Result<(), ModelError> {
        if let Some(beyond) = self.beyond_allowance(Some(&fault)) {
            return Err(self.error(beyond));
        }
        if let Some(refusal) = &fault.refusal
            && let Some(simpler) = self.dialect.simpler(
                refusal,
                matches!(self.request.format, Format::Json { .. }),
                self.streams,
            )
        {
            tracing::info!(
                endpoint = self.endpoint.target.endpoint,
                model = self.ledger.asked,
                "the endpoint refuses part of the protocol; asking in simpler terms from now on"
            );
            self.endpoint.dialects.learn(&self.ledger.asked, simpler);
            self.dialect = self.endpoint.dialects.of(&self.ledger.asked);
            return Ok(());
        }
        if fault.stale && !self.renewed {
            self.renewed = true;
            return Ok(());
        }
        if let Some(amend) = fault.amend.as_ref().filter(|_| !self.amended) {
            self.amended = true;
            self.retries = true;
            self.count_failure(fault.kind);
            tracing::debug!(
                endpoint = self.endpoint.target.endpoint,
                reason = fault.message,
                "a reply is of no use, asking once more"
            );
            amended(&mut self.request.messages, amend);
            self.prompt_tokens = OnceLock::new();
            return Ok(());
        }
        // Who is refused, or met an endpoint that fails for all, waits for as long as it takes: somebody sees to it that
        // not too many come back.
        let refused = fault.kind == ModelErrorKind::RateLimited && self.endpoint.limiter.is_some();
        let (count, most) = match () {
            () if refused => (&mut self.refused, None),
            () if excused && self.has_stand_in() => return Err(self.error(fault)),
            () if excused => (&mut self.excused, None),
            () => (&mut self.attempt, Some(self.endpoint.options.max_attempts)),
        };
        *count += 1;
        let attempt = *count;
        self.retries = !refused && !excused;
        let remaining = self.request.deadline.saturating_duration_since(Instant::now());
        let wait = if fault.retry {
            wait_before_next(
                attempt,
                most,
                fault.retry_after,
                remaining,
                self.endpoint.options.backoff,
                rand::random(),
            )
        } else {
            None
        };
        match wait {
            Some(wait) => {
                self.count_failure(fault.kind);
                tracing::debug!(
                    endpoint = self.endpoint.target.endpoint,
                    kind = fault.kind.code(),
                    attempt,
                    wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                    "model call failed, trying again"
                );
                sleep(wait).await;
                Ok(())
            }
            None => Err(self.error(fault)),
        }
    }

    /// Lets the next call in.
    pub(super) fn release(&mut self) {
        self.permit = None;
    }

    pub(super) fn count_call(&mut self) {
        self.ledger.calls += 1;
    }

    /// Notes what an attempt took.
    pub(super) fn spend(&mut self, model: Option<String>, usage: Usage) {
        if model.is_some() {
            self.ledger.replied = model;
        }
        self.ledger.usage.add(usage);
    }

    /// What the question and this reply took, where the endpoint does not say it.
    pub(super) fn counted(&self, reply: &Reply) -> Usage {
        let calls = reply.deeds.calls.iter().map(|call| self.encoding.count(&call.arguments)).sum::<i64>();
        let completion_tokens = self.encoding.count(&reply.text) + calls;
        Usage { prompt_tokens: self.prompt_tokens(), completion_tokens, cached_tokens: 0 }
    }

    /// The same for a reply of which only the size is known.
    pub(super) fn counted_by_size(&self, reply_chars: usize) -> Usage {
        let completion_tokens = estimated_tokens(reply_chars);
        Usage { prompt_tokens: self.prompt_tokens(), completion_tokens, cached_tokens: 0 }
    }

    /// Tokens of the question as it stands, counted once.
    fn prompt_tokens(&self) -> i64 {
        *self.prompt_tokens.get_or_init(|| self.encoding.count_request(&self.request))
    }

    /// The same from its size, which costs nothing.
    fn guessed_tokens(&self) -> i64 {
        estimated_tokens(self.request.messages.iter().map(Message::bytes).sum())
    }

    fn count_failure(&self, kind: ModelErrorKind) {
        self.endpoint.failures.count(&self.ledger.asked, kind);
    }

    fn price(&self) -> Option<Price> {
        let prices = &self.endpoint.options.prices;
        prices.get(&self.ledger.asked).or_else(|| prices.get(self.ledger.replied.as_ref()?)).copied()
    }

    pub(super) fn report(&self) -> CallReport {
        let ledger = &self.ledger;
        let price = self.price();
        CallReport {
            model: ledger.replied.as_ref().unwrap_or(&ledger.asked).clone(),
            offline: false,
            calls: ledger.calls,
            usage: ledger.usage,
            cost_usd: price.map_or(0.0, |price| price.of(ledger.usage)),
            latency_ms: i64::try_from(ledger.started.elapsed().as_millis()).unwrap_or(i64::MAX),
            unpriced_calls: if price.is_some() { 0 } else { ledger.calls },
            cached_calls: 0,
            cached_prompt_tokens: 0,
        }
    }

    pub(super) fn error(&self, fault: Fault) -> ModelError {
        let attempted = !matches!(fault.kind, ModelErrorKind::OverAllowance | ModelErrorKind::Unpriced);
        if self.ledger.calls > 0 && attempted {
            self.count_failure(fault.kind);
        }
        let mut message = fault.message;
        if fault.kind == ModelErrorKind::UnknownModel {
            message = format!("{message} (asked for {})", self.ledger.asked);
        }
        ModelError {
            kind: fault.kind,
            message: fault::hide(&message, &self.endpoint.secrets),
            endpoint: self.endpoint.target.endpoint.clone(),
            report: self.report(),
        }
    }
}

/// An attempt that may be made.
pub(super) struct Admitted(Option<Box<dyn Leave>>);

impl Admitted {
    fn answered(&mut self, answer: Answer, hints: Hints) {
        if let Some(leave) = &mut self.0 {
            leave.answered(answer, hints);
        }
    }

    /// How the attempt failed, if the endpoint has not answered. Says whether that was not the question's fault.
    pub(super) fn failed(&mut self, fault: &Fault) -> bool {
        self.answered(fault.answer(), Hints::default());
        self.0.as_ref().is_some_and(|leave| leave.is_excused())
    }

    /// What the reply took, once it is known.
    pub(super) fn used(&mut self, usage: Usage) {
        if let Some(leave) = &mut self.0 {
            leave.used(usage);
        }
    }

    /// The attempt is over, whatever is still done with what came of it.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }
}

fn earlier(a: Instant, b: Option<Instant>) -> Instant {
    b.map_or(a, |b| a.min(b))
}
