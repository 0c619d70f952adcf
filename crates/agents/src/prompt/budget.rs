//! How much the texts of a prompt may take, and how they share it.

use crate::Agent;
use starling_llm::{Encoding, Message};
use starling_protocol::Allowance;

/// Bounds a prompt: its texts in bytes, always, and all of it in tokens, as far as the model's window is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptBudget {
    /// Bytes for all embedded texts together.
    pub bytes: usize,
    /// Tokens that the prompt and its reply may have together.
    pub window: Option<i64>,
    /// Tokens that the prompt may have, where an endpoint has refused longer ones.
    pub tokens: Option<i64>,
    /// How the model counts them.
    pub encoding: Encoding,
}

impl Default for PromptBudget {
    /// 96 KiB, about 24,000 tokens: fits the models with a window of 32,000 together with a long reply.
    fn default() -> Self {
        Self::of_bytes(96 * 1024)
    }
}

impl PromptBudget {
    /// Bounds the texts alone.
    #[must_use]
    pub fn of_bytes(bytes: usize) -> Self {
        Self { bytes, window: None, tokens: None, encoding: Encoding::Estimate }
    }

    /// Most bytes for one of the texts that say what is wanted (goal, instruction): they come first, but
    /// must leave room for the material.
    pub(super) fn leading(self) -> usize {
        self.bytes / 4
    }

    /// Most tokens of the reply: what the agent wants, but no more than half of the window, or nothing could be asked.
    fn reply_tokens(self, agent: &Agent) -> i64 {
        let wanted = i64::from(agent.reply_tokens());
        self.window.map_or(wanted, |window| wanted.min(window / 2))
    }

    /// What to ask `agent`'s model for as the most tokens of a reply. Without a bound of any sort that is for the endpoint
    /// to say where the agent does not.
    #[must_use]
    pub fn max_tokens(self, agent: &Agent, allowance: Option<&Allowance>) -> Option<u32> {
        let bounded = self.window.is_some() || allowance.is_some_and(|allowance| allowance.tokens.is_some());
        let most = u32::try_from(self.reply_tokens(agent)).unwrap_or(u32::MAX);
        if bounded { Some(most) } else { agent.max_tokens }
    }

    /// Tokens that the prompt may have: of the window what the reply leaves, and of what the step may take the share of
    /// each call that it is allowed.
    fn room(self, agent: &Agent, allowance: Option<&Allowance>) -> Option<i64> {
        let reply = self.reply_tokens(agent);
        let window = self.window.map(|window| window - reply);
        let share = allowance
            .and_then(|allowance| Some(allowance.tokens? / allowance.calls.max(1)))
            .map(|share| share - reply);
        [window, share, self.tokens].into_iter().flatten().min()
    }
}

/// The conversation that `build` makes within `budget`, with shorter texts where it would not fit into the model's window or
/// into what the step may take.
pub fn within(
    allowance: Option<&Allowance>,
    agent: &Agent,
    budget: PromptBudget,
    build: impl Fn(PromptBudget) -> Vec<Message>,
) -> Vec<Message> {
    const ROUNDS: usize = 4;
    let mut messages = build(budget);
    let Some(room) = budget.room(agent, allowance) else {
        return messages;
    };
    let mut bytes = budget.bytes;
    for _ in 0..ROUNDS {
        let length: usize = messages.iter().map(|message| message.text.len()).sum();
        // No token is shorter than a byte, and few characters are longer than a token.
        if i64::try_from(length + AROUND * messages.len()).is_ok_and(|length| length <= room) {
            break;
        }
        let tokens = budget.encoding.count_messages(&messages);
        let excess = tokens - room;
        if excess <= 0 || bytes == 0 {
            break;
        }
        // As many bytes as that many tokens have in this prompt, and the notes of what is left out.
        let excess = (excess as f64 + 16.0) * (length as f64 / tokens.max(1) as f64);
        bytes = bytes.min(length).saturating_sub(excess.ceil() as usize);
        messages = build(PromptBudget { bytes, ..budget });
    }
    messages
}

/// Tokens around a message are fewer.
const AROUND: usize = 8;

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
