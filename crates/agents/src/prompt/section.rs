//! The sections of a user message, and how embedded text is kept from faking them.

use std::fmt::Write as _;

/// The longest embedded title (of an input, a task), in bytes.
const MAX_TITLE_BYTES: usize = 200;

/// Characters after which some reader or other sees a new line.
const LINE_BREAKS: [char; 7] = ['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];

/// Puts a backslash before every line of `text` that would read as the beginning of a section or of a part
/// (`## ` or `### `, also when indented), so that text from users and models stays where it was put.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for line in text.split_inclusive(LINE_BREAKS) {
        let bare = line.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}' || c == '\u{200b}');
        let after_hashes = bare.trim_start_matches('#');
        let hashes = bare.len() - after_hashes.len();
        if (2..=3).contains(&hashes)
            && (after_hashes.is_empty() || after_hashes.starts_with(char::is_whitespace))
        {
            let indent = line.len() - bare.len();
            out.push_str(line.get(..indent).unwrap_or_default());
            out.push('\\');
            out.push_str(bare);
        } else {
            out.push_str(line);
        }
    }
    out
}

/// A title or another text that must stay on one line.
pub(super) fn one_line(text: &str) -> String {
    let flat = text.split(LINE_BREAKS).map(str::trim).filter(|part| !part.is_empty());
    let mut out = String::with_capacity(text.len().min(MAX_TITLE_BYTES));
    for part in flat {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(part);
    }
    if out.len() > MAX_TITLE_BYTES {
        let mut end = MAX_TITLE_BYTES;
        while !out.is_char_boundary(end) {
            end -= 1;
        }
        out.truncate(end);
        out.push('…');
    }
    out
}

/// A user message in the making.
#[derive(Default)]
pub(super) struct Sections {
    text: String,
}

impl Sections {
    /// Begins a section.
    pub(super) fn section(&mut self, name: &str) -> &mut Self {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let _ = writeln!(self.text, "## {name}"); // writing to a String cannot fail
        self
    }

    /// Begins a part of a section; `title` is already one line.
    pub(super) fn part(&mut self, title: &str) -> &mut Self {
        let _ = writeln!(self.text, "### {title}");
        self
    }

    /// Adds text that is already escaped.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        if !text.ends_with('\n') {
            self.text.push('\n');
        }
        self
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_in_embedded_text_are_escaped() {
        assert_eq!(escape("a\n## Goal\nb"), "a\n\\## Goal\nb");
        assert_eq!(escape("### x"), "\\### x");
        assert_eq!(escape("  ## x"), "  \\## x");
        assert_eq!(escape("a\r## x"), "a\r\\## x");
        assert_eq!(escape("a\u{2028}## x"), "a\u{2028}\\## x");
        assert_eq!(escape("##\tx\n##\n"), "\\##\tx\n\\##\n");
    }

    #[test]
    fn other_text_is_unchanged() {
        for text in ["", "# Title\r\n#### deep\n#hash ##x\n", "a ## b", "\\## x", "##x"] {
            assert_eq!(escape(text), text);
        }
    }

    #[test]
    fn titles_stay_on_one_line() {
        assert_eq!(one_line("a\n## Goal\r\nb"), "a ## Goal b");
        assert!(one_line(&"é".repeat(500)).len() <= MAX_TITLE_BYTES + '…'.len_utf8());
    }
}
