//! Records that cannot be read, cannot be written, or are not there any more.

use super::{SOON, put, shared_brokers};
use crate::{
    judge::{Found, Judge, id_of},
    row::{Figures, World},
};
use anyhow::{Context as _, Result, ensure};
use starling_bus::PartitionId;
use starling_e2e::{
    Plan, Proc, Scripted, Swarm, SwarmOptions, configure_topic, delete_topic, eventually, forget_group, until,
};
use starling_llm::{Purpose, mock::MockAction};
use starling_protocol::{
    Body, CallReport, Envelope, EnvelopeId, IntentId, Judgement, OutcomeStatus, RecordRef, Role, Scored, Tag,
    TaskResult, Topic, Verdict, topic::partition_of,
};

/// Bytes that nobody can read, in every inbox, in the middle of the work: each is a dead letter, and nothing else is
/// hurt.
pub(super) async fn poison(world: World) -> Result<Figures> {
    let model = Scripted::new(Plan::independent(12));
    let options = world.options(&model, 2).set("registry.patience=2s");
    let swarm = Swarm::start(options).await?;
    let mut judge = Judge::new(&model);
    let before = judge.publish(&swarm, "before the poison").await?;
    judge.settle(&swarm, SOON).await?;
    // A record that is right in one inbox and nonsense in another.
    let task = swarm.logs.topic(&Topic::Worker(None)).await?.into_iter().next().context("a task")?;
    let verdict = swarm.logs.envelopes(&Topic::Coordinator, &before).await?;
    let verdict = verdict.into_iter().find(|envelope| matches!(envelope.body, Body::Verdict(_)));
    let verdict = swarm.logs.codec().encode(&verdict.context("a verdict")?)?;
    let truncated = task.value()[..task.value().len() / 2].to_vec();
    let mut unknown_schema = task.value().to_vec();
    unknown_schema[2..10].fill(0x5a); // the fingerprint of the schema
    let wrong_framing = [&[0, 0, 0, 0x7f, 0x7f], task.value()].concat(); // a schema id, and no registry
    let large = vec![0xfe; 5 << 20];
    let poison: [&[u8]; 6] = [b"", &truncated, &unknown_schema, &wrong_framing, &large, &[0xc3, 0x01]];
    for topic in [Topic::Planner, Topic::Worker(None), Topic::Critic, Topic::Coordinator] {
        for bytes in poison {
            put(&swarm, &topic, 0, bytes).await?;
            judge.bury(1);
        }
        if topic != Topic::Coordinator {
            put(&swarm, &topic, 0, &verdict).await?;
            judge.bury(1);
        }
    }
    // In the input topic an empty value is an empty wish, which is only rejected.
    for bytes in &poison[1..] {
        judge.reject(swarm.publish(bytes, &[]).await?); // whoever sent it may hear of it
        judge.bury(1);
    }
    judge.publish(&swarm, "after the poison").await?;
    judge.conclude(&swarm, SOON).await?.all_succeeded()
}

/// The dead letters take no record: the worker that has one ends, loudly, with the record not committed. When there is
/// room again, its successor buries it.
pub(super) async fn dead_letters_refuse(world: World) -> Result<Figures> {
    let broker = shared_brokers()?;
    dead_letters_in_trouble(
        world,
        async |dlq: &str| configure_topic(&broker, dlq, "max.message.bytes", "10").await,
        async |swarm: &mut Swarm| {
            configure_topic(&broker, &swarm.names.name(&Topic::Dlq), "max.message.bytes", "8388608").await
        },
    )
    .await
}

/// There is no topic for dead letters.
pub(super) async fn dead_letters_missing(world: World) -> Result<Figures> {
    let broker = shared_brokers()?;
    dead_letters_in_trouble(
        world,
        async |dlq: &str| delete_topic(&broker, dlq).await,
        async |swarm: &mut Swarm| create_topics(swarm).await,
    )
    .await
}

async fn dead_letters_in_trouble(
    world: World,
    fault: impl AsyncFnOnce(&str) -> Result<()>,
    repair: impl AsyncFnOnce(&mut Swarm) -> Result<()>,
) -> Result<Figures> {
    let model = Scripted::new(Plan::independent(6));
    let mut swarm = Swarm::start(world.options(&model, 1)).await?;
    let mut judge = Judge::new(&model);
    fault(&swarm.names.name(&Topic::Dlq)).await?;
    let mut worker = swarm.workers.remove(0);
    put(&swarm, &Topic::Worker(None), 0, b"nobody can read this").await?;
    judge.bury(1);
    ends_loudly(&mut worker, "dead letters").await?;
    judge.publish(&swarm, "with the dead letters in trouble").await?; // it waits for a worker
    repair(&mut swarm).await?;
    let worker = swarm.spawn("starling-worker")?;
    swarm.workers.push(worker);
    judge.conclude(&swarm, SOON).await?.all_succeeded()
}

/// An inbox of the workers is deleted and made anew while tasks are in it. They are lost with it; their attempts time
/// out and are made again.
pub(super) async fn topic_recreated(world: World) -> Result<Figures> {
    let broker = shared_brokers()?;
    let model = Scripted::new(Plan::independent(8)).holding(|call| call.purpose == Purpose::Work);
    let options = world
        .options(&model, 1)
        .set("coordinator.attempt_timeout=15s")
        .set("processor.slots.worker=4")
        .set("topics.partitions.worker=2");
    let mut swarm = Swarm::start(options).await?;
    let mut judge = Judge::new(&model);
    judge.publish(&swarm, "in a topic that is made anew").await?;
    eventually("four tasks run, four wait", SOON, || swarm.model.stats().open_by_purpose.work == 4).await;
    judge.all_lost(&swarm.logs).await?;
    judge.audit_has_to_object();
    delete_topic(&broker, &swarm.names.name(&Topic::Worker(None))).await?;
    create_topics(&mut swarm).await?;
    model.stop_holding();
    swarm.model.release();
    // The worker finds that what it is to read next is not there, skips nothing in silence, and ends. A person resets
    // the offset.
    ends_loudly(&mut swarm.workers.remove(0), "reset the group's offset by hand").await?;
    forget_group(&broker, &swarm.names.group("worker")).await?;
    let worker = swarm.spawn("starling-worker")?;
    swarm.workers.push(worker);
    judge.conclude(&swarm, SOON).await?.all_succeeded()
}

/// What a task builds on is not there any more, or is another record: the task fails with that reason, and so does its
/// intent, at once. The judge of the tasks is this test.
pub(super) async fn reference_broken(world: World) -> Result<Figures> {
    let plan = Plan::new().task("t0", &[]).task("t1", &["t0"]);
    let model = Scripted::new(plan);
    let swarm = Swarm::start(SwarmOptions { critics: 0, ..world.options(&model, 1) }).await?;
    let mut judge = Judge::new(&model);
    judge.audit_has_to_object();
    for (name, is_removed) in [("reference removed", true), ("reference replaced", false)] {
        let id = judge.publish(&swarm, name).await?;
        until("the first result is there", SOON, || async {
            Ok(!swarm.logs.envelopes(&Topic::Critic, &id).await?.is_empty())
        })
        .await?;
        let records = swarm.logs.topic(&Topic::Critic).await?;
        let mut references = Vec::new();
        for record in &records {
            let envelope: Envelope = swarm.logs.codec().decode(record.value())?;
            let at = &record.at;
            let reference = RecordRef::of(&at.topic, at.partition, record.offset, &envelope, record.value());
            references.push((envelope, reference));
        }
        let (result, at) =
            references.iter().find(|(envelope, _)| envelope.intent_id == id).context("the result")?;
        let at = if is_removed {
            RecordRef { offset: at.offset + 1_000_000, ..at.clone() }
        } else {
            let (_, other) =
                references.iter().find(|(envelope, _)| envelope.intent_id != id).context("another result")?;
            // Where another record lies by now.
            RecordRef { partition: other.partition, offset: other.offset, ..at.clone() }
        };
        let Body::TaskResult(body) = &result.body else { anyhow::bail!("a {}", result.body.kind()) };
        let verdict = verdict(result, body, at);
        let partitions = swarm.logs.partitions(&Topic::Coordinator).await?;
        let partition = partition_of(id.as_str(), partitions);
        put(&swarm, &Topic::Coordinator, partition, &swarm.logs.codec().encode(&verdict)?).await?;
        let outcome = swarm.outcome(&id, SOON).await?;
        ensure!(
            !matches!(outcome.status, OutcomeStatus::Succeeded),
            "{name}: {:?}, though what it builds on is not there",
            outcome.status
        );
        println!("{name}: {:?}: {}", outcome.status, outcome.reason);
        let failure = format!("{:?}", outcome.task_reports);
        ensure!(failure.contains("record_gone"), "{name}: the reason is not told: {failure}");
    }
    // Nobody reads the critics' inbox, so it cannot be read to its end.
    judge.look(&swarm, &[Topic::Critic], SOON).await.map(|found: Found| found.figures)
}

fn verdict(result: &Envelope, body: &TaskResult, at: RecordRef) -> Envelope {
    Envelope {
        id: EnvelopeId::of_step("verdict", &body.task_id, body.attempt, body.step),
        tag: Tag::role(Role::Coordinator).with_lane(result.intent_id.as_str()),
        hop: result.hop + 1,
        body: Body::Verdict(Verdict {
            task_id: body.task_id.clone(),
            run: body.run.clone(),
            attempt: body.attempt,
            step: body.step,
            judgement: Judgement::Scored(Scored { score: 0.9, feedback: String::new() }),
            result: at,
            work: body.report.clone(),
            worker: body.worker.clone(),
            report: CallReport::default(),
        }),
        ..result.clone()
    }
}

/// A result that the topic does not take, because somebody has lowered its limit: the task fails with the reason, the
/// others are done.
pub(super) async fn result_too_large(world: World) -> Result<Figures> {
    // Nothing that can be compressed: the broker measures what arrives.
    let large: String = (0..25_000).map(|_| format!("{:08x}", rand::random::<u32>())).collect();
    let model = Scripted::new(Plan::independent(4)).but(move |call| {
        let is_large = call.purpose == Purpose::Work && call.section("Task") == Some("t0");
        is_large.then(|| MockAction::reply(large.clone()))
    });
    let swarm = Swarm::start(world.options(&model, 1).set("coordinator.max_attempts=2")).await?;
    let critics = swarm.names.name(&Topic::Critic);
    configure_topic(&shared_brokers()?, &critics, "max.message.bytes", "100000").await?;
    let mut judge = Judge::new(&model);
    let id = judge.publish(&swarm, "a result that is too large").await?;
    judge.bury(2); // one for each attempt
    judge.allow(1); // the second attempt, without feedback
    let found = judge.conclude(&swarm, SOON).await?;
    let outcome = found.outcomes.get(&id).context("its outcome")?;
    println!("{:?}: {} {:?}", outcome.status, outcome.reason, outcome.degraded);
    ensure!(outcome.status == OutcomeStatus::Partial, "{:?}: {}", outcome.status, outcome.reason);
    ensure!(outcome.tasks.succeeded == 3, "{:?}", outcome.tasks);
    Ok(found.figures)
}

/// Retention has removed what the coordinator had not read yet. That is told and counted, its partition stands still,
/// the others go on.
pub(super) async fn coordinator_inbox_trimmed(world: World) -> Result<Figures> {
    let model = Scripted::new(Plan::independent(2));
    let mut swarm = Swarm::start(world.options(&model, 1)).await?;
    let mut judge = Judge::new(&model);
    let partitions = swarm.logs.partitions(&Topic::Coordinator).await?;
    let partition = |id: &IntentId| partition_of(id.as_str(), partitions);
    let first = judge.publish(&swarm, "before the trimming").await?;
    judge.settle(&swarm, SOON).await?;
    swarm.planners.remove(0).kill()?;
    // As if an intent had come meanwhile, and had waited for longer than the retention.
    let at = swarm.logs.partition(&Topic::Coordinator, partition(&first));
    put(&swarm, &Topic::Coordinator, at.partition, b"what is lost").await?;
    trim_all(&swarm, &at).await?;
    let planner = swarm.spawn("starling-planner")?;
    eventually("the loss is told", SOON, || planner.stderr().contains("they are lost")).await;
    swarm.planners.push(planner);
    until("the loss is counted", SOON, || async {
        Ok(swarm.metrics().await.is_ok_and(|metrics| {
            metrics.lines().any(|line| line.contains("out_of_range") && !line.ends_with(" 0"))
        }))
    })
    .await?;
    let elsewhere = (0..).map(|n| format!("elsewhere {n}"));
    let mut elsewhere = elsewhere.filter(|name| partition(&id_of(name)) != partition(&first));
    let name = elsewhere.next().context("another partition")?;
    judge.publish(&swarm, &name).await?;
    judge.look(&swarm, &[Topic::Coordinator], SOON).await?.all_succeeded()
}

/// Retention has removed tasks that no worker had read yet: the worker ends, loudly, and skips nothing.
pub(super) async fn worker_inbox_trimmed(world: World) -> Result<Figures> {
    let model = Scripted::new(Plan::independent(1));
    let options = world.options(&model, 1).set("topics.partitions.worker=1");
    let mut swarm = Swarm::start(options).await?;
    let mut judge = Judge::new(&model);
    judge.publish(&swarm, "before the trimming").await?;
    judge.settle(&swarm, SOON).await?;
    swarm.workers.remove(0).kill()?;
    put(&swarm, &Topic::Worker(None), 0, b"what is lost").await?;
    trim_all(&swarm, &swarm.logs.partition(&Topic::Worker(None), 0)).await?;
    let mut worker = swarm.spawn("starling-worker")?;
    ends_loudly(&mut worker, "is not there any more").await?;
    judge.look(&swarm, &[Topic::Worker(None)], SOON).await?.all_succeeded()
}

/// Creates those topics that are missing.
async fn create_topics(swarm: &mut Swarm) -> Result<()> {
    let (code, create) = swarm.cli(&["topics", "create"]).await?;
    ensure!(code == Some(0), "topics create: {}", create.last_lines());
    Ok(())
}

/// Removes all records that lie in a partition now.
async fn trim_all(swarm: &Swarm, at: &PartitionId) -> Result<()> {
    let marks = swarm.bus.watermarks(at).await?;
    swarm.bus.trim(at, marks.high).await?;
    Ok(())
}

/// It ends by itself, not with success, and says why.
async fn ends_loudly(process: &mut Proc, why: &str) -> Result<()> {
    let status = process.wait(SOON).await?;
    let code = status.code();
    ensure!(code.is_some_and(|code| code != 0), "{} ended with {status}", process.name);
    ensure!(process.stderr().contains(why), "{} does not say why:\n{}", process.name, process.last_lines());
    Ok(())
}
