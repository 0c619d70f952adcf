//! One partition of the state log: what was accepted in it, and whether what was sent follows from that.

use super::{
    Verdict, Violation,
    reference::{Reference, kind_of},
};
use bytes::Bytes;
use starling_bus::{InRecord, PartitionId};
use starling_engine::{
    coordinator::{Coordinator, CoordinatorSettings},
    statelog::{LogFold, Observed},
};
use starling_protocol::{
    Timestamp,
    state::{Entity, IntentEntity, LoggedEffect, RunEntity, StateRecord, TaskEntity},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
    sync::Arc,
};

/// A decision that was accepted.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    /// Offsets of the inputs that it is about.
    pub(super) inputs: Range<i64>,
    /// The coordinator's time.
    pub(super) now: Timestamp,
    /// Whether what waited at the take-over is not all read yet.
    pub(super) in_backlog: bool,
    /// Intents that were accepted or changed.
    pub(super) intents: Vec<IntentEntity>,
    /// How far intents are.
    pub(super) runs: Vec<RunEntity>,
    /// Tasks that changed.
    pub(super) tasks: Vec<TaskEntity>,
    pub(super) effects: Vec<LoggedEffect>,
}

/// An effect that was decided.
#[derive(Debug, Default)]
struct Fate {
    /// Copies that are there.
    copies: u64,
    /// Owners that could not know whether it was done.
    doubts: u64,
    /// How often it was decided: equal bytes may follow from several decisions.
    decided: u64,
}

/// The bytes of an effect, and where they go.
type Content = (PartitionId, Bytes);

pub(super) struct StateLog {
    settings: Arc<CoordinatorSettings>,
    partition: i32,
    worker_partitions: i32,
    fold: LogFold,
    reference: Reference,
    /// What waited in the inbox when the present epoch began.
    backlog: i64,
    /// The time of the last decision, as it was written.
    time: Timestamp,
    machine: Coordinator,
    effects: HashMap<Content, Fate>,
    /// All of it, for reading it once more.
    records: Vec<(i64, StateRecord)>,
    /// Where complete snapshots begin.
    snapshots: BTreeSet<i64>,
    decisions: u64,
    epochs: u64,
}

impl StateLog {
    pub(super) fn new(settings: Arc<CoordinatorSettings>, partition: i32, worker_partitions: i32) -> Self {
        Self {
            fold: LogFold::new(settings.coordinator_partitions),
            reference: Reference::default(),
            backlog: 0,
            time: Timestamp(0),
            machine: Coordinator::new(settings.clone(), partition, worker_partitions),
            settings,
            partition,
            worker_partitions,
            effects: HashMap::new(),
            records: Vec::new(),
            snapshots: BTreeSet::new(),
            decisions: 0,
            epochs: 0,
        }
    }

    /// Judges the next record; says what it decides. `inbox` is how much of the inbox was there before it.
    pub(super) fn observe(
        &mut self,
        offset: i64,
        record: StateRecord,
        inbox: i64,
    ) -> Result<Option<Decided>, Violation> {
        self.records.push((offset, record.clone()));
        let effects = match &record {
            StateRecord::Decision(decision) => decision.effects.clone(),
            _ => Vec::new(),
        };
        let from_input = self.next_input();
        let expected = self.reference.judge(offset, &record);
        let written = match &record {
            StateRecord::Decision(decision) => decision.now,
            _ => self.time,
        };
        let refused = |refusal| Violation::new("log", format!("partition {}: {refusal}", self.partition));
        let observed = self.fold.observe(offset, record).map_err(refused)?;
        if kind_of(&observed) != expected {
            let how = format!(
                "partition {}, offset {offset}: {expected:?} is taken for {observed:?}",
                self.partition
            );
            return Err(Violation::new("log", how));
        }
        match observed {
            Observed::Epoch => {
                self.epochs += 1;
                self.backlog = inbox;
                let pending = self.fold.position().map(|position| position.pending.clone());
                for effect in pending.into_iter().flatten().flat_map(|(_, effects)| effects) {
                    self.effects.entry(content(&effect)).or_default().doubts += 1;
                }
                Ok(None)
            }
            Observed::Decision { changed, deleted } => {
                self.decisions += 1;
                if written < self.time {
                    return Err(Violation::new("log", "the coordinator's time fell"));
                }
                self.time = written;
                self.machine.apply(&changed, &deleted);
                let live = self.machine.load().live;
                if live > self.settings.max_live {
                    let how = format!("partition {} works on {live} intents at once", self.partition);
                    return Err(Violation::new("bounded", how));
                }
                for effect in &effects {
                    self.effects.entry(content(effect)).or_default().decided += 1;
                }
                let (mut intents, mut runs, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
                for entity in changed {
                    match entity {
                        Entity::Intent(intent) => intents.push(intent),
                        Entity::Run(run) => runs.push(run),
                        Entity::Task(task) => tasks.push(task),
                        _ => {}
                    }
                }
                let inputs = from_input..self.next_input();
                let in_backlog = inputs.end < self.backlog;
                Ok(Some(Decided { inputs, now: written, in_backlog, intents, runs, tasks, effects }))
            }
            Observed::Base(_) => Err(Violation::new("log", "the log has lost its beginning")),
            Observed::Snapshot => {
                self.snapshots.extend(self.fold.last_snapshot());
                Ok(None)
            }
            Observed::SnapshotPart | Observed::Ignored(_) => Ok(None),
        }
    }

    /// A record is there that may be an effect of this log; says whether it is. `doubts` is how often senders could not
    /// know what became of a record to this partition.
    pub(super) fn performed(&mut self, record: &InRecord, doubts: u64) -> Result<bool, Violation> {
        let content = (record.at.clone(), Bytes::copy_from_slice(record.value()));
        let Some(fate) = self.effects.get_mut(&content) else { return Ok(false) };
        fate.copies += 1;
        if fate.copies > fate.decided + fate.doubts + doubts {
            return Err(Violation::new(
                "copies",
                format!(
                    "{}@{} is copy {} of an effect that was decided {} times, with {} new owners and {doubts} doubts",
                    record.at, record.offset, fate.copies, fate.decided, fate.doubts
                ),
            ));
        }
        Ok(true)
    }

    pub(super) fn next_input(&self) -> i64 {
        self.fold.position().and_then(|position| position.next_input).unwrap_or(0)
    }

    pub(super) fn decisions(&self) -> u64 {
        self.decisions
    }

    pub(super) fn epochs(&self) -> u64 {
        self.epochs
    }

    pub(super) fn repeated(&self) -> u64 {
        self.effects.values().map(|fate| fate.copies.saturating_sub(fate.decided)).sum()
    }

    /// Whether every effect is there and known to be done, and no intent is being worked on.
    pub(super) fn settled(&self) -> Result<(), String> {
        let load = self.machine.load();
        if load.live + load.waiting + load.outstanding + load.ready > 0 {
            return Err(format!("partition {} is still at work: {load:?}", self.partition));
        }
        if let Some(position) = self.fold.position()
            && !position.pending.is_empty()
        {
            let seqs: Vec<i64> = position.pending.keys().copied().collect();
            return Err(format!("partition {}: effects of decisions {seqs:?} are not done", self.partition));
        }
        match self.effects.iter().find(|(_, fate)| fate.copies == 0) {
            Some(((at, _), _)) if !at.topic.ends_with(".dlq") => {
                Err(format!("partition {}: an effect for {at} was never performed", self.partition))
            }
            _ => Ok(()),
        }
    }

    /// Reads the log again from where each complete snapshot begins.
    pub(super) fn replays_the_same(&self) -> Verdict {
        let whole = self.machine.entities();
        for start in self.snapshots.iter().copied() {
            let mut fold = LogFold::new(self.settings.coordinator_partitions);
            let mut machine = Coordinator::new(self.settings.clone(), self.partition, self.worker_partitions);
            for (offset, record) in self.records.iter().filter(|(offset, _)| *offset >= start) {
                match fold.observe(*offset, record.clone()) {
                    Ok(Observed::Base(entities)) => machine.apply(&entities, &[]),
                    Ok(Observed::Decision { changed, deleted }) => machine.apply(&changed, &deleted),
                    Ok(_) => {}
                    Err(refusal) => {
                        let how = format!("partition {}, read from {start}: {refusal}", self.partition);
                        return Err(Violation::new("replay", how));
                    }
                }
            }
            let how = |what: &str| {
                Err(Violation::new(
                    "replay",
                    format!("partition {}, read from {start}, has another {what}", self.partition),
                ))
            };
            if sorted(machine.entities()) != sorted(whole.clone()) {
                return how("state");
            }
            if fold.position() != self.fold.position() {
                return how("position");
            }
        }
        Ok(())
    }
}

fn sorted(entities: Vec<Entity>) -> BTreeMap<String, Entity> {
    entities.into_iter().map(|entity| (format!("{:?}", entity.key()), entity)).collect()
}

fn content(effect: &LoggedEffect) -> Content {
    let to = PartitionId::new(effect.topic.as_str(), effect.partition);
    (to, Bytes::copy_from_slice(&effect.payload))
}
