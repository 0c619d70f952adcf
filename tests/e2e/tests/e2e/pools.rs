//! Worker pools: each has its topic, its group and its members.

use crate::SOON;
use anyhow::Result;
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions};
use starling_llm::{Purpose, mock::MockAction};
use starling_protocol::{Body, OutcomeStatus, Topic};
use std::collections::BTreeMap;

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_tasks_go_to_the_workers_of_its_pool_and_wait_for_them() -> Result<()> {
    let agents = tempfile::tempdir()?;
    let scout = "name = \"scout\"\ndescription = \"d\"\npurpose = \"work\"\npool = \"research\"\nprompt = \"Look.\"\n";
    std::fs::write(agents.path().join("scout.toml"), scout)?;
    let task = |key: usize, agent: &str| {
        serde_json::json!({
            "key": format!("k{key}"), "title": format!("{agent} {key}"), "instruction": "do it", "agent": agent,
            "depends_on": [], "critic": true,
        })
    };
    let tasks: Vec<_> = (0..4).map(|n| task(n, "worker")).chain((4..10).map(|n| task(n, "scout"))).collect();
    let plan = serde_json::json!({ "tasks": tasks }).to_string();
    let model = Scripted::new(Plan::new())
        .but(move |call| (call.purpose == Purpose::Plan).then(|| MockAction::reply(plan.clone())));
    let options = SwarmOptions::new(model.options(), 1)
        .set("topics.pools=research:4")
        .set(&format!("agents.dir={}", agents.path().display()));
    let mut swarm = Swarm::start(options).await?;

    let id = swarm.submit("pools", "Look around and report").await?;
    // Those of the default pool are done; nobody takes the others yet.
    starling_e2e::until("the default pool is done", SOON, || async {
        Ok(swarm.logs.envelopes(&Topic::Critic, &id).await?.len() == 4)
    })
    .await?;
    assert_eq!(model.calls.of(Purpose::Work).len(), 4);
    let pools = [("STARLING__WORKER__POOLS".to_owned(), "research".to_owned())];
    let member = swarm.spawn_with("starling-worker", &pools)?;
    swarm.workers.push(member);
    swarm.ready().await?;

    let outcome = swarm.outcome(&id, SOON).await?;
    assert_eq!(
        (outcome.status, outcome.tasks.succeeded),
        (OutcomeStatus::Succeeded, 10),
        "{}",
        outcome.reason
    );
    let mut workers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for envelope in swarm.logs.envelopes(&Topic::Critic, &id).await? {
        if let Body::TaskResult(result) = envelope.body {
            workers.entry(result.agent).or_default().push(result.worker);
        }
    }
    let only = |agent: &str| {
        let mut all = workers[agent].clone();
        all.dedup();
        assert_eq!(all.len(), 1, "{workers:?}");
        all.remove(0)
    };
    assert_ne!(only("worker"), only("scout"));
    swarm.all_audited(SOON).await?;
    Ok(())
}
