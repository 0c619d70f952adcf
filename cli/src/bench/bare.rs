//! The same work without the swarm: what a consume-call-produce pipeline does that promises nothing.
//!
//! It has the swarm's broker, model, prompts, partitions, members, slots and sizes of records, and what belongs to
//! them: bounded calls at a time, a producer with acks=all, offsets committed now and then. It has no coordinator, so
//! nobody who knows what is done: no state log, no map of what was finished out of order (offsets are those of what was
//! taken, so a crash loses what was in hand), no retries, no deadlines, no dead letters.

use super::{
    scene::{Litter, Scene, prefix},
    stage::reader,
};
use crate::{args::FanoutArgs, exit::CliError};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use starling_agents::{
    AgentCatalogue, JudgePrompt, PromptBudget, VERDICT_SCHEMA, WorkPrompt, judge_messages, verdict_schema,
    work_messages,
};
use starling_bus::{
    Bus, CommitOffset, Deliver, GroupConfig, GroupConsumer, GroupEvent, LogReader, OutRecord, PartitionId,
    ReaderEvent,
};
use starling_llm::{ChatRequest, Format, Model, Purpose, Reuse};
use starling_protocol::{Priority, Topic, TopicNames};
use starling_runtime::{Settings, topics::topic_specs};
use starling_service::{load_agents, model_from};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{sync::Semaphore, task::JoinSet, time::MissedTickBehavior};

/// Tasks that the feeder has under way to the broker.
const FED_AT_ONCE: usize = 1_000;
/// How long members may take to have all partitions, and the group to let them go.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the number with which a record begins.
const NUMBER: usize = size_of::<u64>();

/// Bytes of the swarm's records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) task: usize,
    pub(super) result: usize,
    pub(super) verdict: usize,
}

/// A pipeline and who feeds it.
pub(super) struct Bare {
    bus: Arc<dyn Bus>,
    tasks: Arc<str>,
    partitions: i32,
    sizes: Sizes,
    results: Arc<dyn LogReader>,
    members: JoinSet<Result<(), CliError>>,
    litter: Litter,
    fed: u64,
}

impl Bare {
    pub(super) async fn set(args: &FanoutArgs, scene: &Scene, sizes: Sizes) -> Result<Self, CliError> {
        let settings = &scene.settings;
        let mut topics = settings.topics.clone();
        topics.prefix = prefix();
        let names = TopicNames::new(topics.prefix.as_str());
        let [tasks, results, verdicts] =
            [Topic::Worker(None), Topic::Critic, Topic::Coordinator].map(|topic| names.name(&topic));
        let mut specs = topic_specs(&topics);
        specs.retain(|spec| [&tasks, &results, &verdicts].contains(&&spec.name));
        let (bus, litter) = scene.bus(&specs).await?;
        let model = match &scene.model {
            Some(model) => model.clone(),
            None => model_from(&settings.model).map_err(|error| CliError::Usage(error.to_string()))?.model,
        };
        let catalogue = load_agents(settings).map_err(|error| CliError::Usage(error.to_string()))?;
        let asker =
            Arc::new(Asker { model, catalogue, budget: PromptBudget::of_bytes(settings.agents_prompt) });

        let (workers, critics) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut members = JoinSet::new();
        for member in 0..=args.swarm.workers {
            let is_critic = member == args.swarm.workers;
            let (from, to, size, purpose) = if is_critic {
                (&results, &verdicts, sizes.verdict, Purpose::Judge)
            } else {
                (&tasks, &results, sizes.result, Purpose::Work)
            };
            let slots = &settings.processor.slots;
            let member = Member {
                consumer: bus.join(group(settings, &names, from, is_critic)).await?,
                to: to.as_str().into(),
                partitions: bus.partitions(to).await?,
                bus: bus.clone(),
                size,
                purpose,
                slots: Arc::new(Semaphore::new(if is_critic { slots.critic } else { slots.worker })),
                asker: asker.clone(),
                assigned: if is_critic { critics.clone() } else { workers.clone() },
                commit_interval: settings.processor.commit_interval,
            };
            members.spawn(member.run());
        }
        let mut bare = Self {
            partitions: bus.partitions(&tasks).await?,
            tasks: tasks.as_str().into(),
            sizes,
            results: reader(bus.as_ref(), &verdicts).await?,
            members,
            litter,
            fed: 0,
            bus,
        };
        let wanted = usize::try_from(bare.bus.partitions(&results).await?).unwrap_or(usize::MAX);
        let until = Instant::now() + PATIENCE;
        // A member that comes later takes partitions from those before, so that all of them are somebody's only when
        // the group is at rest.
        while workers.load(Ordering::SeqCst) < usize::try_from(bare.partitions).unwrap_or(usize::MAX)
            || critics.load(Ordering::SeqCst) < wanted
        {
            if Instant::now() > until {
                return Err(CliError::Failed("the bare pipeline does not get its partitions".to_owned()));
            }
            tokio::select! {
                ended = bare.members.join_next() => return Err(broken(ended)),
                () = tokio::time::sleep(Duration::from_millis(20)) => {} // polls what has no event
            }
        }
        Ok(bare)
    }

    /// How long it takes to do so many tasks.
    pub(super) async fn run(&mut self, tasks: usize) -> Result<Duration, CliError> {
        let start = Instant::now();
        let first = self.fed;
        self.fed += tasks as u64;
        let (bus, topic, partitions, size) = (&self.bus, &self.tasks, self.partitions, self.sizes.task);
        let feed = stream::iter(first..self.fed)
            .map(|number| bus.send(record(topic, partitions, number, size)))
            .buffer_unordered(FED_AT_ONCE)
            .try_for_each(|_| async { Ok(()) });
        let results = &self.results;
        let collect = async {
            let mut missing: HashSet<u64> = (first..first + tasks as u64).collect();
            while !missing.is_empty() {
                if let ReaderEvent::Record(record) = results.next().await
                    && let Some(number) = number(record.value())
                {
                    missing.remove(&number);
                }
            }
        };
        let work = async {
            let (fed, ()) = tokio::join!(feed, collect);
            fed.map(|()| start.elapsed()).map_err(failed)
        };
        tokio::select! {
            done = work => done,
            ended = self.members.join_next() => Err(broken(ended)),
        }
    }

    /// Ends it, and leaves nothing of it on the broker.
    pub(super) async fn strike(mut self) {
        self.members.shutdown().await;
        drop((self.results, self.bus));
        self.litter.clear().await;
    }
}

fn group(settings: &Settings, names: &TopicNames, topic: &str, is_critic: bool) -> GroupConfig {
    GroupConfig {
        group: names.group(if is_critic { "critic" } else { "worker" }),
        topics: vec![topic.to_owned()],
        deliver: Deliver::Records,
        instance: None,
        session_timeout: settings.kafka.session_timeout,
        revoke_timeout: settings.kafka.revoke_timeout,
        queue_records: settings.kafka.queue_records,
    }
}

/// Takes a record, asks the model, writes a record; again and again.
struct Member {
    consumer: Arc<dyn GroupConsumer>,
    bus: Arc<dyn Bus>,
    to: Arc<str>,
    /// Of the topic that it writes to.
    partitions: i32,
    /// Of what it writes.
    size: usize,
    purpose: Purpose,
    slots: Arc<Semaphore>,
    asker: Arc<Asker>,
    /// Partitions that the members of its group have.
    assigned: Arc<AtomicUsize>,
    commit_interval: Duration,
}

impl Member {
    async fn run(self) -> Result<(), CliError> {
        let mut calls: JoinSet<Result<(), CliError>> = JoinSet::new();
        let mut positions: BTreeMap<PartitionId, i64> = BTreeMap::new();
        let mut tick = tokio::time::interval(self.commit_interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = self.consumer.next() => match event {
                    GroupEvent::Record(record) => {
                        let Some(number) = number(record.value()) else { continue };
                        positions.insert(record.at, record.offset + 1);
                        calls.spawn(self.handle(number).await?);
                    }
                    GroupEvent::Assigned(gained) => {
                        self.assigned.fetch_add(gained.len(), Ordering::SeqCst);
                    }
                    GroupEvent::Revoked(gone, ack) => {
                        self.assigned.fetch_sub(gone.len(), Ordering::SeqCst);
                        ack.acknowledge();
                    }
                    GroupEvent::Lost(_) | GroupEvent::OutOfRange { .. } | GroupEvent::Closed => {
                        return Err(CliError::Failed("the bare pipeline lost its partitions".to_owned()));
                    }
                    GroupEvent::Fatal(error) => return Err(error.into()),
                    GroupEvent::End { .. } | GroupEvent::Trouble(_) => {}
                },
                Some(ended) = calls.join_next() => ended.map_err(failed)??,
                _ = tick.tick(), if !positions.is_empty() => {
                    let offsets = std::mem::take(&mut positions).into_iter();
                    let offsets = offsets.map(|(at, offset)| CommitOffset { at, offset, metadata: String::new() });
                    let (consumer, offsets) = (self.consumer.clone(), offsets.collect());
                    calls.spawn(async move {
                        // Refused while the group shares its partitions anew; the next one says more anyway.
                        let _ = consumer.commit(offsets).await;
                        Ok(())
                    });
                }
            }
        }
    }

    /// Waits for a slot; what is to be done in it.
    async fn handle(
        &self,
        number: u64,
    ) -> Result<impl Future<Output = Result<(), CliError>> + Send + use<>, CliError> {
        let slot = self.slots.clone().acquire_owned().await.map_err(failed)?;
        let (asker, purpose) = (self.asker.clone(), self.purpose);
        let (bus, to, partitions, size) = (self.bus.clone(), self.to.clone(), self.partitions, self.size);
        Ok(async move {
            asker.ask(purpose, number).await?;
            let delivered = bus.send(record(&to, partitions, number, size));
            drop(slot); // as in the swarm, a slot is not kept for the broker's answer
            delivered.await.map_err(failed).map(drop)
        })
    }
}

/// Asks what a worker and a critic ask.
struct Asker {
    model: Arc<dyn Model>,
    catalogue: AgentCatalogue,
    budget: PromptBudget,
}

impl Asker {
    async fn ask(&self, purpose: Purpose, number: u64) -> Result<(), CliError> {
        let goal = "measure the swarm";
        let (title, instruction) =
            (format!("Task {number} of layer 0"), format!("Say ok for task {number}."));
        let (agent, messages, format) = if purpose == Purpose::Judge {
            let agent = self.catalogue.critic();
            let result = format!("ok: {title}");
            let prompt = JudgePrompt {
                goal,
                title: &title,
                instruction: &instruction,
                min_score: 0.6,
                result: &result,
            };
            let schema = Arc::new(verdict_schema());
            let format = Format::Json { name: VERDICT_SCHEMA.to_owned(), schema, check: None };
            (agent, judge_messages(agent, &prompt, self.budget), format)
        } else {
            let agent = self.catalogue.get("worker").or_else(|| self.catalogue.workers().next());
            let agent = agent.ok_or_else(|| CliError::Usage("there is no agent for tasks".to_owned()))?;
            let prompt = WorkPrompt {
                goal,
                title: &title,
                instruction: &instruction,
                inputs: &[],
                items: &[],
                parameters: &BTreeMap::new(),
                results: &[],
                feedback: None,
            };
            (agent, work_messages(agent, &prompt, self.budget), Format::Text)
        };
        let request = ChatRequest {
            purpose,
            messages,
            tools: Vec::new(),
            format,
            max_tokens: agent.max_tokens,
            temperature: agent.temperature,
            deadline: tokio::time::Instant::now() + PATIENCE,
            traceparent: None,
            allowance: None,
            reuse: Reuse::Refused,
            priority: Priority::default(),
            model: None,
        };
        self.model.chat(request).await.map_err(failed).map(drop)
    }
}

/// A record with this number, spread as numbers are.
fn record(topic: &Arc<str>, partitions: i32, number: u64, size: usize) -> OutRecord {
    let mut payload = vec![b'x'; size.max(NUMBER)];
    payload[..NUMBER].copy_from_slice(&number.to_be_bytes());
    let partition = i32::try_from(number % u64::from(partitions.unsigned_abs().max(1))).unwrap_or(0);
    OutRecord {
        to: PartitionId::new(topic.clone(), partition),
        key: None,
        headers: Vec::new(),
        payload: Some(Bytes::from(payload)),
    }
}

/// The number that a record begins with.
fn number(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::Failed(format!("the bare pipeline: {error}"))
}

fn broken(ended: Option<Result<Result<(), CliError>, tokio::task::JoinError>>) -> CliError {
    match ended {
        Some(Ok(Err(error))) => error,
        Some(Err(error)) => failed(error),
        Some(Ok(Ok(()))) | None => failed("a member ended"),
    }
}
