//! What all services of a process share.

use crate::{
    clock::Clock,
    content::{ContentOptions, ContentReader},
    control::Control,
    courier::{Courier, SendRetry},
    fleet::{Fleet, FleetOptions},
    health::Health,
    limits::{self, LimitsError},
    metrics::Metrics,
    registry::{RegistryError, Schemas, enveloped_topics},
    router::Router,
    settings::Settings,
    telemetry::Spans,
};
use starling_bus::{Bus, BusError, PartitionId};
use starling_protocol::{Codec, CodecLimits, Topic, TopicNames};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A process on a bus: everything that its services need beside their own handlers. Cheap to clone.
#[derive(Clone)]
pub struct Node {
    /// The settings.
    pub settings: Arc<Settings>,
    /// The bus.
    pub bus: Arc<dyn Bus>,
    /// Encodes, and decodes what needs no schema registry.
    pub codec: Codec,
    /// Reads values whatever schema they were written with.
    pub schemas: Schemas,
    /// Knows all topics.
    pub router: Router,
    /// Reads referenced records.
    pub content: Arc<ContentReader>,
    /// Sends.
    pub courier: Courier,
    /// Knows cancelled intents.
    pub control: Control,
    /// Knows the other processes.
    pub fleet: Fleet,
    /// Starts spans.
    pub spans: Spans,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Says whether the process is alive and ready.
    pub health: Health,
    /// Tells the time.
    pub clock: Clock,
    /// Name of the process, unique to its life.
    pub process: Arc<str>,
    /// Fires when the process is to stop.
    pub shutdown: CancellationToken,
    /// Fires when everything has stopped but the last words: telemetry, the fleet's farewell.
    pub farewell: CancellationToken,
}

/// What a [`Node`] is made from, beside the settings and the bus.
#[derive(Clone, Debug)]
pub struct NodeParts {
    /// Starts spans.
    pub spans: Spans,
    /// Tells the time.
    pub clock: Clock,
    /// Name of the process, unique to its life.
    pub process: Arc<str>,
    /// Fires when the process is to stop.
    pub shutdown: CancellationToken,
    /// Encodes and decodes; its limits, and the version that it writes for, are those of the settings.
    pub codec: Codec,
}

/// Why a [`Node`] cannot work.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NodeError {
    /// The broker is unreachable, or topics are missing.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The topics would break what is promised.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The schema registry is unreachable, or refuses.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// The codec, with the limits and for the version that the settings name.
///
/// # Errors
/// The version is unknown, which the settings have checked.
pub fn codec_for(settings: &Settings, codec: Codec) -> Result<Codec, BusError> {
    let codec = codec.within(CodecLimits {
        max_bytes: settings.topics.max_message,
        max_schemas: settings.registry.cache,
        ..CodecLimits::default()
    });
    match &settings.write_as {
        Some(version) => {
            tracing::info!(version, "writing with the schemas of that version");
            codec.writing_version(version).map_err(|error| BusError::Fatal(error.to_string()))
        }
        None => Ok(codec),
    }
}

impl Node {
    /// Looks up all topics and schemas, refuses topics that would break what is promised, begins to follow cancellations and the fleet.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub async fn connect(
        settings: Arc<Settings>,
        bus: Arc<dyn Bus>,
        parts: NodeParts,
    ) -> Result<Self, NodeError> {
        let codec = codec_for(&settings, parts.codec.clone())?;
        let names = TopicNames::new(settings.topics.prefix.as_str());
        let broadcast = |topic| PartitionId::new(names.name(&topic), 0);
        let (control, fleet) = (broadcast(Topic::Control), broadcast(Topic::Fleet));
        let router = Router::with_pools(bus.as_ref(), names, &settings.topics.pools).await?;
        limits::check(&settings, bus.inspector().as_ref()).await?;
        // After the broker has answered: it is waited for by trying all of this again and again.
        let schemas = Schemas::reading(&settings.registry, codec)?;
        let topics = enveloped_topics(router.names(), &settings.topics.pools);
        let schemas = tokio::select! {
            schemas = schemas.writing(&settings.registry, &topics) => schemas?,
            () = parts.shutdown.cancelled() => {
                return Err(BusError::Fatal("told to stop before the schema registry answered".to_owned()).into());
            }
        };
        let codec = schemas.codec().clone();
        let content = Arc::new(ContentReader::new(
            bus.clone(),
            schemas.clone(),
            ContentOptions {
                cache_bytes: u64::try_from(settings.content.cache).unwrap_or(u64::MAX),
                batch: settings.content.batch,
            },
        ));
        let metrics = Arc::new(Metrics::new());
        schemas.tell(&metrics);
        let retry = SendRetry { give_up_after: settings.processor.send_timeout, ..SendRetry::default() };
        let courier = Courier::new(
            bus.clone(),
            codec.clone(),
            router.clone(),
            parts.spans.clone(),
            content.clone(),
            metrics.clone(),
            retry,
        );
        let farewell = CancellationToken::new();
        let remembered = settings.control.remembered;
        let control =
            Control::follow(bus.as_ref(), control, schemas.clone(), remembered, farewell.clone()).await?;
        let options =
            FleetOptions { interval: settings.fleet.interval, forget_after: settings.fleet.forget_after };
        let fleet =
            Fleet::new(bus.clone(), fleet, codec.clone(), options, parts.clock.clone(), farewell.clone());
        let health = Health::default();
        let replayed = health.gate("cancellations to be read");
        let watched = control.clone();
        tokio::spawn(async move {
            watched.replayed().await;
            replayed.set(true);
        });
        Ok(Self {
            settings,
            bus,
            codec,
            schemas,
            router,
            content,
            courier,
            control,
            fleet,
            spans: parts.spans,
            metrics,
            health,
            clock: parts.clock,
            process: parts.process,
            shutdown: parts.shutdown,
            farewell,
        })
    }

    /// Says good-bye to the fleet and ends what this node follows. Services must have ended before.
    pub async fn leave(&self) {
        self.farewell.cancel();
        self.fleet.left(self.settings.fleet.interval).await;
    }
}
