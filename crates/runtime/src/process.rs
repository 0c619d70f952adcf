//! The life of a process: from its flags to its exit code.

use crate::{
    clock::Clock,
    http,
    limits::LimitsError,
    node::{Node, NodeError, NodeParts},
    random::Random,
    registry::RegistryError,
    settings::{GroupProtocol, Settings, SettingsError, Sources, parse_override},
    telemetry::{self, TelemetryError, TelemetryGuard},
};
use clap::Parser;
use secrecy::ExposeSecret as _;
use starling_bus::{Bus, BusError, KafkaBus, KafkaOptions};
use starling_protocol::{Codec, Topic, TopicNames};
use std::{error::Error, future::Future, io, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

/// Exit code for faulty flags or settings.
pub const EXIT_USAGE: u8 = 64;
/// Exit code for a broker or a model that cannot be reached.
pub const EXIT_UNAVAILABLE: u8 = 69;
/// Exit code after a second signal.
const EXIT_INTERRUPTED: i32 = 130;
/// Time between two looks for a broker at the start.
const KNOCK: Duration = Duration::from_millis(250);
/// How long the producer may take to send what is left when the process ends.
const FLUSH: Duration = Duration::from_secs(5);

/// The flags that every program has.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CommonFlags {
    /// Settings file (TOML); may be given several times, later ones win. STARLING_CONFIG names more of them.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// One setting, such as coordinator.max_attempts=2; wins over files and environment; may be given several times.
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = parse_override)]
    pub set: Vec<(String, String)>,
    /// Kafka brokers, HOST:PORT[,HOST:PORT...]; short for --set kafka.brokers=...
    #[arg(long, global = true, value_name = "HOST:PORT")]
    pub brokers: Option<String>,
}

impl CommonFlags {
    /// The settings that result, with this process's environment.
    ///
    /// # Errors
    /// Names all faults.
    pub fn settings(&self) -> Result<Settings, SettingsError> {
        let brokers = self.brokers.iter().map(|brokers| ("kafka.brokers".to_owned(), brokers.clone()));
        let overrides = self.set.iter().cloned().chain(brokers).collect();
        Settings::load(&Sources::of_process(self.config.clone(), overrides))
    }
}

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Faulty settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No broker answers.
    #[error(
        "no broker answers at {brokers}: {reason}\n\
         Is it running, and is the address right? `scripts/kafka start` runs one for development; \
         kafka.brokers, STARLING__KAFKA__BROKERS or --brokers name another."
    )]
    Unreachable {
        /// The addresses.
        brokers: String,
        /// What the client says.
        reason: String,
    },
    /// Topics are missing, or the broker refuses.
    #[error(transparent)]
    Bus(BusError),
    /// The topics would break what is promised.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The schema registry does not answer, or refuses.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Traces cannot be exported.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// Metrics and health cannot be served.
    #[error("http.listen: {listen} cannot be listened on: {reason}")]
    Http {
        /// The address.
        listen: String,
        /// Why.
        reason: io::Error,
    },
    /// The operating system refuses something.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<BusError> for StartError {
    fn from(error: BusError) -> Self {
        match error {
            BusError::Unreachable { brokers, reason } => Self::Unreachable { brokers, reason },
            other => Self::Bus(other),
        }
    }
}

impl From<NodeError> for StartError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Bus(error) => error.into(),
            NodeError::Limits(error) => error.into(),
            NodeError::Registry(error) => error.into(),
        }
    }
}

impl StartError {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::Settings(_) | StartError::Telemetry(_) => EXIT_USAGE,
            StartError::Unreachable { .. } | StartError::Registry(RegistryError::Unreachable { .. }) => {
                EXIT_UNAVAILABLE
            }
            StartError::Registry(_) => EXIT_USAGE,
            StartError::Bus(_) | StartError::Limits(_) | StartError::Http { .. } | StartError::System(_) => 1,
        }
    }
}

/// How a process sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// To many partitions at once, as a coordinator does.
    FanOut,
    /// One result after the other.
    OneByOne,
}

/// The Kafka bus that the settings describe. Does not wait for a broker.
///
/// # Errors
/// The client does not take a property.
pub fn bus_from(settings: &Settings, traffic: Traffic) -> Result<Arc<dyn Bus>, BusError> {
    let bus: Arc<dyn Bus> = KafkaBus::new(kafka_options(settings, traffic))?;
    Ok(bus)
}

/// What the settings mean to a Kafka client.
#[must_use]
pub fn kafka_options(settings: &Settings, traffic: Traffic) -> KafkaOptions {
    let kafka = &settings.kafka;
    let names = TopicNames::new(settings.topics.prefix.as_str());
    let (producers, urgent_topics) = match traffic {
        Traffic::FanOut => (kafka.producers, vec![names.name(&Topic::State)]),
        Traffic::OneByOne => (1, Vec::new()),
    };
    KafkaOptions {
        client_id: settings.topics.prefix.clone(),
        extra: kafka
            .properties
            .iter()
            .map(|(name, value)| (name.clone(), value.expose_secret().to_owned()))
            .collect(),
        security: kafka.security.clone(),
        group_protocol: match kafka.group_protocol {
            GroupProtocol::Classic => starling_bus::GroupProtocol::Classic,
            GroupProtocol::Consumer => starling_bus::GroupProtocol::Consumer,
        },
        max_message_bytes: settings.topics.max_message,
        fetch_ahead_bytes: kafka.fetch_ahead,
        producers,
        urgent_topics,
        ..KafkaOptions::new(kafka.brokers.as_str())
    }
}

/// A running process.
pub struct Process {
    /// What its services share.
    pub node: Node,
    telemetry: TelemetryGuard,
}

impl Process {
    /// Starts on the Kafka that the settings name: telemetry, signals, connection, health.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(settings: Settings, service: &str) -> Result<Self, StartError> {
        let traffic = if service == "planner" { Traffic::FanOut } else { Traffic::OneByOne };
        let bus = bus_from(&settings, traffic)?;
        Self::start_on(settings, service, bus).await
    }

    /// Starts on a bus that is there already.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start_on(settings: Settings, service: &str, bus: Arc<dyn Bus>) -> Result<Self, StartError> {
        let process: Arc<str> = process_name(service).into();
        let telemetry = telemetry::init(&settings.telemetry, service, &process)?;
        let shutdown = CancellationToken::new();
        obey_signals(shutdown.clone())?;
        let settings = Arc::new(settings);
        let parts = NodeParts {
            spans: telemetry.spans(),
            clock: Clock::system(),
            random: Random::system(),
            process: process.clone(),
            shutdown: shutdown.clone(),
            codec: Codec::default(),
        };
        let node = connect(&settings, bus, parts).await?;
        if let Some(listen) = &settings.http.listen {
            let address = http::serve(
                listen,
                node.health.clone(),
                node.metrics.clone(),
                settings.http.stalled_after,
                node.farewell.clone(),
            )
            .await
            .map_err(|reason| StartError::Http { listen: listen.clone(), reason })?;
            tracing::info!(%address, "serving /metrics, /healthz and /readyz");
        }
        tracing::info!(%process, service, "started");
        Ok(Self { node, telemetry })
    }

    /// Ends in order, after the services have ended: says good-bye, sends what is left, exports the last
    /// spans.
    pub async fn stop(self) {
        self.node.leave().await;
        self.node.bus.flush(FLUSH).await;
        self.telemetry.shutdown().await;
        tracing::info!(process = %self.node.process, "stopped");
    }
}

/// Looks for a broker, and for its topics, for as long as the settings say: in a deployment all parts start at once,
/// whoever makes the topics among them.
async fn connect(settings: &Arc<Settings>, bus: Arc<dyn Bus>, parts: NodeParts) -> Result<Node, NodeError> {
    let give_up = Instant::now() + settings.kafka.connect_timeout;
    loop {
        match Node::connect(settings.clone(), bus.clone(), parts.clone()).await {
            Err(NodeError::Bus(
                BusError::Unreachable { .. } | BusError::Retry(_) | BusError::NoSuchTopic { .. },
            )) if Instant::now() + KNOCK < give_up => {
                tokio::select! {
                    biased;
                    () = sleep(KNOCK) => {}
                    () = parts.shutdown.cancelled() => {
                        return Err(BusError::Retry("told to stop before a broker answered".to_owned()).into());
                    }
                }
            }
            other => return other,
        }
    }
}

/// SIGTERM and SIGINT ask the process to stop; a second one ends it at once.
fn obey_signals(shutdown: CancellationToken) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        for nth in 0.. {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if nth > 0 {
                std::process::exit(EXIT_INTERRUPTED);
            }
            shutdown.cancel(); // first: the log may have nowhere to go any more
            tracing::info!("stopping; a second signal ends the process at once");
        }
    });
    Ok(())
}

/// A name that no other process has, also not this one in its next life.
fn process_name(service: &str) -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "local".to_owned());
    format!("{service}-{host}-{:08x}", rand::random::<u32>())
}

/// A fault of the settings that shows only when a service builds its parts, such as a broken agent file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The whole of a service's `main`: flags, settings, runtime, start, `serve` until it ends, stop.
pub fn run_main<F, Served>(service: &'static str, serve: F) -> ExitCode
where
    F: FnOnce(Node) -> Served,
    Served: Future<Output = Result<(), Box<dyn Error + Send + Sync>>>,
{
    let flags = match Flags::try_parse() {
        Ok(flags) => flags,
        Err(error) => {
            let _ = error.print(); // nothing is left to report a closed terminal to
            return if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    if flags.pools.is_some() && service != "worker" {
        return report(&UsageError("--pools: only workers have pools".to_owned()), EXIT_USAGE);
    }
    let settings = match flags.into_common(service).settings() {
        Ok(settings) => settings,
        Err(error) => return report(&error, EXIT_USAGE),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&error, 1),
    };
    let code = runtime.block_on(async {
        let process = match Process::start(settings, service).await {
            Ok(process) => process,
            Err(error) => return report(&error, error.exit_code()),
        };
        let served = serve(process.node.clone()).await;
        process.stop().await;
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if error.is::<UsageError>() => report(error.as_ref(), EXIT_USAGE),
            Err(error) => report(error.as_ref(), 1),
        }
    });
    // A blocking call of the client may hang when the broker is gone; nothing of value is left to wait for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    code
}

#[derive(Debug, Parser)]
#[command(version, about = "A service of Starling. Settings are explained in config/default.toml.")]
struct Flags {
    #[command(flatten)]
    common: CommonFlags,
    /// Records handled at once: short for --set processor.slots.<service>=…
    #[arg(long, value_name = "N")]
    slots: Option<String>,
    /// Worker pools whose tasks it takes: short for --set worker.pools=… Workers only.
    #[arg(long, value_name = "POOL,POOL...")]
    pools: Option<String>,
    /// Name of this instance for static membership: short for --set kafka.instance=…
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Where metrics and health are served: short for --set http.listen=…
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<String>,
}

impl Flags {
    fn into_common(self, service: &str) -> CommonFlags {
        let mut common = self.common;
        for (path, value) in [
            (format!("processor.slots.{service}"), self.slots),
            ("worker.pools".to_owned(), self.pools),
            ("kafka.instance".to_owned(), self.instance),
            ("http.listen".to_owned(), self.http),
        ] {
            common.set.extend(value.map(|value| (path, value)));
        }
        common
    }
}

#[allow(clippy::print_stderr)] // logs may not be set up, and whoever started the program must see it
fn report(error: &dyn Error, code: u8) -> ExitCode {
    eprintln!("starling: {error}");
    ExitCode::from(code)
}
