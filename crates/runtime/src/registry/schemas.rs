//! How a process reads values, whatever schema they were written with.

use super::{
    RegistryError,
    client::Client,
    lookups::{Lookups, RESULTS},
    subjects,
};
use crate::{
    metrics::{Metrics, ReasonLabel},
    settings::RegistrySettings,
};
use prometheus_client::metrics::{counter::Counter, family::Family};
use starling_protocol::{
    Codec, DecodeError, Envelope,
    codec::{Record, RecordKind, schema_json},
};
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::sleep;

/// Waits between tries of who has nothing else to do than to wait.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long values are kept for where the settings do not say it.
const PATIENCE: Duration = Duration::from_secs(600);

/// Reads values whose schemas are known, or can be asked of the registry. Cheap to clone; what one clone
/// has learned, all know.
#[derive(Clone)]
pub struct Schemas {
    codec: Codec,
    lookups: Arc<Lookups>,
}

/// Why a value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It never will be: it belongs into the dead letters.
    #[error("{0}")]
    Never(String),
    /// Its schema cannot be had at present; try again.
    #[error("{0}")]
    Later(String),
    /// A newer version seems to have written it. This process will not come to read it, but the one that takes its
    /// place may: keep it for that one. It is [`Unreadable::Never`] once it was kept for as long as the settings say.
    #[error("{0}")]
    Newer(String),
}

impl From<Codec> for Schemas {
    /// Without a registry.
    fn from(codec: Codec) -> Self {
        let lookups = Arc::new(Lookups::new(codec.clone(), None, PATIENCE));
        Self { codec, lookups }
    }
}

impl Schemas {
    /// Reads with the help of the registry that the settings name, if they name one. Nothing is asked yet,
    /// and what is written is written in single-object encoding.
    ///
    /// # Errors
    /// The client cannot be made.
    pub fn reading(settings: &RegistrySettings, codec: Codec) -> Result<Self, RegistryError> {
        let client = settings.url.as_ref().map(|url| Client::new(settings, url)).transpose()?;
        let lookups = Arc::new(Lookups::new(codec.clone(), client, settings.patience));
        Ok(Self { codec, lookups })
    }

    /// The same, which also writes envelopes in Confluent framing, if there is a registry: their schema is
    /// looked up there, or registered, for each of `topics`.
    ///
    /// # Errors
    /// The registry does not answer in time, does not have the schema, or does not take it.
    pub async fn writing(
        self,
        settings: &RegistrySettings,
        topics: &[String],
    ) -> Result<Self, RegistryError> {
        let Some(client) = self.lookups.client() else { return Ok(self) };
        let ids = subjects::ids(client, settings.mode, topics, settings.connect_timeout).await?;
        let schema = schema_json(RecordKind::Envelope).to_string();
        // One id for all subjects, as registries have it; where they do not, each of them says the same.
        let Some(id) = ids.first().copied() else { return Ok(self) };
        let known = ids.iter().map(|id| (*id, schema.as_str()));
        let codec = self.codec.clone().with_confluent(known);
        let codec = codec.map_err(|error| RegistryError::Client(error.to_string()))?;
        tracing::info!(registry = client.shown(), id, "envelopes are written with a schema id");
        let codec = codec.writing_confluent(RecordKind::Envelope, id);
        Ok(Self { codec, lookups: self.lookups.clone() })
    }

    /// Registers the schema of the envelope for each of `topics`, if there is a registry and the settings
    /// allow it; else looks whether it is there. True if there is a registry.
    ///
    /// # Errors
    /// As for [`Schemas::writing`].
    pub async fn prepare(settings: &RegistrySettings, topics: &[String]) -> Result<bool, RegistryError> {
        let schemas = Self::reading(settings, Codec::default())?;
        let has_registry = schemas.has_registry();
        schemas.writing(settings, topics).await?;
        Ok(has_registry)
    }

    /// Whether there is a registry to ask.
    #[must_use]
    pub fn has_registry(&self) -> bool {
        self.lookups.client().is_some()
    }

    /// Encodes, and decodes what needs no registry.
    #[must_use]
    pub fn codec(&self) -> &Codec {
        &self.codec
    }

    /// The record in a value. Asks the registry once, if need be.
    ///
    /// # Errors
    /// See [`Unreadable`].
    pub async fn read<R: Record>(&self, value: &[u8]) -> Result<R, Unreadable> {
        match self.codec.decode(value) {
            Err(DecodeError::UnknownSchemaId { id }) => self.lookups.resolve(id).await?,
            decoded => return decoded.map_err(|error| self.unreadable(&error)),
        }
        self.codec.decode(value).map_err(|error| match error {
            // So many others were learned meanwhile that this one is forgotten already.
            DecodeError::UnknownSchemaId { .. } => Unreadable::Later(error.to_string()),
            other => self.unreadable(&other),
        })
    }

    fn unreadable(&self, error: &DecodeError) -> Unreadable {
        if error.is_newer() {
            self.lookups.keep_for_successor(error.to_string())
        } else {
            Unreadable::Never(error.to_string())
        }
    }

    /// Learns the schema of a value that somebody else is going to decode with [`Schemas::codec`]. If there
    /// is nobody to ask, it is not waited for: the decoder says what is wrong.
    ///
    /// # Errors
    /// The registry cannot be asked at present, or the value is to be kept for a newer process.
    pub async fn meet(&self, value: &[u8]) -> Result<(), String> {
        if self.codec.has_unknown_schema(value) {
            return match self.read::<Envelope>(value).await {
                Err(Unreadable::Newer(why)) => Err(why),
                _ => Ok(()),
            };
        }
        let Some(id) = self.codec.unknown_id(value).filter(|_| self.has_registry()) else { return Ok(()) };
        match self.lookups.resolve(id).await {
            Ok(()) | Err(Unreadable::Never(_)) => Ok(()),
            Err(Unreadable::Later(why) | Unreadable::Newer(why)) => Err(why),
        }
    }

    /// The record in a value, however long its schema takes to be had.
    ///
    /// # Errors
    /// It will never be readable here.
    pub async fn read_patiently<R: Record>(&self, value: &[u8]) -> Result<R, String> {
        self.read_while(value, |why| matches!(why, Unreadable::Later(_))).await
    }

    /// The same for whoever holds an inbox up until then: what a newer version has written is kept for its successor.
    ///
    /// # Errors
    /// It will never be readable, and was kept for as long as the settings say.
    pub async fn read_in_order<R: Record>(&self, value: &[u8]) -> Result<R, String> {
        self.read_while(value, |why| !matches!(why, Unreadable::Never(_))).await
    }

    async fn read_while<R: Record>(
        &self,
        value: &[u8],
        is_passing: impl Fn(&Unreadable) -> bool,
    ) -> Result<R, String> {
        let mut wait = FIRST_WAIT;
        loop {
            match self.read(value).await {
                Ok(record) => return Ok(record),
                Err(why) if !is_passing(&why) => return Err(why.to_string()),
                Err(why) => {
                    let why = why.to_string();
                    tracing::debug!(why, "waiting for a schema"); // whoever asked has warned
                    sleep(wait).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
            }
        }
    }

    /// Counts lookups there, from zero on, so that an alert sees the first that fails.
    pub(crate) fn tell(&self, metrics: &Metrics) {
        let results: Family<ReasonLabel, Counter> = self.lookups.results.clone();
        for word in RESULTS {
            drop(results.get_or_create(&ReasonLabel { reason: word.to_owned() }));
        }
        let help = "Schema ids asked of the registry, by what came of it";
        metrics.with_registry(|registry| registry.register("schema_lookups", help, results));
    }
}

impl fmt::Debug for Schemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schemas").field("registry", &self.lookups.client().map(Client::shown)).finish()
    }
}
