//! When the burial of records stops.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use starling_engine::dead_letters::{BurialLimit, Burials};

fn limit(window: usize, least: usize, share: f64) -> BurialLimit {
    BurialLimit { window, least, share }
}

/// Buries as many as it may, up to `most`.
fn bury(burials: &mut Burials, most: usize) -> usize {
    (0..most)
        .take_while(|n| {
            let begun = burials.begin(&format!("reason {n}")).is_ok();
            if begun {
                burials.buried();
            }
            begun
        })
        .count()
}

#[test]
fn a_few_are_never_too_many() {
    let mut burials = Burials::new(limit(100, 20, 0.5));
    assert_eq!(bury(&mut burials, 1_000), 20);
    let excess = burials.begin("one more").unwrap_err();
    assert_eq!((excess.dead, excess.of, excess.share), (21, 21, 0.5));
    assert_eq!(excess.reasons, ["reason 20", "reason 19", "reason 18"]);
}

#[test]
fn the_share_counts_among_the_last_records() {
    let mut burials = Burials::new(limit(100, 20, 0.5));
    (0..1_000).for_each(|_| burials.handled());
    // Half of the window, and not more, though a thousand went well before.
    assert_eq!(bury(&mut burials, 1_000), 50);

    // What lies further back is forgotten.
    let mut burials = Burials::new(limit(100, 20, 0.5));
    for _ in 0..10 {
        assert_eq!(bury(&mut burials, 20), 20);
        (0..100).for_each(|_| burials.handled());
    }
}

#[test]
fn a_share_of_one_is_no_limit_and_a_share_of_zero_leaves_the_few() {
    assert_eq!(bury(&mut Burials::new(limit(10, 0, 1.0)), 10_000), 10_000);
    let mut strict = Burials::new(limit(10, 2, 0.0));
    (0..100).for_each(|_| strict.handled());
    assert_eq!(bury(&mut strict, 10), 2);
    assert_eq!(bury(&mut Burials::new(limit(0, 0, 0.0)), 10), 0, "no window is a window of one");
}

#[test]
fn burials_under_way_count_and_those_that_came_to_nothing_do_not() {
    let mut burials = Burials::new(limit(100, 3, 0.5));
    assert!(burials.begin("a").is_ok() && burials.begin("b").is_ok() && burials.begin("c").is_ok());
    burials.withdrawn();
    assert!(burials.begin("c again").is_ok());
    assert!(burials.begin("d").is_err(), "three are under way");
}

#[test]
fn once_it_is_too_much_nothing_more_is_buried() {
    let mut burials = Burials::new(limit(10, 1, 0.5));
    assert_eq!(bury(&mut burials, 5), 1);
    let first = burials.begin("x").unwrap_err();
    (0..100).for_each(|_| burials.handled());
    assert_eq!(burials.begin("y").unwrap_err(), first);
}

#[test]
fn long_reasons_are_cut() {
    let mut burials = Burials::new(limit(1, 0, 0.0));
    let excess = burials.begin(&"ä".repeat(10_000)).unwrap_err();
    assert_eq!(excess.reasons, ["ä".repeat(200)]);
}

proptest! {
    /// Whatever comes in whatever order: never more in the window than allowed.
    #[test]
    fn the_limit_is_kept(
        window in 1usize..40, least in 0usize..10, share in 0.0f64..1.0, dead in prop::collection::vec(any::<bool>(), 0..300),
    ) {
        let mut burials = Burials::new(limit(window, least, share));
        let mut ended: Vec<bool> = Vec::new();
        for dead in dead {
            if dead && burials.begin("r").is_err() {
                break;
            }
            if dead { burials.buried() } else { burials.handled() }
            ended.push(dead);
            if dead {
                let last = &ended[ended.len().saturating_sub(window + 1)..];
                let count = last.iter().filter(|dead| **dead).count();
                prop_assert!(count <= least || count as f64 <= share * last.len() as f64);
            }
        }
    }
}
