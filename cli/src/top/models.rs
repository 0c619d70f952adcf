//! Models at which some process is limited, as far as processes say so.

use super::state::State;
use starling_protocol::fleet::ModelAsk;
use std::collections::BTreeMap;

/// A model behind an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelName {
    /// Its name.
    pub model: String,
    /// Where it is.
    pub endpoint: String,
}

/// What all processes say of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelState {
    /// Processes that speak of it.
    pub processes: usize,
    /// Requests a second that they would send.
    pub demand: f64,
    /// Requests a second that they may send together, by what was refused: the least that one of them says.
    pub found: Option<f64>,
    /// Calls that are open.
    pub open: i64,
    /// Calls that wait for their turn.
    pub waiting: i64,
    /// The worst that one of them lets through: 0 all, 1 a few, 2 none.
    worst: i32,
}

impl ModelState {
    /// What is let through to the endpoint by the most careful of them.
    #[must_use]
    pub fn breaker(&self) -> &'static str {
        match self.worst {
            ..=0 => "closed",
            1 => "half open",
            2.. => "open",
        }
    }

    fn add(&mut self, ask: &ModelAsk) {
        self.processes += 1;
        if ask.demand.is_finite() {
            self.demand += ask.demand;
        }
        if ask.found.is_finite() && ask.found > 0.0 {
            self.found = Some(self.found.map_or(ask.found, |found| found.min(ask.found)));
        }
        self.open += i64::from(ask.open);
        self.waiting += i64::from(ask.waiting);
        self.worst = self.worst.max(ask.breaker);
    }
}

impl State {
    /// What the living members say of models.
    #[must_use]
    pub fn models(&self) -> BTreeMap<ModelName, ModelState> {
        let mut models: BTreeMap<ModelName, ModelState> = BTreeMap::new();
        for ask in self.members.values().flat_map(|member| &member.beat.asks) {
            let name = ModelName { model: ask.model.clone(), endpoint: ask.endpoint.clone() };
            models.entry(name).or_default().add(ask);
        }
        models
    }
}
