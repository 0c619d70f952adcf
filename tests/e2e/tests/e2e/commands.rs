//! The command line against a running swarm: what it prints, and how it exits.

use crate::SOON;
use anyhow::Result;
use serde_json::Value;
use starling_e2e::{Plan, Proc, Scripted, Swarm, SwarmOptions, brokers, eventually, http_address};
use starling_llm::{Purpose, mock::MockAction};
use starling_protocol::{IntentId, OutcomeStatus};

#[tokio::test(flavor = "multi_thread")]
async fn submit_watch_result_and_run() -> Result<()> {
    let plan = Plan::new().task("A", &[]).task("B", &["A"]);
    let model = Scripted::new(plan).but(|call| {
        let doomed = call.purpose == Purpose::Plan && call.section("Goal") == Some("Fail");
        doomed.then(|| MockAction::error(400, "no plans today"))
    });
    let mut swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;

    let address = http_address(&swarm.planners[0]).unwrap();
    for (args, expected) in [(&["health"][..], "ready"), (&["health", "--alive"], "alive")] {
        let (code, health) = swarm.cli(&[args, &["--address", &address]].concat()).await?;
        assert_eq!((code, health.stdout().trim()), (Some(0), expected), "{}", health.last_lines());
    }
    let (code, _) = swarm.cli(&["health", "--address", "127.0.0.1:1"]).await?;
    assert_eq!(code, Some(1), "nobody is there");

    let (code, submitted) = swarm.cli(&["submit", "Do it"]).await?;
    assert_eq!(code, Some(0), "{}", submitted.last_lines());
    let id = submitted.stdout().trim().to_owned();
    IntentId::parse(&id).unwrap();
    let (code, watched) = swarm.cli(&["watch", &id]).await?;
    assert_eq!((code, watched.stdout().trim()), (Some(0), "The answer."), "{}", watched.last_lines());
    let (code, result) = swarm.cli(&["result", &id, "--json"]).await?;
    assert_eq!(code, Some(0), "{}", result.last_lines());
    let report: Value = serde_json::from_str(&result.stdout())?;
    check_contract(&report);
    assert_eq!(report["intent_id"], id.as_str());

    let brokers = brokers()?;
    let (code, run) = swarm.cli(&["run", "Do it now", "--json", "--brokers", &brokers]).await?;
    assert_eq!(code, Some(0), "{}", run.last_lines());
    let report: Value = serde_json::from_str(&run.stdout())?;
    check_contract(&report);
    assert_eq!((&report["status"], &report["answer"]), (&"succeeded".into(), &"The answer.".into()));
    assert_eq!(report["offline"], false);

    let (code, failed) = swarm.cli(&["run", "Fail", "--json", "--brokers", &brokers]).await?;
    assert_eq!(code, Some(1), "{}", failed.last_lines());
    let report: Value = serde_json::from_str(&failed.stdout())?;
    assert_eq!(report["status"], "failed");
    assert!(report["reason"].as_str().unwrap().contains("no plans today"), "{report}");

    let (code, unknown) = swarm.cli(&["result", "nobody-sent-this"]).await?;
    assert_eq!(code, Some(1));
    assert!(unknown.stderr().contains("nobody-sent-this"), "{}", unknown.stderr());
    swarm.all_audited(SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_cancels_an_intent_that_others_run() -> Result<()> {
    let model = Scripted::new(Plan::independent(2)).holding(|call| call.purpose == Purpose::Work);
    let mut swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    let brokers = brokers()?;
    let mut run = swarm.spawn_cli(&["run", "Wait", "--id", "wait", "--brokers", &brokers])?;
    eventually("the calls are open", SOON, || swarm.model.stats().open_by_purpose.work == 2).await;
    run.signal("INT")?;
    assert_eq!(run.wait(SOON).await?.code(), Some(130), "{}", run.last_lines());
    let outcome = swarm.outcome(&IntentId::from_string("wait"), SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Cancelled);
    eventually("the calls are closed", SOON, || swarm.model.stats().open == 0).await;
    swarm.all_audited(SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_runs_all_services_in_one_process() -> Result<()> {
    let model = Scripted::new(Plan::independent(3));
    let mut options = SwarmOptions::new(model.options(), 0);
    (options.planners, options.critics) = (0, 0);
    let mut swarm = Swarm::start(options).await?;
    let brokers = brokers()?;
    let mut dev = swarm.spawn_cli(&["dev", "--brokers", &brokers])?;
    // It takes the intent as soon as it is up; nobody has to wait for it to be ready.
    let (code, run) = swarm.cli(&["run", "Do it", "--json", "--brokers", &brokers]).await?;
    assert_eq!(code, Some(0), "{}", run.last_lines());
    check_contract(&serde_json::from_str(&run.stdout())?);
    dev.signal("INT")?;
    let status = dev.wait(SOON).await?;
    assert!(status.success(), "{status}: {}", dev.last_lines());
    swarm.all_audited(SOON).await?;
    Ok(())
}

/// Every field of the contract is there and has its type.
fn check_contract(report: &Value) {
    let texts = ["/intent_id", "/status", "/answer", "/model", "/trace_id"];
    let numbers = [
        "/tasks/total",
        "/tasks/succeeded",
        "/tasks/failed",
        "/calls",
        "/usage/prompt_tokens",
        "/usage/completion_tokens",
        "/usage/cached_tokens",
        "/cached_calls",
        "/cached_prompt_tokens",
        "/context_reuse",
        "/cost_usd",
        "/unpriced_calls",
        "/latency_ms/wall",
        "/latency_ms/p50",
        "/latency_ms/p99",
        "/latency_ms/serial_sum",
        "/task_reports/1/attempts",
        "/task_reports/1/latency_ms",
        "/task_reports/1/score",
    ];
    let task_texts = [
        "/task_reports/1/task_id",
        "/task_reports/1/title",
        "/task_reports/1/agent",
        "/task_reports/1/status",
    ];
    for path in texts.iter().chain(&task_texts) {
        assert!(report.pointer(path).is_some_and(Value::is_string), "{path}: {report}");
    }
    for path in numbers {
        assert!(report.pointer(path).is_some_and(Value::is_number), "{path}: {report}");
    }
    assert!(report["offline"].is_boolean() && report["degraded"].is_array(), "{report}");
    assert_eq!(report["trace_id"].as_str().unwrap().len(), 32, "{report}");
    // The answer, which comes last, builds on the first task.
    let last = report["task_reports"].as_array().unwrap().last().unwrap();
    assert_eq!(last["depends_on"][0], report["task_reports"][0]["task_id"], "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn faulty_settings_are_all_named_and_exit_with_64() -> Result<()> {
    let dir = tempfile::tempdir()?;
    for binary in ["starling", "starling-planner", "starling-worker", "starling-critic"] {
        let mut args = if binary == "starling" { vec!["run", "Do it"] } else { vec![] };
        args.extend([
            "--set",
            "kafka.session_timeout=banana",
            "--set",
            "model.tries=0",
            "--set",
            "no.such=1",
        ]);
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let mut process = Proc::start(binary, binary, &args, &[], dir.path())?;
        assert_eq!(process.wait(SOON).await?.code(), Some(64), "{}", process.last_lines());
        for part in ["kafka.session_timeout", "banana", "model.tries", "no.such"] {
            assert!(process.stderr().contains(part), "{binary} should name {part}:\n{}", process.stderr());
        }
    }
    let mut usage = Proc::start("starling", "usage", &["fly".to_owned()], &[], dir.path())?;
    assert_eq!(usage.wait(SOON).await?.code(), Some(64));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_broker_is_named_and_exits_with_69() -> Result<()> {
    let dir = tempfile::tempdir()?;
    // A port that nothing listens on: it was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let address = format!("127.0.0.1:{port}");
    for binary in ["starling", "starling-planner", "starling-worker", "starling-critic"] {
        let mut args = if binary == "starling" { vec!["run", "Do it"] } else { vec![] };
        args.extend(["--brokers", &address, "--set", "kafka.connect_timeout=1s"]);
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let mut process = Proc::start(binary, binary, &args, &[], dir.path())?;
        assert_eq!(process.wait(SOON).await?.code(), Some(69), "{}", process.last_lines());
        assert!(process.stderr().contains(&address), "{}", process.stderr());
        assert!(process.stderr().contains("scripts/kafka start"), "it says what to do: {}", process.stderr());
    }
    Ok(())
}
