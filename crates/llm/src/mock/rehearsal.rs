//! A script for rehearsals: sensible answers, and a share of calls that go wrong, drawn from a seed.

use super::chaos::Kind;
use super::draw::Draw;
use super::latency::{Latency, NoLatency};
use super::schema::reply_by_schema;
use super::wire::{self, Frame};
use super::{MockAction, MockCall, Script};
use crate::offline;
use axum::body::Bytes;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The marks of what goes wrong with a call, beside those of [`Kind`].
const STATUS_5XX: &str = "status_5xx";
const CUT: &str = "cut";
const SLOW: &str = "slow";

/// Pieces of a reply that trickles.
const TRICKLE: usize = 20;

/// How an endpoint answers in a rehearsal. Plans, results and verdicts are those of the offline model. What happens to a
/// call depends on the seed, on its body, and on how often that body came before: not on time, nor on other calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Rehearsal {
    /// Another seed is another run.
    pub seed: u64,
    /// How long replies take.
    pub latency: Latency,
    /// Share of calls that are answered with a status of 500 or more, at once.
    pub status_5xx: f64,
    /// Share of calls whose reply breaks off.
    pub cut: f64,
    /// Share of calls whose reply trickles.
    pub slow: f64,
    /// Time that a trickling reply takes longer than others.
    pub slow_by: Duration,
    /// Share of calls whose reply is bad in one of the ways of [`Self::kinds`].
    pub malformed: f64,
    /// Of these ways, those that the form of the call has room for are equally likely.
    pub kinds: Vec<Kind>,
}

/// A rehearsal cannot be as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NoRehearsal {
    /// A share is none.
    #[error("a share is a number from 0 to 1, not {0}")]
    Share(f64),
    /// More calls go wrong than there are.
    #[error("the shares of calls that go wrong make {0} together, which is more than 1")]
    TooMuch(f64),
    /// The latency.
    #[error(transparent)]
    Latency(#[from] NoLatency),
}

impl Rehearsal {
    /// All goes well, at once.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Rehearsal {
            seed,
            latency: Latency::Fixed(Duration::ZERO),
            status_5xx: 0.0,
            cut: 0.0,
            slow: 0.0,
            slow_by: Duration::from_secs(5),
            malformed: 0.0,
            kinds: Kind::ALL.to_vec(),
        }
    }

    /// Of everything something: 30 calls of 100 go wrong.
    #[must_use]
    pub fn chaos(seed: u64) -> Self {
        Rehearsal { status_5xx: 0.05, cut: 0.05, slow: 0.05, malformed: 0.15, ..Rehearsal::new(seed) }
    }

    /// The script.
    ///
    /// # Errors
    /// There is no such rehearsal.
    pub fn script(self) -> Result<Script, NoRehearsal> {
        let shares = [self.status_5xx, self.cut, self.slow, self.malformed];
        if let Some(share) = shares.into_iter().find(|share| !(0.0..=1.0).contains(share)) {
            return Err(NoRehearsal::Share(share));
        }
        let sum: f64 = shares.iter().sum();
        // Ten tenths may be a little more than one.
        if sum > 1.0 + 1e-9 {
            return Err(NoRehearsal::TooMuch(sum));
        }
        self.latency.check()?;
        Ok(Arc::new(move |call| self.act(call)))
    }

    fn act(&self, call: &MockCall) -> MockAction {
        let mut draw = Draw::of(&[self.seed, call.fingerprint, u64::from(call.earlier)]);
        let delay = self.latency.draw(&mut draw);
        let mut left = draw.fraction();
        let mut falls_to = |share: f64| {
            left -= share;
            left < 0.0
        };
        if falls_to(self.status_5xx) {
            return marked(STATUS_5XX, status(&mut draw));
        }
        let answer = answer(call);
        if falls_to(self.cut) {
            return marked(CUT, cut(call, &answer, delay, &mut draw));
        }
        if falls_to(self.slow) {
            return marked(SLOW, slow(call, &answer, delay, self.slow_by));
        }
        if falls_to(self.malformed) {
            let fitting: Vec<Kind> = self.kinds.iter().copied().filter(|kind| kind.suits(call)).collect();
            if let Some(kind) = draw.one_of(&fitting) {
                return marked(kind.name(), kind.act(call, &answer, delay));
            }
        }
        MockAction::reply_after(delay, answer)
    }
}

fn marked(mark: &'static str, then: MockAction) -> MockAction {
    MockAction::Marked { mark, then: Box::new(then) }
}

/// What a good endpoint says to this.
pub(super) fn answer(call: &MockCall) -> String {
    if let Some(text) = reply_by_schema(call) {
        return text;
    }
    let text = offline::answer_to(call.purpose, &call.prompt);
    if text.trim().is_empty() {
        return "Nothing was asked.".to_owned();
    }
    // There is no schema to keep to; the form at least is kept.
    let prose = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_err();
    if call.wants_json() && prose { json!({"answer": text}).to_string() } else { text }
}

fn status(draw: &mut Draw) -> MockAction {
    let error = |code, message: &str| MockAction::error(code, message);
    match draw.bits() % 5 {
        0 => error(500, "internal error"),
        1 => MockAction::Status {
            code: 502,
            headers: Vec::new(),
            body: "<html><body><h1>502 Bad Gateway</h1></body></html>".to_owned(),
        },
        2 => MockAction::Status {
            code: 503,
            headers: vec![("retry-after-ms".to_owned(), "200".to_owned())],
            body: json!({"error": {"message": "loading the model", "code": 503}}).to_string(),
        },
        3 => error(504, "the upstream took too long"),
        _ => error(529, "overloaded"),
    }
}

/// The reply, as it would be sent: whole, or as events.
pub(super) fn body(call: &MockCall, answer: &str) -> String {
    let frame = Frame::of(call);
    if !call.streams {
        return frame.says(answer, None).to_string();
    }
    let mut events: String =
        pieces(answer, TRICKLE).iter().map(|piece| wire::event(&frame.piece(piece))).collect();
    events.push_str(&wire::event(&frame.stop()));
    events.push_str(&wire::event(&frame.counts(json!([]), frame.usage(None, answer.len()))));
    events.push_str(wire::DONE);
    events
}

pub(super) fn content_type(call: &MockCall) -> &'static str {
    if call.streams { "text/event-stream" } else { "application/json" }
}

/// The text in about so many pieces, none of them empty.
pub(super) fn pieces(text: &str, count: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let size = chars.len().div_ceil(count.max(1)).max(1);
    chars.chunks(size).map(|piece| piece.iter().collect()).collect()
}

/// The same for bytes.
fn parts(bytes: &Bytes, count: usize) -> Vec<Bytes> {
    let size = bytes.len().div_ceil(count.max(1)).max(1);
    (0..bytes.len()).step_by(size).map(|from| bytes.slice(from..bytes.len().min(from + size))).collect()
}

fn cut(call: &MockCall, answer: &str, delay: Duration, draw: &mut Draw) -> MockAction {
    let whole = Bytes::from(body(call, answer));
    // Anywhere: also before the first byte, and a byte before the end.
    let place = usize::try_from(draw.bits()).unwrap_or_default() % whole.len().max(1);
    MockAction::Bytes {
        content_type: content_type(call),
        chunks: vec![(delay, whole.slice(..place))],
        complete: false,
    }
}

fn slow(call: &MockCall, answer: &str, delay: Duration, by: Duration) -> MockAction {
    let whole = Bytes::from(body(call, answer));
    let parts = parts(&whole, TRICKLE);
    let pause = by / u32::try_from(parts.len().max(1)).unwrap_or(u32::MAX);
    let chunks = parts
        .into_iter()
        .enumerate()
        .map(|(n, part)| (pause + if n == 0 { delay } else { Duration::ZERO }, part));
    MockAction::Bytes { content_type: content_type(call), chunks: chunks.collect(), complete: true }
}
