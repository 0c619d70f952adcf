//! What a person sees while an intent runs: a live tree on a terminal, plain lines elsewhere.

mod plain;
mod tree;

use plain::PlainView;
use starling_protocol::{Outcome, Progress, TaskId, TaskProgress, TaskState};
use std::{collections::BTreeMap, time::Duration};
use tree::TreeView;

/// Shows progress on stderr.
pub enum View {
    /// Nothing, for `--json`.
    Silent,
    /// One line for each change.
    Plain(PlainView),
    /// A tree that is drawn anew.
    Tree(TreeView),
}

impl View {
    /// The view that fits: none if `silent`, a tree if stderr is a terminal, else lines.
    pub fn fitting(silent: bool) -> Self {
        if silent {
            View::Silent
        } else if console::Term::stderr().is_term() {
            View::Tree(TreeView::new(console::Term::stderr()))
        } else {
            View::Plain(PlainView::default())
        }
    }

    /// Something happened, `elapsed` after the start.
    pub fn progress(&mut self, progress: &Progress, elapsed: Duration) {
        match self {
            View::Silent => {}
            View::Plain(view) => view.progress(progress, elapsed),
            View::Tree(view) => view.progress(progress, elapsed),
        }
    }

    /// Time went on.
    pub fn tick(&mut self, elapsed: Duration) {
        if let View::Tree(view) = self {
            view.draw(elapsed);
        }
    }

    /// It is over; clears what was only for the time in between.
    pub fn finish(&mut self, outcome: Option<&Outcome>, elapsed: Duration) {
        if let View::Tree(view) = self {
            view.finish(outcome, elapsed);
        }
    }
}

/// The plan as far as it is known.
#[derive(Debug, Default)]
pub struct Board {
    /// Phase of the intent.
    pub phase: String,
    rows: BTreeMap<TaskId, Row>,
}

#[derive(Debug)]
struct Row {
    task: TaskProgress,
    began: Option<Duration>,
    took: Option<Duration>,
}

impl Board {
    /// Takes over what changed.
    pub fn update(&mut self, progress: &Progress, elapsed: Duration) {
        self.phase.clone_from(&progress.phase);
        for task in &progress.changed {
            let row = self.rows.entry(task.task_id.clone()).or_insert_with(|| Row {
                task: task.clone(),
                began: None,
                took: None,
            });
            row.task = task.clone();
            match task.state {
                TaskState::Running => {
                    row.began.get_or_insert(elapsed);
                }
                TaskState::Succeeded | TaskState::Failed | TaskState::Skipped => {
                    row.took.get_or_insert(elapsed.saturating_sub(row.began.unwrap_or(elapsed)));
                }
                TaskState::Waiting | TaskState::Ready => {}
            }
        }
    }

    /// The tree as lines of at most `width` columns, at most `height` of them: what runs is shown before
    /// what waits, and that before what is done.
    #[must_use]
    pub fn lines(&self, width: usize, height: usize, elapsed: Duration) -> Vec<String> {
        let depths = self.depths();
        let mut rows: Vec<&Row> = self.rows.values().collect();
        rows.sort_by_key(|row| row.task.ordinal);
        let done = rows.iter().filter(|row| row.took.is_some()).count();
        let running = rows.iter().filter(|row| row.task.state == TaskState::Running).count();
        let mut lines = vec![format!(
            "{}  {done}/{} done, {running} running  {:.1} s",
            if self.phase.is_empty() { "waiting" } else { &self.phase },
            rows.len(),
            elapsed.as_secs_f64()
        )];
        let room = height.saturating_sub(2).max(1);
        if rows.len() > room {
            let mut order: Vec<(u8, i32)> =
                rows.iter().map(|row| (urgency(row.task.state), row.task.ordinal)).collect();
            order.sort_unstable();
            order.truncate(room);
            let hidden = rows.len() - order.len();
            rows.retain(|row| order.contains(&(urgency(row.task.state), row.task.ordinal)));
            lines.push(format!("  … {hidden} more"));
        }
        for row in rows {
            lines.push(row.line(depths.get(&row.task.task_id).copied().unwrap_or(0), elapsed));
        }
        lines.iter().map(|line| console::truncate_str(line, width.max(20), "…").into_owned()).collect()
    }

    /// Longest way from a task without dependencies, for every task.
    fn depths(&self) -> BTreeMap<TaskId, usize> {
        let mut depths = BTreeMap::new();
        let mut order: Vec<&TaskProgress> = self.rows.values().map(|row| &row.task).collect();
        order.sort_by_key(|task| task.ordinal);
        // Plans mostly name dependencies before dependants, so a few passes settle it; the bound keeps
        // nonsense from looping.
        for _ in 0..8 {
            let mut changed = false;
            for task in &order {
                let depth = task
                    .depends_on
                    .iter()
                    .filter_map(|id| depths.get(id).map(|depth: &usize| depth + 1))
                    .max()
                    .unwrap_or(0);
                changed |= depths.insert(task.task_id.clone(), depth) != Some(depth);
            }
            if !changed {
                break;
            }
        }
        depths
    }
}

impl Row {
    fn line(&self, depth: usize, elapsed: Duration) -> String {
        let task = &self.task;
        let mut line = format!("  {}{} {}", "  ".repeat(depth.min(6)), mark(task.state), task.title);
        if task.attempt > 1 {
            line.push_str(&format!("  attempt {}", task.attempt));
        }
        if let Some(score) = task.score {
            line.push_str(&format!("  {score:.2}"));
        }
        if let Some(time) = self.took.or(self.began.map(|began| elapsed.saturating_sub(began))) {
            line.push_str(&format!("  {:.1} s", time.as_secs_f64()));
        }
        if !task.error.is_empty() {
            line.push_str(&format!("  {}", task.error));
        }
        line
    }
}

fn urgency(state: TaskState) -> u8 {
    match state {
        TaskState::Running => 0,
        TaskState::Failed => 1,
        TaskState::Ready => 2,
        TaskState::Waiting => 3,
        TaskState::Skipped => 4,
        TaskState::Succeeded => 5,
    }
}

fn mark(state: TaskState) -> &'static str {
    match state {
        TaskState::Waiting => "·",
        TaskState::Ready => "○",
        TaskState::Running => "▶",
        TaskState::Succeeded => "✓",
        TaskState::Failed => "✗",
        TaskState::Skipped => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_protocol::TaskCounts;

    fn task(ordinal: i32, state: TaskState, depends_on: &[i32]) -> TaskProgress {
        let id = |n: i32| TaskId::from_string(format!("t{n}"));
        TaskProgress {
            task_id: id(ordinal),
            ordinal,
            title: format!("task {ordinal}"),
            agent: "worker".into(),
            state,
            attempt: 1,
            score: None,
            depends_on: depends_on.iter().map(|n| id(*n)).collect(),
            error: String::new(),
        }
    }

    fn progress(changed: Vec<TaskProgress>) -> Progress {
        Progress { phase: "running".into(), tasks: TaskCounts::default(), changed }
    }

    #[test]
    fn dependants_stand_deeper_than_what_they_need() {
        let mut board = Board::default();
        let tasks = vec![task(0, TaskState::Succeeded, &[]), task(1, TaskState::Running, &[0])];
        board.update(&progress(tasks), Duration::ZERO);
        let lines = board.lines(80, 24, Duration::from_secs(2));
        assert_eq!(lines[0], "running  1/2 done, 1 running  2.0 s");
        assert!(lines[1].starts_with("  ✓ task 0"));
        assert_eq!(lines[2], "    ▶ task 1  2.0 s");
    }

    #[test]
    fn a_small_terminal_shows_what_runs_first() {
        let mut board = Board::default();
        let mut tasks: Vec<_> = (0..50).map(|n| task(n, TaskState::Succeeded, &[])).collect();
        tasks.push(task(50, TaskState::Running, &[]));
        board.update(&progress(tasks), Duration::ZERO);
        let lines = board.lines(80, 10, Duration::ZERO);
        assert_eq!(lines.len(), 10);
        assert!(lines.iter().any(|line| line.contains("task 50")));
        assert_eq!(lines[1], "  … 43 more");
    }
}
