//! What coordinator partitions say to each other about the budgets of tenants. It belongs to no intent: the bank of a
//! tenant and the purses of it are addressed by ids of their own, see [`IntentId::bank`] and [`IntentId::purse`].

use crate::state::Amount;
use crate::{IntentId, Timestamp};
use serde::{Deserialize, Serialize};

/// A partition says what it holds of a tenant's budget, gives back what it does not, and may ask for more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// Whom to answer.
    pub purse: IntentId,
    /// The partition.
    pub partition: i32,
    /// Start of the window of the budget.
    pub window: Timestamp,
    /// Counts what the purse says, from 1: of two, the later one holds.
    pub asked: i64,
    /// What it goes on holding: spent, reserved or kept.
    pub held: Amount,
    /// Of that, what is spent for good.
    pub spent: Amount,
    /// Of that, what is kept for the answers of intents that have begun.
    pub kept: Amount,
    /// What it needs more; absent if it only says how things stand.
    pub need: Option<Amount>,
}

/// What the partition holds from now on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseGrant {
    /// Echo of the request.
    pub window: Timestamp,
    /// Echo of the request.
    pub asked: i64,
    /// All that it holds, from the start of the window.
    pub leased: Amount,
    /// Whether what it needs is among that; also where it needs nothing.
    pub granted: bool,
    /// All that it could ever hold in this window, were everything given back that others have not spent.
    pub most: Amount,
    /// Whether others hold something that they have neither spent nor keep for answers: it may come back.
    pub moving: bool,
    /// Why nothing is leased to it at all; absent where something may be.
    pub refusal: Option<String>,
}
