//! What everything that one bench compares has in common: settings, a model, a kind of bus.

use crate::{
    args::{BusKind, SwarmArgs},
    exit::CliError,
    session::Session,
};
use starling_bus::{Bus, KafkaBus, KafkaOptions, MemoryBus, MemoryOptions, TopicSpec, delete_topics};
use starling_engine::rate::ConcurrencyLimits;
use starling_llm::{
    Model,
    mock::{MockLimits, MockOptions, MockServer, MockStats},
};
use starling_runtime::{
    Settings,
    process::{Traffic, kafka_options},
    settings::{Offline, RateSettings},
};
use std::sync::Arc;

/// A provider that lets so many requests a second through, at least one, and a twentieth of that at once.
pub(super) fn limits(rate: u32) -> MockLimits {
    let requests_per_s = f64::from(rate.max(1));
    MockLimits { requests_per_s, burst: (requests_per_s / 20.0).max(1.0), tokens_per_minute: None }
}

/// The model of a bench.
pub(super) enum BenchModel {
    /// Over HTTP, from a server of the bench's own.
    Http(MockOptions),
    /// In this process.
    InProcess(Arc<dyn Model>),
}

/// What is the same for all that a bench compares.
pub(super) struct Scene {
    /// Those of the session, for topics of the bench's own.
    pub(super) settings: Arc<Settings>,
    /// The model, if it is in this process.
    pub(super) model: Option<Arc<dyn Model>>,
    kind: BusKind,
    /// The model otherwise; it ends with the scene.
    server: Option<MockServer>,
}

impl Scene {
    pub(super) fn of(session: &Session, args: &SwarmArgs, model: BenchModel) -> Result<Arc<Self>, CliError> {
        let mut settings = Settings::clone(&session.settings);
        settings.topics.prefix = prefix();
        settings.topics.replication = -1;
        settings.registry.url = None; // it would keep subjects of topics that nobody needs again
        settings.coordinator.max_depth = 100; // a bench may want a chain
        settings.model.cache.switch_off(); // what is measured are calls
        settings.processor.slots.worker = args.slots;
        settings.processor.slots.critic = args.slots * args.workers;
        let (model, server) = match model {
            BenchModel::InProcess(model) => (Some(model), None),
            BenchModel::Http(options) => {
                let is_limited = options.limits.is_some();
                let server = MockServer::start(options)
                    .map_err(|e| CliError::Failed(format!("the model server: {e}")))?;
                settings.model.provider.base_url = Some(server.base_url());
                settings.model.offline = Offline::No;
                settings.model.max_in_flight = args.slots * args.workers * 2;
                if !is_limited {
                    settings.model.rate = RateSettings::unlimited();
                }
                let open = u32::try_from(settings.model.max_in_flight).unwrap_or(u32::MAX);
                settings.model.concurrency = ConcurrencyLimits::fixed(open);
                settings.model.max_waiting = settings.model.max_waiting.max(settings.model.max_in_flight);
                (None, Some(server))
            }
        };
        Ok(Arc::new(Self { settings: Arc::new(settings), model, kind: args.bus, server }))
    }

    /// The model server, if there is one.
    pub(super) fn server(&self) -> Option<&MockServer> {
        self.server.as_ref()
    }

    /// What the model server has counted, if there is one.
    pub(super) fn served(&self) -> Option<MockStats> {
        self.server.as_ref().map(MockServer::stats)
    }

    /// A bus of one's own, with these topics.
    pub(super) async fn bus(&self, topics: &[TopicSpec]) -> Result<(Arc<dyn Bus>, Litter), CliError> {
        match self.kind {
            BusKind::Memory => {
                let bus = MemoryBus::new(MemoryOptions::default());
                bus.create_topics(topics).await?;
                Ok((bus, Litter(None)))
            }
            BusKind::Kafka => on_kafka(kafka_options(&self.settings, Traffic::FanOut), topics).await,
        }
    }
}

/// A client of the broker, with these topics.
pub(super) async fn on_kafka(
    options: KafkaOptions,
    topics: &[TopicSpec],
) -> Result<(Arc<dyn Bus>, Litter), CliError> {
    let names = topics.iter().map(|spec| spec.name.clone()).collect();
    let litter = Litter(Some((options.clone(), names)));
    let bus = KafkaBus::new(options)?;
    bus.create_topics(topics).await?;
    Ok((bus, litter))
}

/// A prefix for topics that nobody else has.
pub(super) fn prefix() -> String {
    format!("bench{:08x}", rand::random::<u32>())
}

/// The topics that were made on a real broker.
pub(super) struct Litter(Option<(KafkaOptions, Vec<String>)>);

impl Litter {
    /// Leaves nothing on the broker. That something is still there is no reason to throw the figures away.
    pub(super) async fn clear(self) {
        let Some((options, topics)) = self.0 else { return };
        let topics: Vec<_> = topics.iter().map(String::as_str).collect();
        if let Err(error) = delete_topics(options, &topics).await {
            eprintln!("starling: the topics of the bench are still there: {error}");
        }
    }
}
