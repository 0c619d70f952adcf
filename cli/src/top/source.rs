//! Where the news come from: the fleet's beats, three topics that are followed, and figures that are asked for
//! again and again.

use super::state::{TopicFigures, Update};
use crate::installation::{FleetReader, Inbox, InboxState, all_partitions, inboxes};
use futures::future::join_all;
use starling_bus::{Bus, BusError, InRecord, Inspector, LogReader, PartitionId, ReaderEvent, StartAt};
use starling_protocol::{Envelope, Topic, TopicNames, dead_letter::Burial};
use starling_runtime::{Schemas, Settings, registry::Unreadable, topics::topic_specs};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::sleep,
};

/// Updates that may wait to be shown; beyond it reading waits.
const QUEUE: usize = 1024;
/// Records before the end of each partition that are read at the start.
const LOOK_BACK: i64 = 200;
/// Time between two looks at the topics.
const LOOK: Duration = Duration::from_secs(2);
/// Time until something that did not work is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What runs in the background; it ends when this is dropped.
pub(super) struct Source {
    pub(super) updates: mpsc::Receiver<Update>,
    /// Logs that have been read up to what was there at the start.
    pub(super) caught_up: watch::Receiver<usize>,
    /// How often the topics were looked at.
    pub(super) looks: watch::Receiver<usize>,
    /// None of them ever ends by itself.
    pub(super) tasks: JoinSet<()>,
}

/// Topics that are followed.
pub(super) const FOLLOWED: [Topic; 3] = [Topic::Progress, Topic::Outcomes, Topic::Dlq];

impl Source {
    pub(super) fn open(bus: Arc<dyn Bus>, schemas: &Schemas, settings: &Settings) -> Self {
        let (sender, updates) = mpsc::channel(QUEUE);
        let (caught_up_sender, caught_up) = watch::channel(0);
        let (looks_sender, looks) = watch::channel(0);
        let names = TopicNames::new(settings.topics.prefix.as_str());
        let teller = |of: &str| Teller {
            sender: sender.clone(),
            bus: bus.clone(),
            names: names.clone(),
            schemas: schemas.clone(),
            of: of.to_owned(),
            troubled: false,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(teller("fleet").fleet());
        let caught_up_sender = Arc::new(caught_up_sender);
        for topic in FOLLOWED {
            tasks.spawn(teller(&topic.suffix()).follow(topic, caught_up_sender.clone()));
        }
        let topics = topic_specs(&settings.topics).into_iter().map(|spec| spec.name).collect();
        let watch = Watch { topics, inboxes: inboxes(&settings.topics), prefix: names.group("") };
        tasks.spawn(teller("topics").look_again_and_again(watch, looks_sender));
        Self { updates, caught_up, looks, tasks }
    }
}

/// Tells what it reads.
struct Teller {
    sender: mpsc::Sender<Update>,
    bus: Arc<dyn Bus>,
    names: TopicNames,
    schemas: Schemas,
    /// What it reads.
    of: String,
    /// Whether the last thing that it told of it was that it cannot.
    troubled: bool,
}

impl Teller {
    /// An error means that nobody listens any more, and then this task is about to end.
    async fn tell(&self, update: Update) {
        let _ = self.sender.send(update).await;
    }

    async fn trouble(&mut self, error: &BusError) {
        self.troubled = true;
        self.tell(Update::Trouble { of: self.of.clone(), why: Some(error.to_string()) }).await;
    }

    async fn relief(&mut self) {
        if std::mem::take(&mut self.troubled) {
            self.tell(Update::Trouble { of: self.of.clone(), why: None }).await;
        }
    }

    async fn fleet(mut self) {
        loop {
            if let Err(error) = self.hear_fleet().await {
                self.trouble(&error).await;
            }
            sleep(AGAIN).await;
        }
    }

    async fn hear_fleet(&mut self) -> Result<(), BusError> {
        let reader = FleetReader::open(self.bus.as_ref(), &self.names).await?;
        loop {
            let beat = reader.next().await?;
            self.relief().await;
            self.tell(Update::Beat(beat)).await;
        }
    }

    async fn follow(mut self, topic: Topic, caught_up: Arc<watch::Sender<usize>>) {
        let mut open = loop {
            match Open::new(self.bus.as_ref(), &self.names.name(&topic)).await {
                Ok(open) => break open,
                Err(error) => self.trouble(&error).await,
            }
            sleep(AGAIN).await;
        };
        let mut told = false;
        loop {
            if !told && open.to_read.is_empty() {
                told = true;
                caught_up.send_modify(|count| *count += 1);
            }
            match open.reader.next().await {
                ReaderEvent::Record(record) => {
                    // What was there is read only when it has been told.
                    self.record(&topic, &record).await;
                    open.has_read(&record.at, record.offset + 1);
                }
                ReaderEvent::End { at, next_offset } => {
                    self.relief().await;
                    open.has_read(&at, next_offset);
                }
                ReaderEvent::OutOfRange { at, .. } => {
                    open.to_read.remove(&at);
                    open.reader.remove(&at).await;
                    if let Err(error) = open.reader.add(at, StartAt::End).await {
                        self.trouble(&error).await;
                    }
                }
                ReaderEvent::Trouble(error) => self.trouble(&error).await,
            }
        }
    }

    /// What is neither is passed over: the log is shared.
    async fn record(&mut self, topic: &Topic, record: &InRecord) {
        if *topic == Topic::Dlq {
            self.relief().await;
            if let Some(burial) = Burial::read(&record.headers) {
                self.tell(dead_letter(burial)).await;
            }
            return;
        }
        match self.schemas.read::<Envelope>(record.value()).await {
            Ok(envelope) => {
                self.relief().await;
                self.tell(Update::Said(Box::new(envelope))).await;
            }
            // Not waited for: what is shown is of now.
            Err(Unreadable::Later(why)) => self.trouble(&BusError::Retry(why)).await,
            Err(Unreadable::Never(_) | Unreadable::Newer(_)) => self.relief().await,
        }
    }

    async fn look_again_and_again(mut self, watch: Watch, looks: watch::Sender<usize>) {
        let inspector = self.bus.inspector();
        let mut counts = HashMap::new();
        loop {
            match watch.look(inspector.as_ref(), &mut counts).await {
                Ok(figures) => {
                    self.tell(Update::Topics(figures)).await;
                    self.relief().await;
                }
                Err(error) => self.trouble(&error).await,
            }
            looks.send_modify(|count| *count += 1);
            sleep(LOOK).await;
        }
    }
}

/// A topic that is read.
struct Open {
    reader: Arc<dyn LogReader>,
    /// Where the end was at the start, for partitions that have not been read up to there.
    to_read: HashMap<PartitionId, i64>,
}

impl Open {
    async fn new(bus: &dyn Bus, topic: &str) -> Result<Self, BusError> {
        let partitions = all_partitions(topic, bus.partitions(topic).await?);
        let marks = bus.inspector().watermarks(&partitions).await?;
        let reader = bus.reader().await?;
        let mut to_read = HashMap::new();
        for (at, marks) in partitions.into_iter().zip(marks) {
            let Some(marks) = marks else {
                reader.add(at, StartAt::End).await?;
                continue;
            };
            let from = marks.low.max(marks.high - LOOK_BACK);
            if from < marks.high {
                to_read.insert(at.clone(), marks.high);
            }
            reader.add(at, StartAt::Offset(from)).await?;
        }
        Ok(Self { reader, to_read })
    }

    fn has_read(&mut self, at: &PartitionId, next: i64) {
        if self.to_read.get(at).is_some_and(|end| next >= *end) {
            self.to_read.remove(at);
        }
    }
}

/// Which topics and groups are looked at.
struct Watch {
    topics: Vec<String>,
    inboxes: Vec<Inbox>,
    prefix: String,
}

impl Watch {
    async fn look(
        &self,
        inspector: &dyn Inspector,
        counts: &mut HashMap<String, i32>,
    ) -> Result<Vec<TopicFigures>, BusError> {
        if counts.len() < self.topics.len() {
            for topic in inspector.topics(&self.topics).await?.into_iter().flatten() {
                counts.insert(topic.name, i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX));
            }
        }
        let counts = &*counts;
        join_all(self.topics.iter().map(|name| async {
            let short = name.strip_prefix(self.prefix.as_str()).unwrap_or(name).to_owned();
            let figures = TopicFigures { name: short, ..TopicFigures::default() };
            let Some(count) = counts.get(name) else { return Ok(figures) };
            let partitions = usize::try_from(*count).ok();
            let Some(inbox) = self.inboxes.iter().find(|inbox| inbox.name == *name) else {
                let marks = inspector.watermarks(&all_partitions(name, *count)).await?;
                return Ok(TopicFigures { partitions, written: written(&marks), ..figures });
            };
            let state = InboxState::ask(inspector, inbox.clone(), *count).await;
            let members = state.members();
            Ok(TopicFigures {
                partitions,
                written: state.marks.as_ref().ok().and_then(|marks| written(marks)),
                members: members.as_ref().map(|(count, _)| *count),
                unread: members.map(|(_, unread)| unread.len()),
                lag: state.lag(),
                ..figures
            })
        }))
        .await
        .into_iter()
        .collect()
    }
}

fn written(marks: &[Option<starling_bus::Watermarks>]) -> Option<i64> {
    marks.iter().map(|marks| marks.map(|marks| marks.high)).sum()
}

/// What the headers of a dead letter say.
fn dead_letter(burial: Burial) -> Update {
    let Burial { time: at, topic, partition, offset, reason, .. } = burial;
    Update::DeadLetter { at, from: format!("{topic}[{partition}]@{offset}"), reason }
}
