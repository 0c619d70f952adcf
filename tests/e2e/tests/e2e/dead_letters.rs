//! Records that nobody can handle: where they end, how an operator finds and replays them, and that too many of them
//! stop whoever buries them.

use crate::SOON;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use serde_json::Value;
use starling_bus::{InRecord, OutRecord, PartitionId};
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions};
use starling_llm::{Purpose, mock::MockCall};
use starling_protocol::{
    Body, Codec, Envelope, EnvelopeId, IntentId, OutcomeStatus, Progress, Role, Tag, TaskCounts, Timestamp,
    Topic,
    dead_letter::{Burial, DeadReason},
    topic::partition_of,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// An envelope that no inbox takes.
fn nonsense() -> Envelope {
    Envelope {
        id: EnvelopeId::from_string("nonsense"),
        intent_id: IntentId::from_string("nonsense"),
        tag: Tag::role(Role::Worker),
        hop: 1,
        created_at: Timestamp(1_700_000_000_000),
        deadline: Timestamp::MAX,
        tenant: "test".to_owned(),
        body: Body::Progress(Progress {
            phase: "running".to_owned(),
            tasks: TaskCounts::default(),
            changed: Vec::new(),
        }),
    }
}

async fn write(swarm: &Swarm, to: PartitionId, headers: &[(&str, String)], value: &[u8]) -> Result<i64> {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), Bytes::from(value.clone())));
    let record = OutRecord {
        to,
        key: Some(Bytes::from_static(b"the key")),
        headers: headers.collect(),
        payload: Some(Bytes::copy_from_slice(value)),
    };
    swarm.bus.send(record).await?.offset.context("the broker did not say where the record lies")
}

/// What `starling dlq list` with these arguments tells.
async fn list(swarm: &mut Swarm, args: &[&str]) -> Result<Vec<Value>> {
    let args = [&["dlq", "list", "--json"], args].concat();
    let (code, cli) = swarm.cli(&args).await?;
    ensure!(code == Some(0), "{}", cli.last_lines());
    let told: Value = serde_json::from_str(&cli.stdout())?;
    ensure!(told["older"] == 0 && told["foreign"] == 0, "{told}");
    told["letters"].as_array().cloned().context("letters")
}

/// The same, once there are so many.
async fn listed(swarm: &mut Swarm, args: &[&str], count: usize) -> Result<Vec<Value>> {
    let until = Instant::now() + 2 * SOON;
    loop {
        let letters = list(swarm, args).await?;
        if letters.len() >= count {
            assert_eq!(letters.len(), count, "{letters:#?}");
            return Ok(letters);
        }
        assert!(Instant::now() < until, "{} of {count} dead letters: {letters:#?}", letters.len());
        tokio::time::sleep(Duration::from_millis(200)).await; // polls the topic
    }
}

fn text<'v>(letter: &'v Value, name: &str) -> &'v str {
    letter[name].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_in_every_inbox_is_found_comes_back_and_can_be_dropped() -> Result<()> {
    let model = Scripted::new(Plan::independent(1));
    let options = SwarmOptions::new(model.options(), 1).set("registry.patience=1s");
    let mut swarm = Swarm::start(options).await?;
    let codec = Codec::default();
    let good = codec.encode(&nonsense())?;
    let framed: &[u8] = &[0, 0, 0, 0, 99, 0xff, 0xfe, 1];
    let unknown = [&[0xc3, 0x01, 1, 2, 3, 4, 5, 6, 7, 0xff][..], b"what?"].concat();
    let large = vec![0xff; 5 << 20];
    let poison: [(&str, &[u8]); 6] = [
        ("empty", b""),
        ("truncated", &good[..good.len() / 2]),
        ("unknown schema", &unknown),
        ("framed", framed),
        ("large", &large),
        ("nonsense", &good),
    ];
    let inboxes = [Topic::Intents, Topic::Coordinator, Topic::Planner, Topic::Worker(None), Topic::Critic];
    // The input topic answers whoever can be told: what is no text has no id, and only that is buried.
    let buried =
        |topic: &Topic, kind: &str| *topic != Topic::Intents || !["empty", "nonsense"].contains(&kind);
    let home = partition_of("nonsense", 3);
    let (mut expected, mut count) = (BTreeMap::new(), 0);
    for topic in &inboxes {
        let partition = if *topic == Topic::Coordinator { home } else { 0 };
        for (kind, value) in poison {
            let header = [("kind", kind.to_owned())];
            write(&swarm, swarm.logs.partition(topic, partition), &header, value).await?;
            if buried(topic, kind) {
                let code = match (topic, kind) {
                    (Topic::Coordinator, "nonsense") => DeadReason::Misplaced,
                    (Topic::Intents, _) | (_, "nonsense") => DeadReason::Handler,
                    _ => DeadReason::Undecodable,
                };
                *expected.entry((swarm.names.name(topic), code.name().to_owned())).or_insert(0) += 1;
                count += 1;
            }
        }
    }
    let letters = listed(&mut swarm, &[], count).await?;
    let mut found = BTreeMap::new();
    for letter in &letters {
        *found.entry((text(letter, "topic").to_owned(), text(letter, "code").to_owned())).or_insert(0) += 1;
        assert_eq!(letter["count"], 1, "{letter}");
    }
    assert_eq!(found, expected);
    // Each is found by what it is, and shown.
    for ((topic, code), count) in &expected {
        let found = list(&mut swarm, &["--topic", topic, "--reason", code]).await?;
        assert_eq!(found.len(), *count, "{topic} {code}");
    }
    assert_eq!(list(&mut swarm, &["--since", "1h"]).await?.len(), count);
    assert!(list(&mut swarm, &["--until", "1h"]).await?.is_empty());
    let of_intent = list(&mut swarm, &["--intent", "nonsense"]).await?;
    assert_eq!(of_intent.len(), 4, "{of_intent:#?}");
    let ids: Vec<&str> = letters.iter().map(|letter| text(letter, "id")).collect();
    let (code, shown) = swarm.cli(&[&["dlq", "show", "--json"], &ids[..]].concat()).await?;
    assert_eq!(code, Some(0), "{}", shown.last_lines());
    let shown: Value = serde_json::from_str(&shown.stdout())?;
    let shown = shown["letters"].as_array().context("letters")?;
    let with = |topic: &Topic, kind: &str| -> Result<Value> {
        let is = |letter: &&Value| {
            let headers = letter["headers"].as_array();
            let has = |header: &Value| header["name"] == "kind" && header["value"] == kind;
            text(letter, "topic") == swarm.names.name(topic) && headers.is_some_and(|all| all.iter().any(has))
        };
        shown.iter().find(is).cloned().with_context(|| format!("{kind} of {topic:?}"))
    };
    for topic in &inboxes {
        for (kind, value) in poison {
            if buried(topic, kind) {
                let letter = with(topic, kind)?;
                assert_eq!(letter["bytes"], value.len(), "{kind} of {topic:?}: {letter}");
                assert_eq!(letter["key"], "the key");
            }
        }
    }
    assert_eq!(with(&Topic::Coordinator, "large")?["kind"], "omitted", "the state log does not take 5 MB");
    assert_eq!(with(&Topic::Worker(None), "nonsense")?["envelope"]["id"], "nonsense");
    assert!(text(&with(&Topic::Planner, "framed")?, "value").contains("schema id 99"));

    // Poison that is replayed comes back, and is one letter with a count of two.
    let mut replayed = BTreeSet::new();
    for (topic, kind) in [
        (Topic::Worker(None), "truncated"),
        (Topic::Coordinator, "large"),
        (Topic::Intents, "unknown schema"),
    ] {
        replayed.insert(text(&with(&topic, kind)?, "id").to_owned());
    }
    let ids: Vec<&str> = replayed.iter().map(String::as_str).collect();
    let (code, refused) = swarm.cli(&[&["dlq", "replay"], &ids[..]].concat()).await?;
    assert_eq!(code, Some(64), "nobody can be asked: {}", refused.last_lines());
    let (code, dry) = swarm.cli(&[&["dlq", "replay", "--dry-run"], &ids[..]].concat()).await?;
    assert_eq!((code, dry.stdout().matches("would replay").count()), (Some(0), 3), "{}", dry.last_lines());
    let (code, replay) = swarm.cli(&[&["dlq", "replay", "--yes"], &ids[..]].concat()).await?;
    assert_eq!(code, Some(0), "{}", replay.last_lines());
    let again = listed(&mut swarm, &[], count).await?;
    let twice: Vec<&Value> = again.iter().filter(|letter| letter["count"] == 2).collect();
    assert_eq!(twice.len(), 3, "{again:#?}");
    assert!(again.iter().all(|letter| !replayed.contains(text(letter, "id"))), "{again:#?}");
    let records = swarm.logs.topic(&Topic::Dlq).await?;
    for record in records.iter().filter(|record| record.header("starling-dlq-count") == Some("2")) {
        let mut names: Vec<&str> = record.headers.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "no header twice: {names:?}");
    }
    // A second time it is passed over.
    let (code, replay) = swarm.cli(&[&["dlq", "replay", "--yes"], &ids[..]].concat()).await?;
    assert_eq!(code, Some(0), "{}", replay.last_lines());
    assert!(replay.stdout().contains("0 replayed, 3 settled before"), "{}", replay.stdout());

    // What is dropped is not shown any more.
    let (code, drop) = swarm.cli(&["dlq", "drop", "--topic", "critic", "--yes"]).await?;
    assert_eq!((code, drop.stdout().matches("dropped ").count()), (Some(0), 6), "{}", drop.last_lines());
    assert!(list(&mut swarm, &["--topic", "critic"]).await?.is_empty());
    let settled = list(&mut swarm, &["--topic", "critic", "--settled"]).await?;
    assert!(
        settled.len() == 6 && settled.iter().all(|letter| letter["settled"] == "dropped"),
        "{settled:#?}"
    );

    let (code, missing) = swarm.cli(&["dlq", "show", "0:999999"]).await?;
    assert_eq!(code, Some(1), "{}", missing.last_lines());
    let (code, vague) = swarm.cli(&["dlq", "drop", "--yes"]).await?;
    assert_eq!(code, Some(64), "{}", vague.last_lines());

    // All that was in nobody's way.
    let id = swarm.submit("after", "Do it").await?;
    assert_eq!(swarm.outcome(&id, SOON).await?.status, OutcomeStatus::Succeeded);
    swarm.all_audited(SOON).await?;
    Ok(())
}

/// Buries a record as the services do.
async fn bury(swarm: &Swarm, record: &InRecord) -> Result<()> {
    let burial = Burial {
        code: DeadReason::Tries.name().to_owned(),
        reason: "a test".to_owned(),
        topic: record.at.topic.to_string(),
        partition: record.at.partition,
        offset: record.offset,
        time: record.timestamp,
        count: 1,
        group: "test".to_owned(),
        process: "test".to_owned(),
        omitted: None,
    };
    let headers = burial.headers().into_iter().map(|(name, value)| (name.to_owned(), Bytes::from(value)));
    let letter = OutRecord {
        to: swarm.logs.partition(&Topic::Dlq, 0),
        key: record.key.clone(),
        headers: record.headers.iter().cloned().chain(headers).collect(),
        payload: record.payload.clone(),
    };
    swarm.bus.send(letter).await?;
    Ok(())
}

/// How often that kind of record was superseded.
async fn superseded(swarm: &Swarm, kind: &str) -> Result<u64> {
    let name = format!("starling_superseded_total{{kind=\"{kind}\"}} ");
    let metrics = swarm.metrics().await?;
    Ok(metrics.lines().filter_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok()).sum())
}

async fn until_superseded(swarm: &Swarm, kind: &str, count: u64) -> Result<()> {
    let until = Instant::now() + SOON;
    while superseded(swarm, kind).await? < count {
        let found = superseded(swarm, kind).await?;
        assert!(Instant::now() < until, "{found} of {count} were recognised as {kind}");
        tokio::time::sleep(Duration::from_millis(50)).await; // polls what a monitor would poll
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_is_recognised_when_it_is_replayed() -> Result<()> {
    let second = |call: &MockCall| call.purpose == Purpose::Work && call.section("Task") == Some("b");
    let model = Scripted::new(Plan::new().task("a", &[]).task("b", &["a"])).holding(second);
    let mut swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    let id = swarm.publish(b"Do it", &[]).await?;
    // The first task has ended when the second one is with the model.
    let until = Instant::now() + SOON;
    while model.calls.about(Purpose::Work, "b").is_empty() {
        assert!(Instant::now() < until, "the second task never came to the model");
        tokio::time::sleep(Duration::from_millis(20)).await; // polls a condition that has no event
    }
    let mut inputs = swarm.logs.topic(&Topic::Coordinator).await?;
    inputs.retain(|record| {
        let envelope: Option<Envelope> = Codec::default().decode(record.value()).ok();
        envelope.is_some_and(|envelope| matches!(envelope.body, Body::Verdict(_)))
    });
    assert_eq!(inputs.len(), 1, "the verdict on the first task");
    bury(&swarm, &inputs[0]).await?;
    let duplicates = superseded(&swarm, "duplicate").await?;
    let (code, replay) = swarm.cli(&["dlq", "replay", "--all", "--yes"]).await?;
    assert_eq!(code, Some(0), "{}", replay.last_lines());
    // Not counted again: the attempt is known, and so is what came of it.
    until_superseded(&swarm, "duplicate", duplicates + 1).await?;

    model.stop_holding();
    swarm.model.release();
    let outcome = swarm.outcome(&id, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
    assert_eq!((outcome.tasks.succeeded, model.calls.about(Purpose::Work, "a").len()), (2, 1));

    // Now everything that users and the intake said of it, to an intent that has ended.
    let said = swarm.logs.topic(&Topic::Intents).await?;
    assert_eq!(said.len(), 1);
    bury(&swarm, &said[0]).await?;
    let mut accepted = swarm.logs.topic(&Topic::Coordinator).await?;
    accepted.retain(|record| {
        let envelope: Option<Envelope> = Codec::default().decode(record.value()).ok();
        envelope.is_some_and(|envelope| matches!(envelope.body, Body::Intent(_)))
    });
    assert_eq!(accepted.len(), 1);
    bury(&swarm, &accepted[0]).await?;
    let duplicates = superseded(&swarm, "duplicate").await?;
    let (code, replay) = swarm.cli(&["dlq", "replay", "--all", "--yes"]).await?;
    assert_eq!(code, Some(0), "{}", replay.last_lines());
    assert!(replay.stdout().contains("2 replayed, 1 settled before"), "{}", replay.stdout());
    // The one from the input topic lies elsewhere now, and is the same intent all the same.
    until_superseded(&swarm, "duplicate", duplicates + 2).await?;
    let said = swarm.logs.topic(&Topic::Intents).await?;
    assert_eq!(said[1].header("starling-intent-id"), Some(id.as_str()));
    swarm.logs.one_outcome(&id).await?;
    let outcomes = swarm.logs.topic(&Topic::Outcomes).await?;
    assert_eq!(outcomes.len(), 1, "no second outcome, and none of another intent");
    assert_eq!(model.calls.of(Purpose::Plan).len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_dead_letters_stop_a_worker_and_the_rest_stays_where_it_is() -> Result<()> {
    const LEAST: usize = 3;
    let model = Scripted::new(Plan::independent(1));
    let options = SwarmOptions::new(model.options(), 1)
        .set(&format!("processor.dead_letters.least={LEAST}"))
        .set("processor.dead_letters.share.worker=0.2");
    let mut swarm = Swarm::start(options).await?;
    for n in 0..20 {
        write(&swarm, swarm.logs.partition(&Topic::Worker(None), n % 16), &[], b"\xc3\x01 poison").await?;
    }
    let status = swarm.workers[0].wait(SOON).await?;
    let log = swarm.workers[0].stderr();
    assert_eq!(status.code(), Some(1), "{log}");
    let topic = swarm.names.name(&Topic::Worker(None));
    let last = log.lines().last().unwrap_or_default();
    for part in [
        "starling: 4 of the last 4",
        &topic,
        "processor.dead_letters.share.worker",
        "undecodable: ",
        "dlq list --topic",
    ] {
        assert!(last.contains(part), "{part}: {last}");
    }
    assert_eq!(listed(&mut swarm, &["--topic", "worker"], LEAST).await?.len(), LEAST);
    // What is left is left to others: here one without a limit.
    swarm.also_set("processor.dead_letters.share.worker=1.0");
    let _bold = swarm.spawn_ready("starling-worker").await?;
    listed(&mut swarm, &["--topic", "worker"], 20).await?;
    Ok(())
}
