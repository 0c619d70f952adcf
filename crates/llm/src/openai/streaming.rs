//! A reply as it comes.

use super::body::{MAX_ERROR_BYTES, network_fault, read_body, read_up_to, too_big};
use super::call::{Admitted, Call};
use super::fault::{self, Fault};
use super::reply::{Assembly, Wanted};
use super::sse::{SseDecoder, SseEvent};
use crate::{Deeds, ModelError, ModelErrorKind, StreamEvent, TextStream};
use futures::StreamExt;
use futures::stream;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// How long counts may come after the model has finished. They are no part of the answer.
const COUNTS_GRACE: Duration = Duration::from_secs(2);

/// How long the end of the body may follow the end of the answer. A connection whose body was read to
/// its end is used again.
const BODY_END_GRACE: Duration = Duration::from_millis(20);

/// Asks until the first text has come, and gives the rest as a stream.
pub(super) async fn open(mut call: Call) -> Result<TextStream, ModelError> {
    loop {
        let mut leave = call.admit().await?;
        call.count_call();
        let limit = call.attempt_limit();
        let first_limit = call.first_token_limit(limit);
        match first_text(&call, &mut leave, limit, first_limit).await {
            Ok((attempt, first)) => {
                return Ok(Running { call, leave, attempt, next: first, over: false }.into_stream());
            }
            Err((fault, attempt)) => {
                if let Some(attempt) = attempt {
                    note(&mut call, &mut leave, &attempt.assembly);
                }
                let excused = leave.failed(&fault);
                drop(leave);
                call.recover(fault, excused).await?;
            }
        }
    }
}

async fn first_text(
    call: &Call,
    leave: &mut Admitted,
    limit: Instant,
    first_limit: Instant,
) -> Result<(Attempt, Option<String>), (Fault, Option<Attempt>)> {
    let opened = timeout_at(first_limit, Attempt::start(call, leave, limit, first_limit)).await;
    let mut attempt = opened
        .unwrap_or_else(|_| Err(call.too_silent(first_limit, limit, false)))
        .map_err(|fault| (fault, None))?;
    match attempt.next_text(call).await {
        Ok(first) if first.is_some() || attempt.deeds.is_some() => Ok((attempt, first)),
        Ok(_) => Err((Fault::bad_reply("the reply is empty"), Some(attempt))),
        Err(fault) => Err((fault, Some(attempt))),
    }
}

/// Adds what a stream took to the account of the call.
fn note(call: &mut Call, leave: &mut Admitted, assembly: &Assembly) {
    let usage = match assembly.usage {
        Some(usage) => usage,
        None if assembly.chars() > 0 => call.counted_by_size(assembly.chars()),
        None => return,
    };
    leave.used(usage);
    call.spend(assembly.model.clone(), usage);
}

/// One attempt whose reply is coming in.
struct Attempt {
    response: Option<Response>,
    decoder: SseDecoder,
    assembly: Assembly,
    received: usize,
    limit: Instant,
    /// When more must have come. Comments that keep the connection alive are nothing; thoughts are something.
    silent: Instant,
    has_begun: bool,
    ended: bool,
    /// The calls of tools, once it has ended.
    deeds: Option<Deeds>,
}

impl Attempt {
    async fn start(
        call: &Call,
        leave: &mut Admitted,
        limit: Instant,
        silent: Instant,
    ) -> Result<Attempt, Fault> {
        let response = call.send(leave).await?;
        let most = call.endpoint.options.max_response_bytes;
        let opener = Wanted::by(&call.request).opener;
        let mut attempt = Attempt {
            response: None,
            decoder: SseDecoder::new(most),
            assembly: Assembly::new(opener),
            received: 0,
            limit,
            silent,
            has_begun: false,
            ended: false,
            deeds: None,
        };
        let is = |kind: &[u8]| {
            response.headers().get(CONTENT_TYPE).is_some_and(|said| said.as_bytes().starts_with(kind))
        };
        if is(b"text/html") {
            let page = read_up_to(response, MAX_ERROR_BYTES).await;
            let page = fault::quote(&String::from_utf8_lossy(&page));
            return Err(Fault::bad_reply(format!(
                "a page of HTML and no stream: {page}; is the base URL right?"
            )));
        }
        if is(b"application/json") {
            // A server that cannot stream answers as if it had not been asked to: one chunk, then.
            let body = read_body(response, most).await.map_err(|s| s.fault)?;
            let data = String::from_utf8_lossy(&body).into_owned();
            attempt.whole_reply(&data);
        } else {
            attempt.response = Some(response);
        }
        Ok(attempt)
    }

    fn whole_reply(&mut self, body: &str) {
        let one_line = body.replace(['\n', '\r'], " ");
        self.decoder.feed(format!("data: {one_line}\n\ndata: [DONE]\n\n").as_bytes());
    }

    /// The next text, never empty; `None` at the end of a whole reply.
    async fn next_text(&mut self, call: &Call) -> Result<Option<String>, Fault> {
        loop {
            if self.ended {
                return Ok(None);
            }
            while let Some(event) = self.decode()? {
                self.has_begun = true;
                let pause = call.endpoint.options.token_timeout;
                self.silent = Instant::now().checked_add(pause).unwrap_or(self.limit);
                let text = self.assembly.event(&event)?;
                if !text.is_empty() {
                    return Ok(Some(text));
                }
                if self.assembly.is_done() {
                    break;
                }
            }
            let more = !self.assembly.is_done() && self.receive(call).await?;
            if !more {
                return self.finish(call).await;
            }
        }
    }

    fn decode(&mut self) -> Result<Option<SseEvent>, Fault> {
        self.decoder.next_event().map_err(|error| Fault::bad_reply(error.to_string()))
    }

    /// Reads more; false if there is no more.
    async fn receive(&mut self, call: &Call) -> Result<bool, Fault> {
        let Some(response) = &mut self.response else {
            return Ok(false);
        };
        let finished = self.assembly.has_finished();
        let limit = self.limit.min(if finished { Instant::now() + COUNTS_GRACE } else { self.silent });
        match timeout_at(limit, response.chunk()).await {
            Ok(Ok(Some(chunk))) => {
                self.received += chunk.len();
                let most = call.endpoint.options.max_response_bytes;
                if self.received > most {
                    return Err(too_big(most));
                }
                self.decoder.feed(&chunk);
                Ok(true)
            }
            Ok(Ok(None)) => {
                self.response = None;
                Ok(false)
            }
            // The answer is there; only its counts are missing.
            Ok(Err(_)) | Err(_) if finished => Ok(false),
            Ok(Err(error)) => Err(network_fault(error)),
            Err(_) => Err(call.too_silent(self.silent, self.limit, self.has_begun)),
        }
    }

    async fn finish(&mut self, call: &Call) -> Result<Option<String>, Fault> {
        let mut text = String::new();
        if !self.assembly.is_done() {
            let last = self.decoder.finish().map_err(|error| Fault::bad_reply(error.to_string()))?;
            if let Some(event) = last {
                // The answer is there; a part that was cut off behind it is not missed.
                let finished = self.assembly.has_finished();
                text = match self.assembly.event(&event) {
                    Err(fault) if finished && fault.kind == ModelErrorKind::BadReply => String::new(),
                    read => read?,
                };
            }
        }
        let (last, deeds) = self.assembly.end(&Wanted::by(&call.request))?;
        text.push_str(&last);
        self.deeds = deeds;
        self.ended = true;
        if let Some(mut response) = self.response.take() {
            let _ = timeout(BODY_END_GRACE, response.chunk()).await;
        }
        Ok((!text.is_empty()).then_some(text))
    }
}

/// A stream that has begun to give text.
struct Running {
    call: Call,
    leave: Admitted,
    attempt: Attempt,
    next: Option<String>,
    over: bool,
}

impl Running {
    fn into_stream(self) -> TextStream {
        stream::unfold(self, |mut running| async move {
            let item = running.step().await?;
            Some((item, running))
        })
        .boxed()
    }

    async fn step(&mut self) -> Option<Result<StreamEvent, ModelError>> {
        if self.over {
            return None;
        }
        if let Some(text) = self.next.take() {
            return Some(Ok(StreamEvent::Text(text)));
        }
        let outcome = self.attempt.next_text(&self.call).await;
        if let Ok(Some(text)) = outcome {
            return Some(Ok(StreamEvent::Text(text)));
        }
        if let Some(deeds) = self.attempt.deeds.take().filter(|_| outcome.is_ok()) {
            return Some(Ok(StreamEvent::Calls(deeds)));
        }
        self.over = true;
        note(&mut self.call, &mut self.leave, &self.attempt.assembly);
        // Closes the connection of a stream that failed; the reader may keep the stream for long.
        self.attempt.response = None;
        self.leave.end();
        self.call.release();
        Some(match outcome {
            Err(fault) => Err(self.call.error(fault)),
            Ok(_) => Ok(StreamEvent::Done(self.call.report())),
        })
    }
}
