//! How much of an inbox may become dead letters, and how they are worked on.

use super::reader::Reader;
use starling_engine::dead_letters::BurialLimit;

/// `[processor.dead_letters]`
#[derive(Clone, Debug)]
pub struct DeadLetterSettings {
    /// Records among which dead letters are counted.
    pub window: usize,
    /// So many of them are never too many.
    pub least: usize,
    /// Share of them above which a processor stops, for each role.
    pub share: Shares,
}

/// `[processor.dead_letters.share]`
#[derive(Clone, Debug)]
#[allow(missing_docs)] // one for each role, named like it
pub struct Shares {
    pub intake: f64,
    pub planner: f64,
    pub worker: f64,
    pub critic: f64,
    pub tool: f64,
}

impl DeadLetterSettings {
    /// What holds for the inbox of a role; one that is not known has no limit.
    #[must_use]
    pub fn limit(&self, role: &str) -> BurialLimit {
        let Shares { intake, planner, worker, critic, tool } = self.share;
        let share = match role {
            "intake" => intake,
            "planner" => planner,
            "worker" => worker,
            "critic" => critic,
            "tool" => tool,
            _ => 1.0,
        };
        BurialLimit { window: self.window, least: self.least, share }
    }
}

pub(super) fn read(r: &mut Reader) -> DeadLetterSettings {
    let mut share = |role: &str| r.number(&format!("processor.dead_letters.share.{role}"), 0.0..=1.0);
    let share = Shares {
        intake: share("intake"),
        planner: share("planner"),
        worker: share("worker"),
        critic: share("critic"),
        tool: share("tool"),
    };
    DeadLetterSettings {
        window: r.integer("processor.dead_letters.window", 1..=1_000_000),
        least: r.integer("processor.dead_letters.least", 0..=1_000_000),
        share,
    }
}

/// `[dlq]`
#[derive(Clone, Debug)]
pub struct DlqSettings {
    /// Ranges of settled letters that are remembered while the dead letters are read.
    pub settled: usize,
    /// Letters that are replayed at once.
    pub batch: usize,
    /// Size of the letters that are replayed at once, in bytes.
    pub batch_bytes: usize,
}

pub(super) fn read_dlq(r: &mut Reader) -> DlqSettings {
    DlqSettings {
        settled: r.integer("dlq.settled", 1..=100_000_000),
        batch: r.integer("dlq.batch", 1..=100_000),
        batch_bytes: r.size("dlq.batch_bytes", 1024..=4 << 30),
    }
}
