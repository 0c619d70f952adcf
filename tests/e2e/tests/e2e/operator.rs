//! What an operator asks: `starling doctor` and `starling top`.

use crate::SOON;
use anyhow::Result;
use serde_json::Value;
use starling_e2e::{Plan, Proc, Proof, Scripted, SecureBroker, Swarm, SwarmOptions, brokers};
use starling_llm::mock::{Abilities, MockAction, MockOptions, reply_by_schema};
use starling_protocol::{OutcomeStatus, Topic};

const CHECKS: [&str; 12] = [
    "settings", "broker", "topics", "rights", "groups", "fleet", "versions", "clock", "registry", "model",
    "traces", "health",
];

/// Every field of the contract, in its order; gives status, found and advice of a check.
fn checked(report: &Value) -> impl Fn(&str) -> (String, String, String) + use<> {
    let mut checks = report["checks"].as_array().expect("a list of checks").clone();
    // There is one for each model that was called.
    checks.retain(|check| check["name"] != "preflight");
    let text = |check: &Value, field: &str| check[field].as_str().expect(field).to_owned();
    let names: Vec<String> = checks.iter().map(|check| text(check, "name")).collect();
    assert_eq!(names, CHECKS, "{report}");
    for check in &checks {
        assert_eq!(check.as_object().map(serde_json::Map::len), Some(4), "{check}");
        assert!(["ok", "warning", "fault"].contains(&text(check, "status").as_str()), "{check}");
    }
    assert_eq!(report.as_object().map(serde_json::Map::len), Some(2), "{report}");
    assert!(report["status"].is_string(), "{report}");
    move |name| {
        let check = checks.iter().find(|check| check["name"] == name).expect(name);
        (text(check, "status"), text(check, "found"), text(check, "advice"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_nothing_wrong_with_a_swarm_that_works() -> Result<()> {
    // It refuses a model that nobody has, keeps to schemas and streams, as what is tried out should.
    let model = Scripted::new(Plan::independent(2)).but(|call| {
        let made_up = call.body["model"].as_str().is_some_and(|name| name.contains("no-such-model"));
        let refused = made_up.then(|| MockAction::error(404, "the model does not exist"));
        refused.or_else(|| reply_by_schema(call).map(MockAction::reply))
    });
    let options = model.options();
    let options = MockOptions { script: Abilities::default().play(options.script.clone()), ..options };
    let mut swarm = Swarm::start(SwarmOptions::new(options, 2)).await?;
    let id = swarm.submit("healthy", "Do it").await?;
    assert_eq!(swarm.outcome(&id, SOON).await?.status, OutcomeStatus::Succeeded);

    let (code, doctor) = swarm.cli(&["doctor", "--json", "--call-model"]).await?;
    println!("{}", doctor.stdout());
    assert_eq!(code, Some(0), "{}", doctor.last_lines());
    let report: Value = serde_json::from_str(&doctor.stdout())?;
    let preflight = report["checks"].as_array().expect("a list").iter().find(|c| c["name"] == "preflight");
    let preflight = preflight.expect("models that are called are tried out");
    assert_eq!((&preflight["status"], &preflight["advice"]), (&"ok".into(), &"".into()), "{preflight}");
    assert_eq!(preflight["details"].as_array().map(Vec::len), Some(5), "{preflight}");
    let check = checked(&report);
    for name in CHECKS {
        let (status, found, advice) = check(name);
        assert_eq!((status.as_str(), advice.as_str()), ("ok", ""), "{name}: {found}");
    }
    assert_eq!(report["status"], "ok");
    assert!(check("broker").1.contains(&brokers()?), "{report}");
    assert!(check("topics").1.starts_with("13 topics with "), "{report}");
    assert!(check("groups").1.contains("worker 2 reading, lag 0"), "{report}");
    assert!(check("fleet").1.contains("2 worker; 0 of 8 worker slots busy"), "{report}");
    assert!(!doctor.stdout().contains("OPENAI_API_KEY=") && !doctor.stdout().contains("\"test\""));

    // Nobody works on tasks, and some wait: that is a fault.
    swarm.workers.clear();
    let id = swarm.submit("stuck", "Do it as well").await?;
    let until = std::time::Instant::now() + SOON;
    loop {
        let (code, doctor) = swarm.cli(&["doctor"]).await?;
        let text = doctor.stdout();
        let is_of_groups = |line: &&str| line.split_whitespace().nth(1) == Some("groups");
        let line = text.lines().find(is_of_groups).unwrap_or_default();
        if code == Some(1) && line.starts_with("fault") && line.contains("nobody reads") {
            assert!(line.contains("-> start starling-worker"), "{line}");
            break;
        }
        assert!(std::time::Instant::now() < until, "{}", doctor.stdout());
    }
    swarm.client.cancel(&id, "test", "enough was seen").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_topics_that_are_missing_or_too_small_and_the_command_that_helps() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let brokers = brokers()?;
    let prefix = format!("t{:08x}", rand::random::<u32>());
    let settings = |worker: i32, coordinator: i32, pools: &str| -> Vec<String> {
        let mut all = vec![format!("topics.prefix={prefix}"), "model.offline=true".to_owned()];
        all.push(format!("topics.partitions.worker={worker}"));
        all.push(format!("topics.partitions.coordinator={coordinator}"));
        all.push(format!("topics.pools={pools}"));
        all.extend(
            ["intents", "planner", "critic", "tool", "outcomes", "progress", "content", "dlq"]
                .map(|topic| format!("topics.partitions.{topic}=1")),
        );
        all.into_iter().flat_map(|setting| ["--set".to_owned(), setting]).collect()
    };
    let run = |name: &str, args: &[&str], settings: Vec<String>| {
        let args = args.iter().map(|arg| (*arg).to_owned()).chain(["--brokers".into(), brokers.clone()]);
        let args: Vec<String> = args.chain(settings).collect();
        Proc::start("starling", name, &args, &[], dir.path())
    };
    let mut create = run("create", &["topics", "create"], settings(2, 1, ""))?;
    assert!(create.wait(SOON).await?.success(), "{}", create.last_lines());

    let mut doctor = run("doctor", &["doctor", "--json"], settings(4, 2, "gpu"))?;
    assert_eq!(doctor.wait(SOON).await?.code(), Some(1), "{}", doctor.last_lines());
    let report: Value = serde_json::from_str(&doctor.stdout())?;
    let (status, found, advice) = checked(&report)("topics");
    assert_eq!((status.as_str(), report["status"].as_str()), ("fault", Some("fault")), "{report}");
    for part in [
        format!("missing: {prefix}.worker.gpu"),
        format!("{prefix}.worker has 2 partitions, 4 are needed"),
        format!("{prefix}.coordinator has 1 partitions, 2 are needed"),
    ] {
        assert!(found.contains(&part), "{part}: {report}");
    }
    for part in [
        "starling topics create".to_owned(),
        format!(
            "kafka-topics.sh --bootstrap-server {brokers} --alter --topic {prefix}.worker --partitions 4"
        ),
        "set topics.partitions.coordinator=1".to_owned(),
    ] {
        assert!(advice.contains(&part), "{part}: {report}");
    }
    let mut doctor = run("lines", &["doctor"], settings(4, 1, ""))?;
    assert_eq!(doctor.wait(SOON).await?.code(), Some(1), "{}", doctor.last_lines());
    let lines = doctor.stdout();
    let topics =
        lines.lines().find(|line| line.split_whitespace().nth(1) == Some("topics")).unwrap_or_default();
    assert!(topics.starts_with("fault ") && topics.contains(" -> kafka-topics.sh "), "{lines}");
    assert_eq!(lines.lines().count(), CHECKS.len() + 1, "{lines}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_without_a_broker_exits_with_69_and_looks_at_the_rest() -> Result<()> {
    let dir = tempfile::tempdir()?;
    // A port that nothing listens on: it was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let address = format!("127.0.0.1:{port}");
    let otlp = format!("telemetry.otlp_endpoint=http://{address}");
    let args = ["doctor", "--json", "--brokers", &address, "--set", &otlp].map(str::to_owned);
    let mut doctor = Proc::start("starling", "doctor", &args, &[], dir.path())?;
    assert_eq!(doctor.wait(SOON).await?.code(), Some(69), "{}", doctor.last_lines());
    let report: Value = serde_json::from_str(&doctor.stdout())?;
    let check = checked(&report);
    let (status, found, advice) = check("broker");
    assert_eq!(status, "fault");
    assert!(found.contains(&address) && advice.contains("scripts/kafka start"), "{report}");
    assert_eq!(check("topics").0, "warning");
    assert_eq!(check("settings").0, "ok");
    assert!(check("model").1.contains("offline"), "{report}");
    assert!(check("traces").1.contains("does not answer"), "{report}");
    assert_eq!(check("health").0, "ok");

    let args = ["top", "--once", "--brokers", &address].map(str::to_owned);
    let mut top = Proc::start("starling", "top", &args, &[], dir.path())?;
    assert_eq!(top.wait(SOON).await?.code(), Some(69), "{}", top.last_lines());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_the_members_and_an_intent_that_has_ended() -> Result<()> {
    let model = Scripted::new(Plan::independent(3));
    let mut swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    let id = swarm.submit("shown", "Do it").await?;
    assert_eq!(swarm.outcome(&id, SOON).await?.status, OutcomeStatus::Succeeded);
    let rejected = swarm.publish(b"{\"goal\": 7}", &[]).await?; // no intent: a failure to be shown
    assert_eq!(swarm.outcome(&rejected, SOON).await?.status, OutcomeStatus::Rejected);

    // Without a terminal it is the same with and without the flag.
    for args in [&["top", "--once"][..], &["top"][..]] {
        let (code, top) = swarm.cli(args).await?;
        let text = top.stdout();
        println!("{text}");
        assert_eq!(code, Some(0), "{}", top.last_lines());
        let row =
            |start: &str| text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or("none");
        let cells = |start: &str| row(start).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for role in ["intake", "coordinator", "planner", "critic", "worker"] {
            assert!(text.lines().any(|line| line.trim_start().starts_with(role)), "{role}: {text}");
        }
        assert!(text.contains("worker-starling-worker-"), "{text}");
        let shown = cells("shown");
        assert_eq!((shown[1].as_str(), shown[2].as_str()), ("succeeded", "3/3"), "{text}");
        assert!(text.lines().any(|line| line.contains("rejected")), "{text}");
        let outcomes = cells("outcomes");
        assert_eq!((outcomes[1].as_str(), outcomes[3].as_str()), ("2", "-"), "nobody reads outcomes: {text}");
        assert_ne!(outcomes[2], "-", "the pace is known: {text}");
        assert!(text.contains("2 ended, 1 succeeded"), "{text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_rights_that_are_missing() -> Result<()> {
    let model = Scripted::new(Plan::independent(1));
    let options = SwarmOptions {
        secure: Some(SecureBroker::start()?),
        planners: 0,
        critics: 0,
        ..SwarmOptions::new(model.options(), 0)
    };
    let mut swarm = Swarm::start(options).await?;
    let user = swarm.secure().environment("cli", Proof::Password)?;
    let (code, doctor) = swarm.cli_with(&["doctor", "--json"], &user).await?;
    assert_eq!(code, Some(1), "{}", doctor.last_lines());
    let check = checked(&serde_json::from_str(&doctor.stdout())?);
    let (intents, intake) = (swarm.names.name(&Topic::Intents), swarm.names.group("intake"));
    let (status, found, advice) = check("rights");
    assert_eq!(status, "fault");
    for part in [
        format!("describe topic {}", swarm.names.name(&Topic::Worker(None))),
        format!("describe the configs of topic {intents}"),
        format!("no answer when asked to see what group {intake} has committed"),
        format!("read topic {}", swarm.names.name(&Topic::Fleet)),
        "user \"cli\" needs the right".to_owned(),
    ] {
        assert!(found.contains(&part), "{part}: {found}");
    }
    assert!(advice.contains("scripts/kafka-rights show operator"), "{advice}");
    assert_eq!(check("broker").0, "ok");

    // Who has the rights of an operator sees everything.
    let prefix = swarm.names.group("").trim_end_matches('.').to_owned();
    swarm.secure().grant_to("cli", "operator", &prefix)?;
    let (code, doctor) = swarm.cli_with(&["doctor", "--json"], &user).await?;
    assert_eq!(code, Some(0), "{}", doctor.last_lines());
    let check = checked(&serde_json::from_str(&doctor.stdout())?);
    for name in ["broker", "topics", "rights"] {
        assert_eq!(check(name).0, "ok", "{name}: {}", doctor.stdout());
    }
    let (code, top) = swarm.cli_with(&["top", "--once"], &user).await?;
    assert_eq!(code, Some(0), "{}", top.last_lines());
    assert!(top.stdout().starts_with("0 running; 0 ended"), "nothing is in the way: {}", top.stdout());

    // Who is not let in is no matter of reaching the broker.
    std::fs::write(swarm.secure().file("wrong.password"), "guessed")?;
    let mut wrong = user.clone();
    let password = swarm.secure().file("wrong.password").display().to_string();
    wrong.push(("STARLING__KAFKA__SECURITY__PASSWORD_FILE".to_owned(), password));
    let (code, doctor) = swarm.cli_with(&["doctor", "--json"], &wrong).await?;
    assert_eq!(code, Some(1), "{}", doctor.last_lines());
    let check = checked(&serde_json::from_str(&doctor.stdout())?);
    assert!(check("broker").1.contains("invalid credentials"), "{}", doctor.stdout());
    assert_eq!(check("topics").1, "not checked: the broker refuses");
    assert!(!doctor.stdout().contains("guessed"), "{}", doctor.stdout());
    Ok(())
}
