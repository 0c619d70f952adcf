//! Makes a history that breaks a promise shorter, as long as it goes on breaking the same promise.

use crate::{
    scenario::{Scenario, Weather},
    world::run,
};

/// Runs that one shortening may take.
const TRIES: usize = 400;

/// The shortest scenario found that breaks the same promise as `scenario`, which breaks one.
#[must_use]
pub fn shrink(scenario: &Scenario) -> Scenario {
    let Some(promise) = run(scenario, false).violation.map(|violation| violation.promise) else {
        return scenario.clone();
    };
    let mut search = Search { promise, best: scenario.clone(), tries: 0 };
    // What takes away most comes first; each round may make more possible.
    while search.events() | search.weather() | search.shape() {}
    search.best
}

struct Search {
    promise: &'static str,
    best: Scenario,
    tries: usize,
}

impl Search {
    /// Takes `candidate` if it still breaks the promise.
    fn accept(&mut self, candidate: Scenario) -> bool {
        if candidate == self.best || self.tries >= TRIES {
            return false;
        }
        self.tries += 1;
        let breaks =
            run(&candidate, false).violation.is_some_and(|violation| violation.promise == self.promise);
        if breaks {
            self.best = candidate;
        }
        breaks
    }

    /// Leaves out events, half of them, a quarter, one by one.
    fn events(&mut self) -> bool {
        let mut progress = false;
        let mut size = self.best.events.len();
        while size > 0 {
            let mut at = 0;
            while at < self.best.events.len() {
                let mut candidate = self.best.clone();
                let end = (at + size).min(candidate.events.len());
                candidate.events.drain(at..end);
                if self.accept(candidate) {
                    progress = true;
                } else {
                    at += size;
                }
            }
            size /= 2;
        }
        progress
    }

    /// Makes the weather fine: all of it, else sort by sort.
    fn weather(&mut self) -> bool {
        let fine = Scenario { weather: Weather::default(), ..self.best.clone() };
        if self.accept(fine) {
            return true;
        }
        let sorts: [fn(&mut Weather) -> &mut f64; 14] = [
            |w| &mut w.answer_lost,
            |w| &mut w.lost,
            |w| &mut w.late,
            |w| &mut w.slow,
            |w| &mut w.twice,
            |w| &mut w.not_sent,
            |w| &mut w.without_offset,
            |w| &mut w.commit_refused,
            |w| &mut w.commit_answer_lost,
            |w| &mut w.read_fails,
            |w| &mut w.model_slow,
            |w| &mut w.model_hangs,
            |w| &mut w.model_fails,
            |w| &mut w.model_babbles,
        ];
        let mut progress = false;
        for sort in sorts {
            let mut candidate = self.best.clone();
            *sort(&mut candidate.weather) = 0.0;
            progress |= self.accept(candidate);
        }
        progress
    }

    /// Makes the swarm smaller.
    fn shape(&mut self) -> bool {
        let changes: [fn(&mut Scenario); 8] = [
            |s| s.shape.tenant = None,
            |s| s.shape.planners = 1,
            |s| s.shape.workers = 1,
            |s| s.shape.critics = 1,
            |s| s.shape.coordinator_partitions = 1,
            |s| s.shape.worker_partitions = 1,
            |s| s.shape.snapshot_every = 2_000,
            |s| s.shape.max_record = 900 << 10,
        ];
        let mut progress = false;
        for change in changes {
            let mut candidate = self.best.clone();
            change(&mut candidate);
            progress |= self.accept(candidate);
        }
        progress
    }
}
