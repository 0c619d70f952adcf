//! A broker with TLS, passwords, certificates and rights: each service gets by with what it needs, and says what is
//! missing.

use crate::SOON;
use anyhow::Result;
use starling_e2e::{Plan, Proof, Scripted, SecureBroker, Swarm, SwarmOptions, eventually};
use starling_protocol::{OutcomeStatus, Topic};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn each_service_needs_what_it_was_granted_and_names_what_is_missing() -> Result<()> {
    let broker = SecureBroker::start()?;
    let model = Scripted::new(Plan::new().task("A", &[]).task("B", &["A"]));
    let options = SwarmOptions { secure: Some(broker), ..SwarmOptions::new(model.options(), 1) };
    let mut swarm = Swarm::start(options).await?;
    let id = swarm.submit("secured", "Do it in secret").await?;
    assert_eq!(swarm.outcome(&id, SOON).await?.status, OutcomeStatus::Succeeded);

    // A person with the rights of one.
    let cli = swarm.secure().environment("cli", Proof::Password)?;
    let (code, run) = swarm.cli_with(&["submit", "Do it again", "--id", "again"], &cli).await?;
    assert_eq!(code, Some(0), "{}", run.last_lines());
    let (code, watch) = swarm.cli_with(&["watch", "again"], &cli).await?;
    assert_eq!(code, Some(0), "{}", watch.last_lines());
    let (code, create) = swarm.cli_with(&["topics", "create", "--set", "topics.prefix=other"], &cli).await?;
    assert_eq!(code, Some(1));
    assert!(create.stderr().contains("needs the right Create"), "{}", create.last_lines());

    // Who is not known is told so.
    std::fs::write(swarm.secure().file("wrong.password"), "guessed")?;
    let mut wrong = swarm.secure().environment("cli", Proof::Password)?;
    let password = swarm.secure().file("wrong.password").display().to_string();
    wrong.push(("STARLING__KAFKA__SECURITY__PASSWORD_FILE".to_owned(), password));
    let (_, refused) = swarm.cli_with(&["submit", "Let me in"], &wrong).await?;
    assert!(refused.stderr().contains("invalid credentials"), "{}", refused.last_lines());

    // Whoever may not see how topics are set works without having looked, and says so once.
    assert!(!swarm.workers[0].stderr().contains("may not be seen"), "{}", swarm.workers[0].stderr());
    let all = format!("{}*", swarm.names.group(""));
    swarm.secure().revoke("DescribeConfigs", &all, "worker")?;
    let blind = swarm.spawn_ready("starling-worker").await?;
    let said = blind.stderr();
    assert_eq!(said.matches("whether they keep what is promised is not checked").count(), 1, "{said}");
    drop(blind);

    // A right less, and the service that misses it names it.
    let critic = swarm.names.name(&Topic::Critic);
    swarm.secure().revoke("Read", &critic, "critic")?;
    let needs = format!("user \"worker\" needs the right Write on the topic of {critic}");
    swarm.secure().revoke("Write", &critic, "worker")?;
    swarm.submit("refused", "Try it").await?;
    eventually("the worker names the right", SOON, || swarm.workers[0].stderr().contains(&needs)).await;
    let needs = format!("needs the rights Read and Describe on topic {critic}");
    eventually("the critic names the right", Duration::from_secs(20), || {
        swarm.critics[0].stderr().contains(&needs)
    })
    .await;
    Ok(())
}
