//! Texts that are too long for an intent's record, stored in parts.

use crate::{EnvelopeId, ids::digest};
use serde::{Deserialize, Serialize};

/// A part of a long text, stored once under a digest of what is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The header of the table that it is a part of; empty where it is in `text`, or there is none.
    pub heading: String,
    /// The end of the part before, told again.
    pub overlap: String,
    /// The part itself. All of these, one after the other, are the whole text.
    pub text: String,
}

impl Content {
    /// The id of the envelope that it is stored in: the same content has the same, whatever intents it comes with.
    #[must_use]
    pub fn envelope_id(&self) -> EnvelopeId {
        EnvelopeId::from_string(digest(&["content", &self.heading, &self.overlap, &self.text]))
    }
}
