//! `starling run` in one process: no broker, and no key.

use crate::SOON;
use anyhow::Result;
use starling_e2e::{Plan, Proc, Scripted, eventually};
use starling_llm::{Purpose, mock::MockServer};

const LAPTOPS: &str = "name,price,weight_kg\nA,900,1.2\nB,1500,0.9\nC,600,2.1\nD,1100,1.1\n";

fn args(args: &[&str]) -> Vec<String> {
    args.iter().map(|arg| (*arg).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_key_and_broker_it_answers_with_the_offline_model() -> Result<()> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("laptops.csv"), LAPTOPS)?;
    let goal = "Compare the laptops in laptops.csv and recommend three";
    let run = args(&["run", goal, "--file", "laptops.csv", "--json"]);
    let mut json = Proc::start("starling", "json", &run, &[], dir.path())?;
    let status = json.wait(SOON).await?;
    assert_eq!(status.code(), Some(0), "{}", json.last_lines());
    // Nothing else is on stdout, so all of it is the object.
    let report: serde_json::Value = serde_json::from_str(&json.stdout())?;
    assert_eq!((&report["status"], &report["offline"]), (&"succeeded".into(), &true.into()), "{report}");
    assert!(!report["answer"].as_str().unwrap().is_empty());
    assert!(report["tasks"]["total"].as_i64().unwrap() >= 1);

    let run = args(&["run", goal, "--file", "laptops.csv"]);
    let mut plain = Proc::start("starling", "plain", &run, &[], dir.path())?;
    assert_eq!(plain.wait(SOON).await?.code(), Some(0), "{}", plain.last_lines());
    assert_eq!(
        plain.stdout().trim(),
        report["answer"].as_str().unwrap().trim(),
        "the answer alone is on stdout"
    );
    let notices = plain.stderr().matches("OFFLINE MODEL").count();
    assert_eq!(notices, 2, "it says so before and after:\n{}", plain.stderr());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_cancels_the_intent_and_exits_with_130() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let model = Scripted::new(Plan::independent(3)).holding(|call| call.purpose == Purpose::Work);
    let server = MockServer::start(model.options())?;
    let env = [("OPENAI_BASE_URL", server.base_url()), ("OPENAI_API_KEY", "test".to_owned())]
        .map(|(name, value)| (name.to_owned(), value));
    let mut run = Proc::start("starling", "run", &args(&["run", "Wait for me"]), &env, dir.path())?;
    eventually("the calls are open", SOON, || server.stats().open_by_purpose.work == 3).await;
    run.signal("INT")?;
    assert_eq!(run.wait(SOON).await?.code(), Some(130), "{}", run.last_lines());
    eventually("the calls are closed", SOON, || server.stats().open == 0).await;
    assert!(run.stderr().contains("cancel"), "{}", run.stderr());
    assert_eq!(run.stdout(), "", "there is no answer");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_nobody_serves_is_named_and_exits_with_69() -> Result<()> {
    let dir = tempfile::tempdir()?;
    // A port that was free a moment ago, and is not listened on.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let env = [("OPENAI_BASE_URL".to_owned(), format!("http://127.0.0.1:{port}/v1"))];
    let mut run = Proc::start("starling", "unreachable", &args(&["run", "anything"]), &env, dir.path())?;
    assert_eq!(run.wait(SOON).await?.code(), Some(69), "{}", run.last_lines());
    let said = run.stderr();
    assert!(said.contains(&format!("127.0.0.1:{port}")) && said.contains("OPENAI_BASE_URL"), "{said}");
    assert!(run.stdout().is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_plans_tells_what_it_would_take_and_does_none_of_it() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let model = Scripted::new(Plan::independent(3));
    let server = MockServer::start(model.options())?;
    let mut env = vec![("OPENAI_BASE_URL", server.base_url()), ("OPENAI_API_KEY", "test".to_owned())];
    let owned = |env: &[(&str, String)]| -> Vec<(String, String)> {
        env.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    };
    let mut run = Proc::start(
        "starling",
        "dry",
        &args(&["run", "Plan it", "--dry-run", "--json", "--max-calls", "5"]),
        &owned(&env),
        dir.path(),
    )?;
    assert_eq!(run.wait(SOON).await?.code(), Some(0), "{}", run.last_lines());
    let told: serde_json::Value = serde_json::from_str(&run.stdout())?;
    assert_eq!(told["tasks"].as_array().map(Vec::len), Some(3), "{told}");
    // Three tasks with their critics, and the answer.
    assert_eq!((&told["spent"]["calls"], &told["expected"]["calls"]), (&1.into(), &7.into()), "{told}");
    assert!(told["expected"]["tokens"].as_i64().unwrap() > 3 * 4_000, "{told}");
    assert_eq!((&told["covered"], &told["expected"]["cost_usd"]), (&false.into(), &serde_json::Value::Null));
    let stats = server.stats();
    assert_eq!((stats.calls, stats.by_purpose.plan), (1, 1), "nobody works");

    // One task needs no plan, and with prices the cost is told.
    env.push(("STARLING__MODEL__NAME", "m".to_owned()));
    let prices = ["--set", "model.prices.m.input=1", "--set", "model.prices.m.output=1"];
    let single = ["run", "Do it", "--dry-run", "--strategy", "single"];
    let mut run =
        Proc::start("starling", "single", &args(&[&single[..], &prices].concat()), &owned(&env), dir.path())?;
    assert_eq!(run.wait(SOON).await?.code(), Some(0), "{}", run.last_lines());
    assert!(run.stdout().contains("expected  1 calls, up to "), "{}", run.stdout());
    assert!(run.stdout().contains("up to $0.00"), "{}", run.stdout());
    assert_eq!(server.stats().calls, 1);

    for (wrong, said) in [
        ("--max-cost=0", "--max-cost is a number of US dollars above 0"),
        ("--max-cost=NaN", "--max-cost is a number of US dollars above 0"),
        ("--max-cost=-1", "--max-cost is a number of US dollars above 0"),
        ("--max-calls=0", "--max-calls"),
        ("--max-tokens=-5", "--max-tokens"),
    ] {
        let mut run =
            Proc::start("starling", "wrong", &args(&["run", "Do it", wrong]), &owned(&env), dir.path())?;
        assert_eq!(run.wait(SOON).await?.code(), Some(64), "{wrong}: {}", run.last_lines());
        assert!(run.stderr().contains(said), "{wrong}: {}", run.stderr());
    }
    Ok(())
}
