//! What a bench of the swarm runs on: a swarm of its own, and an eye on all outcomes.

use super::scene::{BenchModel, Litter, Scene};
use crate::{
    args::SwarmArgs,
    client::{Client, Submission},
    exit::CliError,
    session::Session,
    swarm::{Shape, Swarm},
};
use starling_bus::{Bus, LogReader, PartitionId, ReaderEvent, StartAt};
use starling_protocol::{
    Body, Codec, Envelope, Intent, IntentId, Outcome, OutcomeStatus, Priority, Topic, TopicNames,
};
use starling_runtime::topics::topic_specs;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// A topic that says nothing for so long has said all.
const QUIET: Duration = Duration::from_millis(500);

/// A swarm and its user.
pub(super) struct Stage {
    swarm: Swarm,
    client: Client,
    outcomes: Arc<dyn LogReader>,
    codec: Codec,
    /// The swarm's bus.
    pub(super) bus: Arc<dyn Bus>,
    /// The names of its topics.
    pub(super) names: TopicNames,
    litter: Litter,
    // Its model is there as long as the stage.
    _scene: Arc<Scene>,
}

impl Stage {
    pub(super) async fn set(
        session: &Session,
        args: &SwarmArgs,
        model: BenchModel,
    ) -> Result<Self, CliError> {
        let scene = Scene::of(session, args, model)?;
        Self::on(session, args, scene, true).await
    }

    /// The same on a scene that others use as well; `planner` says whether the swarm has one.
    pub(super) async fn on(
        session: &Session,
        args: &SwarmArgs,
        scene: Arc<Scene>,
        planner: bool,
    ) -> Result<Self, CliError> {
        let settings = scene.settings.clone();
        let (bus, litter) = scene.bus(&topic_specs(&settings.topics)).await?;
        let names = TopicNames::new(settings.topics.prefix.as_str());
        let outcomes = reader(bus.as_ref(), &names.name(&Topic::Outcomes)).await?;
        let client = Client::new(bus.clone(), names.clone());
        let shape = Shape { planner, workers: args.workers, model: scene.model.clone() };
        let swarm = Swarm::start(settings, bus.clone(), session.spans().clone(), shape).await?;
        swarm.ready().await?;
        let codec = Codec::default();
        Ok(Self { swarm, client, outcomes, codec, bus, names, litter, _scene: scene })
    }

    /// Publishes an intent.
    pub(super) async fn submit(&self, id: &IntentId) -> Result<(), CliError> {
        self.submit_at(id, Priority::default()).await
    }

    /// Publishes an intent of that priority.
    pub(super) async fn submit_at(&self, id: &IntentId, priority: Priority) -> Result<(), CliError> {
        let intent = Intent {
            goal: "measure the swarm".to_owned(),
            strategy: "llm".to_owned(),
            priority: i32::from(priority.level()),
            ..Intent::default()
        };
        let id = id.clone();
        self.client
            .submit(Submission {
                id,
                intent,
                tenant: "bench".to_owned(),
                timeout: None,
                traceparent: None,
                parts: Default::default(),
            })
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

    /// The same of an intent that has to succeed.
    pub(super) async fn success(&self) -> Result<(IntentId, Outcome, Instant), CliError> {
        let (id, outcome, at) = self.outcome().await?;
        if outcome.status != OutcomeStatus::Succeeded {
            return Err(CliError::Failed(format!("{id} {}: {}", outcome.status.name(), outcome.reason)));
        }
        Ok((id, outcome, at))
    }

    /// How many intents have ended that nobody has asked for yet.
    pub(super) async fn ended(&self) -> Result<usize, CliError> {
        let mut ended = 0;
        while let Ok(outcome) = tokio::time::timeout(QUIET, self.outcome()).await {
            outcome?;
            ended += 1;
        }
        Ok(ended)
    }

    /// Bytes of the first record that is found in a topic.
    pub(super) async fn size(&self, topic: &Topic) -> Result<usize, CliError> {
        let topic = self.names.name(topic);
        for partition in 0..self.bus.partitions(&topic).await? {
            let at = PartitionId::new(topic.as_str(), partition);
            let marks = self.bus.watermarks(&at).await?;
            if marks.low < marks.high
                && let Some(Ok(record)) = self.bus.read(&[(at, marks.low)]).await.pop()
            {
                return Ok(record.value().len());
            }
        }
        Err(CliError::Failed(format!("{topic} is empty")))
    }

    /// Ends the swarm, and leaves nothing of it on the broker.
    pub(super) async fn strike(self) {
        self.swarm.stop().await;
        drop(self.outcomes);
        drop(self.bus);
        self.litter.clear().await;
    }
}

/// Reads a topic from its beginning.
pub(super) async fn reader(bus: &dyn Bus, topic: &str) -> Result<Arc<dyn LogReader>, CliError> {
    let reader = bus.reader().await?;
    for partition in 0..bus.partitions(topic).await? {
        reader.add(PartitionId::new(topic, partition), StartAt::Beginning).await?;
    }
    Ok(reader)
}
