//! `[conversation]`: what is sent of a long conversation with tools.

use super::reader::Reader;

/// `[conversation]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationSettings {
    /// Turns that are sent beside the orders and what is wanted.
    pub keep_turns: usize,
    /// Rounds of tools after which all but the last are summed up.
    pub summarize_rounds: usize,
    /// Characters of them after which they are.
    pub summarize_chars: usize,
    /// Most tokens of a summary.
    pub summary_tokens: u32,
    /// The model that sums up; `None` is the critic's.
    pub summarizer: Option<String>,
}

pub(super) fn read(r: &mut Reader) -> ConversationSettings {
    ConversationSettings {
        keep_turns: r.integer("conversation.keep_turns", 2..=10_000),
        summarize_rounds: r.integer("conversation.summarize_rounds", 2..=10_000),
        summarize_chars: r.integer("conversation.summarize_chars", 1_000..=100_000_000),
        summary_tokens: r.integer("conversation.summary_tokens", 50..=100_000),
        summarizer: r.optional("conversation.summarizer"),
    }
}
