//! What a bench of the swarm runs on: a swarm of its own, and an eye on all outcomes.

use crate::{
    args::{BusKind, SwarmArgs},
    client::{Client, Submission},
    exit::CliError,
    session::Session,
    swarm::{Shape, Swarm},
};
use starling_bus::{
    Bus, KafkaOptions, LogReader, MemoryBus, MemoryOptions, PartitionId, ReaderEvent, StartAt, delete_topics,
};
use starling_llm::{
    Model,
    mock::{MockOptions, MockServer},
};
use starling_protocol::{Body, Codec, Envelope, Intent, IntentId, Outcome, Topic, TopicNames};
use starling_runtime::{Settings, process::Traffic, settings::Offline, topics::topic_specs};
use std::{sync::Arc, time::Instant};

/// A swarm and its user.
pub(super) struct Stage {
    swarm: Swarm,
    client: Client,
    outcomes: Arc<dyn LogReader>,
    codec: Codec,
    /// The topics that were made on a real broker.
    litter: Option<(KafkaOptions, Vec<String>)>,
    // Ends with the stage.
    _model: Option<MockServer>,
}

/// The model of a bench.
pub(super) enum BenchModel {
    /// Over HTTP, from a server of the bench's own.
    Http(MockOptions),
    /// In this process.
    InProcess(Arc<dyn Model>),
}

impl Stage {
    pub(super) async fn set(
        session: &Session,
        args: &SwarmArgs,
        model: BenchModel,
    ) -> Result<Self, CliError> {
        let mut settings = Settings::clone(&session.settings);
        settings.topics.prefix = format!("bench{:08x}", rand::random::<u32>());
        settings.topics.replication = -1;
        settings.registry.url = None; // it would keep subjects of topics that nobody needs again
        settings.coordinator.max_depth = 100; // a bench may want a chain
        settings.processor.slots.worker = args.slots;
        settings.processor.slots.critic = args.slots * args.workers;
        let (model, server) = match model {
            BenchModel::InProcess(model) => (Some(model), None),
            BenchModel::Http(options) => {
                let server = MockServer::start(options)
                    .map_err(|e| CliError::Failed(format!("the model server: {e}")))?;
                settings.model.base_url = Some(server.base_url());
                settings.model.offline = Offline::No;
                settings.model.max_in_flight = args.slots * args.workers * 2;
                (None, Some(server))
            }
        };
        let bus: Arc<dyn Bus> = match args.bus {
            BusKind::Memory => MemoryBus::new(MemoryOptions::default()),
            BusKind::Kafka => session.kafka(Traffic::FanOut)?,
        };
        let specs = topic_specs(&settings.topics);
        let litter = (args.bus == BusKind::Kafka).then(|| {
            let names = specs.iter().map(|spec| spec.name.clone()).collect();
            (session.kafka_options(Traffic::OneByOne), names)
        });
        bus.create_topics(&specs).await?;
        let names = TopicNames::new(settings.topics.prefix.as_str());
        let outcomes = bus.reader().await?;
        let name = names.name(&Topic::Outcomes);
        for partition in 0..bus.partitions(&name).await? {
            outcomes.add(PartitionId::new(name.as_str(), partition), StartAt::Beginning).await?;
        }
        let client = Client::new(bus.clone(), names);
        let shape = Shape { workers: args.workers, model };
        let swarm = Swarm::start(Arc::new(settings), bus, session.spans().clone(), shape).await?;
        swarm.ready().await?;
        Ok(Self { swarm, client, outcomes, codec: Codec::default(), litter, _model: server })
    }

    /// Publishes an intent.
    pub(super) async fn submit(&self, id: &IntentId) -> Result<(), CliError> {
        let intent = Intent {
            goal: "measure the swarm".to_owned(),
            strategy: "llm".to_owned(),
            priority: 5,
            ..Intent::default()
        };
        let id = id.clone();
        self.client
            .submit(Submission { id, intent, tenant: "bench".to_owned(), timeout: None, traceparent: None })
            .await
    }

    /// The next outcome of any intent, and when it was seen.
    pub(super) async fn outcome(&self) -> Result<(IntentId, Outcome, Instant), CliError> {
        loop {
            if let ReaderEvent::Record(record) = self.outcomes.next().await {
                let at = Instant::now();
                let envelope: Envelope =
                    self.codec.decode(record.value()).map_err(|e| CliError::Failed(e.to_string()))?;
                if let Body::Outcome(outcome) = envelope.body {
                    return Ok((envelope.intent_id, outcome, at));
                }
            }
        }
    }

    /// Ends the swarm, and leaves nothing of it on the broker.
    pub(super) async fn strike(self) {
        self.swarm.stop().await;
        drop(self.outcomes);
        if let Some((options, topics)) = self.litter {
            clear(options, &topics.iter().map(String::as_str).collect::<Vec<_>>()).await;
        }
    }
}

/// Deletes the topics of a bench. That they are still there is no reason to throw its figures away.
pub(super) async fn clear(options: KafkaOptions, topics: &[&str]) {
    if let Err(error) = delete_topics(options, topics).await {
        eprintln!("starling: the topics of the bench are still there: {error}");
    }
}
