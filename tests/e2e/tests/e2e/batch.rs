//! A batch on a real broker, whose command is killed again and again: the swarm does each row once, and the output has it
//! once.

use crate::SOON;
use anyhow::Result;
use serde_json::Value;
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions, brokers, eventually};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const ROWS: usize = 300;

fn whole_lines(out: &Path) -> usize {
    fs::read(out).unwrap_or_default().iter().filter(|byte| **byte == b'\n').count()
}

/// Every row exactly once, and each of them succeeded.
fn each_once(out: &Path) {
    let text = fs::read_to_string(out).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rows: BTreeSet<u64> = lines.iter().map(|line| line["row"].as_u64().unwrap()).collect();
    let ids: BTreeSet<&str> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
    assert_eq!([lines.len(), rows.len(), ids.len()], [ROWS; 3]);
    assert!(lines.iter().all(|line| line["status"] == "succeeded"), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_it_repeats_and_loses_nothing() -> Result<()> {
    let model = Scripted::new(Plan::independent(1));
    let mut swarm = Swarm::start(SwarmOptions::new(model.options(), 2)).await?;
    let folder = tempfile::tempdir()?;
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let rows: String = (0..ROWS).map(|n| format!("r{n},thing {n}\n")).collect();
    fs::write(path("in.csv"), format!("id,name\n{rows}"))?;
    let (input, out) = (path("in.csv"), path("out.jsonl"));
    let (input, out) = (input.to_string_lossy().into_owned(), out.to_string_lossy().into_owned());
    let brokers = brokers()?;
    let args = [
        "batch",
        &input,
        "--goal",
        "Describe {{name}}",
        "--out",
        &out,
        "--json",
        "--brokers",
        &brokers,
        "--concurrency",
        "40",
        "--in-order",
    ];
    for kills in 1..=3 {
        let mut batch = swarm.spawn_cli(&args)?;
        eventually("it gets on", SOON, || whole_lines(Path::new(&out)) >= 50 * kills).await;
        batch.kill()?;
    }
    let (code, batch) = swarm.cli(&args).await?;
    assert_eq!(code, Some(0), "{}", batch.last_lines());
    each_once(Path::new(&out));
    let text = fs::read_to_string(&out)?;
    let keys: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(keys.iter().enumerate().all(|(n, line)| line["key"] == format!("r{n}")), "in their order");
    assert_eq!(swarm.model.stats().by_purpose.work, ROWS as u64, "no row was done twice");

    // Even if nothing is left of the output, the swarm knows the rows, and their outcomes are found.
    fs::remove_file(&out)?;
    fs::remove_file(path("out.jsonl.batch"))?;
    let (code, again) = swarm.cli(&args).await?;
    assert_eq!(code, Some(0), "{}", again.last_lines());
    each_once(Path::new(&out));
    assert_eq!(swarm.model.stats().by_purpose.work, ROWS as u64, "no row was done twice");
    swarm.all_audited(SOON).await?;
    Ok(())
}
