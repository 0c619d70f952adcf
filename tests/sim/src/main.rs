//! `starling-sim`: runs seeds.

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use starling_sim::{Report, Scenario, run, shrink, watch_panics};
use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

#[derive(Debug, Parser)]
#[command(version, about = "The swarm in virtual time, with faults drawn from a seed.")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs many seeds; stops at the first that breaks a promise, shortens it, and says how to run it again.
    Seeds {
        /// How many.
        #[arg(long, default_value_t = 1_000)]
        count: u64,
        /// The first one.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Runs at once.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Begins no more runs after so many seconds.
        #[arg(long)]
        seconds: Option<u64>,
        /// Goes on after a broken promise, and counts them.
        #[arg(long)]
        keep_going: bool,
        /// Where the shortened scenario is written.
        #[arg(long, default_value = "sim-failure.json")]
        out: PathBuf,
    },
    /// Runs one seed, and prints what happened.
    Seed {
        /// Which.
        seed: u64,
        /// Prints what the services log.
        #[arg(long)]
        log: bool,
    },
    /// Runs a scenario from a file, and prints what happened.
    Replay {
        /// As `seeds` has written it.
        file: PathBuf,
        /// Prints what the services log.
        #[arg(long)]
        log: bool,
    },
}

fn main() -> Result<()> {
    watch_panics();
    match Args::parse().command {
        Command::Seeds { count, from, jobs, seconds, keep_going, out } => {
            seeds(from, count, jobs, seconds, keep_going, &out)
        }
        Command::Seed { seed, log } => one(&Scenario::of(seed), log),
        Command::Replay { file, log } => {
            let text = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
            one(&serde_json::from_str(&text).with_context(|| format!("{}", file.display()))?, log)
        }
    }
}

#[allow(clippy::print_stdout)] // its output is what it is for
fn one(scenario: &Scenario, log: bool) -> Result<()> {
    if log {
        let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| "starling=debug,info".to_owned());
        tracing_subscriber::fmt().with_env_filter(filter).without_time().init();
    }
    println!("{}", serde_json::to_string(scenario)?);
    let report = run(scenario, true);
    report.lines.iter().for_each(|line| println!("{line}"));
    println!("{} ms, fingerprint {:016x}, {:?}", report.lasted, report.fingerprint, report.tally);
    match report.violation {
        Some(violation) => bail!("broken: {}: {}", violation.promise, violation.how),
        None => Ok(()),
    }
}

#[derive(Default)]
struct Sum {
    virtual_ms: u64,
    records: u64,
    decisions: u64,
    epochs: u64,
    repeated_effects: u64,
    dead_letters: u64,
    allowed: u64,
    outcomes: BTreeMap<String, u64>,
    broken: BTreeMap<&'static str, Vec<u64>>,
}

impl Sum {
    fn add(&mut self, seed: u64, report: Report) {
        self.virtual_ms += u64::try_from(report.lasted).unwrap_or(0);
        self.records += report.tally.records;
        self.decisions += report.tally.decisions;
        self.epochs += report.tally.epochs;
        self.repeated_effects += report.tally.repeated_effects;
        self.dead_letters += report.tally.dead_letters;
        self.allowed += report.tally.allowed;
        for (status, count) in report.tally.outcomes {
            *self.outcomes.entry(status).or_default() += count;
        }
        if let Some(violation) = report.violation {
            self.broken.entry(violation.promise).or_default().push(seed);
        }
    }
}

#[allow(clippy::print_stdout)] // as above
fn seeds(
    from: u64,
    count: u64,
    jobs: usize,
    seconds: Option<u64>,
    keep_going: bool,
    out: &PathBuf,
) -> Result<()> {
    let began = Instant::now();
    let until = seconds.map(|seconds| began + Duration::from_secs(seconds));
    let (next, done, stop) = (AtomicU64::new(from), AtomicU64::new(0), AtomicBool::new(false));
    let sum = Mutex::new(Sum::default());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from.saturating_add(count) {
                        break;
                    }
                    let report = run(&Scenario::of(seed), false);
                    if report.violation.is_some() && !keep_going {
                        stop.store(true, Ordering::Relaxed);
                    }
                    sum.lock().unwrap_or_else(PoisonError::into_inner).add(seed, report);
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if done.is_multiple_of(1_000) {
                        println!("{done} seeds in {:.0} s", began.elapsed().as_secs_f64());
                    }
                }
            });
        }
    });
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{} seeds from {from} in {:.1} s: {} s of the swarm's time, {} records, {} decisions in {} epochs, {} effects \
         performed again, {} dead letters, {} steps within a budget, outcomes {:?}",
        done.into_inner(),
        began.elapsed().as_secs_f64(),
        sum.virtual_ms / 1_000,
        sum.records,
        sum.decisions,
        sum.epochs,
        sum.repeated_effects,
        sum.dead_letters,
        sum.allowed,
        sum.outcomes,
    );
    if sum.broken.is_empty() {
        println!("no promise was broken");
        return Ok(());
    }
    for (promise, seeds) in &sum.broken {
        let some: Vec<&u64> = seeds.iter().take(20).collect();
        println!("broken: {promise}, by {} seeds: {some:?}", seeds.len());
    }
    let Some(seed) = sum.broken.values().flatten().min() else { return Ok(()) };
    let short = shrink(&Scenario::of(*seed));
    fs::write(out, serde_json::to_string_pretty(&short)?).with_context(|| format!("{}", out.display()))?;
    let report = run(&short, true);
    report.lines.iter().rev().take(60).rev().for_each(|line| println!("{line}"));
    println!("run it again: make sim SEED={seed}");
    println!("shortened to {} events: starling-sim replay {}", short.events.len(), out.display());
    match report.violation {
        Some(violation) => bail!("seed {seed} breaks {}: {}", violation.promise, violation.how),
        None => bail!(
            "seed {seed} breaks a promise, its shortened form does not: the run is not the same each time"
        ),
    }
}
