//! An endpoint tried out: some small calls, each about one part of the protocol.
//!
//! What is asked is in [`questions`], what came back in [`heard`], what that says in [`verdicts`]; here are the calls. They
//! go past the limiter: they are few, one after the other, and each has its time.

mod heard;
mod questions;
#[cfg(test)]
mod tests;
mod verdicts;

use super::Endpoint;
use super::body::{MAX_ERROR_BYTES, network_fault, read_body, read_up_to, too_big, unanswered};
use super::dialect::{Dialect, JsonForm};
use super::fault::{self, Fault};
use super::sse::SseDecoder;
use crate::{Encoding, Feature, ModelErrorKind, Preflight, PreflightOptions, Trial, Verdict};
use heard::{Said, Streamed};
use questions::Question;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use starling_protocol::{CallReport, Usage};
use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use verdicts::Judged;

/// Requests of one trial: the question, and the same in simpler terms where the endpoint refuses what it is not about.
const MAX_REQUESTS: usize = 4;

/// Longest reply that is read, in bytes.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// How long the number of tokens may come after the model has finished.
const COUNTS_GRACE: Duration = Duration::from_secs(2);

/// All trials, one after the other: a small server answers one question at a time.
pub(super) async fn run(endpoint: &Endpoint, options: PreflightOptions) -> Preflight {
    let mut desk = Desk::new(endpoint, options);
    if options.unknown_name {
        let question = Question::unknown_name(&options, desk.limit());
        let judged = desk.whole(&question).await.map_or_else(|untold| untold, verdicts::unknown_name);
        desk.note(Feature::UnknownName, judged);
    }
    for form in [JsonForm::Schema, JsonForm::Object, JsonForm::Prompt] {
        if form < endpoint.options.json {
            continue; // the settings ask in simpler terms
        }
        let question = Question::json(form, &options, desk.limit());
        let judged = desk.whole(&question).await.map_or_else(|untold| untold, verdicts::json);
        let next = matches!(judged.0, Verdict::Ignored | Verdict::Refused);
        desk.note(Feature::Json(form), judged);
        if !next {
            break;
        }
    }
    desk.stream().await;
    let question = Question::tools(&options, desk.limit());
    let judged = desk.whole(&question).await.map_or_else(|untold| untold, verdicts::tools);
    desk.note(Feature::Tools, judged);
    desk.leave()
}

/// Where the trials are made.
struct Desk<'e> {
    endpoint: &'e Endpoint,
    options: PreflightOptions,
    /// What the endpoint understands, as far as it was found out.
    dialect: Dialect,
    trials: Vec<Trial>,
    began: Instant,
    calls: i64,
    usage: Usage,
}

impl<'e> Desk<'e> {
    fn new(endpoint: &'e Endpoint, options: PreflightOptions) -> Self {
        let model = endpoint.options.models.for_purpose(options.purpose);
        Self {
            endpoint,
            options,
            dialect: endpoint.dialects.of(model),
            trials: Vec::new(),
            began: Instant::now(),
            calls: 0,
            usage: Usage::default(),
        }
    }

    fn model(&self) -> &'e str {
        self.endpoint.options.models.for_purpose(self.options.purpose)
    }

    /// When a trial that begins now is over.
    fn limit(&self) -> Instant {
        let own = Instant::now().checked_add(self.options.trial_timeout);
        own.map_or(self.options.deadline, |own| own.min(self.options.deadline))
    }

    fn note(&mut self, feature: Feature, (verdict, seen): Judged) {
        let seen = fault::hide(&seen, &self.endpoint.secrets);
        self.trials.push(Trial { feature, verdict, seen });
    }

    fn leave(self) -> Preflight {
        let model = self.model();
        let price = self.endpoint.options.prices.get(model);
        let report = CallReport {
            model: model.to_owned(),
            offline: false,
            calls: self.calls,
            usage: self.usage,
            cost_usd: price.map_or(0.0, |price| price.of(self.usage)),
            latency_ms: i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX),
            unpriced_calls: if price.is_some() { 0 } else { self.calls },
            cached_calls: 0,
            cached_prompt_tokens: 0,
        };
        Preflight { trials: self.trials, report }
    }

    /// Why a question cannot be asked.
    fn hindrance(&self, question: &Question) -> Option<Judged> {
        let settings = &self.endpoint.options;
        let field = question.field;
        if settings.extra_body.contains_key(field) || settings.omit.iter().any(|name| name == field) {
            let seen = format!("not tried: the settings have a say in {field} (extra_body, omit)");
            return Some((Verdict::Unknown, seen));
        }
        let late = Instant::now() >= self.options.deadline;
        late.then(|| (Verdict::Unknown, "not tried: the trials before it took all the time".to_owned()))
    }

    /// Asks for a whole reply. An error is the verdict of a trial that could not be made.
    async fn whole(&mut self, question: &Question) -> Result<Result<Said, Fault>, Judged> {
        if let Some(untold) = self.hindrance(question) {
            return Err(untold);
        }
        let limit = question.request.deadline;
        let said = in_time(limit, async {
            let response = self.ask(question).await?;
            let body = read_body(response, MAX_REPLY_BYTES).await.map_err(|spoiled| spoiled.fault)?;
            Said::read(&body)
        });
        let said = said.await;
        if let Ok(said) = &said {
            self.spend(question, said.usage, said.text.chars().count());
        }
        Ok(said)
    }

    /// Asks for a stream, and reads it as far as it has to be.
    async fn stream(&mut self) {
        let question = Question::stream(&self.options, self.limit());
        if let Some((verdict, seen)) = self.hindrance(&question) {
            self.note(Feature::Stream, (verdict, seen.clone()));
            self.note(Feature::StreamCounts, (verdict, seen));
            return;
        }
        // What came before the time was over is looked at all the same.
        let mut heard = Streamed::default();
        let limit = question.request.deadline;
        let ended = in_time(limit, async {
            let began = Instant::now();
            let response = self.ask(&question).await?;
            listen(response, began, &mut heard).await
        });
        let fault = ended.await.err();
        if heard.pieces > 0 {
            self.spend(&question, heard.usage, heard.chars);
        }
        let asked = !self.dialect.no_stream_usage;
        self.note(Feature::Stream, verdicts::stream(&heard, fault.as_ref()));
        self.note(Feature::StreamCounts, verdicts::stream_counts(&heard, fault.as_ref(), asked));
    }

    /// Asks until the endpoint takes everything that the question is not about.
    async fn ask(&mut self, question: &Question) -> Result<Response, Fault> {
        let mut renewed = false;
        let mut requests = 0;
        loop {
            requests += 1;
            let fault = match self.send(question).await {
                Ok(response) => return Ok(response),
                Err(fault) => fault,
            };
            // Refusals of JSON are what is to be found out.
            let simpler =
                fault.refusal.as_ref().and_then(|said| self.dialect.simpler(said, false, question.streams));
            match simpler {
                _ if requests >= MAX_REQUESTS => return Err(fault),
                Some(simpler) => self.dialect = simpler,
                None if fault.stale && !renewed => renewed = true,
                None => return Err(fault),
            }
        }
    }

    async fn send(&mut self, question: &Question) -> Result<Response, Fault> {
        let dialect = Dialect { json: question.form.unwrap_or(self.dialect.json), ..self.dialect };
        let model = question.model.unwrap_or(self.model());
        let body = dialect.body(&question.request, model, question.streams, &self.endpoint.options);
        self.calls += 1;
        let response = self.endpoint.post(&body).send().await.map_err(unanswered)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let said = read_up_to(response, MAX_ERROR_BYTES).await;
        Err(fault::of_status(status.as_u16(), None, &String::from_utf8_lossy(&said)))
    }

    /// Notes what a reply took: as the endpoint counts, else by rule of thumb.
    fn spend(&mut self, question: &Question, usage: Option<Usage>, chars: usize) {
        self.usage.add(usage.unwrap_or_else(|| Usage {
            prompt_tokens: Encoding::Estimate.count_request(&question.request),
            completion_tokens: crate::estimated_tokens(chars),
            cached_tokens: 0,
        }));
    }
}

/// Reads a stream that was asked for when it `began` to its end.
async fn listen(mut response: Response, began: Instant, heard: &mut Streamed) -> Result<(), Fault> {
    let is = |kind: &[u8]| {
        response.headers().get(CONTENT_TYPE).is_some_and(|said| said.as_bytes().starts_with(kind))
    };
    if is(b"application/json") || is(b"text/html") {
        let body = read_body(response, MAX_REPLY_BYTES).await.map_err(|spoiled| spoiled.fault)?;
        *heard = Streamed::of_whole(&Said::read(&body)?);
        return Ok(());
    }
    let mut decoder = SseDecoder::new(MAX_REPLY_BYTES);
    let mut received = 0;
    loop {
        let more = if heard.finished {
            // Only the number of tokens may be missing.
            match timeout_at(Instant::now() + COUNTS_GRACE, response.chunk()).await {
                Ok(Ok(more)) => more,
                Ok(Err(_)) | Err(_) => None,
            }
        } else {
            response.chunk().await.map_err(network_fault)?
        };
        let Some(more) = more else { break };
        received += more.len();
        if received > MAX_REPLY_BYTES {
            return Err(too_big(MAX_REPLY_BYTES));
        }
        decoder.feed(&more);
        while let Some(event) = decoder.next_event().map_err(|error| Fault::bad_reply(error.to_string()))? {
            heard.event(&event, began.elapsed())?;
        }
        if heard.done {
            return Ok(());
        }
    }
    if let Some(event) = decoder.finish().map_err(|error| Fault::bad_reply(error.to_string()))? {
        heard.event(&event, began.elapsed())?;
    }
    if heard.finished || heard.done {
        return Ok(());
    }
    Err(Fault::new(ModelErrorKind::Server, "the stream was cut before the reply was complete"))
}

async fn in_time<T>(limit: Instant, asked: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    timeout_at(limit, asked)
        .await
        .unwrap_or_else(|_| Err(Fault::new(ModelErrorKind::Deadline, "no complete reply came in time")))
}
