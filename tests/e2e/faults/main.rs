//! The fault suite: services as users run them, a fault, and a judge who asks none of them. `make faults` runs all
//! rows; with every `cargo test` a few of them run once. docs/faults.md tells what each row does.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod judge;
mod row;
mod rows;
mod table;

use futures::{StreamExt as _, stream};
use row::{Figures, Row, Skipped, World};
use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};
use table::{Tally, table};
use tokio::time::timeout;

/// What runs, and how often: from the environment, since `cargo test` has flags of its own.
struct Choice {
    /// Parts of names of rows; none means the quick ones.
    rows: Vec<String>,
    /// Parts of names, as `cargo test` passes them on.
    filters: Vec<String>,
    times: usize,
    /// Rows at once.
    jobs: usize,
    members: usize,
    soak: Duration,
}

impl Choice {
    fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let number =
            |name: &str, default: usize| variable(name).map_or(default, |text| text.parse().expect(name));
        let rows = variable("STARLING_FAULTS_ROWS").unwrap_or_default();
        Self {
            rows: rows.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect(),
            filters: std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect(),
            times: number("STARLING_FAULTS_TIMES", 1),
            jobs: number("STARLING_FAULTS_JOBS", 1).max(1),
            members: number("STARLING_FAULTS_WORKERS", 100),
            soak: Duration::from_secs(60 * number("STARLING_FAULTS_SOAK_MINUTES", 30) as u64),
        }
    }

    fn takes(&self, row: &Row) -> bool {
        let named =
            |parts: &[String]| parts.iter().any(|part| part == "all" || row.name.contains(part.as_str()));
        let chosen = if self.rows.is_empty() { row.quick } else { named(&self.rows) };
        chosen && (self.filters.is_empty() || named(&self.filters))
    }
}

fn main() -> ExitCode {
    let choice = Choice::from_environment();
    if std::env::args().any(|word| word == "--list") {
        rows::ALL.iter().for_each(|row| println!("{}: {}", row.name, row.invariants));
        return ExitCode::SUCCESS;
    }
    let rows: Vec<&Row> = rows::ALL.iter().filter(|row| choice.takes(row)).collect();
    if rows.is_empty() {
        println!("no row of the fault suite has such a name");
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let (alone, others): (Vec<&Row>, Vec<&Row>) = rows.into_iter().partition(|row| row.alone);
    let tallies: Vec<Tally> = runtime.block_on(async {
        let others = stream::iter(others).map(|row| play(row, &choice)).buffered(choice.jobs);
        let alone = stream::iter(alone).then(|row| play(row, &choice));
        others.chain(alone).collect().await
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    print!("\n{}", table(&tallies));
    let failed = tallies.iter().any(|tally| tally.passed < tally.ran);
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Plays a row as often as it is to be played.
async fn play(row: &Row, choice: &Choice) -> Tally {
    let mut tally = Tally::of(row);
    let times = if row.once { 1 } else { choice.times };
    for time in 1..=times {
        let folder = tempfile::Builder::new().prefix("starling-faults-").tempdir().unwrap();
        let began = Instant::now();
        let ended = play_once(row, choice, folder.path().to_owned()).await;
        let took = began.elapsed();
        if let Err(error) = &ended
            && let Some(Skipped(why)) = error.downcast_ref()
        {
            println!("{}: skipped: {why}", row.name);
            tally.skipped = Some(why.clone());
            break;
        }
        tally.ran += 1;
        tally.took += took;
        match ended {
            Ok(figures) => {
                println!("{}: {time}/{times} passed in {:.1} s: {figures:?}", row.name, took.as_secs_f64());
                tally.passed += 1;
                tally.figures += figures;
            }
            Err(error) => {
                let folder = folder.keep();
                let why = format!("{error:#} (what its processes said is in {})", folder.display());
                println!("{}: {time}/{times} FAILED after {:.1} s: {why}", row.name, took.as_secs_f64());
                tally.failures.push(why);
            }
        }
    }
    tally
}

async fn play_once(row: &Row, choice: &Choice, folder: PathBuf) -> anyhow::Result<Figures> {
    let world = World { members: choice.members, soak: choice.soak, folder };
    let limit = if row.once { row.limit + choice.soak } else { row.limit };
    // On a task of its own, so that a panic is a failure of this row alone.
    let playing = tokio::spawn((row.play)(world));
    let abort = playing.abort_handle();
    match timeout(limit, playing).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(panic)) => Err(anyhow::anyhow!("{panic}")),
        Err(_) => {
            abort.abort();
            Err(anyhow::anyhow!("not within {limit:?}"))
        }
    }
}
