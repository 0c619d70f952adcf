//! Inputs whose schemas have to be asked for.

use crate::{
    false_registry::FalseRegistry,
    world::{World, envelope, eventually},
};
use starling_protocol::{
    Codec, Envelope, Topic,
    codec::{RecordKind, schema_json},
};
use starling_runtime::{Schemas, Settings, settings::Sources};

async fn world() -> (FalseRegistry, World) {
    let registry = FalseRegistry::start().await;
    let overrides = vec![("registry.url".to_owned(), registry.url.clone())];
    let settings = Settings::load(&Sources { overrides, ..Sources::default() }).unwrap();
    let schemas = Schemas::reading(&settings.registry, Codec::default()).unwrap();
    (registry, World::new().await.reading_with(schemas))
}

fn framed(envelope: &Envelope, id: i32) -> Vec<u8> {
    Codec::default().writing_confluent(RecordKind::Envelope, id).encode(envelope).unwrap()
}

#[tokio::test]
async fn an_input_waits_for_its_schema_and_nothing_of_its_partition_overtakes_it() {
    let (registry, world) = world().await;
    registry.always(Some((503, "")));
    let (slow, quick) = (world.intent(0, 0), world.intent(1, 0));
    world.input(&slow, "before").await;
    world.put(0, framed(&envelope(&slow, "timer 1"), 7)).await;
    world.input(&slow, "after").await;
    world.input(&quick, "a").await;
    let running = world.start().await;
    eventually("other partitions go on", async || world.said(&quick).await == ["1"]).await;
    eventually("it is asked for", async || registry.asked().len() > 1).await;
    assert!(world.said(&slow).await.len() <= 1, "nothing overtakes it");
    registry.knows(7, &schema_json(RecordKind::Envelope).to_string());
    registry.always(None);
    eventually("all are decided", async || world.said(&slow).await.len() >= 4).await;
    // The time is the second input's: it was read as what it is.
    let said = world.said(&slow).await;
    assert_eq!(said.iter().filter(|word| *word != "time").collect::<Vec<_>>(), ["1", "2", "3"]);
    assert_eq!(said.len(), 4, "{said:?}");
    running.stop().await;
}

#[tokio::test]
async fn an_input_of_an_unknown_schema_is_a_dead_letter() {
    let (_registry, world) = world().await;
    let intent = world.intent(0, 0);
    let value = framed(&envelope(&intent, "a"), 8);
    world.put(0, value.clone()).await;
    world.input(&intent, "b").await;
    let running = world.start().await;
    eventually("the next one is decided", async || world.said(&intent).await == ["1"]).await;
    eventually("it is buried", async || !world.records(&Topic::Dlq, 0).await.is_empty()).await;
    assert_eq!(world.records(&Topic::Dlq, 0).await[0].value(), value);
    running.stop().await;
}

#[tokio::test]
async fn a_partition_is_given_back_while_an_input_waits() {
    let (registry, world) = world().await;
    registry.always(Some((503, "")));
    let intent = world.intent(0, 0);
    world.put(0, framed(&envelope(&intent, "a"), 7)).await;
    let running = world.start().await;
    eventually("it is asked for", async || !registry.asked().is_empty()).await;
    running.stop().await;
    registry.knows(7, &schema_json(RecordKind::Envelope).to_string());
    registry.always(None);
    let running = world.start().await;
    eventually("the next owner decides it", async || world.said(&intent).await == ["1"]).await;
    running.stop().await;
}
