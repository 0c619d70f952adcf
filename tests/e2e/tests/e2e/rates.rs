//! A provider that takes far fewer requests than the swarm could send.

use anyhow::{Result, ensure};
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions, until};
use starling_llm::{
    Purpose,
    mock::{MockLimits, MockOptions},
};
use starling_protocol::OutcomeStatus;
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test(flavor = "multi_thread")]
async fn no_task_fails_because_a_provider_says_too_many() -> Result<()> {
    let tasks = 80;
    let model = Scripted::new(Plan::independent(tasks));
    let limits = MockLimits { requests_per_s: 20.0, burst: 4.0, tokens_per_minute: None };
    let provider = MockOptions { limits: Some(limits), ..model.options() };
    let swarm = Swarm::start(SwarmOptions::new(provider, 3).set("processor.slots.worker=16")).await?;
    let id = swarm.submit("limited", "Do more than may be asked for").await?;
    let outcome = swarm.outcome(&id, Duration::from_secs(180)).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
    assert!(outcome.degraded.is_empty(), "{:?}", outcome.degraded);
    let stats = swarm.model.stats();
    println!("{} calls, and {} refused", stats.calls, stats.refused);
    // The workers begin with 48 calls at once, since nobody knows better yet.
    assert!(stats.refused < stats.calls, "{} were refused", stats.refused);
    assert_eq!(model.calls.of(Purpose::Work).len(), tasks, "no task needed a second attempt");
    assert_eq!(model.calls.of(Purpose::Judge).len(), tasks);
    swarm.all_audited(Duration::from_secs(60)).await?;
    Ok(())
}

/// Requests a second that all processes together may send.
const SHARED: f64 = 30.0;
/// Over so long they are counted.
const COUNTED: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn four_processes_share_one_limit_and_the_others_take_the_share_of_one_that_is_killed() -> Result<()> {
    let model = Scripted::new(Plan::independent(100));
    let mut options = SwarmOptions::new(model.options(), 2).set("processor.slots.worker=16");
    for setting in ["name=shared", "rate.start=30", "rate.min=30", "rate.max=30"] {
        options = options.set(&format!("model.{setting}"));
    }
    let mut swarm = Swarm::start(options).await?;
    // Work for a minute.
    for number in 0..9 {
        swarm.submit(&format!("shared-{number}"), "Do as much as may be asked for").await?;
    }
    all_of_it_is_used(&swarm).await?;
    limits_are_shown(&mut swarm).await?;
    swarm.workers[0].kill()?;
    all_of_it_is_used(&swarm).await
}

/// Waits until `top` shows that both workers at least are limited by the model.
async fn limits_are_shown(swarm: &mut Swarm) -> Result<()> {
    let give_up = Instant::now() + Duration::from_secs(20);
    loop {
        let (_, top) = swarm.cli(&["top", "--once"]).await?;
        let shown = top.stdout();
        let row = shown.split("Models that limit (1)").nth(1).and_then(|rest| rest.lines().nth(2));
        let row: Vec<&str> = row.unwrap_or_default().split_whitespace().collect();
        let processes = row.get(2).and_then(|count| count.parse::<usize>().ok());
        if processes.is_some_and(|count| count >= 2) && row.last() == Some(&"closed") {
            return Ok(());
        }
        ensure!(Instant::now() < give_up, "{shown}");
    }
}

/// Waits until what all processes ask is the limit, give or take a twentieth.
async fn all_of_it_is_used(swarm: &Swarm) -> Result<()> {
    let used = async || {
        let (before, start) = (swarm.model.stats().calls, Instant::now());
        sleep(COUNTED).await; // a rate needs time
        let rate = (swarm.model.stats().calls - before) as f64 / start.elapsed().as_secs_f64();
        println!("{rate:.1} of {SHARED} requests a second");
        Ok((0.95..=1.05).contains(&(rate / SHARED)))
    };
    until("all of the limit is used, and no more", Duration::from_secs(20), used).await
}
