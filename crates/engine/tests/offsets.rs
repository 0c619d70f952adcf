//! The offset tracker, through its public door.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use starling_engine::offsets::{Commit, MAX_METADATA_BYTES, OffsetTracker, Restored, Taken};
use std::collections::BTreeSet;

fn at(offset: i64) -> Commit {
    Commit { offset, metadata: String::new() }
}

#[test]
fn the_commit_is_the_lowest_that_is_not_done_and_the_rest_is_remembered() {
    let mut tracker = OffsetTracker::default();
    for offset in [10, 11, 12, 13] {
        assert_eq!(tracker.taken(offset), Taken::New);
    }
    assert_eq!(tracker.commit(), None, "nothing is done");
    tracker.done(12);
    let commit = tracker.commit().unwrap();
    assert_eq!(commit.offset, 10);

    let (mut next_owner, restored) = OffsetTracker::restore(10, &commit.metadata, MAX_METADATA_BYTES);
    assert_eq!(restored, Restored::Intact);
    let seen: Vec<_> = (10..14).map(|offset| next_owner.taken(offset)).collect();
    assert_eq!(seen, [Taken::New, Taken::New, Taken::AlreadyDone, Taken::New]);
}

#[test]
fn holes_in_the_log_do_not_hold_the_commit_back() {
    let mut tracker = OffsetTracker::default();
    for offset in [3, 7, 20] {
        tracker.taken(offset);
        tracker.done(offset);
    }
    assert_eq!(tracker.commit(), Some(at(21)));
    tracker.end(25);
    assert_eq!(tracker.commit(), Some(at(25)), "lag reaches zero");
}

#[test]
fn an_unchanged_commit_is_not_repeated_unless_it_failed() {
    let mut tracker = OffsetTracker::default();
    tracker.taken(0);
    tracker.done(0);
    assert_eq!(tracker.commit(), Some(at(1)));
    assert_eq!(tracker.commit(), None);
    tracker.commit_failed();
    assert_eq!(tracker.commit(), Some(at(1)));
}

#[test]
fn what_is_delivered_again_is_passed_over() {
    let mut tracker = OffsetTracker::default();
    tracker.taken(5);
    assert_eq!(tracker.taken(5), Taken::Repeated);
    assert!(tracker.done(5));
    assert_eq!(tracker.taken(5), Taken::Repeated);
    assert!(!tracker.done(5), "a second completion changes nothing");
}

#[test]
fn an_awaited_record_that_is_gone_does_not_block_for_ever() {
    let mut tracker = OffsetTracker::default();
    (0..4).for_each(|offset| assert_eq!(tracker.taken(offset), Taken::New));
    tracker.done(3);
    let commit = tracker.commit().unwrap();
    let (mut tracker, _) = OffsetTracker::restore(commit.offset, &commit.metadata, MAX_METADATA_BYTES);
    tracker.end(10);
    assert_eq!(tracker.commit(), Some(at(10)));
}

#[test]
fn metadata_of_another_offset_or_of_somebody_else_is_ignored() {
    let mut tracker = OffsetTracker::default();
    (0..9).for_each(|offset| assert_eq!(tracker.taken(offset), Taken::New));
    tracker.done(5);
    let metadata = tracker.commit().unwrap().metadata;
    for (offset, metadata) in [(1, metadata.as_str()), (0, "1"), (0, "hello"), (0, "1AAAA"), (0, "2xyz")] {
        let (mut tracker, restored) = OffsetTracker::restore(offset, metadata, MAX_METADATA_BYTES);
        assert_eq!(restored, Restored::Ignored, "{metadata}");
        assert_eq!(tracker.taken(5), Taken::New);
    }
}

#[test]
fn one_slow_record_lets_very_many_pass() {
    let mut tracker = OffsetTracker::default();
    tracker.taken(0);
    for offset in 1..1_000_000 {
        assert!(tracker.would_fit(offset));
        tracker.taken(offset);
        tracker.done(offset);
    }
    assert!(tracker.commit().unwrap().metadata.len() < 20);
}

#[test]
fn delivery_pauses_before_the_map_is_too_large() {
    let mut tracker = OffsetTracker::default();
    let mut offset = 0;
    while tracker.would_fit(offset) {
        tracker.taken(offset);
        offset += 1;
    }
    assert!(offset > 20_000, "{offset} records in flight fit at the very least");
    // Every second one is done: the worst there is for a map.
    (1..offset).step_by(2).for_each(|o| assert!(tracker.done(o)));
    let commit = tracker.commit().unwrap();
    let (mut restored, _) = OffsetTracker::restore(0, &commit.metadata, MAX_METADATA_BYTES);
    for o in 0..offset {
        let expected = if o % 2 == 1 { Taken::AlreadyDone } else { Taken::New };
        assert_eq!(restored.taken(o), expected, "offset {o}");
    }
}

proptest! {
    /// Whatever the holes, the order of completion and the moment of the crash: nothing that is not done
    /// is passed over, the metadata fits, and what fits is not run again.
    #[test]
    fn nothing_incomplete_is_ever_skipped(
        holes in prop::collection::vec(1_i64..40, 1..300),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..400),
        limit in prop_oneof![Just(MAX_METADATA_BYTES), 0_usize..64],
        lives in 1_usize..4,
    ) {
        let offsets: Vec<i64> = holes.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
        let mut done = BTreeSet::new();
        let mut tracker = OffsetTracker::new(limit);
        let mut order = order.iter();
        for life in 0..lives {
            let mut running = Vec::new();
            let mut fits = true;
            for offset in &offsets {
                fits &= tracker.would_fit(*offset);
                match tracker.taken(*offset) {
                    Taken::New => {
                        prop_assert!(!(done.contains(offset) && limit == MAX_METADATA_BYTES), "ran twice");
                        // It was done in an earlier life whose map did not fit: now it runs again.
                        done.remove(offset);
                        running.push(*offset);
                    }
                    Taken::AlreadyDone | Taken::Repeated => prop_assert!(done.contains(offset), "life {}", life),
                }
            }
            for index in order.by_ref().take(80) {
                if running.is_empty() { break; }
                let offset = running.swap_remove(index.index(running.len()));
                prop_assert!(tracker.done(offset));
                done.insert(offset);
            }
            let Some(commit) = tracker.position() else { break };
            prop_assert!(commit.metadata.len() <= limit);
            let (next_owner, restored) = OffsetTracker::restore(commit.offset, &commit.metadata, limit);
            prop_assert_eq!(restored, Restored::Intact);
            let mut check = next_owner.clone();
            for offset in offsets.iter().filter(|o| **o >= commit.offset) {
                let taken = check.taken(*offset);
                if !done.contains(offset) {
                    prop_assert_eq!(taken, Taken::New, "offset {} is not done", offset);
                } else if fits {
                    prop_assert_eq!(taken, Taken::AlreadyDone, "offset {} would run again", offset);
                }
            }
            for offset in offsets.iter().filter(|o| **o < commit.offset) {
                prop_assert!(done.contains(offset), "offset {} was skipped", offset);
            }
            tracker = next_owner;
            // The next owner is delivered only what lies at or after the commit.
            if offsets.iter().all(|o| *o < commit.offset) { break; }
        }
    }

    #[test]
    fn arbitrary_metadata_never_panics(offset in any::<i64>(), metadata in ".{0,200}", taken in any::<i64>()) {
        let (mut tracker, _) = OffsetTracker::restore(offset, &metadata, MAX_METADATA_BYTES);
        let _ = tracker.would_fit(taken);
        tracker.taken(taken);
        tracker.done(taken);
        tracker.end(taken);
        tracker.commit();
    }
}
