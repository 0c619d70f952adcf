//! Identifiers. All of them are derived from their cause, so that the same cause gives the same id and
//! a duplicate is recognised; only the run id is random, made by the process that runs the planner.

use crate::Timestamp;
use crate::topic::partition_of;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{fmt, sync::Arc};

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps a string that is already known to be an id of this kind.
            pub fn from_string(id: impl Into<Arc<str>>) -> Self {
                Self(id.into())
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id_type!(
    /// Names an intent: the user's own id, or one derived from where its record was read.
    IntentId
);
id_type!(
    /// Names one execution of the planner for an intent.
    RunId
);
id_type!(
    /// Names a task: a hash of intent, run and ordinal.
    TaskId
);
id_type!(
    /// Names an envelope: a hash of what caused it.
    EnvelopeId
);

/// The longest intent id that is accepted, in bytes.
pub const MAX_INTENT_ID_BYTES: usize = 128;

impl IntentId {
    /// Checks an id given by a user: 1 to 128 characters of `A-Z a-z 0-9 . _ : -`.
    ///
    /// # Errors
    /// Says what is wrong with the id.
    pub fn parse(id: &str) -> Result<Self, String> {
        if id.is_empty() || id.len() > MAX_INTENT_ID_BYTES {
            return Err(format!(
                "an intent id has 1 to {MAX_INTENT_ID_BYTES} characters, this one has {}",
                id.len()
            ));
        }
        match id.chars().find(|c| !(c.is_ascii_alphanumeric() || "._:-".contains(*c))) {
            Some(bad) => Err(format!(
                "an intent id consists of letters, digits and . _ : - only, this one contains {bad:?}"
            )),
            None => Ok(Self::from_string(id)),
        }
    }

    /// The id of an intent that came without one: a redelivery of the same record is the same intent.
    #[must_use]
    pub fn of_record(topic: &str, partition: i32, offset: i64) -> Self {
        Self::from_string(digest(&["intent", topic, &partition.to_string(), &offset.to_string()]))
    }

    /// The address of the bank that leases a tenant's budget of the window which starts then. Whichever partition it
    /// belongs to keeps it. No user can give an intent such an id.
    #[must_use]
    pub fn bank(tenant: &str, window: Timestamp) -> Self {
        Self::from_string(format!("bank/{}", digest(&["bank", tenant, &window.0.to_string()])))
    }

    /// The address under which a partition is told what it gets of that budget: an id that belongs to it. There is one
    /// among the first few times `partitions` names.
    #[must_use]
    pub fn purse(tenant: &str, window: Timestamp, partition: i32, partitions: i32) -> Self {
        const NAMES: u32 = 1_000_000;
        let cause = digest(&["purse", tenant, &window.0.to_string(), &partition.to_string()]);
        let name = |salt: u32| format!("purse/{cause}/{salt}");
        let own = (0..NAMES).map(name).find(|id| partition_of(id, partitions) == partition);
        Self::from_string(own.unwrap_or_else(|| name(0)))
    }

    /// The address of content, which belongs to no intent: many may have it.
    #[must_use]
    pub fn content(envelope: &EnvelopeId) -> Self {
        Self::from_string(format!("content/{envelope}"))
    }

    /// Whether it is no intent, but the address of a bank, a purse or content.
    #[must_use]
    pub fn is_address(&self) -> bool {
        self.as_str().contains('/')
    }
}

impl RunId {
    /// A run id from 128 random bits.
    #[must_use]
    pub fn from_random(bits: u128) -> Self {
        Self::from_string(format!("{bits:032x}"))
    }
}

impl TaskId {
    /// The id of the task at `ordinal` of a run's plan.
    #[must_use]
    pub fn planned(intent: &IntentId, run: &RunId, ordinal: i32) -> Self {
        Self::from_string(digest(&["task", intent.as_str(), run.as_str(), &ordinal.to_string()]))
    }

    /// The id of the synthesis of a run.
    #[must_use]
    pub fn synthesis(intent: &IntentId, run: &RunId) -> Self {
        Self::from_string(digest(&["synthesis", intent.as_str(), run.as_str()]))
    }
}

impl EnvelopeId {
    /// Derives an id from what caused the envelope. `kind` separates envelopes of different kinds with
    /// the same cause; `cause` are the parts that make it unique, such as task, attempt and step.
    #[must_use]
    pub fn derive(kind: &str, cause: &[&str]) -> Self {
        let mut parts = Vec::with_capacity(cause.len() + 2);
        parts.push("envelope");
        parts.push(kind);
        parts.extend_from_slice(cause);
        Self::from_string(digest(&parts))
    }

    /// The id of the envelope of `kind` for one step of one attempt of a task.
    #[must_use]
    pub fn of_step(kind: &str, task: &TaskId, attempt: i32, step: i32) -> Self {
        Self::derive(kind, &[task.as_str(), &attempt.to_string(), &step.to_string()])
    }
}

/// The first 128 bits, in hex, of SHA-256 over the parts, each preceded by its length, so that no two
/// lists of parts have the same input.
#[must_use]
pub fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize()[..16])
}

/// The content digest of a record's value: SHA-256 in hex.
#[must_use]
pub fn content_digest(value: &[u8]) -> String {
    hex(&Sha256::digest(value))
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}"); // writing to a String cannot fail
        out
    })
}
