//! From a text to chunks that fit a model's window.

mod boundary;
mod fit;
mod records;

use boundary::{best, first_start};
use records::Records;

/// How large chunks are, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSize {
    /// Most tokens of a chunk, all that is repeated in it included.
    pub tokens: usize,
    /// Tokens of the end of the chunk before that are told again; at most half of `tokens`.
    pub overlap: usize,
}

/// Where a text may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Before headings, between paragraphs, sentences, words.
    Prose,
    /// Between lines.
    Lines,
    /// Between the records of a table, whose first record is the header of every chunk.
    Table,
}

impl Cut {
    /// Where a text of this media type may be cut.
    #[must_use]
    pub fn of(media_type: &str) -> Self {
        match media_type.split(';').next().unwrap_or_default().trim() {
            "text/csv" | "text/tab-separated-values" => Cut::Table,
            "application/jsonl" => Cut::Lines,
            _ => Cut::Prose,
        }
    }
}

/// A part of a text, and what is repeated before it so that it can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'t> {
    /// The header of the table; empty where it is in `text`, or there is none.
    pub heading: &'t str,
    /// The end of the chunk before.
    pub overlap: &'t str,
    /// The part itself, never empty. All of these together are the whole text.
    pub text: &'t str,
}

/// Cuts `text` into chunks of at most `size` by `count`, which says how many tokens a text has. A chunk is larger only
/// where a single character is. The same text is always cut in the same way.
pub fn chunks<'t>(text: &'t str, cut: Cut, size: ChunkSize, count: &dyn Fn(&str) -> usize) -> Vec<Chunk<'t>> {
    let tokens = size.tokens.max(1);
    let mut records = Records::new(cut);
    let header = match cut {
        Cut::Table => records.header(text).filter(|header| count(header) <= tokens / 4).unwrap_or_default(),
        Cut::Prose | Cut::Lines => "",
    };
    let mut chunks: Vec<Chunk<'t>> = Vec::new();
    let mut rest = text;
    // A token of most texts is about four bytes; the texts themselves teach better.
    let mut guess = fit::Guess::default();
    while !rest.is_empty() {
        let (heading, overlap) = match chunks.last() {
            None => ("", ""),
            Some(before) => (header, overlap_of(before.text, cut, size.overlap.min(tokens / 2), count)),
        };
        let repeated = count(heading) + count(overlap);
        let room = tokens.saturating_sub(repeated).max(1);
        let end = end_of(rest, guess.longest(rest, room, count), cut, &mut records);
        let (text, after) = rest.split_at(end);
        records.pass(text);
        chunks.push(Chunk { heading, overlap, text });
        rest = after;
    }
    chunks
}

/// Where the chunk at the beginning of `rest` ends, of which `fits` bytes fit. A character's end, and not 0.
fn end_of(rest: &str, fits: usize, cut: Cut, records: &mut Records) -> usize {
    if fits >= rest.len() {
        return rest.len();
    }
    let end = match cut {
        Cut::Prose => None,
        Cut::Lines | Cut::Table => records.last_end(rest.get(..fits).unwrap_or_default()),
    };
    let end = end.unwrap_or_else(|| best(rest, fits));
    // Nobody is helped by a chunk of nothing but the line breaks at the end.
    let last_word = rest.trim_end().len();
    if end < last_word || last_word < 2 {
        return end;
    }
    let earlier =
        rest.get(..last_word).and_then(|text| text.char_indices().next_back()).map_or(0, |(at, _)| at);
    if earlier == 0 { end } else { best(rest, earlier) }
}

/// The end of `before` that the next chunk repeats.
fn overlap_of<'t>(before: &'t str, cut: Cut, tokens: usize, count: &dyn Fn(&str) -> usize) -> &'t str {
    if tokens == 0 {
        return "";
    }
    let start = fit::shortest_start(before, tokens, count);
    let tail = before.get(start..).unwrap_or_default();
    let nice = match cut {
        Cut::Prose => first_start(tail),
        Cut::Lines | Cut::Table => tail.find('\n').map_or(tail.len(), |at| at + 1),
    };
    tail.get(nice..).unwrap_or_default()
}
