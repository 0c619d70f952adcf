//! Where the records of a table or a list end.

use super::Cut;

/// Follows the records of a text from its beginning on.
pub(super) struct Records {
    /// Whether a line break within quotes is part of a record.
    quotes: bool,
    /// Whether the text that was passed ends within quotes.
    is_quoted: bool,
}

impl Records {
    pub(super) fn new(cut: Cut) -> Self {
        Self { quotes: cut == Cut::Table, is_quoted: false }
    }

    /// The first record, with its line break, if another one follows.
    pub(super) fn header<'t>(&self, text: &'t str) -> Option<&'t str> {
        let end = self.ends(text).next()?;
        (end < text.len()).then(|| text.get(..end)).flatten()
    }

    /// The end of the last record that is whole in `text`; `None` if there is none.
    pub(super) fn last_end(&self, text: &str) -> Option<usize> {
        self.ends(text).last()
    }

    /// Goes on behind `text`.
    pub(super) fn pass(&mut self, text: &str) {
        let quotes = if self.quotes { text.bytes().filter(|byte| *byte == b'"').count() } else { 0 };
        self.is_quoted ^= quotes % 2 == 1;
    }

    fn ends(&self, text: &str) -> impl Iterator<Item = usize> {
        let (quotes, mut is_quoted) = (self.quotes, self.is_quoted);
        text.bytes().enumerate().filter_map(move |(at, byte)| {
            is_quoted ^= quotes && byte == b'"';
            (byte == b'\n' && !is_quoted).then_some(at + 1)
        })
    }
}
