//! The judge: reads every topic as it grows, knows what is promised, and takes nobody's word for it.
//!
//! Each check has a name, that of the promise which it watches:
//!
//! | name | what must be true |
//! |---|---|
//! | `outcome` | an intent that was accepted has one outcome; its record may be there again, byte for byte the same |
//! | `invented` | an outcome is of an intent that a user published, or of a record that reached the coordinator |
//! | `effect` | what the coordinator sends follows from a decision that the log had accepted before |
//! | `copies` | it is there once, and once more at most for each doubt: a new owner, a lost answer |
//! | `order` | a task is dispatched only after what it builds on has ended, and brings its results |
//! | `attempts` | attempts are counted, and no more than the intent allows |
//! | `budget` | what the steps of an intent may take and what they say that they took is never more than it may take, nor of all intents of a tenant than that may; only a run of the planner that takes a dead one's place comes on top |
//! | `runs` | a run of the planner that was given up never comes back, and the one in force is not given up for its sake |
//! | `after` | nothing is dispatched for an intent that has ended |
//! | `cancelled` | an intent whose cancellation was decided first ends cancelled |
//! | `commit` | no offset is committed before what follows from its record is there |
//! | `replay` | the log, read from its beginning and from its last snapshot, gives the same state |
//! | `log` | the state log is never refused, what counts in it is what should, and its time never falls |
//! | `backlog` | after a take-over no deadline fires before what waited is read |
//! | `repeats` | a model is asked again only for what was not committed when something happened to its reader |
//! | `bounded` | a process has no more calls open than it has slots, a partition no more live intents than it may |
//! | `lost` | in the end every intent has ended, every record is read, every effect is done |
//! | `broken` | no process ends by itself, no task panics |

mod accounts;
mod budgets;
mod commits;
mod intents;
mod reference;
mod statelog;

use crate::network::Network;
use accounts::Accounts;
use futures::FutureExt as _;
use intents::Intents;
use starling_bus::{Bus as _, InRecord, MemoryBus, PartitionId};
use starling_engine::coordinator::CoordinatorSettings;
use starling_protocol::{Codec, Envelope, Topic, TopicNames, state::StateRecord};
use statelog::StateLog;
use std::{collections::BTreeMap, sync::Arc};

/// A promise was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one, as in the table above.
    pub promise: &'static str,
    /// How.
    pub how: String,
}

impl Violation {
    pub(crate) fn new(promise: &'static str, how: impl Into<String>) -> Self {
        Self { promise, how: how.into() }
    }
}

pub(crate) type Verdict = Result<(), Violation>;

/// Reads a run.
pub(crate) struct Judge {
    memory: Arc<MemoryBus>,
    network: Arc<Network>,
    names: TopicNames,
    codec: Codec,
    cursors: BTreeMap<PartitionId, i64>,
    topics: BTreeMap<Arc<str>, Topic>,
    logs: Vec<StateLog>,
    intents: Intents,
    accounts: Accounts,
    committed: BTreeMap<PartitionId, (i64, String)>,
}

/// What a run was like.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Records that were written.
    pub records: u64,
    /// Decisions that were accepted.
    pub decisions: u64,
    /// Epochs.
    pub epochs: u64,
    /// Outcomes, by status.
    pub outcomes: BTreeMap<String, u64>,
    /// Effects that were there again.
    pub repeated_effects: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Steps of intents with a budget.
    pub allowed: u64,
}

impl Judge {
    /// A judge of a run that has not begun.
    #[must_use]
    pub(crate) fn new(
        network: Arc<Network>,
        names: TopicNames,
        codec: Codec,
        settings: &Arc<CoordinatorSettings>,
        worker_partitions: i32,
    ) -> Self {
        let memory = network.memory.clone();
        let (mut cursors, mut topics) = (BTreeMap::new(), BTreeMap::new());
        for topic in Topic::all() {
            let name: Arc<str> = names.name(&topic).into();
            let partitions = ready(memory.partitions(&name)).and_then(Result::ok).unwrap_or(0);
            for partition in 0..partitions {
                cursors.insert(PartitionId { topic: name.clone(), partition }, 0);
            }
            topics.insert(name, topic);
        }
        let logs = (0..settings.coordinator_partitions)
            .map(|partition| StateLog::new(settings.clone(), partition, worker_partitions))
            .collect();
        Self {
            memory,
            network,
            names,
            codec,
            cursors,
            topics,
            logs,
            intents: Intents::new(settings),
            accounts: Accounts::default(),
            committed: BTreeMap::new(),
        }
    }

    /// A user has published a record; if it is a valid intent, its id. What is no record of the services is not
    /// judged as one.
    pub(crate) fn published(&mut self, at: &PartitionId, offset: i64, intent: Option<&str>) {
        self.accounts.foreign(at, offset);
        if let Some(id) = intent {
            self.intents.published(id);
        }
    }

    /// Something happened to the readers of a role: what they have not committed may be done again.
    pub(crate) fn disturbed(&mut self, topic: &Topic) {
        let Some(group) = group_of(topic) else { return };
        let (name, group) = (self.names.name(topic), self.names.group(group));
        for at in self.cursors.keys().filter(|at| *at.topic == *name) {
            let (offset, metadata) = self.network.committed_of(&group, at);
            self.accounts.disturbed(at, offset, &metadata);
        }
    }

    /// The same, of one partition whose group had committed that.
    pub(crate) fn disturbed_partition(&mut self, at: &PartitionId, offset: i64, metadata: &str) {
        self.accounts.disturbed(at, offset, metadata);
    }

    /// Reads what is new, and judges it.
    ///
    /// # Errors
    /// A promise was broken.
    pub(crate) fn observe(&mut self) -> Verdict {
        // Effects are judged by what was decided, so the logs come first.
        let state = self.names.name(&Topic::State);
        let (logs, others): (Vec<PartitionId>, Vec<PartitionId>) =
            self.cursors.keys().cloned().partition(|at| *at.topic == *state);
        for at in logs.into_iter().chain(others) {
            while let Some(record) = self.next(&at) {
                self.record(&record)?;
            }
        }
        self.intents.budgets.kept()?;
        self.commits()
    }

    fn next(&mut self, at: &PartitionId) -> Option<InRecord> {
        let cursor = self.cursors.get_mut(at)?;
        let record = ready(self.memory.read(&[(at.clone(), *cursor)]))?.pop()?.ok()?;
        *cursor += 1;
        Some(record)
    }

    fn record(&mut self, record: &InRecord) -> Verdict {
        let Some(topic) = self.topics.get(&record.at.topic).cloned() else { return Ok(()) };
        self.accounts.records += 1;
        if topic == Topic::State {
            return self.state_record(record);
        }
        if topic == Topic::Fleet || topic == Topic::Progress || topic == Topic::Content {
            return Ok(());
        }
        if topic == Topic::Dlq {
            self.accounts.dead_letter(record);
            return Ok(());
        }
        let foreign = self.accounts.is_foreign(&record.at, record.offset);
        let envelope = self.codec.decode::<Envelope>(record.value()).ok();
        let sent_by_coordinator =
            matches!(topic, Topic::Planner | Topic::Worker(_) | Topic::Outcomes | Topic::Control)
                || envelope.as_ref().is_some_and(|envelope| envelope.intent_id.is_address());
        if sent_by_coordinator && !foreign {
            let doubts = self.network.doubts(&record.at);
            let mut found = false;
            for log in &mut self.logs {
                found |= log.performed(record, doubts)?;
            }
            if !found {
                return Err(Violation::new(
                    "effect",
                    format!("{}@{} follows from no decision that was accepted", record.at, record.offset),
                ));
            }
        }
        self.accounts.note(&topic, record, envelope.as_ref());
        // What coordinators say to each other is no intent's; it follows from a decision as all that they send.
        let Some(envelope) = envelope.filter(|envelope| !envelope.intent_id.is_address()) else {
            return Ok(());
        };
        if foreign && sent_by_coordinator {
            return Ok(());
        }
        self.intents.envelope(&topic, record, &envelope)
    }

    fn state_record(&mut self, record: &InRecord) -> Verdict {
        let decoded = self.codec.decode::<StateRecord>(record.value());
        let state = decoded
            .map_err(|error| Violation::new("log", format!("{}@{}: {error}", record.at, record.offset)))?;
        let index = usize::try_from(record.at.partition).unwrap_or(0);
        let Some(log) = self.logs.get_mut(index) else { return Ok(()) };
        let inbox = PartitionId::new(self.names.name(&Topic::Coordinator), record.at.partition);
        let backlog = self.cursors.get(&inbox).copied().unwrap_or(0);
        if let Some(decided) = log.observe(record.offset, state, backlog)? {
            self.intents.decided(&self.codec, &decided)?;
        }
        Ok(())
    }

    /// Whether everything that users published has ended, and nothing is left to be done.
    ///
    /// # Errors
    /// What is left.
    pub(crate) fn settled(&self) -> Result<(), String> {
        self.intents.settled()?;
        for log in &self.logs {
            log.settled()?;
        }
        let coordinator = self.names.name(&Topic::Coordinator);
        for (at, cursor) in &self.cursors {
            let Some(topic) = self.topics.get(&at.topic) else { continue };
            if *at.topic == *coordinator {
                let index = usize::try_from(at.partition).unwrap_or(0);
                let next = self.logs.get(index).map_or(0, StateLog::next_input);
                if next < *cursor {
                    return Err(format!("{at} is decided up to {next} of {cursor}"));
                }
            } else if let Some(group) = group_of(topic) {
                let (offset, _) = self.network.committed_of(&self.names.group(group), at);
                if offset < *cursor {
                    return Err(format!("{at} is committed up to {offset} of {cursor}"));
                }
            }
        }
        Ok(())
    }

    /// What must be true in the end. `calls` are those for work, by goal and task.
    ///
    /// # Errors
    /// A promise was broken.
    pub(crate) fn conclude(&self, calls: &BTreeMap<(String, String), u64>) -> Verdict {
        self.settled().map_err(|what| Violation::new("lost", what))?;
        self.accounts.foreigners_accounted()?;
        for log in &self.logs {
            log.replays_the_same()?;
        }
        self.accounts.repeats(calls)
    }

    /// What the run was like.
    #[must_use]
    pub(crate) fn tally(&self) -> Tally {
        Tally {
            records: self.accounts.records,
            decisions: self.logs.iter().map(StateLog::decisions).sum(),
            epochs: self.logs.iter().map(StateLog::epochs).sum(),
            outcomes: self.intents.statuses(),
            repeated_effects: self.logs.iter().map(StateLog::repeated).sum(),
            dead_letters: self.accounts.dead_letters(),
            allowed: self.intents.budgets.allowed,
        }
    }
}

/// The consumer group that reads a topic with the parallel processor.
fn group_of(topic: &Topic) -> Option<&'static str> {
    match topic {
        Topic::Intents => Some("intake"),
        Topic::Planner => Some("planner"),
        Topic::Worker(None) => Some("worker"),
        Topic::Critic => Some("critic"),
        _ => None,
    }
}

/// The memory bus answers at once.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    future.now_or_never()
}
