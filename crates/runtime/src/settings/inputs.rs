//! How files become inputs: what stays in the intent, and how the rest is cut.

use super::reader::Reader;
use std::time::Duration;

/// `[inputs]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputSettings {
    /// Largest text that stays in the intent, in bytes.
    pub inline: usize,
    /// Most tokens of a part of a larger one.
    pub chunk_tokens: usize,
    /// Tokens of the end of a part that the next one has as well.
    pub overlap_tokens: usize,
    /// Largest file, and largest text of one, in bytes.
    pub max_file: usize,
    /// Longest time for reading one PDF.
    pub pdf_timeout: Duration,
}

pub(super) fn read(r: &mut Reader) -> InputSettings {
    let settings = InputSettings {
        inline: r.size("inputs.inline", 0..=64 << 20),
        chunk_tokens: r.integer("inputs.chunk_tokens", InputSettings::CHUNK_TOKENS),
        overlap_tokens: r.integer("inputs.overlap_tokens", 0..=16_000),
        max_file: r.size("inputs.max_file", 1024..=1 << 30),
        pdf_timeout: r.duration("inputs.pdf_timeout", Duration::from_secs(1)..=Duration::from_secs(3600)),
    };
    if settings.chunk_tokens > 0 && settings.overlap_tokens > settings.chunk_tokens / 2 {
        let found = settings.overlap_tokens.to_string();
        let origin = format!("inputs.chunk_tokens is {}", settings.chunk_tokens);
        r.complain("inputs.overlap_tokens", "at most half of inputs.chunk_tokens", &found, &origin);
    }
    settings
}

impl InputSettings {
    /// What a part may be set to: smaller ones are all heading, and larger ones would fit no record.
    pub const CHUNK_TOKENS: std::ops::RangeInclusive<usize> = 100..=32_000;
}
