//! One run: moves time, lets things happen, and stops as soon as a promise is broken.

mod events;

use crate::{
    dice::Dice,
    history::History,
    judge::{Judge, Tally, Violation, ready},
    model::Calls,
    network::{Life, Network},
    process::{BEGIN, Ground, Process, Service},
    scenario::{Bound, Inbox, Scenario, TenantBound},
};
use starling_bus::{Bus as _, InRecord, MemoryBus, MemoryOptions, OutRecord, PartitionId};
use starling_engine::coordinator::{CoordinatorSettings, TenantBudget, budget::Budget};
use starling_protocol::{Codec, CodecLimits, IntentId, Timestamp, Topic, TopicNames};
use starling_runtime::{Settings, settings::Sources, topics::topic_specs};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

/// Sessions in the groups end after so many milliseconds of silence.
const SESSION: i64 = 3_000;
/// Time after the last trouble in which everything must have come to its end.
const PATIENCE: i64 = 90_000;
/// Longest time until intents are forgotten that is waited for.
const ECHO: i64 = 60_000;
/// Longest step of time.
const LONGEST_STEP: i64 = 250;

/// How a run went.
#[derive(Clone, Debug)]
pub struct Report {
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
    /// Tells the run from others.
    pub fingerprint: u64,
    /// Milliseconds of the swarm's time.
    pub lasted: i64,
    /// What it was like.
    pub tally: Tally,
    /// What happened last, if that was to be kept.
    pub lines: Vec<String>,
}

struct World {
    scenario: Scenario,
    now: i64,
    wall: Arc<AtomicI64>,
    memory: Arc<MemoryBus>,
    network: Arc<Network>,
    names: TopicNames,
    codec: Codec,
    ground: Ground,
    calls: Arc<Calls>,
    processes: Vec<Process>,
    lives: Life,
    /// Dead processes whose sessions have not ended, by when they do.
    ghosts: Vec<(i64, Life)>,
    /// Paused processes whose sessions will end.
    sleepers: Vec<(i64, Life, Service)>,
    judge: Judge,
    history: Arc<Mutex<History>>,
    dice: Dice,
    /// Records as users published them, by the intent's number.
    wishes: BTreeMap<u32, (IntentId, OutRecord)>,
    next_event: usize,
    /// Partitions of which records are delivered again, which therefore must not go meanwhile.
    rewound: BTreeSet<PartitionId>,
}

/// Runs a scenario. `keep` keeps the last lines of its history.
#[must_use]
pub fn run(scenario: &Scenario, keep: bool) -> Report {
    PANICS.with_borrow_mut(Vec::clear);
    let mut world = World::new(scenario.clone(), keep);
    let violation = world.live().err();
    let mut history = world.history.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Violation { promise, how }) = &violation {
        history.note(world.now, &format!("BROKEN {promise}: {how}"));
    }
    Report {
        violation,
        fingerprint: history.fingerprint(),
        lasted: world.now,
        tally: world.judge.tally(),
        lines: history.lines().map(str::to_owned).collect(),
    }
}

thread_local! {
    /// Panics of this thread since its run began.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// From now on panics are kept for the judge. They are printed as well, for not all are of the swarm.
pub fn watch_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        let line = info.to_string();
        PANICS.with_borrow_mut(|panics| panics.push(line));
    }));
}

impl World {
    fn new(scenario: Scenario, keep: bool) -> Self {
        let settings = Arc::new(settings(&scenario));
        let wall = Arc::new(AtomicI64::new(BEGIN));
        let clock = wall.clone();
        let memory = MemoryBus::new(MemoryOptions {
            clock: Arc::new(move || Timestamp(clock.load(Ordering::Relaxed))),
            ..MemoryOptions::default()
        });
        let _ = ready(memory.create_topics(&topic_specs(&settings.topics))); // a new bus refuses no topic
        let history = Arc::new(Mutex::new(History::new(keep)));
        let network = Network::new(memory.clone(), &scenario, history.clone());
        let names = TopicNames::new(settings.topics.prefix.as_str());
        let codec = Codec::new(CodecLimits::default());
        let shape = &scenario.shape;
        let coordinator = Arc::new(CoordinatorSettings {
            coordinator_partitions: shape.coordinator_partitions,
            ..settings.coordinator.clone()
        });
        let judge =
            Judge::new(network.clone(), names.clone(), codec.clone(), &coordinator, shape.worker_partitions);
        let calls = Arc::new(Calls::default());
        let ground = Ground { network: network.clone(), calls: calls.clone(), settings, seed: scenario.seed };
        let of = |service, count| (0..count).map(move |number| Process::new(service, number));
        let processes = of(Service::Planner, shape.planners)
            .chain(of(Service::Worker, shape.workers))
            .chain(of(Service::Critic, shape.critics))
            .collect();
        let dice = Dice::of(scenario.seed, "world");
        Self {
            now: 0,
            wall,
            memory,
            network,
            names,
            codec,
            ground,
            calls,
            processes,
            lives: 0,
            ghosts: Vec::new(),
            sleepers: Vec::new(),
            judge,
            history,
            dice,
            wishes: BTreeMap::new(),
            next_event: 0,
            rewound: BTreeSet::new(),
            scenario,
        }
    }

    fn live(&mut self) -> Result<(), Violation> {
        let mut seen = u64::MAX;
        let mut idle = 0;
        let mut settled_since = None;
        let mut echoed = false;
        let mut end = self.scenario.calm_at + PATIENCE;
        loop {
            self.happen();
            self.network.advance(self.now);
            let operations = self.network.operations();
            let quiet = operations == seen;
            seen = operations;
            if !quiet {
                self.judge.observe()?;
            }
            self.check_processes()?;
            let calm = self.now >= self.scenario.calm_at && self.next_event == self.scenario.events.len();
            if calm && !quiet {
                settled_since = None;
            }
            if calm && settled_since.is_none() && self.all_up() && self.judge.settled().is_ok() {
                settled_since = Some(self.now);
            }
            // What comes too late comes within that time.
            if settled_since.is_some_and(|since| self.now >= since + 2_500) {
                if echoed || self.scenario.shape.dedup_horizon > ECHO {
                    break;
                }
                echoed = true;
                self.echo()?;
                settled_since = None;
                (seen, idle, end) = (u64::MAX, 0, self.now + PATIENCE);
                continue;
            }
            if self.now > end {
                break;
            }
            idle = if quiet { (idle * 2).clamp(1, LONGEST_STEP) } else { 0 };
            self.step(idle);
        }
        self.judge.observe()?;
        let calls = self.calls.work().clone();
        self.judge.conclude(&calls)
    }

    /// Time passes until everything is forgotten; then every intent that was ever accepted comes again.
    fn echo(&mut self) -> Result<(), Violation> {
        let horizon = self.scenario.shape.dedup_horizon;
        let until = self.now + horizon + 1_000;
        while self.now < until {
            self.happen();
            self.network.advance(self.now);
            self.judge.observe()?;
            self.step(LONGEST_STEP);
        }
        self.note("everything comes again");
        for partition in 0..self.scenario.shape.coordinator_partitions {
            let at = self.partition(Inbox::Coordinator, partition);
            let high = ready(self.memory.watermarks(&at)).and_then(Result::ok).map_or(0, |marks| marks.high);
            for offset in 0..high {
                let record =
                    ready(self.memory.read(&[(at.clone(), offset)])).and_then(|mut found| found.pop());
                let Some(Ok(InRecord { at, key, headers, payload, .. })) = record else { continue };
                self.publish(OutRecord { to: at, key, headers, payload }, None, false);
            }
        }
        Ok(())
    }

    /// Time passes, for each process in some order.
    fn step(&mut self, idle: i64) {
        let mut length = self.dice.between(1, 8).max(idle);
        let next_event = self.scenario.events.get(self.next_event).map(|event| event.at);
        for due in [self.network.next_due(), next_event].into_iter().flatten() {
            length = length.min((due - self.now).max(1));
        }
        let mut order: Vec<usize> = (0..self.processes.len()).collect();
        self.dice.shuffle(&mut order);
        for index in order {
            self.processes[index].tick(length);
        }
        self.now += length;
        self.wall.store(BEGIN + self.now, Ordering::Relaxed);
        for (at, offset, metadata) in self.network.take_disturbances() {
            self.judge.disturbed_partition(&at, offset, &metadata);
        }
    }

    fn note(&self, line: &str) {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).note(self.now, line);
    }

    // ---- processes ----

    fn all_up(&self) -> bool {
        self.processes.iter().all(|process| process.life().is_some() && !process.is_paused())
    }

    fn check_processes(&mut self) -> Result<(), Violation> {
        if let Some(panic) = PANICS.with_borrow_mut(Vec::pop) {
            return Err(Violation { promise: "broken", how: panic });
        }
        for index in 0..self.processes.len() {
            let process = &self.processes[index];
            let (name, slots) = (process.name.clone(), self.scenario.shape.worker_slots);
            if let Some(life) = process.life().filter(|_| process.service == Service::Worker) {
                let open = self.calls.open(life);
                if open > slots {
                    let how = format!("{name} has {open} calls open and {slots} slots");
                    return Err(Violation { promise: "bounded", how });
                }
            }
            match process.ended() {
                None => {}
                Some(Ok(())) if process.start_at.is_some() => {
                    if let Some(life) = self.processes[index].kill() {
                        self.note(&format!("{name} has ended"));
                        self.network.bury(life);
                    }
                }
                Some(ended) => {
                    let how = format!("{name} has ended by itself: {ended:?}");
                    return Err(Violation { promise: "broken", how });
                }
            }
        }
        Ok(())
    }

    /// What is due by now happens.
    fn happen(&mut self) {
        let now = self.now;
        for index in 0..self.processes.len() {
            let due = self.processes[index].start_at.is_some_and(|at| at <= now);
            if due && self.processes[index].life().is_none() {
                self.lives += 1;
                let (ground, life) = (self.ground.clone(), self.lives);
                self.processes[index].start(&ground, life, now);
                self.note(&format!("{} starts, life {life}", self.processes[index].name));
            }
            if self.processes[index].resume_if_due(now) {
                self.note(&format!("{} goes on", self.processes[index].name));
            }
        }
        let (gone, ghosts) = std::mem::take(&mut self.ghosts).into_iter().partition(|(at, _)| *at <= now);
        self.ghosts = ghosts;
        for (_, life) in Vec::from_iter::<Vec<_>>(gone) {
            self.network.bury(life);
        }
        let (late, sleepers): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.sleepers).into_iter().partition(|(at, _, _)| *at <= now);
        self.sleepers = sleepers;
        for (_, life, service) in late {
            // It may have gone on meanwhile.
            if self.processes.iter().any(|process| process.life() == Some(life) && process.is_paused()) {
                self.note(&format!("life {life} is taken for dead"));
                self.disturb(service);
                self.network.expire(life);
            }
        }
        while let Some(event) = self.scenario.events.get(self.next_event).filter(|event| event.at <= now) {
            let what = event.what.clone();
            self.next_event += 1;
            self.note(&format!("{what:?}"));
            self.meet(what);
        }
    }

    fn disturb(&mut self, service: Service) {
        let topics: &[Topic] = match service {
            Service::Planner => &[Topic::Intents, Topic::Planner],
            Service::Worker => &[Topic::Worker(None)],
            Service::Critic => &[Topic::Critic],
        };
        topics.iter().for_each(|topic| self.judge.disturbed(topic));
    }

    fn process(&self, number: usize) -> usize {
        number % self.processes.len()
    }
}

/// Everything is shorter and smaller than in life, so that a run meets more of it.
fn settings(scenario: &Scenario) -> Settings {
    let shape = &scenario.shape;
    let overrides = [
        ("topics.partitions.intents", "2".to_owned()),
        ("topics.partitions.coordinator", shape.coordinator_partitions.to_string()),
        ("topics.partitions.planner", "2".to_owned()),
        ("topics.partitions.worker", shape.worker_partitions.to_string()),
        ("topics.partitions.critic", "2".to_owned()),
        ("topics.partitions.tool", "1".to_owned()),
        ("topics.partitions.outcomes", "1".to_owned()),
        ("topics.partitions.progress", "1".to_owned()),
        ("topics.partitions.content", "1".to_owned()),
        ("topics.partitions.dlq", "1".to_owned()),
        ("kafka.session_timeout", format!("{SESSION}ms")),
        ("kafka.revoke_timeout", "1s".to_owned()),
        ("registry.patience", "2s".to_owned()),
        ("processor.grace", "2s".to_owned()),
        ("processor.slots.worker", shape.worker_slots.to_string()),
        ("processor.backoff_max", "1s".to_owned()),
        ("processor.deadline_slack", "500ms".to_owned()),
        ("coordinator.default_deadline", "30s".to_owned()),
        ("coordinator.max_live", shape.max_live.to_string()),
        ("coordinator.plan_timeout", "4s".to_owned()),
        ("coordinator.attempt_timeout", "6s".to_owned()),
        ("coordinator.attempt_grace", "500ms".to_owned()),
        ("coordinator.max_retry_backoff", "1s".to_owned()),
        ("statelog.snapshot_every", shape.snapshot_every.to_string()),
    ];
    let overrides = overrides.into_iter().map(|(path, value)| (path.to_owned(), value)).collect();
    let sources = Sources { overrides, ..Sources::default() };
    let mut settings = Settings::load(&sources).expect("the simulation's settings are good ones");
    // Less than an installation may have.
    settings.statelog.max_record = shape.max_record;
    settings.coordinator.dedup_horizon = Duration::from_millis(shape.dedup_horizon.unsigned_abs());
    settings.coordinator.tenants.others = shape.tenant.map(|TenantBound { bound, per }| TenantBudget {
        budget: match bound {
            Bound::None => Budget::default(),
            Bound::Calls(most) => Budget { calls: Some(most), ..Budget::default() },
            Bound::Tokens(most) => Budget { tokens: Some(most), ..Budget::default() },
        },
        per: Duration::from_millis(per.unsigned_abs()),
    });
    settings
}
