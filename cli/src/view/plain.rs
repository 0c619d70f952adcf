//! One line on stderr for each change: for logs and pipes.

use starling_protocol::{Progress, TaskState};
use std::time::Duration;

/// Prints lines.
#[derive(Debug, Default)]
pub struct PlainView {
    phase: String,
}

impl PlainView {
    pub(super) fn progress(&mut self, progress: &Progress, elapsed: Duration) {
        let at = elapsed.as_secs_f64();
        if progress.phase != self.phase {
            self.phase.clone_from(&progress.phase);
            eprintln!("{at:8.2} s  {}", self.phase);
        }
        for task in &progress.changed {
            let what = match task.state {
                TaskState::Running if task.attempt > 1 => format!("attempt {}", task.attempt),
                TaskState::Running => "running".to_owned(),
                TaskState::Succeeded => match task.score {
                    Some(score) => format!("succeeded, score {score:.2}"),
                    None => "succeeded".to_owned(),
                },
                TaskState::Failed => format!("failed: {}", task.error),
                TaskState::Skipped => "skipped".to_owned(),
                TaskState::Waiting | TaskState::Ready => continue,
            };
            eprintln!("{at:8.2} s  {}: {what}", task.title);
        }
    }
}
