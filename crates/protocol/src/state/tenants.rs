//! What coordinators remember of the budgets of tenants, each for one window of time.

use super::Amount;
use crate::{IntentId, Timestamp};
use serde::{Deserialize, Serialize};

/// What one coordinator partition has of a tenant's budget in one window. It reserves out of it, and out of nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PurseEntity {
    /// Its address, see [`IntentId::purse`].
    pub purse: IntentId,
    /// Whose it is.
    pub tenant: String,
    /// When the window starts.
    pub window: Timestamp,
    /// When it ends, and the purse is forgotten.
    pub ends: Timestamp,
    /// All that the bank has leased to it.
    pub leased: Amount,
    /// Of that, what is spent for good.
    pub spent: Amount,
    /// Of that, what is reserved and may turn out to be less.
    pub open: Amount,
    /// Of that, what is kept for the answers of intents that have begun.
    pub kept: Amount,
    /// Number of the last request to the bank; 0 before the first.
    pub asked: i64,
    /// Number of the last request that was answered.
    pub answered: i64,
    /// When it asked, while it waits before it asks again.
    pub asked_at: Option<Timestamp>,
    /// Since when there is something that the bank has not been told.
    pub moved_at: Option<Timestamp>,
}

/// To whom a tenant's budget of one window is leased.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BankEntity {
    /// Its address, see [`IntentId::bank`].
    pub bank: IntentId,
    /// Whose budget it is.
    pub tenant: String,
    /// When the window starts.
    pub window: Timestamp,
    /// When nobody is answered any more and it is forgotten.
    pub forget_at: Timestamp,
    /// One for each partition that has asked.
    pub accounts: Vec<BankAccount>,
}

/// What one partition holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BankAccount {
    /// Which partition.
    pub partition: i32,
    /// Number of its last request.
    pub asked: i64,
    /// All that is leased to it.
    pub leased: Amount,
    /// Of that, what it has said is spent for good.
    pub spent: Amount,
    /// Of that, what it has said is kept for answers.
    pub kept: Amount,
}
