//! What every command begins with: settings, telemetry, a bus.

use crate::{client::Client, exit::CliError};
use starling_bus::Bus;
use starling_protocol::{Codec, CodecLimits, Topic, TopicNames};
use starling_runtime::{
    Schemas, Settings,
    process::{CommonFlags, Traffic, bus_from},
    telemetry::{self, Spans, TelemetryGuard},
};
use std::sync::{Arc, Mutex, PoisonError};

/// One run of the command line.
pub struct Session {
    /// The settings.
    pub settings: Arc<Settings>,
    telemetry: Mutex<Option<TelemetryGuard>>,
    spans: Spans,
    brokers_given: bool,
}

impl Session {
    /// Reads the settings and starts telemetry. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Names all faults of the settings.
    pub fn open(flags: &CommonFlags) -> Result<Self, CliError> {
        let mut flags = flags.clone();
        if flags.config.is_empty() && std::env::var_os("STARLING__TELEMETRY__LOG_LEVEL").is_none() {
            // A person who asks for an answer does not want the log of a service around it.
            flags.set.insert(0, ("telemetry.log_level".to_owned(), "warn".to_owned()));
        }
        let settings = flags.settings().map_err(|error| CliError::Usage(error.to_string()))?;
        let process = format!("cli-{}", std::process::id());
        let guard = telemetry::init(&settings.telemetry, "cli", &process)
            .map_err(|error| CliError::Usage(error.to_string()))?;
        Ok(Self {
            settings: Arc::new(settings),
            spans: guard.spans(),
            telemetry: Mutex::new(Some(guard)),
            brokers_given: flags.brokers.is_some(),
        })
    }

    /// Whether a broker was named on the command line.
    pub fn brokers_given(&self) -> bool {
        self.brokers_given
    }

    /// The Kafka of the settings. Does not wait for a broker.
    ///
    /// # Errors
    /// The client does not take a property.
    pub fn kafka(&self, traffic: Traffic) -> Result<Arc<dyn Bus>, CliError> {
        Ok(bus_from(&self.settings, traffic)?)
    }

    /// A publisher and follower on a bus of this process's own.
    pub fn client(&self, bus: Arc<dyn Bus>) -> Client {
        Client::new(bus, self.names())
    }

    /// A follower on the Kafka of the settings.
    ///
    /// # Errors
    /// A client does not take a setting.
    pub fn follower(&self) -> Result<Client, CliError> {
        Ok(self.client(self.kafka(Traffic::OneByOne)?).with_schemas(self.schemas()?))
    }

    /// A publisher and follower on the Kafka of the settings.
    ///
    /// # Errors
    /// As for [`Session::follower`]; the schema registry, if there is one, does not answer or refuses.
    pub async fn publisher(&self) -> Result<Client, CliError> {
        let topics = [Topic::Intents, Topic::Coordinator].map(|topic| self.names().name(&topic));
        let schemas = self.schemas()?.writing(&self.settings.registry, &topics).await?;
        Ok(self.client(self.kafka(Traffic::OneByOne)?).with_schemas(schemas))
    }

    fn schemas(&self) -> Result<Schemas, CliError> {
        let max_schemas = self.settings.registry.cache;
        let codec = Codec::new(CodecLimits { max_schemas, ..CodecLimits::default() });
        Ok(Schemas::reading(&self.settings.registry, codec)?)
    }

    fn names(&self) -> TopicNames {
        TopicNames::new(self.settings.topics.prefix.as_str())
    }

    /// Starts spans.
    pub fn spans(&self) -> &Spans {
        &self.spans
    }

    /// Exports the spans that wait. The last thing that a command does.
    pub async fn flush_telemetry(&self) {
        let guard = self.telemetry.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(guard) = guard {
            guard.shutdown().await;
        }
    }
}
