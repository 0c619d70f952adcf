//! The agents that are in force, which may change while a service runs.

use starling_agents::AgentCatalogue;
use std::sync::Arc;
use tokio::sync::watch;

/// The agents that are in force. All parts of a process hold the same, and whoever begins something asks for them anew.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct AgentsInForce(watch::Receiver<Arc<AgentCatalogue>>);

impl AgentsInForce {
    /// Those of now. What is begun with them ends with them.
    #[must_use]
    pub fn now(&self) -> Arc<AgentCatalogue> {
        self.0.borrow().clone()
    }

    /// Waits until there are others, and gives them; for ever if there never are.
    pub async fn next(&mut self) -> Arc<AgentCatalogue> {
        match self.0.changed().await {
            Ok(()) => self.0.borrow_and_update().clone(),
            Err(_) => std::future::pending().await,
        }
    }
}

impl From<watch::Receiver<Arc<AgentCatalogue>>> for AgentsInForce {
    fn from(agents: watch::Receiver<Arc<AgentCatalogue>>) -> Self {
        Self(agents)
    }
}

/// These for good.
impl From<Arc<AgentCatalogue>> for AgentsInForce {
    fn from(agents: Arc<AgentCatalogue>) -> Self {
        Self(watch::channel(agents).1)
    }
}
