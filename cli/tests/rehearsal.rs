//! `starling mock-llm`, and `starling run` against an endpoint that misbehaves. The programs themselves run: what they
//! write and how they end is what scripts rely on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod playbooks;

use futures::{StreamExt as _, stream};
use serde_json::Value;
use starling_llm::mock::{MockOptions, MockServer, Rehearsal};
use std::{
    collections::BTreeMap,
    process::{Output, Stdio},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

#[path = "rehearsal/pages.rs"]
mod pages;

const KEY: &str = "sk-rehearsal-secret-key";
/// Longer than any run may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// How many seeds are tried, of which this many at once.
const SEEDS: u64 = 12;
const AT_ONCE: usize = 3;

/// The program, in an environment without settings.
fn starling() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_starling"));
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// An intent at that endpoint, with little patience.
async fn run(base_url: &str, goal: &str, more: &[&str]) -> Output {
    let mut command = starling();
    command.env("OPENAI_BASE_URL", base_url).env("OPENAI_API_KEY", KEY);
    command.args(["run", "--json", "--timeout", "20", "--max-tasks", "4", "--max-attempts", "2"]);
    command.args(["--set", "model.timeout=3s", "--set", "model.tries=3"]).args(more).arg(goal);
    timeout(PATIENCE, command.output()).await.expect("a run ends").unwrap()
}

/// The one outcome on stdout, once all that is promised about the end of `run` was looked at.
fn outcome(output: &Output) -> Value {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let values: Vec<Value> = serde_json::Deserializer::from_str(&out)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| panic!("stdout is not JSON ({error}): {out}\n{err}"));
    let [outcome] = values.try_into().unwrap_or_else(|all| panic!("not one outcome: {all:?}\n{err}"));
    let code = match outcome["status"].as_str().unwrap() {
        "succeeded" => 0,
        "partial" => 2,
        "failed" | "expired" => 1,
        other => panic!("nobody wanted it {other}: {outcome}"),
    };
    assert_eq!(output.status.code(), Some(code), "{outcome}\n{err}");
    assert!(!err.contains("panicked"), "{err}");
    assert!(!out.contains(KEY) && !err.contains(KEY), "a secret is told: {out}\n{err}");
    outcome
}

#[tokio::test]
async fn whatever_the_endpoint_sends_there_is_one_outcome_and_the_exit_code_tells_it() {
    let seeds = std::env::var("STARLING_REHEARSAL_SEEDS").ok().map_or(SEEDS, |seeds| seeds.parse().unwrap());
    let laptops = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/laptops.csv");
    let outcomes: Vec<(u64, Value, BTreeMap<&str, u64>)> = stream::iter(1..=seeds)
        .map(|seed| async move {
            let rehearsal = Rehearsal { slow_by: Duration::from_millis(500), ..Rehearsal::chaos(seed) };
            let server = MockServer::start(MockOptions::new(rehearsal.script().unwrap())).unwrap();
            let more: &[&str] = if seed % 2 == 0 { &["--file", laptops] } else { &[] };
            let output = run(&server.base_url(), "Compare what there is and recommend three", more).await;
            (seed, outcome(&output), server.marks())
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    assert_eq!(outcomes.len() as u64, seeds);
    let (mut statuses, mut wrongs) = (BTreeMap::new(), BTreeMap::new());
    for (seed, outcome, marks) in &outcomes {
        let status = outcome["status"].as_str().unwrap();
        *statuses.entry(status).or_insert(0) += 1;
        for (mark, count) in marks {
            *wrongs.entry(*mark).or_insert(0) += count;
        }
        if status != "succeeded" {
            println!("seed {seed}: {status}: {}; {marks:?}", outcome["reason"]);
        }
    }
    println!("{statuses:?} of {seeds} seeds; gone wrong: {wrongs:?}");
    assert!(wrongs.values().sum::<u64>() > seeds, "hardly anything has gone wrong: {wrongs:?}");
    assert!(statuses.contains_key("succeeded"), "nothing has come to a good end: {statuses:?}");
}

/// A mock endpoint as a process, and its base URL.
async fn mock(flags: &[&str]) -> (Child, BufReader<tokio::process::ChildStdout>, String) {
    let mut child = starling().args(["mock-llm", "--port", "0"]).args(flags).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    timeout(PATIENCE, out.read_line(&mut line)).await.expect("it says where it listens").unwrap();
    (child, out, line.trim().to_owned())
}

#[tokio::test]
async fn a_rehearsal_is_told_by_its_address_its_model_and_its_last_line() {
    let (mut child, mut out, base_url) = mock(&["--model", "small", "--latency", "1ms..5ms"]).await;
    assert!(base_url.starts_with("http://127.0.0.1:") && base_url.ends_with("/v1"), "{base_url}");
    let output = run(&base_url, "Three names for a café", &["--set", "model.name=small"]).await;
    let outcome = outcome(&output);
    assert_eq!((&outcome["status"], &outcome["model"]), (&"succeeded".into(), &"small (mock)".into()));
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
    assert!(timeout(PATIENCE, child.wait()).await.expect("it ends").unwrap().success());
    let mut last = String::new();
    out.read_to_string(&mut last).await.unwrap();
    let calls = outcome["calls"].as_u64().unwrap();
    assert!(last.starts_with(&format!("{calls} calls: 1 plan, ")) && last.lines().count() == 1, "{last}");
}

#[tokio::test]
async fn flags_that_contradict_each_other_are_usage_errors() {
    let output =
        starling().args(["mock-llm", "--port", "0", "--cut", "0.7", "--slow", "0.7"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("more than 1"));
    assert!(output.stdout.is_empty());
}
