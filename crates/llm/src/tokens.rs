//! How many tokens a text has for a model.

use crate::{ChatRequest, Message};
use tiktoken_rs::{
    CoreBPE, cl100k_base_singleton, o200k_base_singleton,
    tokenizer::{Tokenizer, get_tokenizer},
};

/// Bytes of one text that are counted one by one. Of a longer one so many are, in slices from all over it, and the rest is
/// taken to be like them.
const COUNTED_BYTES: usize = 32 << 10;
/// Slices of a text that is too long to be counted as a whole.
const SLICES: usize = 16;
/// Bytes that are encoded at once. A word without end takes more than its share, and never more than this.
const PIECE_BYTES: usize = 4 << 10;
/// What stands around each message beside its text, as OpenAI documents it.
const MESSAGE_TOKENS: i64 = 4;
/// What stands around each tool that is offered, about.
const TOOL_TOKENS: i64 = 8;
/// What begins the reply.
const REPLY_TOKENS: i64 = 3;

/// How a model cuts text into tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// That of OpenAI's models since GPT-4o.
    O200kBase,
    /// That of GPT-4 and GPT-3.5.
    Cl100kBase,
    /// Not known: counted by rule of thumb, four letters of English a token.
    #[default]
    Estimate,
}

impl Encoding {
    /// All of them, by name.
    pub const NAMED: [(&str, Self); 3] =
        [("o200k_base", Self::O200kBase), ("cl100k_base", Self::Cl100kBase), ("estimate", Self::Estimate)];

    /// The encoding of a model, by its name, as gateways (`openai/gpt-4o`) and Ollama (`gpt-oss:20b`) write it, too.
    #[must_use]
    pub fn of_model(name: &str) -> Self {
        let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase().replace(':', "-");
        match get_tokenizer(&name) {
            Some(Tokenizer::O200kBase | Tokenizer::O200kHarmony) => Self::O200kBase,
            Some(Tokenizer::Cl100kBase) => Self::Cl100kBase,
            _ => Self::Estimate,
        }
    }

    /// Tokens of `text`: exact up to 32 KiB where the encoding is known.
    #[must_use]
    pub fn count(self, text: &str) -> i64 {
        match self.table() {
            Some(table) => saturating(count_by(table, text)),
            None => saturating(quarters(text).div_ceil(4)),
        }
    }

    /// Tokens of a conversation, with what stands around its messages where the encoding is known.
    #[must_use]
    pub fn count_messages(self, messages: &[Message]) -> i64 {
        match self.table() {
            Some(table) => {
                let texts = messages.iter().flat_map(Message::texts);
                let texts: usize = texts.map(|text| count_by(table, text)).sum();
                saturating(texts) + MESSAGE_TOKENS * saturating(messages.len()) + REPLY_TOKENS
            }
            None => {
                let quarters: usize = messages.iter().flat_map(Message::texts).map(quarters).sum();
                saturating(quarters.div_ceil(4))
            }
        }
    }

    /// Tokens of a question: its conversation, and the tools that it offers.
    #[must_use]
    pub fn count_request(self, request: &ChatRequest) -> i64 {
        let tools = request.tools.iter().map(|tool| {
            let texts = [tool.name.as_str(), &tool.description, &tool.parameters.to_string()];
            texts.map(|text| self.count(text)).iter().sum::<i64>() + TOOL_TOKENS
        });
        self.count_messages(&request.messages).saturating_add(tools.sum())
    }

    /// Its table. Who asks first waits for a quarter of a second while it is read, and it takes some 50 MB: nobody asks who
    /// does not need to know.
    fn table(self) -> Option<&'static CoreBPE> {
        match self {
            Self::O200kBase => Some(o200k_base_singleton()),
            Self::Cl100kBase => Some(cl100k_base_singleton()),
            Self::Estimate => None,
        }
    }
}

/// How a model that is asked for something counts, and how much it takes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// How it counts.
    pub encoding: Encoding,
    /// Tokens that a prompt and its reply may have together; `None` if that is not known.
    pub window: Option<i64>,
}

/// Tokens of so many characters, where there are only sizes: four a token, rounded up.
#[must_use]
pub fn estimated_tokens(chars: usize) -> i64 {
    saturating(chars.div_ceil(4))
}

fn saturating(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Quarters of a token: one for a letter of English, two for one of most other alphabets, four for a sign of Chinese or
/// Japanese. By the first byte of each character; the others count nothing.
fn quarters(text: &str) -> usize {
    let quarters = |byte: u8| match byte {
        0x00..=0x7f => 1,
        0x80..=0xbf => 0,
        0xc0..=0xdf => 2,
        _ => 4,
    };
    text.bytes().map(quarters).sum()
}

fn count_by(table: &CoreBPE, text: &str) -> usize {
    if text.len() <= COUNTED_BYTES {
        return pieces(text).map(|piece| table.count_ordinary(piece)).sum();
    }
    let (mut counted, mut bytes) = (0, 0);
    for slice in 0..SLICES {
        let start = boundary(text, slice * (text.len() / SLICES));
        let end = boundary(text, start + COUNTED_BYTES / SLICES);
        let slice = text.get(start..end).unwrap_or_default();
        bytes += slice.len();
        counted += table.count_ordinary(slice);
    }
    // Far below 2^53.
    (counted as f64 * (text.len() as f64 / bytes.max(1) as f64)).ceil() as usize
}

/// The last boundary between two characters that is not behind `at`.
fn boundary(text: &str, at: usize) -> usize {
    let mut end = at.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1; // ends at 0 at the latest, which is one
    }
    end
}

/// A text in pieces, cut before a space where there is one: that is where encodings cut as well.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = boundary(rest, PIECE_BYTES);
        if end < rest.len()
            && let Some(space) = rest.get(..end).and_then(|piece| piece.rfind(' ')).filter(|space| *space > 0)
        {
            end = space;
        }
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models_tell_their_encoding() {
        for (name, encoding) in [
            ("gpt-4o-mini", Encoding::O200kBase),
            ("openai/gpt-4.1-mini-2025-04-14", Encoding::O200kBase),
            ("GPT-5-nano", Encoding::O200kBase),
            ("o3-mini", Encoding::O200kBase),
            ("gpt-oss:20b", Encoding::O200kBase),
            ("gpt-4-turbo", Encoding::Cl100kBase),
            ("gpt-3.5-turbo-0125", Encoding::Cl100kBase),
            ("deepseek-chat", Encoding::Estimate),
            ("llama3.2:3b", Encoding::Estimate),
            ("", Encoding::Estimate),
        ] {
            assert_eq!(Encoding::of_model(name), encoding, "{name}");
        }
    }

    #[test]
    fn known_texts_have_the_tokens_that_their_encoding_gives_them() {
        for (text, o200k, cl100k, estimate) in [
            ("", 0, 0, 0),
            ("hello world", 2, 2, 3),
            ("Wie geht es dir?", 5, 5, 4),
            ("<|endoftext|>", 7, 7, 4),
            ("お誕生日おめでとう", 8, 9, 9),
            ("Привет, мир!", 5, 7, 6),
        ] {
            let counts = Encoding::NAMED.map(|(_, encoding)| encoding.count(text));
            assert_eq!(counts, [o200k, cl100k, estimate], "{text}");
        }
        let messages = ["You are terse.", "Say hello."].map(Message::user);
        assert_eq!(Encoding::O200kBase.count_messages(&messages), 4 + 3 + 2 * 4 + 3);
        assert_eq!(Encoding::Estimate.count_messages(&messages), 6);
    }

    #[test]
    fn long_texts_are_counted_in_pieces_or_by_slices_and_come_close() {
        let prose = "The offers differ in price, in time of delivery, and in what they leave out. ";
        let table = o200k_base_singleton();
        for (bytes, off) in [(5_000, 0.001), (30_000, 0.001), (200_000, 0.02)] {
            let text = prose.repeat(bytes / prose.len());
            let exact = table.count_ordinary(&text) as f64;
            let counted = Encoding::O200kBase.count(&text) as f64;
            assert!((counted - exact).abs() <= exact * off + 1.0, "{bytes}: {counted} for {exact}");
        }
        // A word without end, in one letter and in many bytes a letter, is nothing special.
        for letter in ["a", " ", "=", "漢", "\n", "🦜"] {
            let run = letter.repeat(300_000 / letter.len());
            let count = Encoding::O200kBase.count(&run);
            assert!(count > 0 && count <= 300_000, "{letter:?}: {count}");
        }
    }
}
