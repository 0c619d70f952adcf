//! What all services of a process share.

use crate::{
    clock::Clock,
    content::{ContentOptions, ContentReader},
    control::Control,
    courier::{Courier, SendRetry},
    fleet::{Fleet, FleetOptions},
    health::Health,
    metrics::Metrics,
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
    /// Encodes and decodes.
    pub codec: Codec,
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
}

impl Node {
    /// Looks up all topics, begins to follow cancellations and the fleet.
    ///
    /// # Errors
    /// The broker is unreachable, or topics are missing.
    pub async fn connect(
        settings: Arc<Settings>,
        bus: Arc<dyn Bus>,
        parts: NodeParts,
    ) -> Result<Self, BusError> {
        let limits = CodecLimits { max_bytes: settings.topics.max_message, ..CodecLimits::default() };
        let codec = Codec::new(limits);
        let names = TopicNames::new(settings.topics.prefix.as_str());
        let broadcast = |topic| PartitionId::new(names.name(&topic), 0);
        let (control, fleet) = (broadcast(Topic::Control), broadcast(Topic::Fleet));
        let router = Router::with_pools(bus.as_ref(), names, &settings.topics.pools).await?;
        let content = Arc::new(ContentReader::new(
            bus.clone(),
            codec.clone(),
            ContentOptions {
                cache_bytes: u64::try_from(settings.content.cache).unwrap_or(u64::MAX),
                batch: settings.content.batch,
            },
        ));
        let metrics = Arc::new(Metrics::new());
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
            Control::follow(bus.as_ref(), control, codec.clone(), remembered, farewell.clone()).await?;
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
