//! A history that really happened: the records of an intent that a swarm in this process has worked on.

use bytes::Bytes;
use starling::{
    audit::{Auditor, as_logged},
    client::{Client, Seen, Submission},
    inputs::Part,
    scan::{Period, Scan},
    swarm::{Shape, Swarm},
};
use starling_audit::{Account, Cut, Extent, Installation, Ledger, Limits, Report, Scope, Status, Terms};
use starling_bus::{Bus, InRecord, MemoryBus, MemoryOptions, StartAt};
use starling_llm::{Model, OfflineModel};
use starling_protocol::{
    Body, Codec, Content, Envelope, Input, Intent, IntentId, Outcome, OutcomeStatus, Timestamp, Topic,
    TopicNames,
    incoming::IntentLimits,
    state::{Decision, StateRecord},
    topic::partition_of,
};
use starling_runtime::{Settings, settings::Sources, telemetry::Spans, topics::topic_specs};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::sync::OnceCell;

const COORDINATORS: i32 = 3;

/// A bus with an installation on it.
pub(crate) struct World {
    pub(crate) bus: Arc<MemoryBus>,
    pub(crate) settings: Settings,
    pub(crate) client: Client,
    swarm: Swarm,
}

pub(crate) fn terms() -> Terms {
    Terms { now: starling_runtime::Clock::system().now(), ended: true, overdue_ms: 60_000 }
}

impl World {
    pub(crate) async fn start(more: &[(&str, &str)]) -> World {
        Self::asking(Some(Arc::new(OfflineModel::new())), more).await
    }

    /// With this model, or else that of the settings.
    pub(crate) async fn asking(model: Option<Arc<dyn Model>>, more: &[(&str, &str)]) -> World {
        let overrides = [
            ("topics.prefix", "s"),
            ("topics.partitions.intents", "2"),
            ("topics.partitions.coordinator", "3"),
            ("topics.partitions.planner", "2"),
            ("topics.partitions.worker", "4"),
            ("topics.partitions.critic", "2"),
            ("topics.partitions.outcomes", "2"),
            ("topics.partitions.dlq", "1"),
        ];
        let overrides = overrides.iter().chain(more).map(|(path, value)| ((*path).into(), (*value).into()));
        let sources = Sources { overrides: overrides.collect(), ..Sources::default() };
        let settings = Settings::load(&sources).unwrap();
        let bus = MemoryBus::new(MemoryOptions::default());
        bus.create_topics(&topic_specs(&settings.topics)).await.unwrap();
        let shape = Shape { planner: true, workers: 1, model };
        let swarm = Swarm::start(Arc::new(settings.clone()), bus.clone(), Spans::off(), shape).await.unwrap();
        let client = Client::new(bus.clone(), TopicNames::new("s"));
        World { bus, settings, client, swarm }
    }

    pub(crate) async fn run(&self, id: &str) -> IntentId {
        let id = IntentId::from_string(id);
        let goal = "Compare apples, pears and plums by price, weight and taste, and recommend one";
        self.succeed(&id, goal).await;
        id
    }

    /// Reaches a goal.
    pub(crate) async fn succeed(&self, id: &IntentId, goal: &str) -> Outcome {
        let goal = goal.to_owned();
        let input =
            Input { name: "prices.txt".to_owned(), media_type: "text/plain".to_owned(), ..Input::default() };
        let inputs = vec![input];
        let intent = Intent { goal, strategy: "llm".to_owned(), priority: 5, inputs, ..Intent::default() };
        let part = |text: &str| Part {
            content: Content { text: text.to_owned(), ..Content::default() },
            tokens: 20,
        };
        let parts = vec![part("An apple costs 30 cents. "), part("A pear costs 40 cents, a plum 10.")];
        let submission = Submission {
            id: id.clone(),
            intent,
            tenant: "t".to_owned(),
            timeout: None,
            traceparent: None,
            parts: [(0, parts)].into(),
        };
        let mut follower = self.client.follow(id, StartAt::End).await.unwrap();
        self.client.submit(submission).await.unwrap();
        loop {
            if let Seen::Outcome(outcome) = follower.next().await.unwrap().unwrap() {
                assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
                return *outcome;
            }
        }
    }

    pub(crate) fn auditor(&self) -> Auditor {
        Auditor::new(self.bus.clone(), Codec::default().into(), &self.settings)
    }

    /// The first account in which nothing is under way any more: commits and marks come a moment after the outcome.
    pub(crate) async fn settled(&self, id: &IntentId) -> Account {
        let mut last = None;
        for _ in 0..400 {
            let account = self.auditor().intent(id, terms()).await.unwrap();
            if account.is_fine() || account.findings().any(|entry| entry.status > Status::Pending) {
                return account;
            }
            last = Some(account);
            tokio::time::sleep(Duration::from_millis(25)).await; // polls what has no event
        }
        last.unwrap()
    }

    pub(crate) async fn stop(self) {
        self.swarm.stop().await;
    }
}

/// All records of an installation, to be tampered with.
#[derive(Clone)]
pub(crate) struct History {
    pub(crate) id: IntentId,
    pub(crate) records: Vec<(Topic, InRecord)>,
    pub(crate) cut: Cut,
}

static HISTORY: OnceCell<History> = OnceCell::const_new();

impl History {
    /// One intent, from the first record to the last, and nothing else.
    pub(crate) async fn of_one_intent() -> History {
        let make = || async {
            let world = World::start(&[]).await;
            let id = world.run("one").await;
            let account = world.settled(&id).await;
            assert!(account.is_fine(), "{}", starling_audit::tree_of(&account));
            let ledger_topics = Topic::all().into_iter().filter(|topic| *topic != Topic::State);
            let (mut records, mut cut) = (Vec::new(), Cut::default());
            for topic in ledger_topics.chain([Topic::State]) {
                let name = TopicNames::new("s").name(&topic);
                for partition in 0..world.bus.partitions(&name).await.unwrap() {
                    cut.extents.insert((topic.clone(), partition), Extent::default());
                }
                let mut scan = Scan::open(world.bus.clone(), &[name], Period::default()).await.unwrap();
                while let Some(record) = scan.next().await.unwrap() {
                    records.push((topic.clone(), record));
                }
            }
            world.stop().await;
            let mut history = History { id, records, cut };
            history.measure();
            let handled = history.cut.extents.iter().map(|(at, extent)| (at.clone(), extent.high));
            history.cut.handled = handled.collect();
            let done_by = history.cut.extents.iter().filter(|((topic, _), _)| *topic == Topic::State);
            history.cut.done_by = done_by.map(|((_, number), extent)| (*number, extent.high)).collect();
            history
        };
        HISTORY.get_or_init(make).await.clone()
    }

    /// How far the records reach.
    pub(crate) fn measure(&mut self) {
        for (topic, record) in &self.records {
            let extent = self.cut.extents.entry((topic.clone(), record.at.partition)).or_default();
            extent.high = extent.high.max(record.offset + 1);
        }
    }

    pub(crate) fn home(&self) -> i32 {
        partition_of(self.id.as_str(), COORDINATORS)
    }

    /// Everything of the intent is read, and nothing is left out of what is read.
    pub(crate) fn audit(&self) -> Account {
        self.audit_on(terms())
    }

    pub(crate) fn audit_on(&self, terms: Terms) -> Account {
        let scope = Scope::Named(BTreeSet::from([self.id.clone()]));
        self.ledger(scope).account(&self.id, terms).unwrap()
    }

    pub(crate) fn report(&self) -> Report {
        let mut report = Report::keeping(10);
        report.add(&self.ledger(Scope::Begun { since: None, until: None }), terms());
        report
    }

    fn ledger(&self, scope: Scope) -> Ledger {
        let installation = Installation {
            codec: Codec::default(),
            names: TopicNames::new("s"),
            coordinators: COORDINATORS,
            intents: IntentLimits::default(),
        };
        let mut history = self.clone();
        history.measure();
        let mut ledger = Ledger::new(installation, scope, Limits::default(), history.cut);
        // The state log last.
        history.records.sort_by_key(|(topic, _)| *topic == Topic::State);
        for (topic, record) in &history.records {
            ledger.observe(topic, &as_logged(record));
        }
        ledger
    }

    /// The numbers of the records that the test is about.
    pub(crate) fn find(&self, which: impl Fn(&Topic, &Body) -> bool) -> Vec<usize> {
        let is_wanted = |(topic, record): &(Topic, InRecord)| {
            Codec::default().decode::<Envelope>(record.value()).is_ok_and(|e| which(topic, &e.body))
        };
        (0..self.records.len()).filter(|n| is_wanted(&self.records[*n])).collect()
    }

    pub(crate) fn envelope(&self, n: usize) -> Envelope {
        Codec::default().decode(self.records[n].1.value()).unwrap()
    }

    /// Puts a record behind the last one of its partition.
    pub(crate) fn append(&mut self, topic: Topic, mut record: InRecord) -> i64 {
        let of_partition =
            self.records.iter().filter(|(other, r)| *other == topic && r.at.partition == record.at.partition);
        record.offset = of_partition.map(|(_, record)| record.offset + 1).max().unwrap_or(0);
        let offset = record.offset;
        self.records.push((topic, record));
        offset
    }

    /// The same record once more, after a change.
    pub(crate) fn append_changed(&mut self, n: usize, change: impl FnOnce(&mut Envelope)) -> i64 {
        let (topic, mut record) = self.records[n].clone();
        let mut envelope = self.envelope(n);
        change(&mut envelope);
        record.payload = Some(Codec::default().encode(&envelope).unwrap().into());
        record.timestamp = Timestamp(record.timestamp.0 + 1);
        self.append(topic, record)
    }

    /// The numbers of the records of the intent's state log.
    pub(crate) fn state(&self) -> Vec<usize> {
        let home = self.home();
        let of_home =
            |(topic, record): &(Topic, InRecord)| *topic == Topic::State && record.at.partition == home;
        (0..self.records.len()).filter(|n| of_home(&self.records[*n])).collect()
    }

    pub(crate) fn state_record(&self, n: usize) -> StateRecord {
        Codec::default().decode(self.records[n].1.value()).unwrap()
    }

    pub(crate) fn append_state(&mut self, record: &StateRecord) -> i64 {
        let last = *self.state().last().unwrap();
        let mut raw = self.records[last].1.clone();
        raw.payload = Some(Codec::default().encode(record).unwrap().into());
        self.append(Topic::State, raw)
    }

    /// The decision that comes next, empty, with everything read that is there.
    pub(crate) fn next_decision(&self) -> Decision {
        let mut decisions = self.state().into_iter().filter_map(|n| match self.state_record(n) {
            StateRecord::Decision(decision) => Some(decision),
            _ => None,
        });
        let last = decisions.next_back().unwrap();
        let home = self.home();
        let inputs =
            self.records.iter().filter(|(topic, r)| *topic == Topic::Coordinator && r.at.partition == home);
        Decision {
            seq: last.seq + 1,
            next_input: inputs.map(|(_, record)| record.offset + 1).max().unwrap(),
            changed: Vec::new(),
            deleted: Vec::new(),
            effects: Vec::new(),
            effects_done: last.seq,
            ..last
        }
    }

    /// Everything that is there is read and done.
    pub(crate) fn decide_rest(&mut self) {
        let decision = self.next_decision();
        self.append_state(&StateRecord::Decision(decision));
        self.measure();
        let inboxes: Vec<_> = self.cut.extents.iter().map(|(at, extent)| (at.clone(), extent.high)).collect();
        self.cut.handled.extend(inboxes);
    }
}

pub(crate) fn header(name: &str, value: impl Into<Bytes>) -> (String, Bytes) {
    (name.to_owned(), value.into())
}
