//! Where prose is best cut.

use super::fit::floor;
use unicode_segmentation::GraphemeCursor;

/// Characters that end a sentence before a space, and those that end one by themselves.
const ENDS: [char; 4] = ['.', '!', '?', '…'];
const FULL_ENDS: [char; 3] = ['。', '！', '？'];
/// What may stand between the end of a sentence and the space.
const CLOSING: [char; 8] = ['"', '\'', ')', ']', '»', '”', '’', '*'];

/// The best place to cut `text` of which `fits` bytes fit; not 0 where `fits` is not. The better a boundary is, the
/// more room may be given away for it: half of it for a heading, a third for a paragraph, a quarter for a sentence, a
/// line or a word. Else it is cut between characters as a reader sees them, if there is such a place at all.
pub(super) fn best(text: &str, fits: usize) -> usize {
    let from = |part: usize| floor(text, fits - fits / part);
    last_line(text, from(2), fits, is_heading)
        .or_else(|| last_line(text, from(3), fits, begins_paragraph))
        .or_else(|| last(text, from(4), fits, ends_sentence))
        .or_else(|| last_line(text, from(4), fits, |_, _| true))
        .or_else(|| last(text, from(4), fits, |_, c| c.is_whitespace()))
        .unwrap_or_else(|| between_graphemes(text, fits))
}

/// The first place in the first half of `text` where a sentence begins, else a word; 0 if none does.
pub(super) fn first_start(text: &str) -> usize {
    let half = floor(text, text.len().div_ceil(2));
    let first = |is_end: fn(&str, char) -> bool| {
        let head = text.get(..half).unwrap_or_default();
        head.char_indices().map(|(at, c)| (at, c, at + c.len_utf8())).find(|(at, c, _)| {
            let before = text.get(..*at).unwrap_or_default();
            is_end(before, *c)
        })
    };
    first(ends_sentence).or_else(|| first(|_, c| c.is_whitespace())).map_or(0, |(_, _, end)| end)
}

/// The last beginning of a line between `from` and `to` for which `is_wanted` holds, which is told where it is.
fn last_line(text: &str, from: usize, to: usize, is_wanted: fn(&str, usize) -> bool) -> Option<usize> {
    let window = text.get(from..to).unwrap_or_default();
    let starts = window.rmatch_indices('\n').map(|(at, _)| from + at + 1);
    starts.filter(|start| *start > 0).find(|start| is_wanted(text, *start))
}

/// The last place between `from` and `to` after a character that is an end, which is told what stands before it.
fn last(text: &str, from: usize, to: usize, is_end: fn(&str, char) -> bool) -> Option<usize> {
    let window = text.get(from..to).unwrap_or_default();
    window
        .char_indices()
        .rev()
        .find(|(at, c)| is_end(text.get(..from + at).unwrap_or_default(), *c))
        .map(|(at, c)| from + at + c.len_utf8())
}

fn is_heading(text: &str, start: usize) -> bool {
    let line = text.get(start..).unwrap_or_default();
    let marks = line.bytes().take_while(|byte| *byte == b'#').count();
    (1..=6).contains(&marks) && line.get(marks..).is_some_and(|rest| rest.starts_with([' ', '\t']))
}

/// The line before is blank and this one is not.
fn begins_paragraph(text: &str, start: usize) -> bool {
    let before = text.get(..start).unwrap_or_default();
    let before = before.strip_suffix('\n').unwrap_or(before).trim_end_matches([' ', '\t', '\r']);
    let is_blank = |line: &str| line.lines().next().unwrap_or_default().trim().is_empty();
    before.ends_with('\n') && !is_blank(text.get(start..).unwrap_or_default())
}

fn ends_sentence(before: &str, c: char) -> bool {
    FULL_ENDS.contains(&c) || (c.is_whitespace() && before.trim_end_matches(CLOSING).ends_with(ENDS))
}

fn between_graphemes(text: &str, fits: usize) -> usize {
    let mut cursor = GraphemeCursor::new(fits, text.len(), true);
    if cursor.is_boundary(text, 0).unwrap_or(true) {
        return fits;
    }
    match cursor.prev_boundary(text, 0) {
        Ok(Some(at)) if at > 0 => at,
        _ => fits,
    }
}
