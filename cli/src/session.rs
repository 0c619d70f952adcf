//! What every command begins with: settings, telemetry, a bus.

use crate::{client::Client, exit::CliError};
use starling_bus::{Bus, KafkaOptions};
use starling_protocol::{Codec, Topic, TopicNames};
use starling_runtime::{
    Schemas, Settings,
    node::codec_for,
    process::{CommonFlags, Traffic, bus_from, kafka_options},
    settings::Sources,
    telemetry::{self, Spans, TelemetryGuard},
};
use starling_service::{Chosen, choose_models};
use std::sync::{Arc, Mutex, PoisonError};

/// One run of the command line.
pub struct Session {
    /// The settings.
    pub settings: Arc<Settings>,
    telemetry: Mutex<Option<TelemetryGuard>>,
    spans: Spans,
    flags: CommonFlags,
    origins: Vec<String>,
}

/// How much of a command's log may go to stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// As the settings say; warnings where they say nothing.
    AsSet,
    /// Nothing: the command draws on the terminal.
    Silent,
}

impl Session {
    /// Reads the settings and starts telemetry. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Names all faults of the settings.
    pub fn open(flags: &CommonFlags, log: Log) -> Result<Self, CliError> {
        let origins = origins(flags, &Sources::of_process(flags.config.clone(), Vec::new()));
        let given = flags.clone();
        let mut flags = flags.clone();
        if flags.config.is_empty() && std::env::var_os("STARLING__TELEMETRY__LOG_LEVEL").is_none() {
            // A person who asks for an answer does not want the log of a service around it.
            flags.set.insert(0, ("telemetry.log_level".to_owned(), "warn".to_owned()));
        }
        if log == Log::Silent {
            flags.set.push(("telemetry.log_level".to_owned(), "off".to_owned()));
        }
        let settings = flags.settings().map_err(|error| CliError::Usage(error.to_string()))?;
        let process = format!("cli-{}", std::process::id());
        let guard = telemetry::init(&settings.telemetry, "cli", &process)
            .map_err(|error| CliError::Usage(error.to_string()))?;
        Ok(Self {
            settings: Arc::new(settings),
            spans: guard.spans(),
            telemetry: Mutex::new(Some(guard)),
            flags: given,
            origins,
        })
    }

    /// Puts in the models that the settings leave open, for commands that ask a model from this process; what was chosen is
    /// said on stderr, unless nothing is to be said there.
    ///
    /// # Errors
    /// The first endpoint does not answer, or has no model.
    pub async fn choose_models(&mut self, quiet: bool) -> Result<(), CliError> {
        let mut settings = Settings::clone(&self.settings);
        let choices = choose_models(&mut settings.model).await?;
        for Chosen { endpoint, model, .. } in choices.chosen.iter().filter(|_| !quiet) {
            eprintln!("model {model}, the newest of {endpoint}");
        }
        for error in &choices.left_out {
            tracing::warn!(%error, "this provider does not stand in for others");
        }
        self.settings = Arc::new(settings);
        Ok(())
    }

    /// Whether a broker was named on the command line.
    pub fn brokers_given(&self) -> bool {
        self.flags.brokers.is_some()
    }

    /// The flags for settings, as they were given.
    pub fn flags(&self) -> &CommonFlags {
        &self.flags
    }

    /// Where settings come from beside the defaults: names, never values.
    pub fn origins(&self) -> &[String] {
        &self.origins
    }

    /// The Kafka of the settings. Does not wait for a broker.
    ///
    /// # Errors
    /// The client does not take a property.
    pub fn kafka(&self, traffic: Traffic) -> Result<Arc<dyn Bus>, CliError> {
        Ok(bus_from(&self.settings, traffic)?)
    }

    /// What the settings mean to a Kafka client.
    pub fn kafka_options(&self, traffic: Traffic) -> KafkaOptions {
        kafka_options(&self.settings, traffic)
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
        let topics =
            [Topic::Intents, Topic::Coordinator, Topic::Content].map(|topic| self.names().name(&topic));
        let schemas = self.schemas()?.writing(&self.settings.registry, &topics).await?;
        Ok(self.client(self.kafka(Traffic::OneByOne)?).with_schemas(schemas))
    }

    /// Reads values, with the help of the schema registry if there is one.
    ///
    /// # Errors
    /// The registry's client cannot be made.
    pub fn schemas(&self) -> Result<Schemas, CliError> {
        let codec = codec_for(&self.settings, Codec::default())?;
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

fn origins(flags: &CommonFlags, sources: &Sources) -> Vec<String> {
    let files = sources.files.iter().map(|path| format!("file {}", path.display()));
    let known = ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OTEL_EXPORTER_OTLP_ENDPOINT", "RUST_LOG"];
    let is_setting = |name: &str| name.starts_with("STARLING__") || known.contains(&name);
    let variables = sources.environment.iter().filter(|(name, value)| is_setting(name) && !value.is_empty());
    let mut variables: Vec<&str> = variables.map(|(name, _)| name.as_str()).collect();
    variables.sort_unstable();
    let variables = (!variables.is_empty()).then(|| format!("environment {}", variables.join(", ")));
    let set = flags.set.iter().map(|(path, _)| path.as_str());
    let set: Vec<&str> = set.chain(flags.brokers.is_some().then_some("kafka.brokers")).collect();
    let set = (!set.is_empty()).then(|| format!("flags for {}", set.join(", ")));
    files.chain(variables).chain(set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_names_without_values() {
        let flags = CommonFlags {
            set: vec![("model.api_key".to_owned(), "hunter2".to_owned())],
            brokers: Some("b:1".to_owned()),
            ..CommonFlags::default()
        };
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let sources = Sources {
            files: vec!["my.toml".into()],
            environment: vec![
                variable("STARLING__MODEL__API_KEY", "hunter2"),
                variable("OPENAI_API_KEY", "hunter2"),
                variable("OPENAI_BASE_URL", ""),
                variable("HOME", "/"),
            ],
            overrides: Vec::new(),
        };
        assert_eq!(
            origins(&flags, &sources),
            [
                "file my.toml",
                "environment OPENAI_API_KEY, STARLING__MODEL__API_KEY",
                "flags for model.api_key, kafka.brokers"
            ]
        );
        assert!(origins(&CommonFlags::default(), &Sources::default()).is_empty());
    }
}
