//! What processes tell each other about themselves, once a second, on the fleet topic.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Who speaks: process, role and pool. One process may speak for several roles and pools.
pub type FleetMember = (String, String, String);

/// One process speaks of itself. A process that is silent for a few beats is forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetBeat {
    /// Unique to the process and its life.
    pub process: String,
    /// `planner`, `worker` or `critic`.
    pub role: String,
    /// Worker pool; empty for the default pool and for other roles.
    pub pool: String,
    /// Starling's version.
    pub version: String,
    /// Handlers that it can run at once.
    pub slots: i32,
    /// Handlers that run now.
    pub busy: i32,
    /// Inbox partitions that it owns.
    pub partitions: Vec<i32>,
    /// For a planner service: how many of its coordinator partitions have tasks waiting or outstanding.
    pub active: i32,
    /// When it said so.
    pub at: Timestamp,
    /// Whether it is leaving.
    pub leaving: bool,
    /// For a planner service: intents that the fullest of its coordinator partitions can still take in; -1 if it
    /// does not know.
    pub room: i32,
    /// What it asks models where it is limited or has to wait, if it speaks for all of its process.
    pub asks: Vec<ModelAsk>,
}

/// What a process would ask a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelAsk {
    /// Where the model is, without secrets.
    pub endpoint: String,
    /// Its name.
    pub model: String,
    /// Requests a second that it would send.
    pub demand: f64,
    /// Requests a second that all processes together may send, by what was refused; 0 if none was.
    pub found: f64,
    /// Calls that are open.
    pub open: i32,
    /// Calls that wait for their turn.
    pub waiting: i32,
    /// What is let through to the endpoint: 0 all, 1 a few, 2 none.
    pub breaker: i32,
}

impl FleetBeat {
    /// Who speaks.
    #[must_use]
    pub fn member(&self) -> FleetMember {
        (self.process.clone(), self.role.clone(), self.pool.clone())
    }
}
