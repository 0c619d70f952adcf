//! The processor: follows the group's assignment and keeps one task for each partition.

use super::{
    committer::Committer,
    encode::Encoder,
    feed::{Feed, QueueBounds},
    machine::Machine,
    options::StatefulOptions,
    partition::{self, Shared, Stop},
    report::{Reporter, StatefulReport},
};
use crate::{
    clock::Clock,
    health::{Health, Pulse},
    metrics::{Hops, Metrics, TopicLabel},
    node::Node,
    random::Random,
    registry::Schemas,
    router::Router,
    telemetry::Spans,
};
use starling_bus::{
    Assignment, Bus, BusError, Deliver, GroupConfig, GroupConsumer, GroupEvent, PartitionId, RevokeAck,
};
use starling_engine::coordinator::{FleetView, KnownAgents};
use starling_protocol::Topic;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
    time::{interval, timeout},
};
use tokio_util::sync::CancellationToken;

/// Names the processor's loop where health is asked for.
const PULSE: &str = "coordinator";
/// How often the loop shows that it is alive when nothing happens.
const BEAT: Duration = Duration::from_secs(1);

/// What a [`StatefulProcessor`] is made of.
pub struct StatefulParts<M> {
    /// The bus.
    pub bus: Arc<dyn Bus>,
    /// Encodes and reads.
    pub schemas: Schemas,
    /// Knows all topics.
    pub router: Router,
    /// Starts spans.
    pub spans: Spans,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Tells the time.
    pub clock: Clock,
    /// Name of this process.
    pub process: Arc<str>,
    /// Where chance comes from.
    pub random: Random,
    /// What is known of the fleet; soft state.
    pub fleet: watch::Receiver<FleetView>,
    /// What the machines are to go by from now on, where it may change while they run.
    pub agents: Option<watch::Receiver<Arc<KnownAgents>>>,
    /// Makes the machine of a partition, without any memory.
    pub make: Arc<dyn Fn(i32) -> M + Send + Sync>,
    /// Bounds and choices.
    pub options: StatefulOptions,
}

impl<M> StatefulParts<M> {
    /// By what a node has and is set to.
    pub fn on(node: &Node, make: Arc<dyn Fn(i32) -> M + Send + Sync>) -> Self {
        Self {
            bus: node.bus.clone(),
            schemas: node.schemas.clone(),
            router: node.router.clone(),
            spans: node.spans.clone(),
            metrics: node.metrics.clone(),
            clock: node.clock.clone(),
            process: node.process.clone(),
            random: node.random.clone(),
            fleet: node.fleet.view(),
            agents: None,
            make,
            options: StatefulOptions::of(&node.settings),
        }
    }
}

/// Why a processor ended although nobody stopped it.
#[derive(Debug, thiserror::Error)]
pub enum StatefulError {
    /// The bus cannot be used.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The settings and the topics do not fit.
    #[error("{0}")]
    Misconfigured(String),
    /// A partition has to be looked at by a person, or a machine is broken.
    #[error("coordinator partition {partition} stops the process: {reason}")]
    Partition {
        /// Which one.
        partition: i32,
        /// Why.
        reason: String,
    },
}

/// Runs one machine for each partition of the coordinator's inbox that the group assigns to it.
pub struct StatefulProcessor<M> {
    group: Arc<dyn GroupConsumer>,
    shared: Arc<Shared<M>>,
    actors: JoinSet<(PartitionId, Result<(), String>)>,
    pulse: Option<Pulse>,
    running: BTreeMap<PartitionId, Running>,
}

/// The task of a partition.
struct Running {
    stop: watch::Sender<Stop>,
    /// Resolves when the task has ended.
    ended: watch::Receiver<bool>,
}

impl<M: Machine> StatefulProcessor<M> {
    /// Joins the group.
    ///
    /// # Errors
    /// The bus cannot be used, or the state topic does not have as many partitions as the inbox.
    pub async fn join(parts: StatefulParts<M>) -> Result<Self, StatefulError> {
        let StatefulParts {
            bus,
            schemas,
            router,
            spans,
            metrics,
            clock,
            random,
            process,
            fleet,
            agents,
            make,
            options,
        } = parts;
        let names = router.names();
        let (inbox_topic, state_topic) = (names.name(&Topic::Coordinator), names.name(&Topic::State));
        let partitions = bus.partitions(&inbox_topic).await?;
        let logs = bus.partitions(&state_topic).await?;
        if partitions != logs {
            return Err(StatefulError::Misconfigured(format!(
                "topic {state_topic} has {logs} partitions and {inbox_topic} has {partitions}: each partition of the \
                 inbox needs its own state partition, so the counts must be the same"
            )));
        }
        let bounds = QueueBounds { records: options.queue_records, bytes: options.queue_bytes };
        let group = bus
            .join(GroupConfig {
                group: options.group.clone(),
                topics: vec![inbox_topic.clone()],
                deliver: Deliver::AssignmentOnly,
                instance: options.instance.clone(),
                session_timeout: options.session_timeout,
                revoke_timeout: options.revoke_timeout,
                queue_records: options.queue_records,
            })
            .await?;
        let reporter = Reporter::new(&metrics, partitions);
        let inbox = TopicLabel { topic: inbox_topic.clone() };
        let shared = Shared {
            inboxes: Feed::open(bus.as_ref(), bounds).await?,
            logs: Feed::open(bus.as_ref(), bounds).await?,
            encoder: Arc::new(Encoder {
                schemas,
                router,
                spans,
                max_record: options.max_record,
                group: options.group.as_str().into(),
                process,
            }),
            bus,
            clock,
            random,
            hops: Hops::of(&metrics, &inbox_topic),
            committer: Committer::new(group.clone(), &metrics, &inbox),
            metrics,
            fleet,
            agents,
            make,
            inbox_topic: inbox_topic.into(),
            state_topic: state_topic.into(),
            partitions,
            reporter: Arc::new(reporter),
            options,
        };
        let (shared, running) = (Arc::new(shared), BTreeMap::new());
        Ok(Self { group, shared, actors: JoinSet::new(), pulse: None, running })
    }

    /// From now on the process is ready only while all partitions are, and alive while the processor is.
    pub fn tell(&mut self, health: &Health) {
        self.pulse = Some(health.pulse(PULSE));
        let gate = health.gate("the coordinator's state to be read");
        let mut report = self.report();
        tokio::spawn(async move {
            while report.changed().await {
                gate.set(report.is_ready());
            }
            gate.set(false);
        });
    }

    /// What it tells about itself.
    #[must_use]
    pub fn report(&self) -> StatefulReport {
        self.shared.reporter.report()
    }

    /// Works until `shutdown`; then gives everything back and leaves the group.
    ///
    /// # Errors
    /// Something is wrong that does not pass; see [`StatefulError`].
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), StatefulError> {
        let every = self.shared.options.commit_interval;
        let mut commits = JoinSet::new(); // ends with this function, also when that is dropped
        commits.spawn(self.shared.committer.clone().run(every));
        let result = self.follow(shutdown).await;
        // What is still running must not outlive the processor. Nothing is left of it after a clean end.
        for running in self.running.values() {
            let _ = running.stop.send(Stop::Gone); // it may have ended
        }
        self.actors.shutdown().await;
        result
    }

    async fn follow(&mut self, shutdown: CancellationToken) -> Result<(), StatefulError> {
        let group = self.group.clone();
        let leaving = {
            let (group, within) = (group.clone(), self.shared.options.leave_timeout);
            async move {
                shutdown.cancelled().await;
                group.leave(within).await;
            }
        };
        tokio::pin!(leaving);
        let mut left = false;
        let mut beat = interval(BEAT);
        loop {
            // The group's next event is waited for to its end: nothing of it may be lost.
            let next = group.next();
            tokio::pin!(next);
            let event = loop {
                tokio::select! {
                    biased;
                    event = &mut next => break event,
                    Some(ended) = self.actors.join_next() => self.ended(ended)?,
                    () = &mut leaving, if !left => left = true,
                    _ = beat.tick() => self.pulse.iter().for_each(Pulse::beat),
                }
            };
            match event {
                GroupEvent::Assigned(assignments) => self.assigned(assignments),
                GroupEvent::Revoked(partitions, ack) => self.revoked(partitions, ack),
                GroupEvent::Lost(partitions) => self.lost(&partitions),
                GroupEvent::Trouble(error) => tracing::warn!(%error, "the group is not reachable now"),
                GroupEvent::Fatal(error) => return Err(error.into()),
                GroupEvent::Closed => return self.drain().await,
                // Only the assignment was asked for.
                GroupEvent::Record(_) | GroupEvent::End { .. } | GroupEvent::OutOfRange { .. } => {}
            }
        }
    }

    fn assigned(&mut self, assignments: Vec<Assignment>) {
        for Assignment { at, .. } in assignments {
            tracing::info!(partition = at.partition, "the partition is assigned");
            // An earlier task of the partition may not have ended: two would fence each other.
            let before = self.running.remove(&at);
            let (stop, stopped) = watch::channel(Stop::Run);
            let (end, ended) = watch::channel(false);
            self.running.insert(at.clone(), Running { stop, ended });
            let shared = self.shared.clone();
            self.actors.spawn(async move {
                let _end = SetOnDrop(end);
                if let Some(mut before) = before {
                    let _ = before.stop.send(Stop::Gone); // it may have ended
                    let _ = before.ended.wait_for(|ended| *ended).await; // a closed channel: it has
                }
                let result = partition::run(shared, at.partition, stopped).await;
                (at, result)
            });
        }
        self.shared.reporter.assigned();
    }

    fn revoked(&mut self, partitions: Vec<PartitionId>, ack: RevokeAck) {
        tracing::info!(partitions = partitions.len(), "partitions are given back");
        let mut ends = Vec::new();
        for at in &partitions {
            if let Some(running) = self.running.get(at) {
                let _ = running.stop.send(Stop::GiveBack); // it may have ended
                ends.push(running.ended.clone());
            }
        }
        let committer = self.shared.committer.clone();
        let within = self.shared.options.revoke_timeout;
        // The group must be listened to meanwhile. When time is up the group stops waiting anyway.
        tokio::spawn(async move {
            let all_ended = async {
                for mut ended in ends {
                    let _ = ended.wait_for(|ended| *ended).await; // a closed channel: it has ended
                }
                committer.flush().await;
            };
            let _ = timeout(within, all_ended).await;
            partitions.iter().for_each(|at| committer.forget(at));
            ack.acknowledge();
        });
    }

    fn lost(&mut self, partitions: &[PartitionId]) {
        tracing::warn!(partitions = partitions.len(), "partitions are lost");
        for at in partitions {
            self.shared.committer.forget(at);
            if let Some(running) = self.running.get(at) {
                let _ = running.stop.send(Stop::Gone); // it may have ended
            }
        }
    }

    /// The group is left: all partitions were revoked, so their tasks end soon.
    async fn drain(&mut self) -> Result<(), StatefulError> {
        let within = self.shared.options.revoke_timeout;
        let all = async {
            while let Some(ended) = self.actors.join_next().await {
                self.ended(ended)?;
            }
            Ok(())
        };
        timeout(within, all).await.unwrap_or(Ok(()))
    }

    fn ended(
        &mut self,
        ended: Result<(PartitionId, Result<(), String>), JoinError>,
    ) -> Result<(), StatefulError> {
        match ended {
            Ok((at, Ok(()))) => {
                // A later task of the same partition may have taken its place.
                if self.running.get(&at).is_some_and(|running| *running.ended.borrow()) {
                    self.running.remove(&at);
                }
                Ok(())
            }
            Ok((at, Err(reason))) => Err(StatefulError::Partition { partition: at.partition, reason }),
            Err(error) => Err(StatefulError::Partition { partition: -1, reason: error.to_string() }),
        }
    }
}

/// Says that a task has ended, in whatever way.
struct SetOnDrop(watch::Sender<bool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}
