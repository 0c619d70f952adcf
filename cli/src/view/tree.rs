//! A tree on the terminal, drawn anew at most ten times a second.

use super::Board;
use console::Term;
use starling_protocol::{Outcome, Progress};
use std::time::Duration;

const FRAME: Duration = Duration::from_millis(100);

/// Draws the tree.
#[derive(Debug)]
pub struct TreeView {
    term: Term,
    board: Board,
    drawn: usize,
    last: Option<Duration>,
}

impl TreeView {
    pub(super) fn new(term: Term) -> Self {
        Self { term, board: Board::default(), drawn: 0, last: None }
    }

    pub(super) fn progress(&mut self, progress: &Progress, elapsed: Duration) {
        self.board.update(progress, elapsed);
        self.draw(elapsed);
    }

    pub(super) fn draw(&mut self, elapsed: Duration) {
        if self.last.is_some_and(|last| elapsed.saturating_sub(last) < FRAME) {
            return;
        }
        self.last = Some(elapsed);
        self.redraw(elapsed);
    }

    pub(super) fn finish(&mut self, outcome: Option<&Outcome>, elapsed: Duration) {
        if let Some(outcome) = outcome {
            self.board.phase = outcome.status.name().to_owned();
        }
        self.redraw(elapsed);
        self.drawn = 0;
    }

    fn redraw(&mut self, elapsed: Duration) {
        let (height, width) = self.term.size();
        let lines = self.board.lines(usize::from(width), usize::from(height), elapsed);
        // A terminal that cannot be written to must not stop the work.
        let _ = self.term.clear_last_lines(self.drawn);
        for line in &lines {
            let _ = self.term.write_line(line);
        }
        self.drawn = lines.len();
    }
}
