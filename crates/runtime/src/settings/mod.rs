//! Settings: read once, into types; every fault is reported, not only the first.
//!
//! `config/default.toml` is the reference: it names every setting, says what it means, and gives its
//! default.

mod audit;
mod batch;
mod conversation;
mod coordinator;
mod dead_letters;
mod inputs;
mod layers;
mod model;
mod presets;
mod provider;
mod reader;
mod registry;
mod sections;
mod security;
mod tenants;
mod together;
mod units;

pub use audit::AuditSettings;
pub use batch::BatchSettings;
pub use conversation::ConversationSettings;
pub use dead_letters::{DeadLetterSettings, DlqSettings, Shares};
pub use inputs::InputSettings;
pub use model::{
    BulkheadSettings, CacheSettings, ModelPrice, ModelSettings, Nearby, Offline, OllamaSettings, RateSettings,
};
pub use provider::{JsonAsked, ProviderSettings};
pub use registry::{RegistryMode, RegistrySettings};
pub use sections::{
    ContentSettings, ControlSettings, FleetSettings, GroupProtocol, HttpSettings, IntakeSettings,
    KafkaSettings, LogFormat, MemorySettings, Partitions, ProcessorSettings, Retention, Slots,
    StateLogSettings, TelemetrySettings, TopicSettings,
};

use reader::Reader;
use starling_engine::coordinator::CoordinatorSettings;
use std::{fmt, path::PathBuf};

/// Everything that can be set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Names, sizes and lives of topics.
    pub topics: TopicSettings,
    /// How to reach Kafka.
    pub kafka: KafkaSettings,
    /// The schema registry.
    pub registry: RegistrySettings,
    /// The version whose schemas are written; `None` writes the present ones.
    pub write_as: Option<String>,
    /// The parallel processor.
    pub processor: ProcessorSettings,
    /// Work on the dead letters.
    pub dlq: DlqSettings,
    /// What the input topic takes.
    pub intake: IntakeSettings,
    /// How files become inputs.
    pub inputs: InputSettings,
    /// Reading of referenced records.
    pub content: ContentSettings,
    /// The bus in memory of a swarm in one process.
    pub memory: MemorySettings,
    /// Following cancellations.
    pub control: ControlSettings,
    /// What processes tell each other.
    pub fleet: FleetSettings,
    /// What bounds the coordinator's decisions; partitions and agents are filled in by its service.
    pub coordinator: CoordinatorSettings,
    /// The coordinator's log.
    pub statelog: StateLogSettings,
    /// The model.
    pub model: ModelSettings,
    /// Folder of playbooks over the built-in ones; `None` for none.
    pub playbooks_dir: Option<PathBuf>,
    /// Folder of agents; `None` takes the built-in ones.
    pub agents_dir: Option<PathBuf>,
    /// Largest material of one prompt, in bytes.
    pub agents_prompt: usize,
    /// `[conversation]`
    pub conversation: ConversationSettings,
    /// Most tokens of an instruction that a planner's model writes.
    pub agents_max_instruction_tokens: i64,
    /// Largest output of a task, in bytes.
    pub worker_max_output: usize,
    /// Logs and traces.
    pub telemetry: TelemetrySettings,
    /// Metrics and health over HTTP.
    pub http: HttpSettings,
    /// Accounting for intents.
    pub audit: AuditSettings,
    /// Running a file of rows.
    pub batch: BatchSettings,
}

/// Where settings come from, beside the built-in defaults.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// TOML files, later ones winning.
    pub files: Vec<PathBuf>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
    /// Flags: path and value.
    pub overrides: Vec<(String, String)>,
}

impl Sources {
    /// This process's environment, the files that `STARLING_CONFIG` names (separated by `:`) and those
    /// given, and the given overrides.
    #[must_use]
    pub fn of_process(files: Vec<PathBuf>, overrides: Vec<(String, String)>) -> Self {
        // A variable that is not UTF-8 is none of ours.
        let environment: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let named = environment
            .iter()
            .filter(|(name, _)| name == "STARLING_CONFIG")
            .flat_map(|(_, value)| value.split(':').filter(|path| !path.is_empty()).map(PathBuf::from));
        let files = named.chain(files).collect();
        Self { files, environment, overrides }
    }
}

/// One thing that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which setting.
    pub path: String,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub found: String,
    /// Where that was written.
    pub origin: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found {} ({})", self.path, self.expected, self.found, self.origin)
    }
}

/// Everything that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SettingsError {
    /// At least one.
    pub faults: Vec<Fault>,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the settings have {} fault(s):", self.faults.len())?;
        self.faults.iter().try_for_each(|fault| writeln!(f, "  {fault}"))
    }
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    /// Names all faults.
    pub fn load(sources: &Sources) -> Result<Self, SettingsError> {
        let (tree, faults) = layers::gather(sources);
        let mut reader = Reader::new(tree, faults);
        let settings = sections::read(&mut reader);
        let faults = reader.finish();
        if faults.is_empty() { Ok(settings) } else { Err(SettingsError { faults }) }
    }

    /// The built-in defaults alone.
    ///
    /// # Errors
    /// Never, as a test checks: the defaults are part of the program.
    pub fn defaults() -> Result<Self, SettingsError> {
        Self::load(&Sources::default())
    }
}

/// Reads a duration as settings and flags write it: `200ms`, `10s`, `15m`, `6h`, `7d`, `1h30m`.
#[must_use]
pub fn parse_duration(text: &str) -> Option<std::time::Duration> {
    units::duration(text)
}

/// Reads `key=value` as it stands in a flag.
///
/// # Errors
/// Says what is missing.
pub fn parse_override(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((path, value)) if !path.trim().is_empty() => Ok((path.trim().to_owned(), value.to_owned())),
        _ => Err(format!("expected <setting>=<value>, such as kafka.brokers=localhost:9092, found {text:?}")),
    }
}
