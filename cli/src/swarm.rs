//! All services in this process: on the bus in memory for `run`, on a real broker for `dev`.

use crate::{exit::CliError, session::Session};
use starling_bus::{Bus, MemoryBus, MemoryOptions, MemoryRetention};
use starling_llm::Model;
use starling_protocol::{Codec, Topic, TopicNames, fleet::FleetBeat};
use starling_runtime::{Clock, Node, NodeParts, Random, Settings, telemetry::Spans, topics::topic_specs};
use starling_service::{Parts, traced};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

/// How long the services may take to be ready.
const READY: Duration = Duration::from_secs(60);
/// How long what was sent may take to be acknowledged at the end.
const FLUSH: Duration = Duration::from_secs(5);

/// How long an intent that has ended is recognised at least in a swarm of one process.
const RECOGNISED: Duration = Duration::from_secs(3600);

/// How many of what, beside what the settings say.
pub struct Shape {
    /// Whether it has a planner, and with it a coordinator; otherwise one is expected elsewhere.
    pub planner: bool,
    /// Members of the worker group.
    pub workers: usize,
    /// The model; `None` takes the one of the settings.
    pub model: Option<Arc<dyn Model>>,
}

/// The services of one process.
pub struct Swarm {
    node: Node,
    model: Arc<dyn Model>,
    workers: usize,
    services: JoinSet<Result<(), String>>,
    /// Told what broke first, as long as the services run.
    failure: watch::Receiver<Option<String>>,
}

impl Swarm {
    /// A swarm on a bus of its own, in memory: what a newcomer runs.
    ///
    /// # Errors
    /// The settings do not fit, for example a model endpoint that is no address.
    pub async fn embedded(session: &Session) -> Result<Self, CliError> {
        Self::in_memory(session, &session.settings).await
    }

    /// The same with other settings than those of the session.
    ///
    /// # Errors
    /// As for [`Swarm::embedded`].
    pub async fn in_memory(session: &Session, settings: &Settings) -> Result<Self, CliError> {
        let settings = embedded(settings);
        let bus = memory_bus(&settings);
        bus.create_topics(&topic_specs(&settings.topics)).await?;
        let shape = Shape { planner: true, workers: 1, model: None };
        Self::start(Arc::new(settings), bus, session.spans().clone(), shape).await
    }

    /// A swarm on a bus that has the topics.
    ///
    /// # Errors
    /// The settings do not fit, topics are missing, or the broker is unreachable.
    pub async fn on(session: &Session, bus: Arc<dyn Bus>) -> Result<Self, CliError> {
        let shape = Shape { planner: true, workers: 1, model: None };
        Self::start(session.settings.clone(), bus, session.spans().clone(), shape).await
    }

    /// Starts a swarm of that shape.
    ///
    /// # Errors
    /// As for [`Swarm::on`].
    pub async fn start(
        settings: Arc<Settings>,
        bus: Arc<dyn Bus>,
        spans: Spans,
        shape: Shape,
    ) -> Result<Self, CliError> {
        let parts = NodeParts {
            spans,
            clock: Clock::system(),
            random: Random::system(),
            process: format!("starling-{:08x}", rand::random::<u32>()).into(),
            shutdown: CancellationToken::new(),
            codec: Codec::default(),
        };
        let node = Node::connect(settings.clone(), bus, parts).await?;
        let mut parts = Parts::of(&node).map_err(|error| CliError::Usage(error.to_string()))?;
        if let Some(model) = shape.model {
            parts.model = traced(model, &node);
        }
        let mut services = JoinSet::new();
        let (failed, failure) = watch::channel(None);
        if shape.planner {
            let planner = starling_planner::serve(node.clone(), parts.clone());
            services.spawn(watched(planner, failed.clone()));
        }
        let critic = starling_critic::serve(node.clone(), parts.clone());
        services.spawn(watched(critic, failed.clone()));
        for member in 0..shape.workers {
            // A member of its own to the group and to the fleet, though of the same process.
            let process =
                if member == 0 { node.process.clone() } else { format!("{}-{member}", node.process).into() };
            let member = Node { process, ..node.clone() };
            let worker = starling_worker::serve(member, parts.clone(), None);
            services.spawn(watched(worker, failed.clone()));
        }
        Ok(Self { node, model: parts.model, workers: shape.workers, services, failure })
    }

    /// The bus that the swarm is on.
    #[must_use]
    pub fn bus(&self) -> Arc<dyn Bus> {
        self.node.bus.clone()
    }

    /// Resolves when a service has failed; while all are well, never.
    pub fn broken(&self) -> impl Future<Output = CliError> + Send + 'static {
        let mut failure = self.failure.clone();
        async move {
            let failed = failure.wait_for(Option::is_some).await.map(|failed| failed.clone());
            match failed {
                Ok(failed) => CliError::Failed(failed.unwrap_or_default()),
                Err(_) => std::future::pending().await, // all have ended in order
            }
        }
    }

    /// The model of its services, with all that stands between them and an endpoint.
    #[must_use]
    pub fn model(&self) -> Arc<dyn Model> {
        self.model.clone()
    }

    /// Whether the offline model, which is no LLM, does the work.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.model.info().offline
    }

    /// Checks that somebody answers at the model's endpoint.
    ///
    /// # Errors
    /// Names the endpoint, and what to do.
    pub async fn reach_model(&self) -> Result<(), CliError> {
        self.model.reach().await.map_err(|error| {
            CliError::Unavailable(format!(
                "the model is unreachable: {error} Set OPENAI_BASE_URL to a server that runs, or unset \
                 OPENAI_API_KEY and OPENAI_BASE_URL to use the offline model."
            ))
        })
    }

    /// Waits until every worker member has told the fleet which partitions it has.
    ///
    /// # Errors
    /// It takes too long.
    pub async fn ready(&self) -> Result<(), CliError> {
        let mut beats = self.node.fleet.beats();
        let all = |beats: &Arc<Vec<FleetBeat>>| {
            beats.iter().filter(|beat| beat.role == "worker" && !beat.partitions.is_empty()).count()
                >= self.workers
        };
        match tokio::time::timeout(READY, beats.wait_for(all)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(CliError::Failed(format!(
                "{} workers have not all got partitions within {} s",
                self.workers,
                READY.as_secs()
            ))),
        }
    }

    /// Runs until a service fails or somebody presses Ctrl-C or sends SIGTERM.
    ///
    /// # Errors
    /// A service failed.
    pub async fn run_until_interrupted(mut self) -> Result<(), CliError> {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            .map_err(|error| CliError::Failed(error.to_string()))?;
        let ended = tokio::select! {
            ended = self.services.join_next() => ended,
            _ = tokio::signal::ctrl_c() => None,
            _ = terminate.recv() => None,
        };
        self.stop().await;
        match ended {
            Some(Ok(Err(error))) => Err(CliError::Failed(error)),
            Some(Err(error)) => Err(CliError::Failed(format!("a service broke: {error}"))),
            Some(Ok(Ok(()))) | None => Ok(()),
        }
    }

    /// Stops in order: services, farewell, what was sent.
    pub async fn stop(mut self) {
        self.node.shutdown.cancel();
        while let Some(ended) = self.services.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a service ended with an error"),
                Err(error) => tracing::warn!(%error, "a service broke"),
            }
        }
        self.node.leave().await;
        self.node.bus.flush(FLUSH).await;
    }
}

/// The settings of a swarm in one process, from those of an installation.
pub(crate) fn embedded(settings: &Settings) -> Settings {
    let mut settings = Settings::clone(settings);
    settings.registry.url = None; // what never leaves the process needs no id
    // Nobody outside sends an intent a second time, so it need not be recognised for days: no longer than it may live.
    // Of each partition's log, the decisions of two snapshots are there at most.
    let logs = 4 * usize::try_from(settings.topics.partitions.coordinator).unwrap_or(1);
    settings.statelog.snapshot_bytes = settings.statelog.snapshot_bytes.min(settings.memory.log / logs);
    let coordinator = &mut settings.coordinator;
    coordinator.dedup_horizon = coordinator.dedup_horizon.min(coordinator.default_deadline.max(RECOGNISED));
    settings
}

/// A bus for a swarm in one process, which forgets what is about intents that have ended.
pub(crate) fn memory_bus(settings: &Settings) -> Arc<MemoryBus> {
    let names = TopicNames::new(settings.topics.prefix.as_str());
    let retention = MemoryRetention {
        max_bytes: settings.memory.log,
        begins_in: names.name(&Topic::Intents),
        ends_in: names.name(&Topic::Outcomes),
        longest: settings.coordinator.max_deadline,
    };
    MemoryBus::new(MemoryOptions { retention: Some(retention), ..MemoryOptions::default() })
}

/// Runs a service, and tells if it fails.
async fn watched<E: std::fmt::Display>(
    service: impl Future<Output = Result<(), E>>,
    failed: watch::Sender<Option<String>>,
) -> Result<(), String> {
    let ended = service.await.map_err(|error| error.to_string());
    if let Err(error) = &ended {
        failed.send_if_modified(|first| first.is_none() && first.replace(error.clone()).is_none());
    }
    ended
}
