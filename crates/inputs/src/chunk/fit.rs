//! How much of a text fits into so many tokens. Counting is what costs, so there is little of it.

/// No token is taken for longer than that, be it spaces: it bounds a chunk in bytes as well.
const MOST_BYTES_A_TOKEN: usize = 16;
/// Counts at most; halving alone needs fewer for any text that can be held.
const ROUNDS: usize = 64;

/// How many bytes make how many tokens, as far as the text has taught.
pub(super) struct Guess {
    bytes: usize,
    tokens: usize,
}

impl Default for Guess {
    fn default() -> Self {
        Self { bytes: 4, tokens: 1 }
    }
}

impl Guess {
    /// The length of a beginning of `text` that has at most `room` tokens, and seldom much fewer. At least one character.
    pub(super) fn longest(&mut self, text: &str, room: usize, count: &dyn Fn(&str) -> usize) -> usize {
        let first = text.chars().next().map_or(0, char::len_utf8);
        let most = floor(text, room.saturating_mul(MOST_BYTES_A_TOKEN)).max(first);
        let (mut fits, mut does_not) = (0, most + 1);
        let mut at = floor(text, scaled(room, self.bytes, self.tokens)).clamp(first, most);
        for _ in 0..ROUNDS {
            let tokens = count(text.get(..at).unwrap_or_default());
            if tokens > 0 {
                (self.bytes, self.tokens) = (at, tokens);
            }
            if tokens <= room {
                fits = at;
                if at == most || room - tokens <= room / 32 {
                    break;
                }
            } else {
                does_not = at;
            }
            // Aims a little short, since most tries that are too long are so by little.
            let aim = scaled(room - room / 64, at, tokens.max(1)).min(most);
            let next = if fits < aim && aim < does_not { aim } else { fits.midpoint(does_not) };
            let next = floor(text, next);
            if next <= fits {
                break;
            }
            at = next;
        }
        fits.max(first)
    }
}

/// The earliest start from which `text` has at most `room` tokens, or one a little later.
pub(super) fn shortest_start(text: &str, room: usize, count: &dyn Fn(&str) -> usize) -> usize {
    let (mut too_early, mut start) = (0, text.len());
    let most = room.saturating_mul(MOST_BYTES_A_TOKEN);
    let mut at = ceil(text, text.len().saturating_sub(most.min(room.saturating_mul(4))));
    for _ in 0..ROUNDS {
        let tokens = count(text.get(at..).unwrap_or_default());
        if tokens <= room {
            start = at;
            if at == 0 || room - tokens <= room / 16 {
                break;
            }
        } else {
            too_early = at;
        }
        let next = ceil(text, too_early.midpoint(start));
        if next >= start || next <= too_early {
            break;
        }
        at = next;
    }
    start
}

fn scaled(room: usize, bytes: usize, tokens: usize) -> usize {
    let scaled = (room as u128) * (bytes as u128) / (tokens.max(1) as u128);
    usize::try_from(scaled).unwrap_or(usize::MAX)
}

/// The end of a character at `at` or before.
pub(super) fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1; // ends at 0 at the latest, which is a boundary
    }
    at
}

/// The same, at `at` or after.
fn ceil(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at += 1; // ends at the text's end at the latest
    }
    at
}
