//! The sections of the settings and how each is read.

use super::{Settings, reader::Reader, security};
use secrecy::SecretString;
use starling_bus::KafkaSecurity;
use starling_protocol::{codec::released_versions, tag::is_pool_name};
use std::{collections::BTreeMap, ops::RangeInclusive, path::PathBuf, time::Duration};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
const RETENTION: RangeInclusive<Duration> = MINUTE..=YEAR;

/// `[topics]`
#[derive(Clone, Debug)]
pub struct TopicSettings {
    /// First part of the name of every topic and group.
    pub prefix: String,
    /// Replication factor; -1 for the broker's default.
    pub replication: i32,
    /// Replicas that must have a record before it counts as written.
    pub min_insync_replicas: i32,
    /// Worker pools beside the default one.
    pub pools: Vec<String>,
    /// Largest record in bytes.
    pub max_message: usize,
    /// Numbers of partitions.
    pub partitions: Partitions,
    /// How long records are kept.
    pub retention: Retention,
}

/// `[topics.partitions]`
#[derive(Clone, Debug)]
#[allow(missing_docs)] // one for each topic, named like it
pub struct Partitions {
    pub intents: i32,
    pub coordinator: i32,
    pub planner: i32,
    pub worker: i32,
    pub critic: i32,
    pub tool: i32,
    pub outcomes: i32,
    pub progress: i32,
    pub content: i32,
    pub dlq: i32,
}

/// `[topics.retention]`
#[derive(Clone, Debug)]
#[allow(missing_docs)] // one for each topic, named like it
pub struct Retention {
    pub inboxes: Duration,
    pub outcomes: Duration,
    pub progress: Duration,
    pub content: Duration,
    pub control: Duration,
    pub fleet: Duration,
    pub dlq: Duration,
}

/// `[kafka]`
#[derive(Clone, Debug)]
pub struct KafkaSettings {
    /// Addresses, separated by commas.
    pub brokers: String,
    /// How groups share partitions.
    pub group_protocol: GroupProtocol,
    /// After how long a silent member is dead.
    pub session_timeout: Duration,
    /// How long letting go of partitions may take.
    pub revoke_timeout: Duration,
    /// Name for static membership.
    pub instance: Option<String>,
    /// Producers side by side, in processes that coordinate.
    pub producers: usize,
    /// Records between client and processor.
    pub queue_records: usize,
    /// Bytes that a consumer fetches ahead.
    pub fetch_ahead: usize,
    /// How long to look for a broker at the start.
    pub connect_timeout: Duration,
    /// Identity and encryption.
    pub security: KafkaSecurity,
    /// More properties of the client; may hold passwords.
    pub properties: BTreeMap<String, SecretString>,
}

/// How members of a group share partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupProtocol {
    /// By the members, cooperative-sticky.
    #[default]
    Classic,
    /// By the broker (KIP-848).
    Consumer,
}

/// `[processor]`
#[derive(Clone, Debug)]
pub struct ProcessorSettings {
    /// Records in hand, for each partition.
    pub queue_per_partition: usize,
    /// Records in hand, for each processor.
    pub queue_total: usize,
    /// Shortest time between commits under load.
    pub commit_interval: Duration,
    /// Shortest time between commits when idle.
    pub commit_idle: Duration,
    /// How long finishing may take at shutdown.
    pub grace: Duration,
    /// Most times that a record is handled.
    pub tries: u32,
    /// Shortest wait between tries.
    pub backoff_min: Duration,
    /// Longest wait between tries.
    pub backoff_max: Duration,
    /// How long after its deadline a handler is stopped.
    pub deadline_slack: Duration,
    /// Longest time of a handler without a deadline.
    pub handler_timeout: Duration,
    /// How long a record is sent again and again.
    pub send_timeout: Duration,
    /// Records handled at once.
    pub slots: Slots,
    /// How much of an inbox may become dead letters.
    pub dead_letters: super::DeadLetterSettings,
}

/// `[processor.slots]`
#[derive(Clone, Debug)]
#[allow(missing_docs)] // one for each role, named like it
pub struct Slots {
    pub intake: usize,
    pub planner: usize,
    pub worker: usize,
    pub critic: usize,
    pub tool: usize,
}

/// `[intake]`
#[derive(Clone, Debug)]
pub struct IntakeSettings {
    /// Largest intent in bytes.
    pub max_intent: usize,
}

/// `[memory]`
#[derive(Clone, Debug)]
pub struct MemorySettings {
    /// Bytes above which a bus in memory forgets what is about intents that have ended.
    pub log: usize,
}

/// `[content]`
#[derive(Clone, Debug)]
pub struct ContentSettings {
    /// Size of the cache in bytes.
    pub cache: usize,
    /// Records in one read.
    pub batch: usize,
}

/// `[control]`
#[derive(Clone, Debug)]
pub struct ControlSettings {
    /// Cancelled intents that are remembered.
    pub remembered: usize,
}

/// `[fleet]`
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// Time between two beats.
    pub interval: Duration,
    /// Silence after which a process is forgotten.
    pub forget_after: Duration,
}

/// `[statelog]`
#[derive(Clone, Debug)]
pub struct StateLogSettings {
    /// Decisions between snapshots.
    pub snapshot_every: u64,
    /// Bytes of decisions between snapshots.
    pub snapshot_bytes: usize,
    /// Inputs decided together.
    pub max_batch: usize,
    /// Largest record in bytes.
    pub max_record: usize,
}

/// `[telemetry]`
#[derive(Clone, Debug)]
pub struct TelemetrySettings {
    /// Collector; `None` records no traces.
    pub otlp_endpoint: Option<String>,
    /// Share of traces recorded where nobody decided, 0 to 1.
    pub sample_ratio: f64,
    /// Spans that wait.
    pub queue: usize,
    /// Spans in one export.
    pub batch: usize,
    /// Longest wait of a span.
    pub delay: Duration,
    /// Longest time of an export.
    pub timeout: Duration,
    /// Form of logs.
    pub log_format: LogFormat,
    /// Filter of logs.
    pub log_level: String,
}

/// The form of logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

/// `[http]`
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Address; `None` serves nothing.
    pub listen: Option<String>,
    /// When a loop counts as stalled.
    pub stalled_after: Duration,
}

pub(super) fn read(r: &mut Reader) -> Settings {
    let settings = Settings {
        topics: topics(r),
        kafka: kafka(r),
        registry: super::registry::read(r),
        write_as: write_as(r),
        processor: processor(r),
        dlq: super::dead_letters::read_dlq(r),
        intake: IntakeSettings { max_intent: r.size("intake.max_intent", 1024..=64 << 20) },
        inputs: super::inputs::read(r),
        content: ContentSettings {
            cache: r.size("content.cache", 0..=64 << 30),
            batch: r.integer("content.batch", 1..=1000),
        },
        memory: MemorySettings { log: r.size("memory.log", 1 << 20..=1 << 40) },
        control: ControlSettings { remembered: r.integer("control.remembered", 1..=10_000_000) },
        fleet: FleetSettings {
            interval: r.duration("fleet.interval", MS * 50..=MINUTE),
            forget_after: r.duration("fleet.forget_after", MS * 100..=HOUR),
        },
        coordinator: super::coordinator::read(r),
        statelog: StateLogSettings {
            snapshot_every: r.integer("statelog.snapshot_every", 1..=i64::MAX).unsigned_abs(),
            snapshot_bytes: r.size("statelog.snapshot_bytes", 64 << 10..=16 << 30),
            max_batch: r.integer("statelog.max_batch", 1..=100_000),
            max_record: r.size("statelog.max_record", 16 << 10..=64 << 20),
        },
        model: super::model::read(r),
        playbooks_dir: r.optional("playbooks.dir").map(PathBuf::from),
        agents_dir: r.optional("agents.dir").map(PathBuf::from),
        conversation: super::conversation::read(r),
        agents_max_instruction_tokens: r.integer("agents.max_instruction_tokens", 20..=100_000),
        agents_prompt: r.size("agents.prompt", 4096..=64 << 20),
        worker_max_output: r.size("worker.max_output", 1024..=64 << 20),
        telemetry: telemetry(r),
        http: HttpSettings {
            listen: r.optional("http.listen"),
            stalled_after: r.duration("http.stalled_after", SECOND..=HOUR),
        },
        audit: super::audit::read(r),
        batch: super::batch::read(r),
    };
    if settings.fleet.forget_after < settings.fleet.interval {
        r.complain(
            "fleet.forget_after",
            "at least fleet.interval",
            &format!("{:?}", settings.fleet.forget_after),
            "together with fleet.interval",
        );
    }
    if settings.processor.backoff_max < settings.processor.backoff_min {
        r.complain(
            "processor.backoff_max",
            "at least processor.backoff_min",
            &format!("{:?}", settings.processor.backoff_max),
            "together with processor.backoff_min",
        );
    }
    super::together::check(&settings, r);
    settings
}

fn topics(r: &mut Reader) -> TopicSettings {
    let mut count = |name: &str| r.integer(&format!("topics.partitions.{name}"), 1..=10_000);
    let partitions = Partitions {
        intents: count("intents"),
        coordinator: count("coordinator"),
        planner: count("planner"),
        worker: count("worker"),
        critic: count("critic"),
        tool: count("tool"),
        outcomes: count("outcomes"),
        progress: count("progress"),
        content: count("content"),
        dlq: count("dlq"),
    };
    let mut kept = |name: &str| r.duration(&format!("topics.retention.{name}"), RETENTION);
    let retention = Retention {
        inboxes: kept("inboxes"),
        outcomes: kept("outcomes"),
        progress: kept("progress"),
        content: kept("content"),
        control: kept("control"),
        fleet: kept("fleet"),
        dlq: kept("dlq"),
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let prefix = r.checked("topics.prefix", "1 to 100 letters, digits and . _ -", |prefix| {
        (1..=100).contains(&prefix.len()) && prefix.chars().all(legal)
    });
    TopicSettings {
        prefix,
        replication: r.integer("topics.replication", -1..=100),
        min_insync_replicas: r.integer("topics.min_insync_replicas", 1..=100),
        pools: r.list("topics.pools", "a list of pool names of a-z, 0-9 and -", is_pool_name),
        max_message: r.size("topics.max_message", 64 << 10..=512 << 20),
        partitions,
        retention,
    }
}

fn kafka(r: &mut Reader) -> KafkaSettings {
    let expected = "host:port, several separated by commas";
    let brokers = r.checked("kafka.brokers", expected, |brokers| !brokers.trim().is_empty());
    let properties = r.texts("kafka.properties");
    KafkaSettings {
        brokers,
        group_protocol: r.choice(
            "kafka.group_protocol",
            &[("classic", GroupProtocol::Classic), ("consumer", GroupProtocol::Consumer)],
        ),
        session_timeout: r.duration("kafka.session_timeout", SECOND..=HOUR),
        revoke_timeout: r.duration("kafka.revoke_timeout", MS * 100..=5 * MINUTE),
        instance: r.optional("kafka.instance"),
        producers: r.integer("kafka.producers", 1..=64),
        queue_records: r.integer("kafka.queue_records", 1..=1_000_000),
        fetch_ahead: r.size("kafka.fetch_ahead", 64 << 10..=1 << 30),
        connect_timeout: r.duration("kafka.connect_timeout", MS * 100..=HOUR),
        security: security::read(r),
        properties: properties.into_iter().map(|(name, value)| (name, value.into())).collect(),
    }
}

fn processor(r: &mut Reader) -> ProcessorSettings {
    let mut slots = |role: &str| r.integer(&format!("processor.slots.{role}"), 1..=100_000);
    let slots = Slots {
        intake: slots("intake"),
        planner: slots("planner"),
        worker: slots("worker"),
        critic: slots("critic"),
        tool: slots("tool"),
    };
    ProcessorSettings {
        queue_per_partition: r.integer("processor.queue_per_partition", 1..=100_000),
        queue_total: r.integer("processor.queue_total", 1..=1_000_000),
        commit_interval: r.duration("processor.commit_interval", MS..=MINUTE),
        commit_idle: r.duration("processor.commit_idle", MS..=MINUTE),
        grace: r.duration("processor.grace", Duration::ZERO..=HOUR),
        tries: r.integer("processor.tries", 1..=1_000),
        backoff_min: r.duration("processor.backoff_min", MS..=HOUR),
        backoff_max: r.duration("processor.backoff_max", MS..=HOUR),
        deadline_slack: r.duration("processor.deadline_slack", Duration::ZERO..=HOUR),
        handler_timeout: r.duration("processor.handler_timeout", MS * 100..=24 * HOUR),
        send_timeout: r.duration("processor.send_timeout", MS * 100..=24 * HOUR),
        slots,
        dead_letters: super::dead_letters::read(r),
    }
}

fn write_as(r: &mut Reader) -> Option<String> {
    let known: Vec<&str> = released_versions().collect();
    let expected = format!("a version whose schemas this one knows ({}), or nothing", known.join(", "));
    let version = r.checked("schemas.write_as", &expected, |text| text.is_empty() || known.contains(&text));
    Some(version).filter(|version| !version.is_empty())
}

fn telemetry(r: &mut Reader) -> TelemetrySettings {
    let expected = "a level such as info, or a filter such as info,starling_bus=debug";
    let log_level = r.checked("telemetry.log_level", expected, |filter| {
        tracing_subscriber::EnvFilter::try_new(filter).is_ok()
    });
    TelemetrySettings {
        otlp_endpoint: r.http("telemetry.otlp_endpoint"),
        sample_ratio: r.number("telemetry.sample_ratio", 0.0..=1.0),
        queue: r.integer("telemetry.queue", 1..=1_000_000),
        batch: r.integer("telemetry.batch", 1..=100_000),
        delay: r.duration("telemetry.delay", MS..=MINUTE),
        timeout: r.duration("telemetry.timeout", MS..=MINUTE),
        log_format: r.choice("telemetry.log_format", &[("text", LogFormat::Text), ("json", LogFormat::Json)]),
        log_level,
    }
}
