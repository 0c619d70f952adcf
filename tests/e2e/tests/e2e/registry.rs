//! A swarm with a schema registry.

use crate::SOON;
use anyhow::{Context, Result, ensure};
use starling_e2e::{Plan, Proc, Scripted, Swarm, SwarmOptions, eventually, until};
use starling_protocol::{Codec, OutcomeStatus, Topic};
use starling_runtime::{Schemas, Settings, settings::Sources};
use std::time::Duration;

/// How long a registry may take to start, on a machine that builds meanwhile.
const START: Duration = Duration::from_secs(240);

/// The address of the registry that the tests share, once it answers.
async fn registry() -> Result<String> {
    let url = std::env::var("STARLING_TEST_REGISTRY")
        .context("STARLING_TEST_REGISTRY is not set; `make test` starts a schema registry and sets it")?;
    let authority = url.trim_start_matches("http://").split('/').next().unwrap_or_default();
    until(&format!("somebody answers at {url}"), START, || async {
        Ok(tokio::net::TcpStream::connect(authority).await.is_ok())
    })
    .await?;
    Ok(url)
}

async fn stop(mut process: Proc) -> Result<()> {
    process.signal("TERM")?;
    let status = process.wait(SOON).await?;
    ensure!(status.success(), "{status}: {}", process.last_lines());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swarm_with_a_registry_writes_ids_and_is_switched_over_process_by_process() -> Result<()> {
    let url = registry().await?;
    let model = Scripted::new(Plan::independent(2));
    let mut swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    let with_registry = format!("registry.url={url}");
    let start = format!("registry.connect_timeout={}s", START.as_secs());

    // The coordinator goes first: its tasks wait in the inbox of a worker that cannot read them yet.
    stop(swarm.planners.remove(0)).await?;
    swarm.also_set(&with_registry);
    swarm.also_set(&start);
    let planner = swarm.spawn_ready("starling-planner").await?;
    let (code, submitted) = swarm.cli(&["submit", "--id", "framed", "Count the birds"]).await?;
    ensure!(code == Some(0), "{}", submitted.last_lines());
    let old = swarm.workers.remove(0);
    eventually("the old worker meets an id", SOON, || old.stderr().contains("registry.url is empty")).await;
    stop(old).await?;
    let _worker = swarm.spawn_ready("starling-worker").await?;
    stop(swarm.critics.remove(0)).await?;
    let _critic = swarm.spawn_ready("starling-critic").await?;

    let settings =
        Settings::load(&Sources { overrides: vec![("registry.url".to_owned(), url)], ..Sources::default() })?;
    let schemas = Schemas::reading(&settings.registry, Codec::default())?;
    let id = starling_protocol::IntentId::from_string("framed");
    swarm.client =
        starling::client::Client::new(swarm.bus.clone(), swarm.names.clone()).with_schemas(schemas);
    let outcome = swarm.outcome(&id, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
    assert_eq!(outcome.answer, "The answer.");
    let (code, result) = swarm.cli(&["result", "framed"]).await?;
    assert_eq!(code, Some(0), "{}", result.last_lines());
    assert!(result.stdout().contains("The answer."), "{}", result.stdout());

    for topic in [Topic::Intents, Topic::Outcomes, Topic::Worker(None), Topic::Critic, Topic::Planner] {
        let records = swarm.logs.topic(&topic).await?;
        assert!(!records.is_empty(), "{topic:?}");
        for record in records {
            assert_eq!(record.value().first(), Some(&0), "{topic:?}: Confluent framing");
        }
    }
    for topic in [Topic::State, Topic::Fleet] {
        for record in swarm.logs.topic(&topic).await? {
            assert_eq!(record.value().first(), Some(&0xc3), "{topic:?}: no registry is needed to read it");
        }
    }
    assert!(swarm.logs.topic(&Topic::Dlq).await?.is_empty());
    stop(planner).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_registry_is_not_there_says_so_and_exits_with_69() -> Result<()> {
    let model = Scripted::new(Plan::independent(1));
    let mut swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    swarm.also_set("registry.url=http://127.0.0.1:9"); // the discard port: nobody listens
    swarm.also_set("registry.connect_timeout=1s");
    let mut worker = swarm.spawn("starling-worker")?;
    let status = worker.wait(SOON).await?;
    assert_eq!(status.code(), Some(69), "{}", worker.last_lines());
    let said = worker.stderr();
    assert!(said.contains("http://127.0.0.1:9") && said.contains("registry.url"), "{said}");
    let (code, cli) = swarm.cli(&["submit", "Count the birds"]).await?;
    assert_eq!(code, Some(69), "{}", cli.last_lines());
    let url = format!("registry.url={}", registry().await?);
    swarm.also_set(&url);
    swarm.also_set("registry.mode=lookup");
    let mut worker = swarm.spawn("starling-worker")?;
    assert_eq!(worker.wait(SOON).await?.code(), Some(64), "{}", worker.last_lines());
    assert!(worker.stderr().contains("-value"), "{}", worker.stderr());
    Ok(())
}
