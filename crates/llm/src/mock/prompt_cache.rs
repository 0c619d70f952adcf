//! What a provider's prompt cache has of a prompt: the blocks from its beginning on that it has seen behind the same
//! beginning before.

use serde_json::Value;
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::sync::{Mutex, PoisonError};

/// Tokens of a block; providers have 16 to 128.
const BLOCK_TOKENS: i64 = 64;
/// Bytes of a block, by four a token.
const BLOCK_BYTES: usize = 256;

/// The blocks that were seen.
pub(super) struct PromptCache {
    seen: Mutex<HashSet<u64>>,
    max: usize,
}

/// A prompt, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) tokens: i64,
    /// Those of them that the cache had.
    pub(super) cached: i64,
}

impl PromptCache {
    /// Remembers so many blocks; once that many are seen, no more are.
    pub(super) fn new(max: usize) -> Self {
        Self { seen: Mutex::default(), max }
    }

    /// Counts the prompt of a request, and remembers it.
    pub(super) fn count(&self, body: &Value) -> Counted {
        let messages = body.get("messages").and_then(Value::as_array).into_iter().flatten();
        let mut prompt = Vec::new();
        for text in messages.filter_map(|message| message.get("content")?.as_str()) {
            prompt.extend_from_slice(text.as_bytes());
            prompt.push(0xff); // no text has this byte, so it ends one
        }
        let mut hasher = DefaultHasher::new();
        let block = |bytes: &[u8]| {
            hasher.write(bytes);
            hasher.finish() // of all that came so far, not of the block alone
        };
        let blocks: Vec<u64> = prompt.chunks_exact(BLOCK_BYTES).map(block).collect();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let found = blocks.iter().take_while(|block| seen.contains(block)).count();
        for block in blocks.into_iter().skip(found) {
            if seen.len() < self.max {
                seen.insert(block);
            }
        }
        let cached = i64::try_from(found).unwrap_or(0) * BLOCK_TOKENS;
        Counted { tokens: crate::estimated_tokens(prompt.len()).max(cached), cached }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn body(system: &str, user: &str) -> Value {
        json!({"messages": [{"role": "system", "content": system}, {"role": "user", "content": user}]})
    }

    #[test]
    fn only_a_common_beginning_is_found_again_and_in_whole_blocks() {
        let cache = PromptCache::new(1_000);
        let system = "s".repeat(600);
        let count = |system: &str, user: &str| cache.count(&body(system, user)).cached;
        assert_eq!(count(&system, "one"), 0, "nobody has asked before");
        assert_eq!(count(&system, "two"), 128, "two whole blocks of the system message");
        assert_eq!(count(&system, &"one".repeat(100)), 128);
        assert_eq!(count(&system, &"one".repeat(100)), 192, "three blocks of the same question");
        assert_eq!(count(&format!("x{system}"), "one"), 0, "another beginning");
        let counted = cache.count(&body(&system, "two"));
        assert_eq!(counted, Counted { tokens: crate::estimated_tokens(605), cached: 128 });
    }

    #[test]
    fn a_full_cache_keeps_what_it_has() {
        let cache = PromptCache::new(1);
        let (one, two) = (body(&"1".repeat(256), ""), body(&"2".repeat(256), ""));
        for (body, cached) in [(&one, 0), (&two, 0), (&two, 0), (&one, 64)] {
            assert_eq!(cache.count(body).cached, cached);
        }
    }
}
