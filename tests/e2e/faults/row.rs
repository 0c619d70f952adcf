//! A row of the suite: a fault, the invariants that must survive it, and what was seen.

use anyhow::Result;
use starling_e2e::{Scripted, SwarmOptions};
use std::{fmt, future::Future, path::PathBuf, pin::Pin, time::Duration};

/// What a row does, from a swarm of its own to the judge's verdict.
type Play = fn(World) -> Pin<Box<dyn Future<Output = Result<Figures>> + Send>>;

/// A fault and what must survive it.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Numbers of invariants of ARCHITECTURE.md.
    pub(crate) invariants: &'static str,
    /// One of the few that run with every `cargo test`.
    pub(crate) quick: bool,
    /// Runs once, however often the others do.
    pub(crate) once: bool,
    /// No other row runs beside it.
    pub(crate) alone: bool,
    /// After so long it has failed.
    pub(crate) limit: Duration,
    pub(crate) play: Play,
}

impl Row {
    pub(crate) const fn new(name: &'static str, invariants: &'static str, play: Play) -> Self {
        Self {
            name,
            invariants,
            quick: false,
            once: false,
            alone: false,
            limit: Duration::from_secs(300),
            play,
        }
    }

    pub(crate) const fn quick(self) -> Self {
        Self { quick: true, ..self }
    }

    pub(crate) const fn once(self) -> Self {
        Self { once: true, ..self }
    }

    pub(crate) const fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    pub(crate) const fn within(self, seconds: u64) -> Self {
        Self { limit: Duration::from_secs(seconds), ..self }
    }
}

/// What a row plays in.
pub(crate) struct World {
    /// Processes in the rows that are about many of them.
    pub(crate) members: usize,
    /// How long the soak goes on.
    pub(crate) soak: Duration,
    /// What the processes print goes there.
    pub(crate) folder: PathBuf,
}

impl World {
    /// One planner, `workers` workers, one critic.
    pub(crate) fn options(&self, model: &Scripted, workers: usize) -> SwarmOptions {
        let options = SwarmOptions::new(model.options(), workers);
        SwarmOptions { keep: Some(self.folder.clone()), limit: None, ..options } // a row has a limit of its own
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Intents that were published, and those of them with an outcome.
    pub(crate) intents: usize,
    pub(crate) outcomes: usize,
    /// Model calls by the model's count; those that asked for what another had asked; how many of these the promise
    /// allows.
    pub(crate) calls: usize,
    pub(crate) repeated: usize,
    pub(crate) allowed: usize,
    pub(crate) dead_letters: usize,
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.intents += other.intents;
        self.outcomes += other.outcomes;
        self.calls += other.calls;
        self.repeated += other.repeated;
        self.allowed += other.allowed;
        self.dead_letters += other.dead_letters;
    }
}

/// Why a row cannot run on this machine.
#[derive(Debug)]
pub(crate) struct Skipped(pub(crate) String);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}
