//! Seeds that every change has to pass: some always the same, some never seen before.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use starling_sim::{Scenario, run, watch_panics};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Seeds that are always run.
const ALWAYS: std::ops::Range<u64> = 1..121;
/// How long others are tried.
const FRESH: Duration = Duration::from_secs(120);

fn check(seed: u64) {
    let report = run(&Scenario::of(seed), false);
    if let Some(violation) = report.violation {
        panic!(
            "seed {seed} breaks {}: {}\nrun it again: make sim SEED={seed}",
            violation.promise, violation.how
        );
    }
}

/// On two threads: each run is on one.
fn all(seeds: impl Iterator<Item = u64> + Send) {
    let seeds = std::sync::Mutex::new(seeds);
    let count = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        let worker = || {
            loop {
                let Some(seed) = seeds.lock().unwrap().next() else { break };
                check(seed);
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        };
        let other = scope.spawn(worker);
        worker();
        other.join().expect("the seeds of the other thread");
    });
    println!("{} seeds", count.into_inner());
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in [3, 17, 4_711] {
        let scenario = Scenario::of(seed);
        let (first, second) = (run(&scenario, false), run(&scenario, false));
        assert_eq!(first.fingerprint, second.fingerprint, "seed {seed}");
    }
}

#[test]
fn the_known_seeds_keep_every_promise() {
    watch_panics();
    all(ALWAYS);
}

#[test]
fn seeds_that_were_never_run_keep_every_promise() {
    watch_panics();
    let limit = std::env::var("STARLING_SIM_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = Instant::now() + limit.map_or(FRESH, Duration::from_secs);
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    all((start..).take_while(|_| Instant::now() < until));
}
