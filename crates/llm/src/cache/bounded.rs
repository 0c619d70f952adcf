//! A map that forgets what was not used for longest.

use super::key::Key;
use lru::LruCache;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBounds {
    /// Bytes of all replies together, with what it takes to keep them.
    pub bytes: u64,
    /// Replies.
    pub entries: usize,
}

/// Values of a known size within bounds.
pub(super) struct Bounded<V> {
    values: LruCache<Key, (V, u64)>,
    bytes: u64,
    bounds: CacheBounds,
}

impl<V> Bounded<V> {
    pub(super) fn new(bounds: CacheBounds) -> Self {
        Self { values: LruCache::unbounded(), bytes: 0, bounds }
    }

    /// A value, which counts as used by that.
    pub(super) fn get(&mut self, key: &Key) -> Option<&V> {
        self.values.get(key).map(|(value, _)| value)
    }

    /// Takes a value in; gives the keys of those for which there is no room any more, which may be the new one.
    pub(super) fn put(&mut self, key: Key, value: V, bytes: u64) -> Vec<Key> {
        self.remove(&key);
        if bytes > self.bounds.bytes {
            return vec![key]; // it would drive out all others and go itself
        }
        self.values.put(key, (value, bytes));
        self.bytes += bytes;
        let mut gone = Vec::new();
        while self.bytes > self.bounds.bytes || self.values.len() > self.bounds.entries {
            let Some((oldest, (_, bytes))) = self.values.pop_lru() else { break };
            self.bytes -= bytes;
            gone.push(oldest);
        }
        gone
    }

    pub(super) fn remove(&mut self, key: &Key) {
        if let Some((_, bytes)) = self.values.pop(key) {
            self.bytes -= bytes;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> Key {
        Key([number; 32])
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut map = Bounded::new(CacheBounds { bytes: 100, entries: 3 });
        for number in 1..=3 {
            assert!(map.put(key(number), number, 20).is_empty());
        }
        assert_eq!(map.get(&key(1)), Some(&1));
        assert!(map.put(key(4), 4, 20) == [key(2)], "too many");
        assert!(map.put(key(5), 5, 70) == [key(3), key(1)], "too large together");
        assert_eq!((map.len(), map.bytes()), (2, 90));
        assert!(map.put(key(5), 6, 10).is_empty(), "it takes the place of its old value");
        assert_eq!((map.get(&key(5)).copied(), map.bytes()), (Some(6), 30));
        assert!(map.put(key(6), 7, 101) == [key(6)], "it can never fit, and drives nobody out");
        assert!(map.put(key(4), 7, 101) == [key(4)]);
        assert_eq!((map.len(), map.bytes(), map.get(&key(4)).copied()), (1, 10, None));
        map.remove(&key(5));
        map.remove(&key(5));
        assert_eq!((map.len(), map.bytes()), (0, 0));
    }
}
