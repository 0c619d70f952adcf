//! What lies between the processes and the cluster: records take their time to land, and their acknowledgements to come
//! back; some never do. A process that dies leaves behind what is under way.

use crate::{
    dice::Dice,
    history::History,
    scenario::{Scenario, Weather},
};
use futures::FutureExt as _;
use starling_bus::{
    Bus as _, CommitError, CommitOffset, Delivered, GroupConsumer, MemberId, MemoryBus, OutRecord,
    PartitionId, SendError,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::oneshot;

/// One life of a process: a process that comes back is another one.
pub(crate) type Life = u32;

type Answer = oneshot::Sender<Result<Delivered, SendError>>;

/// A partition that a member loses, and what its group had committed for it then.
pub(crate) type Disturbance = (PartitionId, i64, String);

/// The network of one run.
pub(crate) struct Network {
    /// The cluster.
    pub(crate) memory: Arc<MemoryBus>,
    state: Mutex<State>,
}

struct State {
    now: i64,
    seed: u64,
    weather: Weather,
    calm_at: i64,
    serial: u64,
    flights: BTreeMap<(i64, u64), Flight>,
    /// When the last record of a sender landed in a partition: an idempotent producer keeps its order.
    last: HashMap<(Life, PartitionId), i64>,
    streams: HashMap<(Life, PartitionId), Dice>,
    /// Until when a topic takes nothing.
    outages: BTreeMap<Arc<str>, i64>,
    /// Until when models are asked too often.
    storm: i64,
    members: Vec<Member>,
    /// How often each member was taken for dead.
    generations: HashMap<MemberId, u64>,
    /// For each partition, how many records its senders may have sent again because they could not know better.
    doubts: BTreeMap<PartitionId, u64>,
    /// Whatever happened to the cluster, beside what the fleet says.
    operations: u64,
    disturbances: Vec<Disturbance>,
    history: Arc<Mutex<History>>,
}

enum Flight {
    Land { life: Life, record: OutRecord, answer: Option<Answer>, fate: Fate },
    Answer { answer: Answer, result: Result<Delivered, SendError> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lands,
    Twice,
    AnswerLost,
    WithoutOffset,
    /// The sender was told long ago that it is lost.
    Orphaned,
}

/// A member of a consumer group. It stays one when its process dies, until its session ends.
struct Member {
    life: Life,
    group: String,
    id: MemberId,
    /// Keeps it in the group.
    _consumer: Arc<dyn GroupConsumer>,
}

impl Network {
    /// A network without traffic.
    #[must_use]
    pub(crate) fn new(
        memory: Arc<MemoryBus>,
        scenario: &Scenario,
        history: Arc<Mutex<History>>,
    ) -> Arc<Self> {
        let state = State {
            now: 0,
            seed: scenario.seed,
            weather: scenario.weather,
            calm_at: scenario.calm_at,
            serial: 0,
            flights: BTreeMap::new(),
            last: HashMap::new(),
            streams: HashMap::new(),
            outages: BTreeMap::new(),
            storm: 0,
            members: Vec::new(),
            generations: HashMap::new(),
            doubts: BTreeMap::new(),
            operations: 0,
            disturbances: Vec::new(),
            history,
        };
        Arc::new(Self { memory, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A record that `life` sends.
    pub(crate) fn send(
        &self,
        life: Life,
        record: OutRecord,
    ) -> oneshot::Receiver<Result<Delivered, SendError>> {
        let (answer, answered) = oneshot::channel();
        self.lock().depart(life, record, answer);
        answered
    }

    /// What the weather is: nothing goes wrong once it is calm.
    pub(crate) fn weather(&self) -> Weather {
        self.lock().weather_now()
    }

    /// Everything that is due by then happens.
    pub(crate) fn advance(&self, now: i64) {
        self.lock().now = now;
        loop {
            let flight = {
                let mut state = self.lock();
                match state.flights.first_entry() {
                    Some(entry) if entry.key().0 <= now => entry.remove(),
                    _ => break,
                }
            };
            match flight {
                Flight::Answer { answer, result } => drop(answer.send(result)), // its process may be gone
                Flight::Land { life, record, answer, fate } => self.land(life, record, answer, fate),
            }
        }
    }

    fn land(&self, life: Life, record: OutRecord, answer: Option<Answer>, fate: Fate) {
        let to = record.to.clone();
        let line = describe(&record);
        let mut landed = self.append(record.clone());
        if fate == Fate::Twice && landed.is_ok() {
            drop(self.append(record));
        }
        let mut state = self.lock();
        // The fleet never ceases to speak, and nothing follows from most of it.
        state.operations += u64::from(!to.topic.ends_with(".fleet"));
        let offset = landed.as_ref().ok().and_then(|delivered| delivered.offset);
        state.note(&format!("life {life} -> {to}@{offset:?} {fate:?} {line}"));
        if fate != Fate::Lands {
            *state.doubts.entry(to.clone()).or_default() += 1;
        }
        match fate {
            Fate::Lands | Fate::Twice => {}
            Fate::WithoutOffset => {
                landed = landed.map(|_| Delivered { offset: None });
            }
            Fate::AnswerLost => {
                landed = Err(SendError::Unknown { to: to.to_string(), reason: "the answer was lost".into() });
            }
            Fate::Orphaned => return,
        }
        if let Some(answer) = answer {
            let wait = if fate == Fate::AnswerLost { 800 } else { state.latency(life, &to) };
            let at = state.now + wait;
            state.enqueue(at, Flight::Answer { answer, result: landed });
        }
    }

    fn append(&self, record: OutRecord) -> Result<Delivered, SendError> {
        let to = record.to.to_string();
        self.memory
            .send(record)
            .now_or_never()
            .unwrap_or(Err(SendError::Unknown { to, reason: "the memory bus did not answer".into() }))
    }

    /// When something is due next.
    #[must_use]
    pub(crate) fn next_due(&self) -> Option<i64> {
        self.lock().flights.keys().next().map(|(at, _)| *at)
    }

    /// How often anything happened to the cluster.
    #[must_use]
    pub(crate) fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Something happened to the cluster that the network did not see.
    pub(crate) fn touched(&self) {
        self.lock().operations += 1;
    }

    /// A member has committed, or was told that it has not.
    pub(crate) fn committed(&self, life: Life, offsets: &[CommitOffset], answer: &Result<(), CommitError>) {
        let mut state = self.lock();
        state.operations += 1;
        let offsets: Vec<String> =
            offsets.iter().map(|it| format!("{}={}{}", it.at, it.offset, it.metadata)).collect();
        state.note(&format!("life {life} commits {}: {answer:?}", offsets.join(" ")));
    }

    /// Whether anything of `life` is under way.
    #[must_use]
    pub(crate) fn is_sending(&self, life: Life) -> bool {
        let of = |flight: &Flight| matches!(flight, Flight::Land { life: other, .. } if *other == life);
        self.lock().flights.values().any(of)
    }

    /// The process is gone: of what it had under way, each partition gets a part.
    pub(crate) fn orphan(&self, life: Life, dice: &mut Dice) {
        let mut state = self.lock();
        let mut cut: BTreeSet<PartitionId> = BTreeSet::new();
        let mut lost = Vec::new();
        for (key, flight) in &mut state.flights {
            if let Flight::Land { life: other, record, answer, .. } = flight
                && *other == life
            {
                *answer = None;
                // What is sent later cannot arrive where something earlier was lost.
                if cut.contains(&record.to) || dice.chance(0.5) {
                    cut.insert(record.to.clone());
                    lost.push(*key);
                }
            }
        }
        for key in lost {
            state.flights.remove(&key);
        }
    }

    /// Nothing can be written to `topic` until then.
    pub(crate) fn outage(&self, topic: &str, until: i64) {
        let mut state = self.lock();
        let end = state.outages.entry(topic.into()).or_default();
        *end = until.max(*end);
    }

    /// Every model is asked too often until then.
    pub(crate) fn begin_storm(&self, until: i64) {
        self.lock().storm = until;
    }

    /// Whether models are asked too often.
    pub(crate) fn is_stormy(&self) -> bool {
        let state = self.lock();
        state.now < state.storm
    }

    /// How many records of a partition may be there once more than was intended.
    #[must_use]
    pub(crate) fn doubts(&self, at: &PartitionId) -> u64 {
        self.lock().doubts.get(at).copied().unwrap_or(0)
    }

    /// What a group has committed for a partition: the offset and what is written beside it.
    pub(crate) fn committed_of(&self, group: &str, at: &PartitionId) -> (i64, String) {
        let committed = self.memory.committed(group, at).now_or_never().and_then(Result::ok).flatten();
        committed.map_or((0, String::new()), |it| (it.offset, it.metadata))
    }

    /// A member loses partitions: what is not committed may be done again.
    pub(crate) fn disturb(&self, group: &str, partitions: &[PartitionId]) {
        for at in partitions {
            let (offset, metadata) = self.committed_of(group, at);
            self.lock().disturbances.push((at.clone(), offset, metadata));
        }
    }

    /// The partitions that members have lost since the last call.
    pub(crate) fn take_disturbances(&self) -> Vec<Disturbance> {
        std::mem::take(&mut self.lock().disturbances)
    }

    /// A new member of a group.
    pub(crate) fn joined(&self, life: Life, group: &str, id: MemberId, consumer: Arc<dyn GroupConsumer>) {
        let mut state = self.lock();
        state.operations += 1;
        state.members.push(Member { life, group: group.to_owned(), id, _consumer: consumer });
    }

    /// A member that its process has let go of.
    pub(crate) fn left(&self, life: Life, id: MemberId) {
        self.remove(|member| member.life == life && member.id == id);
    }

    /// The sessions of a dead process end.
    pub(crate) fn bury(&self, life: Life) {
        self.remove(|member| member.life == life);
    }

    fn remove(&self, goes: impl FnMut(&mut Member) -> bool) {
        let gone: Vec<Member> = {
            let mut state = self.lock();
            state.operations += 1;
            state.members.extract_if(.., goes).collect()
        };
        drop(gone); // leaves the group, which takes another lock
    }

    /// How often the group has taken a member for dead.
    pub(crate) fn generation(&self, id: MemberId) -> u64 {
        self.lock().generations.get(&id).copied().unwrap_or(0)
    }

    /// The groups take a process for dead.
    pub(crate) fn expire(&self, life: Life) {
        let members: Vec<(String, MemberId)> = {
            let mut state = self.lock();
            state.operations += 1;
            state.members.iter().filter(|m| m.life == life).map(|m| (m.group.clone(), m.id)).collect()
        };
        let faults = self.memory.faults();
        for (group, id) in members {
            if faults.members(&group).contains(&id) {
                *self.lock().generations.entry(id).or_default() += 1;
                faults.expire(&group, id);
            }
        }
    }
}

impl State {
    fn weather_now(&self) -> Weather {
        if self.now >= self.calm_at { Weather::default() } else { self.weather }
    }

    fn note(&mut self, line: &str) {
        let now = self.now;
        self.history.lock().unwrap_or_else(PoisonError::into_inner).note(now, line);
    }

    fn enqueue(&mut self, at: i64, flight: Flight) {
        self.serial += 1;
        self.flights.insert((at, self.serial), flight);
    }

    fn dice(&mut self, life: Life, to: &PartitionId) -> &mut Dice {
        let seed = self.seed;
        self.streams
            .entry((life, to.clone()))
            .or_insert_with(|| Dice::of(seed, &format!("network {life} {to}")))
    }

    fn latency(&mut self, life: Life, to: &PartitionId) -> i64 {
        let dice = self.dice(life, to);
        let tail = dice.chance(0.05);
        if tail { dice.between(10, 150) } else { dice.between(0, 5) }
    }

    fn depart(&mut self, life: Life, record: OutRecord, answer: Answer) {
        let (now, weather, to) = (self.now, self.weather_now(), record.to.clone());
        let mut latency = self.latency(life, &to);
        let dice = self.dice(life, &to);
        // One draw decides, so that the sorts exclude each other.
        let mut left = dice.between(0, 999_999) as f64 / 1e6;
        let seconds = dice.between(800, 9_000);
        let mut falls = |probability: f64| {
            left -= probability;
            left < 0.0 && left >= -probability
        };
        let unknown = || SendError::Unknown { to: to.to_string(), reason: "no answer in time".into() };
        if self.outages.get(&to.topic).is_some_and(|until| now < *until) || falls(weather.not_sent) {
            let result = Err(SendError::NotSent { to: to.to_string(), reason: "no leader".into() });
            return self.enqueue(now + latency, Flight::Answer { answer, result });
        }
        if falls(weather.lost) {
            return self.enqueue(now + 800, Flight::Answer { answer, result: Err(unknown()) });
        }
        let mut fate = Fate::Lands;
        let mut answer = Some(answer);
        if falls(weather.late) {
            fate = Fate::Orphaned;
            if let Some(answer) = answer.take() {
                self.enqueue(now + 800, Flight::Answer { answer, result: Err(unknown()) });
            }
            latency = seconds;
        } else if falls(weather.answer_lost) {
            fate = Fate::AnswerLost;
        } else if falls(weather.twice) {
            fate = Fate::Twice;
        } else if falls(weather.without_offset) {
            fate = Fate::WithoutOffset;
        } else if falls(weather.slow) {
            latency = seconds / 2;
        }
        let last = self.last.entry((life, to)).or_default();
        let at = if fate == Fate::Orphaned {
            now + latency // given up by its producer: it no longer has a place in the order
        } else {
            *last = (*last).max(now + latency);
            *last
        };
        self.enqueue(at, Flight::Land { life, record, answer, fate });
    }
}

fn describe(record: &OutRecord) -> String {
    let id = record.headers.iter().find(|(name, _)| name == "ce_id");
    let kind = record.headers.iter().find(|(name, _)| name == "ce_type");
    let text = |header: Option<&(String, bytes::Bytes)>| {
        header.map_or(String::new(), |(_, value)| String::from_utf8_lossy(value).into_owned())
    };
    let bytes = record.payload.as_ref().map_or(0, bytes::Bytes::len);
    format!("{} {} {bytes} bytes", text(kind), text(id))
}
