//! Which intent a row is.

use starling_protocol::{IntentId, ids::digest};
use std::fmt;

/// What the ids of all intents of a batch begin with: a digest of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchTag(String);

/// A row of a batch, whatever becomes of it: a digest of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowId([u8; 16]);

/// A row, and how often it was begun anew: a row that failed and is run again is another intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instance {
    /// Which row.
    pub row: RowId,
    /// 0 for the first time.
    pub generation: u32,
}

impl BatchTag {
    /// The tag of the batch of that name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let mut tag = digest(&["batch", name]);
        tag.truncate(16);
        Self(tag)
    }

    /// The tag as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of a row's intent.
    #[must_use]
    pub fn intent_id(&self, Instance { row, generation }: Instance) -> IntentId {
        IntentId::from_string(match generation {
            0 => format!("{}-{row}", self.0),
            again => format!("{}-{row}.{again}", self.0),
        })
    }

    /// The row whose intent has this id, if it is one of this batch.
    #[must_use]
    pub fn instance_of(&self, intent_id: &str) -> Option<Instance> {
        let rest = intent_id.strip_prefix(self.0.as_str())?.strip_prefix('-')?;
        let (row, generation) = match rest.split_once('.') {
            None => (rest, 0),
            Some((row, again)) => (row, again.parse().ok().filter(|again| *again > 0)?),
        };
        Some(Instance { row: RowId::parse(row)?, generation })
    }
}

impl RowId {
    /// The row with that key.
    #[must_use]
    pub fn of_key(key: &str) -> Self {
        Self::derive(&["row", key])
    }

    /// A second row with a key that another one has: it is a row all the same, and must be told from the first.
    #[must_use]
    pub fn of_repeated(key: &str, number: u64) -> Self {
        Self::derive(&["repeated", key, &number.to_string()])
    }

    fn derive(cause: &[&str]) -> Self {
        // A digest has 32 hex digits.
        Self::parse(&digest(cause)).unwrap_or(Self([0; 16]))
    }

    fn parse(hex: &str) -> Option<Self> {
        if hex.len() != 32 || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        Some(Self(u128::from_str_radix(hex, 16).ok()?.to_be_bytes()))
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intents_id_tells_its_row_and_which_time_it_is() {
        let tag = BatchTag::of("laptops");
        for generation in [0, 1, 12] {
            let instance = Instance { row: RowId::of_key("r-7"), generation };
            let id = tag.intent_id(instance);
            assert_eq!(IntentId::parse(id.as_str()), Ok(id.clone()), "users may give such an id");
            assert_eq!(tag.instance_of(id.as_str()), Some(instance));
            assert_eq!(BatchTag::of("phones").instance_of(id.as_str()), None);
        }
        let row = RowId::of_key("r-7");
        for foreign in
            [format!("{}-{row}.0", tag.as_str()), format!("{}-{row}.x", tag.as_str()), row.to_string()]
        {
            assert_eq!(tag.instance_of(&foreign), None, "{foreign}");
        }
        assert_ne!(RowId::of_key("a"), RowId::of_repeated("a", 1));
    }
}
