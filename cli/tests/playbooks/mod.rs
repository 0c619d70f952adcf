//! The shipped playbooks, from the command line to the report: with the offline model and with an endpoint. What they print
//! is compared with files; `STARLING_WRITE_GOLDEN=1` writes these anew.

use super::{PATIENCE, starling};
use serde_json::{Value, json};
use starling_llm::mock::{MockOptions, MockServer, scripts};
use std::{fs, path::PathBuf, process::Output};
use tokio::{process::Command, time::timeout};

/// A playbook, the arguments of an intent for it, and how many tasks its plan has.
const SHIPPED: [(&str, &[&str], usize); 6] = [
    (
        "order-inquiry",
        &[
            "--param",
            "order_id=4711",
            "--param",
            "message=Where is my parcel? It should have come on Friday.",
            "--param",
            "order=Sent on Monday with DHL, expected on Friday",
            "--param",
            "policy=What is late by more than five days is sent again",
        ],
        4,
    ),
    (
        "product-recommendation",
        &[
            "--param",
            "need=a warm coat for rain",
            "--param",
            "catalogue=Alba, 90 EUR, wool; Brisa, 120 EUR, waterproof",
        ],
        4,
    ),
    ("product-copy", &["--item", "Alba, a coat of wool"], 4),
    ("document-review", &["--file", "tests/playbooks/letter.md", "--file", "tests/playbooks/offer.md"], 3),
    ("compare", &["--param", "options=[\"Kafka\",\"NATS\"]", "--param", "situation=a small shop"], 3),
    ("research", &["What speaks for a four-day week?"], 5),
];

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn command(args: &[&str], more: &[&str]) -> Command {
    let mut command = starling();
    command.current_dir(here()).args(args).args(more);
    command
}

async fn output(mut command: Command) -> Output {
    timeout(PATIENCE, command.output()).await.expect("it ends").unwrap()
}

/// What of a report does not depend on how long it took, or on chance.
fn lasting(outcome: &Value) -> Value {
    let tasks = outcome["task_reports"].as_array().unwrap().iter();
    let tasks: Vec<Value> = tasks
        .map(|task| json!({"title": task["title"], "agent": task["agent"], "status": task["status"], "score": task["score"]}))
        .collect();
    json!({
        "status": outcome["status"],
        "strategy": outcome["strategy"],
        "offline": outcome["offline"],
        "calls": outcome["calls"],
        "degraded": outcome["degraded"],
        "tasks": tasks,
        "answer": outcome["answer"],
    })
}

fn check(name: &str, found: &str) {
    let path = here().join("tests/playbooks/golden").join(name);
    if std::env::var_os("STARLING_WRITE_GOLDEN").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(found, expected, "{name} is not what it was; STARLING_WRITE_GOLDEN=1 writes it anew");
}

async fn check_reports(kind: &str, endpoint: Option<&MockServer>) {
    for (playbook, args, tasks) in SHIPPED {
        // How long somebody waits for a reply is tried out elsewhere: this machine may be slow.
        let folder = tempfile::tempdir().unwrap();
        let shipped = fs::read_to_string(here().join(format!("../playbooks/{playbook}.toml"))).unwrap();
        fs::write(
            folder.path().join("patient.toml"),
            shipped.replace("timeout = \"5s\"", "timeout = \"60s\""),
        )
        .unwrap();
        let dir = format!("playbooks.dir={}", folder.path().display());
        let mut command = command(&["run", "--json", "--playbook", playbook, "--set", &dir], args);
        if let Some(endpoint) = endpoint {
            command.env("OPENAI_BASE_URL", endpoint.base_url());
        }
        let output = output(command).await;
        let said = String::from_utf8_lossy(&output.stdout);
        let outcome: Value = serde_json::from_str(&said).unwrap_or_else(|error| {
            panic!("{playbook}: {error}: {said}{}", String::from_utf8_lossy(&output.stderr))
        });
        assert_eq!(output.status.code(), Some(0), "{playbook}: {outcome:#}");
        assert_eq!(outcome["tasks"]["total"], tasks, "{playbook}: {outcome:#}");
        let report = serde_json::to_string_pretty(&lasting(&outcome)).unwrap() + "\n";
        check(&format!("{playbook}.{kind}.json"), &report);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shipped_playbook_ends_in_its_report_with_the_offline_model() {
    check_reports("offline", None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shipped_playbook_ends_in_its_report_with_an_endpoint() {
    let script = scripts::fanout(1, scripts::Latencies::default());
    let server = MockServer::start(MockOptions::new(script)).unwrap();
    check_reports("endpoint", Some(&server)).await;
    assert_eq!(server.stats().by_purpose.plan, 0, "no plan of a playbook takes a call");
}

#[tokio::test]
async fn plans_are_shown_in_every_form_without_a_call() {
    let args = ["plan", "--playbook", "compare", "--param", "options=Kafka,NATS"];
    for format in ["tree", "dot", "mermaid", "json"] {
        let output = output(command(&args, &["--format", format])).await;
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        check(&format!("plan.{format}.txt"), &String::from_utf8(output.stdout).unwrap());
    }
    // Of every strategy.
    for (more, said) in [
        (&["Name a bird", "--strategy", "single"][..], "strategy single, 1 tasks"),
        (&["Name a bird", "--strategy", "auto"], "strategy single, 1 tasks"),
        (&["Sing of it", "--strategy", "map", "--item", "owl", "--item", "lark"], "strategy map, 2 tasks"),
        (&["Sing of it", "--strategy", "auto", "--item", "owl"], "strategy map, 1 tasks"),
        (&["Compare the owl with the lark"], "strategy llm, "),
    ] {
        let output = output(command(&["plan"], more)).await;
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && out.contains(said), "{more:?}: {out}");
    }
}

#[tokio::test]
async fn a_plan_is_kept_as_a_playbook_that_makes_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let dir = format!("playbooks.dir={}", folder.path().display());
    let json = async |args: &[&str]| -> Value {
        let output = output(command(args, &["--format", "json", "--set", &dir])).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    for (name, args) in [
        ("mine", &["Compare the owl with the lark"][..]),
        ("mapped", &["Sing of it", "--strategy", "map", "--item", "owl {{ x }}", "--item", "lark"]),
        ("support", &["--playbook", "order-inquiry", "--param", "order_id=1", "--param", "message=x"]),
    ] {
        let planned = json(&[&["plan", "--save", name], args].concat()).await;
        let again = json(&["plan", "--playbook", name]).await;
        for field in ["goal", "tasks", "answer"] {
            assert_eq!(again[field], planned[field], "{name}: {field}");
        }
        // What is there is not written over.
        let twice = output(command(&["plan", "--save", name, "--set", &dir], args)).await;
        assert_eq!(twice.status.code(), Some(64), "{}", String::from_utf8_lossy(&twice.stderr));
    }
    let listed = output(command(&["playbooks", "--set", &dir], &[])).await;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("mapped\n  A plan for: Sing of it\n") && listed.contains("order-inquiry\n"),
        "{listed}"
    );
}

#[tokio::test]
async fn what_is_wrong_is_named_at_once_and_ends_with_64() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("broken.toml"), "name = \"\"\ndescription = \"\"\n").unwrap();
    let dir = format!("playbooks.dir={}", folder.path().display());
    for (args, faults) in [
        (
            &["run", "--playbook", "order-inquiry", "--param", "colour=red"][..],
            &["--param message: missing", "--param order_id: missing", "--param colour: unknown parameter"][..],
        ),
        (
            &["plan", "--playbook", "none"],
            &["there is no playbook \"none\", there are compare, document-review"],
        ),
        (
            &["run", "--playbook", "product-copy"],
            &["--item: missing, the playbook product-copy has a task for each"],
        ),
        (&["run", "--strategy", "map", "Sing"], &["--item: missing"]),
        (&["run", "--strategy", "fast", "Sing"], &["expected \"llm\", \"single\", \"map\", \"auto\""]),
        (&["run", "--playbook", "A B"], &["a name of a-z 0-9 - _ is expected"]),
        (&["run", "Sing", "--param", "oops"], &["NAME=VALUE is expected"]),
        (&["run", "Sing", "--param", "a=1", "--param", "a=2"], &["--param a is given twice"]),
        (&["run"], &["the goal is empty"]),
        (&["plan", "Sing", "--save", "No Name"], &["--save No Name: expected 1 to 64 characters"]),
        (
            &["playbooks", "--set", &dir],
            &["broken.toml: name: ", "broken.toml: description: ", "broken.toml: tasks: "],
        ),
        (&["run", "Sing", "--set", &dir], &["broken.toml: name: "]),
    ] {
        let output = output(command(args, &[])).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{args:?}: {said}");
        for fault in faults {
            assert!(said.contains(fault), "{args:?}: {fault}: {said}");
        }
    }
}
