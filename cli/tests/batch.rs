//! `starling batch` on a swarm of its own: the program itself runs, and is killed. On a broker: `tests/e2e`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use starling_llm::{
    Purpose,
    mock::{MockAction, MockCall, MockOptions, MockServer},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::{Output, Stdio},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};

/// Longer than any run may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A folder with an input, an output, and a model to ask.
struct Desk {
    folder: TempDir,
    model: MockServer,
}

impl Desk {
    /// A model that says `Result of NAME.`, and what `but` says where it says something.
    fn new(but: impl Fn(&MockCall) -> Option<MockAction> + Send + Sync + 'static) -> Self {
        let script = move |call: &MockCall| match call.purpose {
            Purpose::Work => {
                but(call).unwrap_or_else(|| MockAction::reply(format!("Result of {}.", name_in(call))))
            }
            _ => MockAction::reply(r#"{"score":0.9,"feedback":"fine"}"#),
        };
        let model = MockServer::start(MockOptions::new(Arc::new(script))).unwrap();
        Self { folder: tempfile::tempdir().unwrap(), model }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, input: &str, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_starling"));
        command
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command.env("OPENAI_BASE_URL", self.model.base_url()).env("OPENAI_API_KEY", "sk-none");
        command.current_dir(self.folder.path());
        command.args(["batch", input, "--goal", "Describe <{{name}}>", "--json"]);
        if !flags.contains(&"--out") {
            command.args(["--out", "out.jsonl"]);
        }
        command.args(flags);
        command
    }

    /// Runs it to its end: its exit code and what it says of itself.
    async fn run(&self, input: &str, flags: &[&str]) -> (Option<i32>, Value) {
        let output =
            timeout(PATIENCE, self.command(input, flags).output()).await.expect("a batch ends").unwrap();
        let summary = serde_json::from_slice(&output.stdout);
        (output.status.code(), summary.unwrap_or_else(|_| Value::String(err(&output))))
    }

    fn spawn(&self, input: &str, flags: &[&str]) -> Child {
        self.command(input, flags).spawn().unwrap()
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("out.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("a whole line")).collect()
    }

    /// Lines that are whole, while somebody writes.
    fn whole_lines(&self) -> usize {
        fs::read(self.path("out.jsonl")).unwrap_or_default().iter().filter(|byte| **byte == b'\n').count()
    }
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The name between the angles of the goal.
fn name_in(call: &MockCall) -> String {
    let named = call.prompt.split_once("Describe <").and_then(|(_, rest)| rest.split_once('>'));
    named.map_or("nothing", |(name, _)| name).to_owned()
}

fn table(names: impl IntoIterator<Item = String>) -> String {
    let rows = names.into_iter().map(|name| format!("key-{name},{name}\n"));
    std::iter::once("id,name\n".to_owned()).chain(rows).collect()
}

/// Every row exactly once; the statuses by key.
fn each_once(lines: &[Value], rows: usize) -> BTreeMap<String, String> {
    let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    let keys: BTreeMap<String, String> =
        lines.iter().map(|line| (text(line, "key"), text(line, "status"))).collect();
    let ids: BTreeSet<String> = lines.iter().map(|line| text(line, "id")).collect();
    let numbers: BTreeSet<u64> = lines.iter().map(|line| line["row"].as_u64().unwrap()).collect();
    assert_eq!([keys.len(), ids.len(), numbers.len(), lines.len()], [rows; 4], "{lines:#?}");
    keys
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waited = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await; // another process has no event to wait for
        }
    };
    timeout(PATIENCE, waited).await.unwrap_or_else(|_| panic!("{what}"));
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("n{n}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_become_lines_in_their_order_and_a_second_run_asks_nobody() {
    let slow_first = |call: &MockCall| {
        (name_in(call) == "n0").then(|| MockAction::reply_after(Duration::from_millis(300), "Result of n0."))
    };
    let desk = Desk::new(slow_first);
    desk.write("in.csv", table(names(60)));
    let (code, summary) = desk.run("in.csv", &["--in-order", "--concurrency", "8"]).await;
    assert_eq!(code, Some(0), "{summary}");
    assert_eq!(
        (&summary["rows"], &summary["succeeded"], &summary["stopped"]),
        (&60.into(), &60.into(), &Value::Null)
    );
    let lines = desk.lines();
    each_once(&lines, 60);
    for (n, line) in lines.iter().enumerate() {
        assert_eq!((&line["row"], &line["key"]), (&(n as u64 + 1).into(), &format!("key-n{n}").into()));
        assert_eq!(line["answer"], format!("Result of n{n}."));
        assert!(line["calls"].as_i64().unwrap() > 0 && line["tokens"].as_i64().unwrap() > 0, "{line}");
    }
    let calls = desk.model.stats().calls;
    let (code, summary) = desk.run("in.csv", &["--in-order"]).await;
    assert_eq!((code, &summary["skipped"], &summary["ended"]), (Some(0), &60.into(), &0.into()));
    assert_eq!((desk.model.stats().calls, desk.lines().len()), (calls, 60));
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_it_has_every_row_once() {
    let desk = Desk::new(|_| None);
    desk.write(
        "in.jsonl",
        names(400).map(|name| format!("{{\"id\":\"{name}\",\"name\":\"{name}\"}}\n")).collect::<String>(),
    );
    for kills in 1..=3 {
        let mut child = desk.spawn("in.jsonl", &["--concurrency", "20"]);
        until("it gets on", || desk.whole_lines() >= 60 * kills).await;
        child.kill().await.unwrap(); // SIGKILL
        // What a process that dies while it writes leaves behind.
        let torn = fs::OpenOptions::new().append(true).open(desk.path("out.jsonl")).unwrap();
        std::io::Write::write_all(&mut &torn, b"{\"id\":\"torn").unwrap();
    }
    let (code, summary) = desk.run("in.jsonl", &[]).await;
    assert_eq!(code, Some(0), "{summary}");
    assert!(summary["skipped"].as_u64().unwrap() >= 180, "{summary}");
    let statuses = each_once(&desk.lines(), 400);
    assert!(statuses.values().all(|status| status == "succeeded"), "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_the_same_output_is_refused() {
    let desk = Desk::new(|_| Some(MockAction::hold_then_reply("held")));
    desk.write("in.csv", table(names(3)));
    let mut first = desk.spawn("in.csv", &[]);
    until("it asks", || desk.model.stats().open > 0).await;
    let (code, said) = desk.run("in.csv", &[]).await;
    assert_eq!(code, Some(64), "{said}");
    assert!(said.as_str().unwrap().contains("another process"), "{said}");

    let pid = first.id().unwrap().to_string();
    let interrupt = || Command::new("sh").args(["-c", &format!("kill -INT {pid}")]).status();
    assert!(interrupt().await.unwrap().success());
    desk.model.release_for_good();
    let ended = timeout(PATIENCE, first.wait()).await.expect("it ends").unwrap();
    assert_eq!(ended.code(), Some(130), "what was under way is waited for, and the rest left");
    each_once(&desk.lines(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_rows_are_failed_lines_and_stop_nothing() {
    let desk = Desk::new(|_| None);
    desk.write("in.csv", b"id,name\na,one\nb\nc,three,3\nd,\xff\na,again\n,nobody\ne,five\n");
    let (code, summary) = desk.run("in.csv", &[]).await;
    assert_eq!(code, Some(2), "{summary}");
    assert_eq!((&summary["rows"], &summary["bad"], &summary["succeeded"]), (&7.into(), &5.into(), &2.into()));
    let lines = desk.lines();
    let reason = |row: u64| lines.iter().find(|line| line["row"] == row).unwrap()["reason"].as_str().unwrap();
    for (row, said) in
        [(2, "1 columns, not 2"), (3, "3 columns"), (4, "UTF-8"), (5, "id a"), (6, "column id")]
    {
        assert!(reason(row).contains(said), "row {row}: {}", reason(row));
    }
    assert_eq!(lines.len(), 7);
    let (code, summary) = desk.run("in.csv", &[]).await;
    assert_eq!((code, &summary["skipped"]), (Some(0), &7.into()), "{summary}");

    fs::remove_file(desk.path("out.jsonl")).unwrap();
    let long = format!("{{\"name\":\"{}\"}}", "x".repeat(3_000));
    desk.write(
        "in.jsonl",
        format!("{{\"name\":\"one\"}}\n\n[1]\nno\n{long}\n{{\"other\":1}}\n{{\"id\":[],\"name\":\"x\"}}"),
    );
    let (code, summary) = desk.run("in.jsonl", &["--set", "batch.max_row=1KiB"]).await;
    assert_eq!((code, &summary["bad"], &summary["succeeded"]), (Some(2), &5.into(), &1.into()), "{summary}");

    desk.write("in.csv", format!("name\n\"{}", "x\n".repeat(100_000)));
    let (code, said) = desk.run("in.csv", &["--set", "batch.max_row=1KiB", "--out", "other.jsonl"]).await;
    assert_eq!(code, Some(64));
    assert!(said.as_str().unwrap().contains("is a quote not closed"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_work_is_said_before_anything_is_asked() {
    let desk = Desk::new(|_| None);
    desk.write("in.csv", "id,title\na,one\n");
    for (flags, said) in [
        (&[][..], "no column name"),
        (&["--format", "tsv"], "no column name"),
        (&["--budget", "0"], "--budget"),
        (&["--deadline", "soon"], "--deadline"),
    ] {
        let output = desk.command("in.csv", flags).output().await.unwrap();
        assert_eq!(output.status.code(), Some(64), "{flags:?}: {}", err(&output));
        assert!(err(&output).contains(said), "{flags:?}: {}", err(&output));
    }
    desk.write("good.csv", table(names(1)));
    assert_eq!(desk.run("good.csv", &[]).await.0, Some(0));
    let (code, said) = desk.run("good.csv", &["--out", "no/such/folder/out.jsonl"]).await;
    assert!(code == Some(64) && said.as_str().unwrap().contains("no/such/folder"), "{said}");
    let (code, said) = desk.run("good.csv", &["--name", "other"]).await;
    assert_eq!(code, Some(64));
    assert!(said.as_str().unwrap().contains("another batch"), "{said}");
    assert_eq!(desk.model.stats().by_purpose.work, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rehearsal_tells_what_it_would_take_and_keeps_nothing() {
    let desk = Desk::new(|_| None);
    desk.write("in.csv", table(names(30)));
    desk.write("prices.toml", "[model.prices]\n\"gpt-4o-mini\" = { input = 1.0, output = 1.0 }\n");
    let flags = [
        "--rehearse",
        "--scale",
        "100",
        "--latency",
        "2s",
        "--provider-rate",
        "50",
        "--config",
        "prices.toml",
    ];
    let (code, forecast) = desk.run("in.csv", &flags).await;
    assert_eq!(code, Some(0), "{forecast}");
    assert_eq!(
        (&forecast["rows"]["succeeded"], &forecast["rows"]["unpriced_calls"]),
        (&30.into(), &0.into())
    );
    assert!(forecast["rows"]["cost_usd"].as_f64().unwrap() > 0.0, "{forecast}");
    assert!(forecast["takes_s"].as_f64().unwrap() >= 2.0, "a call takes as long: {forecast}");
    assert!(forecast["requests"].as_u64().unwrap() >= 30, "{forecast}");
    assert_eq!((desk.model.stats().calls, desk.lines().len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_is_run_again_on_demand() {
    let desk = Desk::new(|call| (name_in(call) == "n1").then(|| MockAction::error(400, "no")));
    desk.write("in.csv", table(names(4)));
    let (code, summary) = desk.run("in.csv", &[]).await;
    assert_eq!((code, &summary["failed"]), (Some(2), &1.into()), "{summary}");
    let failed = |desk: &Desk| {
        let lines = desk.lines();
        let of_n1: Vec<Value> = lines.into_iter().filter(|line| line["key"] == "key-n1").collect();
        of_n1
    };
    assert!(failed(&desk)[0]["reason"].as_str().unwrap().contains("no"), "{:?}", failed(&desk));
    for again in 1..=2 {
        let (code, summary) = desk.run("in.csv", &["--retry-failed"]).await;
        assert_eq!(
            (code, &summary["skipped"], &summary["failed"]),
            (Some(2), &3.into(), &1.into()),
            "{summary}"
        );
        let lines = failed(&desk);
        assert_eq!(lines.len(), again + 1);
        let ids: BTreeSet<&str> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), again + 1, "each time it is another intent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_a_limit_and_a_deadline_leave_rows_for_the_next_run() {
    let desk = Desk::new(|_| None);
    desk.write("in.csv", table(names(12)));
    let (code, summary) = desk.run("in.csv", &["--limit", "2"]).await;
    assert_eq!(
        (code, &summary["stopped"], &summary["ended"]),
        (Some(3), &"limit".into(), &2.into()),
        "{summary}"
    );

    let (code, summary) = desk.run("in.csv", &["--budget", "1"]).await;
    assert_eq!((code, &summary["stopped"]), (Some(3), &"unpriced".into()), "{summary}");
    let after_unpriced = desk.lines().len();
    assert!(after_unpriced < 12, "a few rows tell that there is no price: {summary}");

    // A row costs more than what is left after one.
    desk.write(
        "prices.toml",
        "[model.prices]\n\"gpt-4o-mini\" = { input = 1000000.0, output = 1000000.0 }\n",
    );
    let priced = ["--config", "prices.toml", "--concurrency", "1", "--budget", "0.5"];
    let (code, summary) = desk.run("in.csv", &priced).await;
    assert_eq!((code, &summary["stopped"]), (Some(3), &"budget".into()), "{summary}");
    assert_eq!(summary["ended"], 1, "{summary}");

    let (code, summary) = desk.run("in.csv", &["--deadline", "2020-01-01T00:00:00Z"]).await;
    assert_eq!((code, &summary["stopped"]), (Some(3), &"deadline".into()), "{summary}");
    let (code, summary) = desk.run("in.csv", &[]).await;
    assert_eq!(code, Some(0), "{summary}");
    each_once(&desk.lines(), 12);
}

/// The example in the documentation: columns are a playbook's parameters, but the one that names the row.
#[tokio::test(flavor = "multi_thread")]
async fn tickets_are_answered_by_a_playbook() {
    let folder = tempfile::tempdir().unwrap();
    let tickets = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/tickets.csv");
    let mut command = Command::new(env!("CARGO_BIN_EXE_starling"));
    command.env_clear().stdin(Stdio::null()).kill_on_drop(true).current_dir(folder.path());
    command.args(["batch", tickets, "--playbook", "order-inquiry", "--out", "out.jsonl", "--json"]);
    let output = timeout(PATIENCE, command.output()).await.expect("a batch ends").unwrap();
    let written = fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
    assert_eq!(output.status.code(), Some(0), "{written}");
    let mut keys: Vec<String> = written
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["key"].as_str().unwrap().to_owned())
        .collect();
    keys.sort();
    assert_eq!(keys, ["t-1", "t-2", "t-3"]);
}
