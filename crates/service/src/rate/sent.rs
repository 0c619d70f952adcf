//! Requests that were sent, until their replies are there.

use super::{
    line::{Granted, Line},
    purposes,
};
use starling_engine::breaker::{BreakerPass, BreakerState, Health};
use starling_engine::rate::{self, Ended, OpenCall, Pass};
use starling_llm::{Answer, Ask, Hints, Leave, Purpose};
use starling_protocol::Usage;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// A request that was sent.
pub(super) struct Sent {
    line: Arc<Line>,
    /// Until it is known what became of it.
    pass: Option<(Pass, BreakerPass)>,
    call: OpenCall,
    since: Instant,
    /// Tokens; none once the endpoint keeps the account.
    reserved: Option<i64>,
    purpose: Purpose,
    /// It failed while the endpoint as a whole does.
    excused: bool,
    /// Tokens of the reply, and how long it took.
    reply: Option<(i64, Duration)>,
}

impl Sent {
    pub(super) fn new(line: Arc<Line>, granted: Granted, ask: &Ask) -> Self {
        Self {
            line,
            pass: Some((granted.pass, granted.trial)),
            call: granted.call,
            since: Instant::now(),
            reserved: Some(ask.tokens),
            purpose: ask.purpose,
            excused: false,
            reply: None,
        }
    }
}

impl Leave for Sent {
    fn is_excused(&self) -> bool {
        self.excused
    }

    fn answered(&mut self, answer: Answer, hints: Hints) {
        let Some((pass, trial)) = self.pass.take() else { return };
        self.line.circuit.heard(
            trial,
            match answer {
                Answer::Accepted | Answer::Refused => Health::Answered,
                Answer::Failed => Health::Failed,
                Answer::Unknown => Health::Unknown,
            },
        );
        self.excused = answer == Answer::Failed && self.line.circuit.state() != BreakerState::Closed;
        let now = self.line.now();
        let mut state = self.line.lock();
        let answer = match answer {
            Answer::Accepted => rate::Answer::Accepted,
            Answer::Refused => rate::Answer::Refused(hints.retry_after),
            Answer::Failed | Answer::Unknown => rate::Answer::Unknown,
        };
        state.governor.answered(now, pass, answer);
        if !matches!(answer, rate::Answer::Accepted)
            && let Some(reserved) = self.reserved.take()
        {
            state.tokens.correct(now, reserved, 0); // what was not taken in takes no tokens
        }
        state.tokens.heard(now, hints.tokens.limit, hints.tokens.remaining);
        if hints.tokens.remaining.is_some() {
            self.reserved = None; // it may count what was asked for, not what was used
        }
        if let (Some(0), Some(reset)) = (hints.requests.remaining, hints.requests.reset) {
            // The next one is there when a part of all is there again.
            let of = hints.requests.limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(1).max(1);
            state.governor.close(now, reset / of);
        }
    }

    fn used(&mut self, usage: Usage) {
        let took = self.since.elapsed();
        self.reply = Some((usage.completion_tokens, took));
        let now = self.line.now();
        let mut state = self.line.lock();
        if let Some(reserved) = self.reserved.take() {
            state.tokens.correct(now, reserved, usage.total());
        }
        state.note(self.purpose, took);
        self.line.call_first_of(&state);
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.answered(Answer::Unknown, Hints::default());
        let purpose = purposes::number(self.purpose);
        let ended = match self.reply {
            Some((tokens, took)) => Ended::Replied { tokens, took },
            None => Ended::Unanswered,
        };
        self.line.ceiling.closed(&self.line, purpose);
        let now = self.line.common_now();
        let mut state = self.line.lock();
        state.concurrency.ended(now, self.call, ended);
        state.bulkheads.closed(purpose);
        self.line.call_first_of(&state);
    }
}
