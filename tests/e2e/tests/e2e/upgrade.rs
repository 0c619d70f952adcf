//! From one version to the next: in the middle of an intent, process by process, in the wrong order, and back.
//!
//! The next version is the present one with changed schemas, see `Version`. Both buses, since a version in memory
//! is as good as one on Kafka.

use crate::SOON;
use anyhow::{Result, ensure};
use starling::client::{Client, Seen, Submission};
use starling_bus::StartAt;
use starling_e2e::{Logs, Member, Plan, Scripted, Version, Versions, brokers, eventually};
use starling_llm::{Purpose, mock::MockServer};
use starling_protocol::{Intent, IntentId, Outcome, OutcomeStatus, Topic, TopicNames};
use std::collections::BTreeSet;

/// An installation, its model and who looks at it: with the eyes of the next version, which see everything.
struct Place {
    versions: Versions,
    server: MockServer,
    model: Scripted,
    client: Client,
    logs: Logs,
}

impl Place {
    async fn new(brokers: Option<&str>, model: Scripted) -> Result<Self> {
        let server = MockServer::start(model.options())?;
        let versions = Versions::new(brokers, &server.base_url(), &[]).await?;
        let names = TopicNames::new(versions.settings().topics.prefix.as_str());
        let codec = Version::NextAsPresent.codec()?;
        let client = Client::new(versions.bus()?, names.clone()).with_schemas(codec.clone().into());
        let logs = Logs::new(versions.bus()?, names).with_codec(codec);
        Ok(Self { versions, server, model, client, logs })
    }

    async fn start(&mut self, service: &str, version: Version) -> Result<Member> {
        self.versions.start(service, version).await?.ready().await
    }

    async fn submit(&self, id: &str) -> Result<IntentId> {
        let id = IntentId::from_string(id);
        let intent = Intent { goal: format!("Do {id}"), strategy: "llm".to_owned(), ..Intent::default() };
        let (tenant, timeout) = ("test".to_owned(), None);
        self.client
            .submit(Submission {
                id: id.clone(),
                intent,
                tenant,
                timeout,
                traceparent: None,
                parts: Default::default(),
            })
            .await?;
        Ok(id)
    }

    async fn outcome(&self, id: &IntentId) -> Result<Outcome> {
        let wait = async {
            let mut follower = self.client.follow(id, StartAt::Beginning).await?;
            loop {
                match follower.next().await? {
                    Some(Seen::Outcome(outcome)) => return anyhow::Ok(*outcome),
                    Some(_) => {}
                    None => anyhow::bail!("the follower ended"),
                }
            }
        };
        tokio::time::timeout(SOON, wait).await?
    }

    /// It succeeded, once, and nothing was given up on the way.
    async fn succeeds(&self, id: &IntentId) -> Result<()> {
        let outcome = self.outcome(id).await?;
        ensure!(outcome.status == OutcomeStatus::Succeeded, "{id}: {:?} {}", outcome.status, outcome.reason);
        ensure!(self.logs.one_outcome(id).await? == outcome);
        let letters = self.logs.topic(&Topic::Dlq).await?.len();
        ensure!(letters == 0, "{letters} dead letters");
        Ok(())
    }

    /// How many schemas the values of a topic were written with.
    async fn schemas(&self, topic: &Topic) -> Result<usize> {
        let records = self.logs.topic(topic).await?;
        let headers: BTreeSet<&[u8]> = records.iter().filter_map(|record| record.value().get(..10)).collect();
        Ok(headers.len())
    }
}

/// Two tasks of which the second is held by the model, and one that needs both.
fn held_in_the_middle() -> Scripted {
    let plan = Plan::new().task("A", &[]).task("B", &[]).task("C", &["A", "B"]);
    Scripted::new(plan).holding(|call| call.purpose == Purpose::Work && call.section("Task") == Some("B"))
}

/// As [`starling_e2e::eventually`], for what a service tells.
async fn tells(what: &str, member: &Member, sign: &str) {
    eventually(what, SOON, || says(member, sign)).await;
}

fn says(member: &Member, sign: &str) -> bool {
    member.metrics().lines().any(|line| line.starts_with(sign) && !line.ends_with(" 0"))
}

const WAITS: &str = "starling_schema_lookups_total{reason=\"waiting\"}";

async fn begun_by_one_version_and_ended_by_the_next(brokers: Option<&str>) -> Result<()> {
    let mut place = Place::new(brokers, held_in_the_middle()).await?;
    let mut old = Vec::new();
    for service in ["planner", "critic", "worker"] {
        old.push(place.start(service, Version::Present).await?);
    }
    let id = place.submit("begun").await?;
    let model = place.model.clone();
    eventually("A is judged and B is with the model", SOON, || {
        model.calls.about(Purpose::Judge, "A").len() == 1 && place.server.stats().open_by_purpose.work == 1
    })
    .await;
    for member in old {
        member.stop().await?;
    }
    ensure!(place.schemas(&Topic::State).await? == 1, "one version has written");
    place.model.stop_holding();
    place.server.release();
    let mut new = Vec::new();
    for service in ["planner", "critic", "worker"] {
        new.push(place.start(service, Version::Next).await?);
    }
    place.succeeds(&id).await?;
    ensure!(model.calls.about(Purpose::Work, "A").len() == 1, "what was done is not done again");
    ensure!(model.calls.about(Purpose::Work, "C").len() == 1);
    for topic in [Topic::State, Topic::Critic, Topic::Worker(None)] {
        ensure!(place.schemas(&topic).await? == 2, "{topic:?}: two versions have written");
    }
    for member in new {
        member.stop().await?;
    }
    Ok(())
}

async fn replaced_process_by_process(brokers: Option<&str>) -> Result<()> {
    use Version::{Next, NextAsPresent, Present};
    let mut place = Place::new(brokers, Scripted::new(Plan::new().task("A", &[]).task("B", &["A"]))).await?;
    let mut running = Vec::new();
    for service in ["planner", "critic", "worker"] {
        running.push((service, place.start(service, Present).await?));
    }
    let mut step = 0;
    // First all are replaced by the next version that writes as this one does, in any order; then it writes its own.
    for version in [NextAsPresent, Next] {
        for _ in 0..running.len() {
            let (service, member) = running.remove(0);
            let begun = place.submit(&format!("under-way-{step}")).await?;
            member.stop().await?;
            running.push((service, place.start(service, version).await?));
            place.succeeds(&begun).await?;
            let next = place.submit(&format!("after-{step}")).await?;
            place.succeeds(&next).await?;
            step += 1;
        }
        let expected = if version == Next { 2 } else { 1 };
        ensure!(place.schemas(&Topic::State).await? == expected, "{version:?}");
    }
    for (service, member) in running {
        ensure!(!says(&member, WAITS), "{service}: nothing had to wait");
        member.stop().await?;
    }
    Ok(())
}

async fn writers_first_and_back_again(brokers: Option<&str>) -> Result<()> {
    let mut place = Place::new(brokers, Scripted::new(Plan::new().task("A", &[]).task("B", &["A"]))).await?;
    let planner = place.start("planner", Version::Next).await?;
    let worker = place.start("worker", Version::Present).await?;
    let critic = place.start("critic", Version::Present).await?;
    let id = place.submit("wrong-order").await?;
    // Each holds back what it cannot read, until its successor is there.
    tells("the old worker waits with a task", &worker, WAITS).await;
    ensure!(place.model.calls.of(Purpose::Work).is_empty());
    worker.stop().await?;
    let worker = place.start("worker", Version::Next).await?;
    tells("the old critic waits with a result", &critic, WAITS).await;
    critic.stop().await?;
    let critic = place.start("critic", Version::Next).await?;
    place.succeeds(&id).await?;

    // Back: the old coordinator does not work with a log that it cannot read, and leaves it as it is.
    planner.stop().await?;
    let back = place.versions.start("planner", Version::Present).await?;
    tells("the old coordinator refuses the log", &back, "starling_state_log_total{kind=\"refused_logs\"}")
        .await;
    let id = place.submit("meanwhile").await?;
    back.stop().await?;
    let planner = place.start("planner", Version::Next).await?;
    place.succeeds(&id).await?;
    for member in [planner, worker, critic] {
        member.stop().await?;
    }
    Ok(())
}

async fn readers_last_at_the_coordinator(brokers: Option<&str>) -> Result<()> {
    let mut place = Place::new(brokers, Scripted::new(Plan::new().task("A", &[]).task("B", &["A"]))).await?;
    let old = place.start("planner", Version::Present).await?;
    let worker = place.start("worker", Version::Next).await?;
    let critic = place.start("critic", Version::Next).await?;
    let id = place.submit("judged-by-the-next").await?;
    // An input that it cannot read holds its partition up, and so does nothing that comes later get ahead of it.
    tells("the old coordinator waits with a verdict", &old, WAITS).await;
    let later = place.submit("comes-later").await?;
    old.stop().await?;

    // And who publishes may be newer than the intake.
    let old = place.start("planner", Version::NextAsPresent).await?;
    place.succeeds(&id).await?;
    place.succeeds(&later).await?;
    old.stop().await?;
    let names = TopicNames::new(place.versions.settings().topics.prefix.as_str());
    let newer = Client::new(place.versions.bus()?, names).with_schemas(Version::Next.codec()?.into());
    let current = std::mem::replace(&mut place.client, newer);
    let old = place.start("planner", Version::Present).await?;
    let id = place.submit("published-by-the-next").await?;
    place.client = current;
    tells("the old intake waits with an intent", &old, WAITS).await;
    old.stop().await?;
    let planner = place.start("planner", Version::Next).await?;
    place.succeeds(&id).await?;
    for member in [planner, worker, critic] {
        member.stop().await?;
    }
    Ok(())
}

macro_rules! on_both_buses {
    ($($test:ident: $case:ident)*) => {$(
        mod $test {
            #[tokio::test(flavor = "multi_thread")]
            async fn in_memory() -> anyhow::Result<()> {
                super::$case(None).await
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_kafka() -> anyhow::Result<()> {
                super::$case(Some(&super::brokers()?)).await
            }
        }
    )*};
}

on_both_buses! {
    an_intent_is_begun_by_one_version_and_ended_by_the_next: begun_by_one_version_and_ended_by_the_next
    a_swarm_is_replaced_process_by_process_while_it_works: replaced_process_by_process
    in_the_wrong_order_records_wait_and_none_is_lost: writers_first_and_back_again
    what_a_coordinator_cannot_read_yet_waits_in_its_order: readers_last_at_the_coordinator
}
