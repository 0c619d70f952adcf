//! Who says when a request may be sent. What an endpoint takes is shared by all who ask it, so it is not for one call
//! to decide; see [`crate::OpenAiModel::limited_by`].

use crate::Purpose;
use futures::future::BoxFuture;
use starling_protocol::{Priority, Usage};
use std::{fmt, time::Duration};
use tokio::time::Instant;

/// What is to be sent.
#[derive(Clone, Debug)]
pub struct Ask {
    /// To which model.
    pub model: String,
    /// What for.
    pub purpose: Purpose,
    /// Tokens that it will take, sent and received: what the prompt has, and the most that the reply may have.
    pub tokens: i64,
    /// When the reply must be complete.
    pub deadline: Instant,
    /// How urgent it is.
    pub priority: Priority,
    /// How often it has failed already.
    pub failed: u32,
    /// Whether it is sent again because the endpoint failed at this very question, or its reply was of no use. Not what was
    /// refused for the rate, or met an endpoint that fails for all: that is paced by these.
    pub retry: bool,
    /// Whether it waits for an endpoint that fails for all. Not where somebody else can be asked.
    pub patient: bool,
}

/// Gives leave to send requests.
pub trait Limiter: Send + Sync + fmt::Debug {
    /// Whether it matters how many tokens are sent to this model. Where it does not, nobody counts them: [`Ask::tokens`] is
    /// guessed from the size of the prompt.
    fn counts_tokens(&self, model: &str) -> bool;

    /// Waits until the request may be sent. Dropping the future gives the place in the queue up.
    ///
    /// # Errors
    /// It will not be sent.
    fn admit(&self, ask: Ask) -> BoxFuture<'static, Result<Box<dyn Leave>, NotSent>>;
}

/// Leave to send one request. Dropped when the attempt is over, however it ended: until then the call is open.
pub trait Leave: Send + Sync {
    /// The endpoint has answered, or it is known that it will not. Only the first call counts.
    fn answered(&mut self, answer: Answer, hints: Hints);

    /// Whether the endpoint as a whole fails, so that a failure says nothing about the request.
    fn is_excused(&self) -> bool;

    /// The reply is complete and took so many tokens.
    fn used(&mut self, usage: Usage);
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was taken in, whatever the reply was.
    Accepted,
    /// There are too many of them (429).
    Refused,
    /// The endpoint failed, or did not answer in time.
    Failed,
    /// Nobody waited for the answer, or it says nothing.
    Unknown,
}

/// What an endpoint says about its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// When to come back.
    pub retry_after: Option<Duration>,
    /// Requests.
    pub requests: Quota,
    /// Tokens.
    pub tokens: Quota,
}

/// What is left of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// How much there is at most, mostly for a minute.
    pub limit: Option<i64>,
    /// How much is left.
    pub remaining: Option<i64>,
    /// After which time all of it is there again.
    pub reset: Option<Duration>,
}

/// A request is not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// Its turn does not come before its deadline.
    #[error(
        "its turn did not come before its deadline; the endpoint takes {rate} requests a second and {places} at once"
    )]
    NoTurn {
        /// Requests a second, rounded.
        rate: u64,
        /// Calls that may be open.
        places: u32,
    },
    /// The endpoint fails for all and is left alone.
    #[error("the endpoint fails for all who ask it, and did not come back before the deadline")]
    Down,
    /// Too many calls are sent again already.
    #[error("so many calls are sent again that its turn did not come before its deadline")]
    NoRetry,
    /// There is not enough time left for any reply.
    #[error("{left:?} are left, and the fastest of the last calls took {fastest:?}")]
    TooLate {
        /// Until the deadline.
        left: Duration,
        /// Of the last calls with this purpose.
        fastest: Duration,
    },
    /// Too many wait.
    #[error("{0} calls wait for their turn already")]
    Full(usize),
}
