//! What becomes of records whose schemas have to be asked for.

use crate::{
    support::{
        self, contents, put,
        scripted::{Scripted, Worker, commits},
        task, title, until,
    },
    world::{Gate, Registry},
};
use async_trait::async_trait;
use serde_json::json;
use starling_bus::{InRecord, MemoryBus, PartitionId};
use starling_protocol::{
    Codec, DecodeError, Envelope, Topic,
    codec::{RecordKind, schema_json},
};
use starling_runtime::{
    ContentError, HandleError, HandlerContext, Node, RecordHandler,
    parallel::{ParallelConfig, ParallelProcessor},
    registry::subject_of,
    settings::Settings,
    telemetry::Spans,
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const INBOX: Topic = Topic::Worker(None);

async fn stage(settings: &Settings) -> (Arc<MemoryBus>, Node) {
    let bus = support::bus(settings).await;
    let node = support::node(settings, bus.clone(), Spans::off()).await;
    (bus, node)
}

fn changes(prefix: &str) -> [(&str, &str); 3] {
    [("topics.prefix", prefix), ("topics.partitions.worker", "1"), ("topics.partitions.coordinator", "1")]
}

async fn commits_under(bus: &MemoryBus, prefix: &str, offset: i64) {
    let at = PartitionId::new(format!("{prefix}.worker"), 0);
    until("everything is committed", || async {
        let committed = support::committed(bus, &format!("{prefix}.worker"), &at).await;
        (committed == Some(offset)).then_some(())
    })
    .await;
}

/// The value of an envelope in a framing with the id of a schema that only the registry knows.
async fn foreign(registry: &Registry, envelope: &Envelope) -> Vec<u8> {
    let mut schema = schema_json(RecordKind::Envelope);
    schema["fields"].as_array_mut().unwrap().push(json!({"name": "note", "type": "string", "default": ""}));
    schema["fields"].as_array_mut().unwrap().last_mut().unwrap()["doc"] =
        format!("{:032x}", rand::random::<u128>()).into(); // an id of its own
    let subject = subject_of(&crate::world::topics(1)[0]);
    let id = registry.put(&subject, &schema).await;
    let present = Codec::default().encode(envelope).unwrap();
    [&[0][..], &id.to_be_bytes(), &present[10..], b"\x08note"].concat()
}

async fn gated(registry: &Registry) -> (Gate, String, Arc<MemoryBus>, Node) {
    let gate = registry.gate().await;
    let prefix = format!("t{:016x}", rand::random::<u64>());
    let (bus, node) = stage(&gate.settings(&changes(&prefix))).await;
    (gate, prefix, bus, node)
}

#[tokio::test]
async fn a_record_waits_for_its_schema_and_others_are_handled_meanwhile() {
    let Some(registry) = Registry::real().await else { return };
    let (gate, prefix, bus, node) = gated(&registry).await;
    let at = PartitionId::new(format!("{prefix}.worker"), 0);
    let waiting = foreign(&registry, &task("i", "reply:waiting")).await;
    gate.shut();
    support::write(&bus, at, None, &[], &waiting).await;
    put(&node, &bus, &INBOX, 0, &task("i", "reply:known")).await;
    let handler = Scripted::new();
    let worker = Worker::start(&node, &handler, |_| ());
    handler.handled("reply:known", 1).await;
    assert_eq!(handler.count("reply:waiting"), 0);
    assert!(contents(&node, &bus, &Topic::Dlq).await.is_empty());
    gate.open();
    handler.handled("reply:waiting", 1).await;
    commits_under(&bus, &prefix, 2).await;
    worker.stop().await;
    assert!(contents(&node, &bus, &Topic::Dlq).await.is_empty());
    let said = contents(&node, &bus, &Topic::Coordinator).await;
    assert!(said.iter().all(|record| record.value()[0] == 0), "results are in Confluent framing");
}

#[tokio::test]
async fn a_record_of_an_id_that_nobody_knows_is_a_dead_letter() {
    let Some(registry) = Registry::real().await else { return };
    let (_gate, prefix, bus, node) = gated(&registry).await;
    let at = PartitionId::new(format!("{prefix}.worker"), 0);
    support::write(&bus, at, None, &[], &[0, 0x7f, 0xff, 0xff, 0xff, 1, 2, 3]).await;
    let handler = Scripted::new();
    let worker = Worker::start(&node, &handler, |_| ());
    commits_under(&bus, &prefix, 1).await;
    worker.stop().await;
    let dead = contents(&node, &bus, &Topic::Dlq).await;
    assert_eq!(dead[0].value(), [0, 0x7f, 0xff, 0xff, 0xff, 1, 2, 3]);
    let reason = dead[0].header("starling-dlq-reason").unwrap();
    assert!(reason.contains("does not know schema id 2147483647"), "{reason}");
}

#[tokio::test]
async fn a_referenced_record_waits_for_its_schema() {
    let Some(registry) = Registry::real().await else { return };
    let (gate, _prefix, bus, node) = gated(&registry).await;
    let envelope = task("i", "reply:a");
    let value = foreign(&registry, &envelope).await;
    let at = PartitionId::new(node.router.name(&Topic::Content).unwrap(), 0);
    let offset = support::write(&bus, at.clone(), None, &[], &value).await;
    let reference = starling_protocol::RecordRef {
        topic: at.topic.to_string(),
        partition: 0,
        offset,
        envelope_id: envelope.id.clone(),
        bytes: 0,
        tokens: 0,
        digest: String::new(),
    };
    gate.shut();
    let now = node.content.get(&reference).await;
    assert!(matches!(now, Err(ContentError::Wait(_))), "{now:?}");
    gate.open();
    let read = until("it can be read", || async { node.content.get(&reference).await.ok() }).await;
    assert_eq!(*read, envelope);
}

/// Decodes by itself, as the intake does.
struct Decoding {
    codec: Codec,
    decoded: Mutex<Vec<Result<String, DecodeError>>>,
}

#[async_trait]
impl RecordHandler for Decoding {
    async fn handle(&self, record: InRecord, _: &HandlerContext) -> Result<(), HandleError> {
        let decoded = self.codec.decode::<Envelope>(record.value()).map(|envelope| title(&envelope));
        self.decoded.lock().unwrap().push(decoded);
        Ok(())
    }
}

#[tokio::test]
async fn a_handler_that_decodes_by_itself_gets_the_record_with_its_schema() {
    let Some(registry) = Registry::real().await else { return };
    let (gate, prefix, bus, node) = gated(&registry).await;
    let at = PartitionId::new(format!("{prefix}.worker"), 0);
    let value = foreign(&registry, &task("i", "reply:foreign")).await;
    support::write(&bus, at.clone(), None, &[], &value).await;
    support::write(&bus, at.clone(), None, &[], &Codec::default().encode(&task("i", "known")).unwrap()).await;
    let handler = Arc::new(Decoding { codec: node.codec.clone(), decoded: Mutex::default() });
    gate.shut();
    let mut config = ParallelConfig::new(&node.settings, INBOX, "worker", 8);
    config.backoff_max = Duration::from_millis(5);
    let processor = ParallelProcessor::records(config, node.clone(), handler.clone());
    let stop = CancellationToken::new();
    let ended = tokio::spawn(processor.run(stop.clone()));
    until("the known one is handled", || async {
        (*handler.decoded.lock().unwrap() == [Ok("known".into())]).then_some(())
    })
    .await;
    gate.open();
    until("the foreign one is handled", || async {
        (handler.decoded.lock().unwrap().last() == Some(&Ok("reply:foreign".into()))).then_some(())
    })
    .await;
    // What nobody will ever know is the handler's to refuse.
    support::write(&bus, at, None, &[], &[0, 0x7f, 0xff, 0xff, 0xff, 1]).await;
    until("the unknown one is handled", || async {
        let last = handler.decoded.lock().unwrap().last().cloned();
        (last == Some(Err(DecodeError::UnknownSchemaId { id: i32::MAX }))).then_some(())
    })
    .await;
    commits_under(&bus, &prefix, 3).await;
    stop.cancel();
    ended.await.unwrap().unwrap();
}

/// Other processes have a registry already, this one will be told of it when it is restarted.
#[tokio::test]
async fn without_a_registry_what_others_write_waits_and_is_dead_in_the_end() {
    for (patience, dead) in [("10m", 0), ("0ms", 1)] {
        let settings = support::settings(&[
            ("registry.patience", patience),
            ("topics.partitions.worker", "1"),
            ("topics.partitions.coordinator", "1"),
        ]);
        let (bus, node) = stage(&settings).await;
        let codec = Codec::default().writing_confluent(RecordKind::Envelope, 7);
        let value = codec.encode(&task("i", "reply:framed")).unwrap();
        let at = PartitionId::new(node.router.name(&INBOX).unwrap(), 0);
        support::write(&bus, at, None, &[], &value).await;
        put(&node, &bus, &INBOX, 0, &task("i", "reply:plain")).await;
        let handler = Scripted::new();
        let worker = Worker::start(&node, &handler, |_| ());
        handler.handled("reply:plain", 1).await;
        if dead > 0 {
            commits(&node, &bus, 0, 2).await;
        }
        assert_eq!(contents(&node, &bus, &Topic::Dlq).await.len(), dead);
        // Taught, as a process is that finds the registry in its settings.
        let schema = schema_json(RecordKind::Envelope).to_string();
        node.codec.learn(7, &schema).unwrap();
        if dead == 0 {
            handler.handled("reply:framed", 1).await;
        }
        worker.stop().await;
    }
}
