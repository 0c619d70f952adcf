//! `starling audit`: what went well is clean, what a crash repeated is counted, what was forged is found.

use crate::SOON;
use anyhow::{Context as _, Result};
use bytes::Bytes;
use starling_audit::{Purpose, Standing, Status};
use starling_bus::OutRecord;
use starling_e2e::{Plan, Proc, Scripted, Swarm, SwarmOptions, eventually};
use starling_llm::Purpose as Call;
use starling_protocol::{Body, Codec, Envelope, OutcomeStatus, Topic};

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_that_went_well_is_clean_and_a_forged_outcome_is_found() -> Result<()> {
    let model = Scripted::new(Plan::new().task("a", &[]).task("b", &[]).task("c", &["a", "b"]));
    let mut swarm = Swarm::start(SwarmOptions::new(model.options(), 2)).await?;
    let id = swarm.submit("audited", "Do it").await?;
    assert_eq!(swarm.outcome(&id, SOON).await?.status, OutcomeStatus::Succeeded);
    let rejected = swarm.publish(b"{\"goal\": 7}", &[]).await?;
    assert_eq!(swarm.outcome(&rejected, SOON).await?.status, OutcomeStatus::Rejected);

    let account = swarm.audited(&id, SOON).await?;
    assert_eq!(
        (account.standing, account.counts.of(Status::Original)),
        (Standing::Clean, account.entries.len())
    );
    let (code, audit) = swarm.cli(&["audit", "--intent", id.as_str(), "--ended"]).await?;
    println!("{}", audit.stdout());
    assert_eq!(code, Some(0), "{}", audit.last_lines());
    assert!(audit.stdout().contains("audited  succeeded  clean: "), "{}", audit.stdout());
    let report = swarm.all_audited(SOON).await?;
    assert_eq!((report.intents, report.clean), (2, 2), "{}", report.text());
    let (code, audit) = swarm.cli(&["audit", "--since", "1h", "--json"]).await?;
    assert_eq!(code, Some(0), "{}", audit.last_lines());
    let json: serde_json::Value = serde_json::from_str(&audit.stdout())?;
    assert_eq!((&json["intents"], &json["clean"]), (&2.into(), &2.into()), "{json}");

    // A second outcome, which nobody has decided.
    let outcomes = swarm.logs.topic(&Topic::Outcomes).await?;
    let of_id = |e: &Envelope| e.intent_id == id;
    let (record, mut envelope) = outcomes
        .into_iter()
        .find_map(|r| Codec::default().decode(r.value()).ok().filter(of_id).map(|envelope| (r, envelope)))
        .context("the outcome is there")?;
    if let Body::Outcome(outcome) = &mut envelope.body {
        outcome.answer.push_str(" Not!");
    }
    let forged = OutRecord {
        to: record.at,
        key: record.key,
        headers: record.headers,
        payload: Some(Bytes::from(Codec::default().encode(&envelope)?)),
    };
    swarm.bus.send(forged).await?;
    for args in [&["audit", "--intent", id.as_str()][..], &["audit", "--all"]] {
        let (code, audit) = swarm.cli(args).await?;
        assert_eq!(code, Some(1), "{}", audit.stdout());
        assert!(audit.stdout().contains("VIOLATION of promise 1: "), "{}", audit.stdout());
    }
    assert_eq!(swarm.cli(&["audit"]).await?.0, Some(64), "which intents?");
    assert_eq!(swarm.cli(&["audit", "--all", "--since", "soon"]).await?.0, Some(64));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_a_killed_worker_had_open_are_counted() -> Result<()> {
    const TASKS: usize = 8;
    let model = Scripted::new(Plan::independent(TASKS)).holding(|call| call.purpose == Call::Work);
    let mut swarm = Swarm::start(SwarmOptions::new(model.options(), 2)).await?;
    let id = swarm.submit("killed", "Survive").await?;
    eventually("all calls are open", SOON, || swarm.model.stats().open_by_purpose.work == TASKS as u64).await;
    let live = swarm.auditor().intent(&id, terms()).await?;
    assert_eq!((live.standing, live.live), (Standing::Live, true), "{}", starling_audit::tree_of(&live));
    assert_eq!(live.counts.of(Status::Pending), TASKS, "{}", starling_audit::tree_of(&live));

    let mut victim = swarm.workers.remove(0);
    let open = model.calls.of(Call::Work).iter().filter(|call| call.model == victim.name).count();
    assert!(open > 0);
    victim.kill()?;
    model.stop_holding();
    eventually("the dead worker's calls are closed", SOON, || {
        swarm.model.stats().closed_by_client >= open as u64
    })
    .await;
    swarm.model.release();
    assert_eq!(swarm.outcome(&id, SOON).await?.status, OutcomeStatus::Succeeded);

    let account = swarm.audited(&id, SOON).await?;
    let repeated = model.calls.repeated(Call::Work);
    println!(
        "{open} calls were open, {repeated} were repeated; the audit knows of {} and takes {} for possible",
        account.repetitions(Purpose::Work),
        account.moved.len()
    );
    assert_eq!(account.standing, Standing::Clean);
    assert!(repeated >= open, "what had no answer was asked again");
    assert!(account.repetitions(Purpose::Work) + account.moved.len() >= repeated, "none goes unnoticed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_without_a_broker_exits_with_69() -> Result<()> {
    let dir = tempfile::tempdir()?;
    // A port that nothing listens on: it was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let args = ["audit", "--all", "--brokers", &format!("127.0.0.1:{port}")].map(str::to_owned);
    let mut audit = Proc::start("starling", "audit", &args, &[], dir.path())?;
    assert_eq!(audit.wait(SOON).await?.code(), Some(69), "{}", audit.last_lines());
    Ok(())
}

fn terms() -> starling_audit::Terms {
    starling_audit::Terms { now: starling_runtime::Clock::system().now(), ended: false, overdue_ms: 60_000 }
}
