//! The parts of the texts that come with an intent.

use starling_protocol::Input;
use std::fmt;

/// A part of a text; one that is not divided is a part itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPart<'a> {
    /// The name of the text.
    pub input: &'a str,
    /// Which of its parts, from 1.
    pub number: usize,
    /// How many it has.
    pub of: usize,
    /// How many bytes it has.
    pub bytes: usize,
    /// How many tokens, by estimate.
    pub tokens: i64,
}

impl<'a> TextPart<'a> {
    /// All parts of these inputs.
    #[must_use]
    pub fn of(inputs: &'a [Input]) -> Vec<Self> {
        inputs.iter().flat_map(Self::of_input).collect()
    }

    fn of_input(input: &'a Input) -> Vec<Self> {
        let (name, of) = (input.name.as_str(), input.parts());
        if !input.is_stored() {
            let (bytes, tokens) = (input.content.len(), input.tokens());
            return vec![Self { input: name, number: 1, of, bytes, tokens }];
        }
        let part = |(at, chunk): (usize, &starling_protocol::RecordRef)| Self {
            input: name,
            number: at + 1,
            of,
            bytes: usize::try_from(chunk.bytes).unwrap_or(0),
            tokens: chunk.tokens.max(0),
        };
        input.chunks.iter().enumerate().map(part).collect()
    }
}

impl fmt::Display for TextPart<'_> {
    /// As a task that reads it finds it under Inputs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.of == 1 {
            return f.write_str(self.input);
        }
        write!(f, "{}, part {} of {}", self.input, self.number, self.of)
    }
}
