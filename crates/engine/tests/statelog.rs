//! Ownership of the state log: whatever two owners believe and whatever becomes of their appends, all
//! readers accept the same decisions, and no effect is lost.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use starling_engine::statelog::{
    Batch, Ignored, LogFold, Observed, Owner, Placed, Refusal, Replayed, Step, Takeover, upper_bound,
};
use starling_protocol::state::{
    CancelledEntity, Decision, Entity, EntityKey, EpochStart, LoggedEffect, StateRecord,
};
use starling_protocol::{IntentId, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const PARTITIONS: i32 = 12;
const LIMIT: usize = 2_000;

type State = BTreeMap<EntityKey, Entity>;

fn entity(key: u8, value: &str) -> Entity {
    Entity::Cancelled(CancelledEntity {
        intent_id: IntentId::from_string(format!("intent-{key}")),
        tenant: String::new(),
        reason: value.into(),
        forget_at: Timestamp(0),
    })
}

fn effect(name: &str) -> LoggedEffect {
    LoggedEffect {
        topic: "out".into(),
        partition: 0,
        key: None,
        headers: Vec::new(),
        payload: name.as_bytes().to_vec(),
    }
}

fn apply(state: &mut State, observed: Observed) {
    match observed {
        Observed::Decision { changed, deleted } => {
            state.extend(changed.into_iter().map(|e| (e.key(), e)));
            deleted.iter().for_each(|key| drop(state.remove(key)));
        }
        Observed::Base(entities) => *state = entities.into_iter().map(|e| (e.key(), e)).collect(),
        Observed::Epoch | Observed::SnapshotPart | Observed::Snapshot | Observed::Ignored(_) => {}
    }
}

/// What becomes of an append.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Acknowledged,
    Twice,
    Lost,
    UnknownButThere,
    UnknownAndLate,
}

#[derive(Clone, Debug)]
enum Op {
    TakeOver(usize),
    Decide(usize, Fate, Vec<(u8, bool)>, u8),
    Perform(usize, prop::sample::Index),
    Snapshot(usize, usize),
    LateArrives,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let fate = prop_oneof![
        8 => Just(Fate::Acknowledged),
        1 => Just(Fate::Twice),
        1 => Just(Fate::Lost),
        1 => Just(Fate::UnknownButThere),
        1 => Just(Fate::UnknownAndLate),
    ];
    let who = 0..2_usize;
    prop::collection::vec(
        prop_oneof![
            2 => who.clone().prop_map(Op::TakeOver),
            8 => (who.clone(), fate, prop::collection::vec((0..6_u8, any::<bool>()), 0..3), 0..3_u8)
                .prop_map(|(who, fate, changes, effects)| Op::Decide(who, fate, changes, effects)),
            6 => (who.clone(), any::<prop::sample::Index>()).prop_map(|(who, i)| Op::Perform(who, i)),
            2 => (who, 0..9_usize).prop_map(|(who, parts)| Op::Snapshot(who, parts)),
            1 => Just(Op::LateArrives),
        ],
        1..120,
    )
}

/// A process that believes it owns the partition.
struct Believer {
    owner: Owner,
    state: State,
    /// Effects to be performed, with their seq.
    to_do: Vec<(i64, String)>,
}

#[derive(Default)]
struct World {
    log: Vec<StateRecord>,
    late: VecDeque<StateRecord>,
    believers: [Option<Believer>; 2],
    performed: BTreeSet<String>,
    /// What owners were sure of: offset and seq.
    confirmed: Vec<(i64, i64)>,
    counter: usize,
}

fn names(effects: &[LoggedEffect]) -> Vec<String> {
    effects.iter().map(|e| String::from_utf8(e.payload.clone()).unwrap()).collect()
}

impl World {
    fn fresh(&mut self) -> String {
        self.counter += 1;
        format!("{}", self.counter)
    }

    fn take_over(&mut self, who: usize) {
        let nonce = self.fresh();
        let takeover = Takeover::new(nonce, PARTITIONS, "0".into(), Timestamp(0));
        self.log.push(takeover.record());
        let mut replay = takeover.appended(self.log.len() as i64 - 1);
        let mut state = State::new();
        for (offset, record) in self.log.iter().enumerate() {
            match replay.observe(offset as i64, record.clone()).unwrap() {
                Replayed::More(more, observed) => {
                    apply(&mut state, observed);
                    replay = more;
                }
                Replayed::Owned(owner) => {
                    let pending = owner
                        .pending()
                        .flat_map(|(seq, effects)| names(effects).into_iter().map(move |name| (seq, name)));
                    let to_do = pending.collect();
                    self.believers[who] = Some(Believer { owner: *owner, state, to_do });
                    return;
                }
            }
        }
        panic!("the own epoch was not found");
    }

    fn decide(&mut self, who: usize, fate: Fate, changes: &[(u8, bool)], effects: u8) {
        let name = self.fresh();
        let Some(mut believer) = self.believers[who].take() else { return };
        let mut batch = Batch::new(LIMIT);
        batch
            .push(Step {
                now: Timestamp(self.counter as i64 % 7),
                next_input: Some(self.counter as i64),
                changed: changes.iter().filter(|c| c.1).map(|c| entity(c.0, &name)).collect(),
                deleted: changes.iter().filter(|c| !c.1).map(|c| entity(c.0, "").key()).collect(),
                effects: (0..effects).map(|i| effect(&format!("{name}.{i}"))).collect(),
            })
            .unwrap();
        let record = StateRecord::Decision(believer.owner.decide(batch, 0));
        match fate {
            Fate::Lost => return,
            Fate::UnknownAndLate => return self.late.push_back(record),
            Fate::UnknownButThere => return self.log.push(record),
            Fate::Twice => self.log.extend([record.clone(), record]),
            Fate::Acknowledged => self.log.push(record),
        }
        let offset = self.log.len() as i64 - if matches!(fate, Fate::Twice) { 2 } else { 1 };
        if let Some(observed) = self.judge(&mut believer, offset) {
            apply(&mut believer.state, observed);
            let seq = believer.owner.position().seq;
            self.confirmed.push((offset, seq));
            believer.to_do.extend(names(believer.owner.effects_of(seq)).into_iter().map(|n| (seq, n)));
            self.believers[who] = Some(believer);
        }
    }

    /// What an owner does when its record was acknowledged: `None` if it owns the partition no more.
    fn judge(&self, believer: &mut Believer, offset: i64) -> Option<Observed> {
        let from = match believer.owner.placed(offset) {
            Placed::Next => offset,
            Placed::Later { from } => from,
            Placed::Impossible => panic!("{offset}"),
        };
        let mut last = None;
        for at in from..=offset {
            let record = self.log[at as usize].clone();
            last = Some(believer.owner.observe(at, record).unwrap());
        }
        last.filter(|observed| !matches!(observed, Observed::Ignored(_)))
    }

    fn perform(&mut self, who: usize, index: prop::sample::Index) {
        let Some(believer) = &mut self.believers[who] else { return };
        if !believer.to_do.is_empty() {
            let (seq, name) = believer.to_do.swap_remove(index.index(believer.to_do.len()));
            self.performed.insert(name);
            believer.owner.effect_done(seq);
        }
    }

    fn snapshot(&mut self, who: usize, parts: usize) {
        let Some(mut believer) = self.believers[who].take() else { return };
        let entities = believer.state.values().cloned().collect();
        let chunks = believer.owner.snapshot(entities, 0, LIMIT / 3);
        let whole = parts >= chunks.len();
        for chunk in chunks.into_iter().take(parts.max(1)) {
            self.log.push(StateRecord::SnapshotChunk(chunk));
            if self.judge(&mut believer, self.log.len() as i64 - 1).is_none() {
                return;
            }
        }
        if whole {
            self.believers[who] = Some(believer);
        }
    }

    fn run(ops: &[Op]) -> Self {
        let mut world = World::default();
        world.take_over(0);
        for op in ops {
            match op {
                Op::TakeOver(who) => world.take_over(*who),
                Op::Decide(who, fate, changes, effects) => world.decide(*who, *fate, changes, *effects),
                Op::Perform(who, index) => world.perform(*who, *index),
                Op::Snapshot(who, parts) => world.snapshot(*who, *parts),
                Op::LateArrives => world.log.extend(world.late.pop_front()),
            }
        }
        world
    }

    /// Reads the log from an offset on: the accepted decisions by offset, the state, the fold.
    fn read(&self, from: usize) -> (BTreeMap<i64, i64>, State, LogFold, Vec<i64>) {
        let mut fold = LogFold::new(PARTITIONS);
        let (mut accepted, mut state, mut snapshots) = (BTreeMap::new(), State::new(), Vec::new());
        for (offset, record) in self.log.iter().enumerate().skip(from) {
            let observed = fold.observe(offset as i64, record.clone()).unwrap();
            match &observed {
                Observed::Decision { .. } => {
                    accepted.insert(offset as i64, fold.position().unwrap().seq);
                }
                Observed::Snapshot => snapshots.extend(fold.last_snapshot()),
                _ => {}
            }
            apply(&mut state, observed);
        }
        (accepted, state, fold, snapshots)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn all_readers_accept_the_same_and_no_effect_is_lost(ops in ops()) {
        let world = World::run(&ops);
        let (accepted, state, fold, snapshots) = world.read(0);

        // One decision a seq, without gaps.
        let seqs: Vec<i64> = accepted.values().copied().collect();
        prop_assert_eq!(&seqs, &(1..=seqs.len() as i64).collect::<Vec<_>>());

        // What an owner was sure of is what everybody reads.
        for (offset, seq) in &world.confirmed {
            prop_assert_eq!(accepted.get(offset), Some(seq));
        }

        // Everything that the log does not know to be done is still pending, the rest was performed.
        let position = fold.position().unwrap();
        for (offset, seq) in &accepted {
            let StateRecord::Decision(decision) = &world.log[*offset as usize] else { unreachable!() };
            let names = names(&decision.effects);
            if *seq <= position.effects_done {
                prop_assert!(names.iter().all(|name| world.performed.contains(name)), "lost: {:?}", names);
            } else if !names.is_empty() {
                prop_assert_eq!(position.pending.get(seq), Some(&decision.effects));
            }
        }

        // A reader that begins at any snapshot comes to the same.
        for first in snapshots {
            let (later, other_state, other, _) = world.read(first as usize);
            prop_assert!(later.iter().all(|(offset, seq)| accepted.get(offset) == Some(seq)));
            prop_assert_eq!(other.position(), Some(position));
            prop_assert_eq!(&other_state, &state);
            prop_assert_eq!(other.epoch(), fold.epoch());
        }

        // The memory of the present owner is what the log says.
        for believer in world.believers.iter().flatten() {
            if believer.owner.position().seq == position.seq && believer.owner.is_current() {
                prop_assert_eq!(&believer.state, &state);
            }
        }
    }
}

fn start(nonce: &str, partitions: i32) -> StateRecord {
    StateRecord::EpochStart(EpochStart {
        nonce: nonce.into(),
        partitions,
        version: "0".into(),
        at: Timestamp(0),
    })
}

/// A log with an owner, two decisions and a snapshot; the snapshot begins at the offset given back.
fn log_with_snapshot() -> (Vec<StateRecord>, usize) {
    let mut world = World::default();
    world.take_over(0);
    world.decide(0, Fate::Acknowledged, &[(1, true), (2, true)], 1);
    world.decide(0, Fate::Acknowledged, &[(3, true)], 0);
    let first = world.log.len();
    world.snapshot(0, 99);
    (world.log, first)
}

#[test]
fn what_follows_a_gap_does_not_count() {
    let mut fold = LogFold::new(PARTITIONS);
    fold.observe(0, start("a", PARTITIONS)).unwrap();
    let decision = |seq: i64| {
        StateRecord::Decision(Decision {
            epoch: 0,
            nonce: "a".into(),
            seq,
            now: Timestamp(seq),
            next_input: seq,
            changed: vec![entity(0, &seq.to_string())],
            deleted: Vec::new(),
            effects: vec![effect("e")],
            effects_done: 0,
        })
    };
    let accepted = |observed| matches!(observed, Observed::Decision { .. });
    assert!(accepted(fold.observe(1, decision(1)).unwrap()));
    // The second was lost, though its owner heard otherwise: what builds on it must not be taken without it.
    assert_eq!(fold.observe(2, decision(3)).unwrap(), Observed::Ignored(Ignored::SeqGap));
    assert_eq!(fold.position().map(|position| position.seq), Some(1));
    assert!(accepted(fold.observe(3, decision(2)).unwrap()));
}

#[test]
fn another_number_of_partitions_is_refused() {
    let mut fold = LogFold::new(24);
    let refusal = fold.observe(0, start("a", 12)).unwrap_err();
    assert_eq!(refusal, Refusal::Partitions { log: 12, ours: 24 });
}

#[test]
fn a_misconfigured_process_does_not_take_the_log_with_it() {
    let mut fold = LogFold::new(12);
    fold.observe(0, start("a", 12)).unwrap();
    let observed = fold.observe(1, start("b", 24)).unwrap();
    assert_eq!(observed, Observed::Ignored(Ignored::OtherPartitions));
    assert_eq!(fold.epoch(), Some((0, "a")));
}

#[test]
fn a_log_without_its_beginning_is_refused() {
    let (log, first_chunk) = log_with_snapshot();
    let takeover = Takeover::new("new".into(), PARTITIONS, "0".into(), Timestamp(0));
    // Only the end of the snapshot is left.
    let mut rest: Vec<_> = log.into_iter().enumerate().skip(first_chunk + 1).collect();
    rest.push((99, takeover.record()));
    let mut replay = Some(takeover.appended(99));
    let result = rest.into_iter().try_for_each(|(offset, record)| {
        match replay.take().unwrap().observe(offset as i64, record)? {
            Replayed::More(more, _) => replay = Some(more),
            Replayed::Owned(_) => panic!("owned without a beginning"),
        }
        Ok(())
    });
    assert_eq!(result, Err(Refusal::NoBeginning { first: first_chunk as i64 + 1 }));
}

#[test]
fn a_log_trimmed_at_a_stale_snapshot_is_refused() {
    let mut world = World::default();
    world.take_over(0);
    world.decide(0, Fate::Acknowledged, &[(1, true)], 0);
    world.take_over(1);
    world.decide(1, Fate::Acknowledged, &[(2, true)], 0);
    let first = world.log.len();
    world.snapshot(0, 99); // by the one that was fenced
    world.decide(1, Fate::Acknowledged, &[(3, true)], 0);
    let mut fold = LogFold::new(PARTITIONS);
    let results: Result<Vec<_>, _> = world
        .log
        .into_iter()
        .enumerate()
        .skip(first)
        .map(|(offset, record)| fold.observe(offset as i64, record))
        .collect();
    assert!(matches!(results, Err(Refusal::StaleBeginning { .. })), "{results:?}");
}

#[test]
fn a_batch_is_cut_by_size_and_keeps_the_last_word_on_an_entity() {
    let mut batch = Batch::new(LIMIT);
    let step = |value: &str| Step { changed: vec![entity(1, value)], ..Step::default() };
    batch.push(step("first")).unwrap();
    batch.push(step("second")).unwrap();
    let refused = batch.push(step(&"x".repeat(LIMIT))).unwrap_err();
    assert!(!Batch::can_hold(LIMIT, refused.size()));
    assert_eq!(batch.steps(), 2);

    let mut world = World::default();
    world.take_over(0);
    let decision = world.believers[0].as_ref().unwrap().owner.decide(batch, 7);
    assert_eq!(decision.changed, [entity(1, "second")]);
    assert_eq!(decision.next_input, 7, "no input was taken");
}

#[test]
fn the_measure_of_a_value_is_never_too_small() {
    let codec = starling_protocol::codec::Codec::default();
    let (log, _) = log_with_snapshot();
    for record in log {
        let encoded = codec.encode(&record).unwrap();
        assert!(encoded.len() <= upper_bound(&record) + 16, "{record:?}");
    }
}
