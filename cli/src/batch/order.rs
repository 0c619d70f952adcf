//! In which order lines are written: as they come, or as their rows stand in the input.

use std::collections::BTreeMap;

/// Lines that wait for those before them. How many there may be, and how large, is bounded by not submitting more.
#[derive(Debug)]
pub(super) struct Order {
    /// Most rows between the first one without a line and the last one that was submitted; `None` writes as they come.
    window: Option<Window>,
    /// The place of the next row.
    next: u64,
    /// The place whose line comes next.
    due: u64,
    waiting: BTreeMap<u64, String>,
    bytes: usize,
}

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

impl Order {
    pub(super) fn new(window: Option<Window>) -> Self {
        Self { window, next: 0, due: 0, waiting: BTreeMap::new(), bytes: 0 }
    }

    /// Whether another row may be submitted.
    pub(super) fn has_room(&self) -> bool {
        self.window
            .is_none_or(|window| self.next - self.due < window.rows as u64 && self.bytes < window.bytes)
    }

    /// The place of the row that is read now.
    pub(super) fn place(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The line of the row at that place is there; `write` gets what can be written now.
    ///
    /// # Errors
    /// What `write` says.
    pub(super) fn put<E>(
        &mut self,
        place: u64,
        line: String,
        mut write: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.window.is_none() {
            return write(&line);
        }
        self.bytes += line.len();
        self.waiting.insert(place, line);
        while let Some(line) = self.waiting.remove(&self.due) {
            self.bytes -= line.len();
            self.due += 1;
            write(&line)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn written(order: &mut Order, place: u64, line: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let write = |line: &str| -> Result<(), ()> {
            lines.push(line.to_owned());
            Ok(())
        };
        order.put(place, line.to_owned(), write).unwrap();
        lines
    }

    #[test]
    fn lines_wait_for_those_before_them_and_a_full_window_for_its_first_line() {
        let mut order = Order::new(Some(Window { rows: 3, bytes: 100 }));
        let places: Vec<u64> = (0..3).map(|_| order.place()).collect();
        assert!(!order.has_room());
        assert!(written(&mut order, places[2], "c").is_empty());
        assert!(!order.has_room());
        assert_eq!(written(&mut order, places[0], "a"), ["a"]);
        assert!(order.has_room());
        assert_eq!(written(&mut order, places[1], "b"), ["b", "c"]);

        let places: Vec<u64> = (0..2).map(|_| order.place()).collect();
        assert!(written(&mut order, places[1], &"long".repeat(30)).is_empty());
        assert!(!order.has_room(), "too many bytes wait");
    }

    #[test]
    fn without_a_window_lines_are_written_as_they_come() {
        let mut order = Order::new(None);
        let places: Vec<u64> = (0..3).map(|_| order.place()).collect();
        assert_eq!(written(&mut order, places[2], "c"), ["c"]);
        assert!(order.has_room());
    }
}
