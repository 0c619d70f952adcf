//! How many bytes the texts of a prompt may take, and how they share them.

use crate::Agent;
use starling_llm::{Message, estimated_tokens};
use starling_protocol::Allowance;

/// Bounds the user message of a prompt. It is counted in bytes, because the number of tokens depends on a
/// tokenizer that only the endpoint knows; four bytes a token is a fair guess for English.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptBudget {
    /// Bytes for all embedded texts together.
    pub bytes: usize,
}

impl Default for PromptBudget {
    /// 96 KiB, about 24,000 tokens: fits the models with a window of 32,000 together with a long reply.
    fn default() -> Self {
        Self { bytes: 96 * 1024 }
    }
}

impl PromptBudget {
    /// Most bytes for one of the texts that say what is wanted (goal, instruction): they come first, but
    /// must leave room for the material.
    pub(super) fn leading(self) -> usize {
        self.bytes / 4
    }
}

/// The conversation that `build` makes within `budget`, with shorter texts if it would not fit into what the step may
/// take: each call that is allowed may have its share, of which the reply has its part.
pub fn within(
    allowance: Option<&Allowance>,
    agent: &Agent,
    budget: PromptBudget,
    build: impl Fn(PromptBudget) -> Vec<Message>,
) -> Vec<Message> {
    const ROUNDS: usize = 4;
    let mut messages = build(budget);
    let Some((tokens, calls)) = allowance.and_then(|allowance| Some((allowance.tokens?, allowance.calls)))
    else {
        return messages;
    };
    let room = tokens / calls.max(1) - i64::from(agent.reply_tokens());
    let mut bytes = budget.bytes.min(messages.iter().map(|message| message.text.len()).sum());
    for _ in 0..ROUNDS {
        let chars = messages.iter().map(|message| message.text.chars().count()).sum();
        let excess = usize::try_from(estimated_tokens(chars) - room).unwrap_or(0);
        if excess == 0 || bytes == 0 {
            break;
        }
        bytes = bytes.saturating_sub(4 * (excess + 16));
        messages = build(PromptBudget { bytes });
    }
    messages
}

/// The largest size to which each of `sizes` is cut so that together they fit in `total`: texts that are
/// smaller than their fair share leave the rest of it to the larger ones.
pub(super) fn fair_share(sizes: &[usize], total: usize) -> usize {
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    let mut left = total;
    for (index, size) in sorted.iter().enumerate() {
        let share = left / (sorted.len() - index);
        if *size > share {
            return share;
        }
        left -= size;
    }
    usize::MAX
}

/// Cuts `text` to at most `limit` bytes, at the end of a line where one is near, and says how much is
/// missing. The note comes on top of the limit.
pub(super) fn shorten(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1; // ends at 0 at the latest, which is a boundary
    }
    let head = text.get(..end).unwrap_or_default();
    let head = match head.rfind('\n') {
        Some(line_end) if line_end >= head.len() / 2 => head.get(..line_end).unwrap_or(head),
        _ => head,
    };
    format!("{head}\n(… {} of {} bytes left out)", text.len() - head.len(), text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_texts_stay_whole_and_large_ones_share_the_rest() {
        assert_eq!(fair_share(&[10, 20], 100), usize::MAX);
        assert_eq!(fair_share(&[10, 500, 500], 110), 50);
        assert_eq!(fair_share(&[500, 10, 30, 500], 100), 30);
        assert_eq!(fair_share(&[], 0), usize::MAX);
        assert_eq!(fair_share(&[5, 5], 0), 0);
    }

    #[test]
    fn a_cut_never_splits_a_character_and_is_announced() {
        assert_eq!(shorten("short", 10), "short");
        assert_eq!(shorten("ééééé", 5), "éé\n(… 6 of 10 bytes left out)");
        assert_eq!(shorten("one\ntwo\nthree", 9), "one\ntwo\n(… 6 of 13 bytes left out)");
        assert_eq!(shorten("x", 0), "\n(… 1 of 1 bytes left out)");
    }
}
