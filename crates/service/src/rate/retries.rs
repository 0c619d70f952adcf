//! The retry budget of an endpoint, for all models behind it.

use super::line::jittered;
use starling_engine::retries::{RetryBudget, RetryLimits};
use starling_llm::{Ask, NotSent};
use std::sync::{Mutex, PoisonError};
use tokio::time::{Instant, sleep, timeout_at};

#[derive(Debug)]
pub(super) struct Retries {
    /// Where the budget's time begins.
    origin: Instant,
    budget: Mutex<RetryBudget>,
}

impl Retries {
    pub(super) fn new(limits: RetryLimits) -> Self {
        Self { origin: Instant::now(), budget: Mutex::new(RetryBudget::new(limits)) }
    }

    /// Waits until a retry may be sent; a first try may be.
    pub(super) async fn admit(&self, ask: &Ask) -> Result<(), NotSent> {
        loop {
            let allowed = {
                let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
                if ask.retry {
                    budget.retry(self.origin.elapsed())
                } else {
                    budget.first();
                    Ok(())
                }
            };
            let Err(wait) = allowed else { return Ok(()) };
            if timeout_at(ask.deadline, sleep(jittered(wait))).await.is_err() {
                return Err(NotSent::NoRetry);
            }
        }
    }
}
