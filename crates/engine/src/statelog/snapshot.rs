//! Snapshots: the state at one seq, in chunks.

use super::fold::Position;
use super::size::upper_bound;
use starling_protocol::state::{Entity, LoggedEffect, PendingEffects, SnapshotChunk};
use std::collections::BTreeMap;

/// Chunks of a snapshot that is not complete yet.
#[derive(Clone, Debug)]
pub(super) struct Gathering {
    first: i64,
    seq: i64,
    next_part: i32,
    parts: i32,
    /// Only where the snapshot's content is needed.
    entities: Vec<Entity>,
    pending: BTreeMap<i64, Vec<LoggedEffect>>,
}

/// What came of one more chunk.
pub(super) enum Gathered {
    /// It does not continue what was gathered.
    Torn,
    /// More follow.
    Part,
    /// That was the last.
    Whole { first: i64, position: Position, entities: Vec<Entity> },
}

impl Gathering {
    /// Adds a chunk whose epoch is in order. `keep` says whether its content is of interest.
    pub(super) fn take(
        gathering: &mut Option<Self>,
        offset: i64,
        chunk: SnapshotChunk,
        keep: bool,
    ) -> Gathered {
        if chunk.part == 0 {
            *gathering = Some(Self {
                first: offset,
                seq: chunk.seq,
                next_part: 0,
                parts: chunk.parts,
                entities: Vec::new(),
                pending: BTreeMap::new(),
            });
        }
        let Some(mut so_far) = gathering.take() else { return Gathered::Torn };
        let continues = chunk.part == so_far.next_part
            && chunk.seq == so_far.seq
            && chunk.parts == so_far.parts
            && chunk.part < chunk.parts;
        if !continues {
            return Gathered::Torn;
        }
        so_far.next_part += 1;
        if keep {
            so_far.entities.extend(chunk.entities);
            for pending in chunk.pending {
                so_far.pending.entry(pending.seq).or_default().extend(pending.effects);
            }
        }
        if so_far.next_part < so_far.parts {
            *gathering = Some(so_far);
            return Gathered::Part;
        }
        let effects_done = chunk.effects_done.min(chunk.seq);
        let position = Position {
            seq: chunk.seq,
            now: chunk.now,
            next_input: Some(chunk.next_input),
            effects_done,
            pending: so_far.pending.split_off(&effects_done.saturating_add(1)),
        };
        Gathered::Whole { first: so_far.first, position, entities: so_far.entities }
    }
}

/// What all chunks of a snapshot say.
pub(super) struct Stamp {
    pub(super) epoch: i64,
    pub(super) nonce: String,
    pub(super) partitions: i32,
    pub(super) next_input: i64,
}

/// Cuts a state into chunks of at most `limit` encoded bytes of content each, unless a single entity or
/// effect is larger.
pub(super) fn cut(
    stamp: &Stamp,
    position: &Position,
    entities: Vec<Entity>,
    limit: usize,
) -> Vec<SnapshotChunk> {
    let mut contents = vec![(Vec::new(), Vec::new())];
    let mut size = 0;
    for entity in entities {
        let entity_size = upper_bound(&entity);
        open_if_full(&mut contents, &mut size, entity_size, limit);
        if let Some((entities, _)) = contents.last_mut() {
            entities.push(entity);
        }
    }
    for (seq, effects) in &position.pending {
        for effect in effects {
            let effect_size = upper_bound(effect) + size_of::<i64>() * 3;
            open_if_full(&mut contents, &mut size, effect_size, limit);
            if let Some((_, pending)) = contents.last_mut() {
                push_effect(pending, *seq, effect);
            }
        }
    }
    let parts = i32::try_from(contents.len()).unwrap_or(i32::MAX);
    let chunks = contents.into_iter().zip(0..parts).map(|((entities, pending), part)| SnapshotChunk {
        epoch: stamp.epoch,
        nonce: stamp.nonce.clone(),
        seq: position.seq,
        now: position.now,
        next_input: stamp.next_input,
        partitions: stamp.partitions,
        part,
        parts,
        entities,
        pending,
        effects_done: position.effects_done,
    });
    chunks.collect()
}

type Content = (Vec<Entity>, Vec<PendingEffects>);

fn open_if_full(contents: &mut Vec<Content>, size: &mut usize, more: usize, limit: usize) {
    if *size > 0 && size.saturating_add(more) > limit {
        contents.push((Vec::new(), Vec::new()));
        *size = 0;
    }
    *size = size.saturating_add(more);
}

/// Effects of one decision may be spread over chunks; they are put together again in order.
fn push_effect(pending: &mut Vec<PendingEffects>, seq: i64, effect: &LoggedEffect) {
    match pending.last_mut() {
        Some(last) if last.seq == seq => last.effects.push(effect.clone()),
        _ => pending.push(PendingEffects { seq, effects: vec![effect.clone()] }),
    }
}
