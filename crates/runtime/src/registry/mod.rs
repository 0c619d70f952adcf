//! The schema registry: what this process writes gets an id there, and ids of others are looked up.
//!
//! The API is Confluent's, which Apicurio, Karapace and Redpanda speak too. [`Schemas`] is how everything in
//! a process reads record values: it knows ids that it has met, and asks the registry for others.

mod client;
mod lookups;
mod schemas;
mod subjects;

pub use schemas::{Schemas, Unreadable};
pub use subjects::{enveloped_topics, subject_of};

/// Why a process cannot work with its schema registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// It does not answer.
    #[error(
        "no schema registry answers at {url}: {reason}\n\
         Is it running, and is the address right? `scripts/registry start` runs one for development; \
         registry.url or STARLING__REGISTRY__URL name another, and without one values are written in \
         single-object encoding."
    )]
    Unreachable {
        /// The address.
        url: String,
        /// What was seen last.
        reason: String,
    },
    /// It answers, but not as asked: wrong credentials, or no registry at all.
    #[error(
        "the schema registry {url} refuses subject {subject}: {said}\n\
         Look at registry.url, registry.user and registry.password."
    )]
    Refused {
        /// The address.
        url: String,
        /// What it was asked about.
        subject: String,
        /// What it says.
        said: String,
    },
    /// What this version writes does not go with what is registered.
    #[error(
        "the schema registry {url} refuses the schema of this version as incompatible with what is registered: {}",
        listed(.refused)
    )]
    Incompatible {
        /// The address.
        url: String,
        /// Each subject, and what the registry says about it.
        refused: Vec<(String, String)>,
    },
    /// Subjects are missing, and this process may only look.
    #[error(
        "the schema registry {url} does not have the schema of this version under: {}\n\
         registry.mode is \"lookup\", so somebody else has to register it: `starling topics create \
         --set registry.mode=register` does.",
        .subjects.join(", ")
    )]
    Missing {
        /// The address.
        url: String,
        /// The subjects.
        subjects: Vec<String>,
    },
    /// No HTTP client could be made, mostly for want of root certificates.
    #[error(
        "registry.url: no HTTP client: {0}; for https, are root certificates (ca-certificates) installed?"
    )]
    Client(String),
}

/// Each subject that is refused; those about which the same is said stand together.
fn listed(refused: &[(String, String)]) -> String {
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for (subject, what) in refused {
        match said.iter_mut().find(|(other, _)| other == what) {
            Some((_, subjects)) => subjects.push(subject),
            None => said.push((what, vec![subject])),
        }
    }
    let parts = said.into_iter().map(|(what, subjects)| format!("\n{}: {what}", subjects.join(", ")));
    parts.collect()
}
