//! How far it is: a bar on a terminal, a line now and then elsewhere.

use super::summary::Summary;
use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// How often a bar is drawn anew.
const FRAME: Duration = Duration::from_millis(250);
/// Steps of the bar.
const STEPS: u64 = 1_000;

/// Shows how far it is.
pub(super) struct Progress {
    kind: Kind,
    size: Option<u64>,
    start: Instant,
    shown: Instant,
}

enum Kind {
    Silent,
    Lines { every: Duration },
    Bar(ProgressBar),
}

/// Where a run is.
pub(super) struct Position<'a> {
    pub(super) so_far: &'a Summary,
    pub(super) under_way: usize,
    /// Bytes of the input that were read.
    pub(super) read: u64,
}

impl Progress {
    /// For an input of that many bytes; a line every so often where there is no terminal.
    pub(super) fn new(quiet: bool, size: Option<u64>, every: Duration) -> Self {
        let kind = if quiet {
            Kind::Silent
        } else if Term::stderr().is_term() {
            let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent}% {wide_msg}") {
                bar.set_style(style);
            }
            Kind::Bar(bar)
        } else {
            Kind::Lines { every }
        };
        Self { kind, size, start: Instant::now(), shown: Instant::now() }
    }

    /// Shows it if it is time to.
    pub(super) fn show(&mut self, position: &Position<'_>) {
        let every = match &self.kind {
            Kind::Silent => return,
            Kind::Lines { every } => *every,
            Kind::Bar(_) => FRAME,
        };
        if self.shown.elapsed() < every {
            return;
        }
        self.shown = Instant::now();
        let said = text(position, self.size, self.start.elapsed());
        match &self.kind {
            Kind::Silent => {}
            Kind::Lines { .. } => eprintln!("{said}"),
            Kind::Bar(bar) => {
                let share = self.size.map_or(0.0, |size| position.read as f64 / size.max(1) as f64);
                bar.set_position((share * STEPS as f64) as u64);
                bar.set_message(said);
            }
        }
    }

    pub(super) fn finish(self) {
        if let Kind::Bar(bar) = self.kind {
            bar.finish_and_clear();
        }
    }
}

fn text(Position { so_far, under_way, read }: &Position<'_>, size: Option<u64>, since: Duration) -> String {
    let rate = so_far.ended as f64 / since.as_secs_f64().max(0.001);
    // The rows to come are taken to be as long as those before them.
    let left = size.filter(|_| *read > 0 && so_far.rows > 0 && rate > 0.0).map(|size| {
        let rows = size.saturating_sub(*read) as f64 * so_far.rows as f64 / *read as f64;
        (rows + *under_way as f64) / rate
    });
    format!(
        "{} rows, {rate:.1}/s, {} not succeeded, ${:.4}, {under_way} under way{}{}",
        so_far.ended,
        so_far.ended - so_far.succeeded,
        so_far.cost_usd,
        if so_far.skipped > 0 { format!(", {} were there", so_far.skipped) } else { String::new() },
        left.map_or_else(String::new, |left| format!(", {} left", seconds(left))),
    )
}

fn seconds(seconds: f64) -> String {
    match seconds {
        ..90.0 => format!("{seconds:.0} s"),
        ..5400.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_was_read() {
        let so_far = Summary { rows: 100, ended: 90, succeeded: 88, cost_usd: 0.5, ..Summary::default() };
        let position = Position { so_far: &so_far, under_way: 10, read: 1_000 };
        let said = text(&position, Some(10_000), Duration::from_secs(9));
        assert_eq!(said, "90 rows, 10.0/s, 2 not succeeded, $0.5000, 10 under way, 2 min left");
        let unknown = text(&position, None, Duration::from_secs(9));
        assert!(!unknown.contains("left"), "{unknown}");
    }
}
