//! What a real registry makes of what a process asks it.

use crate::world::{Registry, intent, reader, schema_with, topics, written_with};
use apache_avro::types::Value as Avro;
use serde_json::json;
use starling_protocol::{Body, Codec, Envelope, TopicNames};
use starling_runtime::{
    Schemas,
    registry::{RegistryError, Unreadable, enveloped_topics, subject_of},
    settings::RegistrySettings,
};

async fn writer(settings: &RegistrySettings, topics: &[String]) -> Result<Schemas, RegistryError> {
    reader(settings).writing(settings, topics).await
}

#[tokio::test]
async fn what_one_process_registers_others_find_and_read() {
    let Some(registry) = Registry::real().await else { return };
    let topics = topics(3);
    let settings = registry.settings(&[]).registry;
    let first = writer(&settings, &topics).await.unwrap();
    let value = first.codec().encode(&intent()).unwrap();
    assert_eq!(value[0], 0, "Confluent framing");

    let again = writer(&settings, &topics).await.unwrap();
    assert_eq!(again.codec().encode(&intent()).unwrap(), value, "the same id");
    let looking = registry.settings(&[("registry.mode", "lookup")]).registry;
    let second = writer(&looking, &topics).await.unwrap();
    assert_eq!(second.codec().encode(&intent()).unwrap(), value, "the same id");

    let foreign = reader(&settings);
    let single = Codec::default().encode(&intent()).unwrap();
    for value in [&value, &single] {
        assert_eq!(foreign.read::<Envelope>(value).await.unwrap(), intent());
        assert_eq!(second.read::<Envelope>(value).await.unwrap(), intent());
    }
    assert!(matches!(
        Schemas::from(Codec::default()).read::<Envelope>(&value).await,
        Err(Unreadable::Later(why)) if why.contains("registry.url is empty")
    ));
}

#[tokio::test]
async fn a_new_reader_reads_what_an_old_writer_wrote() {
    let Some(registry) = Registry::real().await else { return };
    let topics = topics(1);
    let subject = subject_of(&topics[0]);
    // The version before had no items.
    let old = schema_with(|fields| fields.retain(|field| field["name"] != "items"));
    let id = registry.put(&subject, &old).await;
    registry.demand_compatibility(&subject).await;
    let value = written_with(&old, id, &intent(), |fields| fields.retain(|(name, _)| name != "items"));

    let settings = registry.settings(&[]).registry;
    let new = writer(&settings, &topics).await.expect("the change is compatible");
    let mut expected = intent();
    let Body::Intent(body) = &mut expected.body else { panic!("an intent") };
    body.items.clear();
    assert_eq!(new.read::<Envelope>(&value).await.unwrap(), expected);
    let written = new.codec().encode(&intent()).unwrap();
    assert_ne!(written[..5], value[..5], "an id of its own");
}

#[tokio::test]
async fn an_old_reader_reads_what_a_new_writer_wrote() {
    let Some(registry) = Registry::real().await else { return };
    let topics = topics(1);
    let settings = registry.settings(&[]).registry;
    let old = writer(&settings, &topics).await.unwrap();
    registry.demand_compatibility(&subject_of(&topics[0])).await;
    let new = schema_with(|fields| {
        fields.push(json!({"name": "mood", "type": "string", "default": "calm"}));
    });
    let id = registry.put(&subject_of(&topics[0]), &new).await;
    let value = written_with(&new, id, &intent(), |fields| {
        fields.push(("mood".into(), Avro::String("glad".into())));
    });
    assert_eq!(old.read::<Envelope>(&value).await.unwrap(), intent());
    // The old version starts again beside the new one: its schema is registered, if not the latest.
    let restarted = writer(&settings, &topics).await.unwrap();
    let same = |schemas: &Schemas| schemas.codec().encode(&intent()).unwrap();
    assert_eq!(same(&restarted), same(&old));
}

#[tokio::test]
async fn an_incompatible_change_is_refused_and_registers_nothing() {
    let Some(registry) = Registry::real().await else { return };
    let topics = topics(2);
    let subject = subject_of(&topics[1]);
    let other = schema_with(|fields| fields.retain(|field| field["name"] != "goal"));
    registry.put(&subject, &other).await;
    registry.demand_compatibility(&subject).await;

    let error = writer(&registry.settings(&[]).registry, &topics).await.unwrap_err();
    let text = error.to_string();
    let RegistryError::Incompatible { refused, .. } = error else { panic!("{text}") };
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].0, subject);
    assert!(text.contains(&subject) && text.contains(&refused[0].1) && !refused[0].1.is_empty(), "{text}");
    let looking = registry.settings(&[("registry.mode", "lookup")]).registry;
    let missing = writer(&looking, &topics).await.unwrap_err();
    let RegistryError::Missing { subjects, .. } = missing else { panic!("{missing}") };
    assert_eq!(subjects.len(), 2, "nor is the other subject there: {subjects:?}");
}

#[tokio::test]
async fn who_may_only_look_names_every_missing_subject() {
    let Some(registry) = Registry::real().await else { return };
    let names = TopicNames::new(topics(1)[0].as_str());
    let topics = enveloped_topics(&names, &["gpu".into()]);
    let (here, missing) = topics.split_at(4);
    let settings = registry.settings(&[]).registry;
    assert!(Schemas::prepare(&settings, here).await.unwrap());
    let looking = registry.settings(&[("registry.mode", "lookup")]).registry;
    let error = writer(&looking, &topics).await.unwrap_err();
    let text = error.to_string();
    let RegistryError::Missing { subjects, .. } = error else { panic!("{text}") };
    let expected: Vec<String> = missing.iter().map(|topic| subject_of(topic)).collect();
    assert_eq!(subjects, expected);
    assert!(expected.iter().all(|subject| text.contains(subject)), "{text}");
    assert!(text.contains("lookup"), "{text}");
    for private in ["state", "fleet", "dlq"] {
        assert!(!text.contains(private), "{text}");
    }
}

#[tokio::test]
async fn with_the_registry_down_known_ids_are_read_and_unknown_ones_later() {
    let Some(registry) = Registry::real().await else { return };
    let topics = topics(2);
    let gate = registry.gate().await;
    let settings = gate.settings(&[]).registry;
    let schemas = writer(&settings, &topics[..1]).await.unwrap();
    let other = schema_with(|fields| fields.push(json!({"name": "mood", "type": "string", "default": ""})));
    let id = registry.put(&subject_of(&topics[1]), &other).await;
    let foreign = written_with(&other, id, &intent(), |fields| {
        fields.push(("mood".into(), Avro::String(String::new())));
    });
    let own = schemas.codec().encode(&intent()).unwrap();

    gate.shut();
    assert_eq!(schemas.read::<Envelope>(&own).await.unwrap(), intent());
    let Err(Unreadable::Later(why)) = schemas.read::<Envelope>(&foreign).await else {
        panic!("nobody can know this id now")
    };
    assert!(why.contains(&id.to_string()) && why.contains("127.0.0.1"), "{why}");
    let waiting = tokio::spawn({
        let (schemas, foreign) = (schemas.clone(), foreign.clone());
        async move { schemas.read_patiently::<Envelope>(&foreign).await }
    });
    let unreachable = writer(&settings, &topics).await.unwrap_err();
    assert!(matches!(unreachable, RegistryError::Unreachable { .. }), "{unreachable}");
    assert!(!waiting.is_finished());
    gate.open();
    assert_eq!(waiting.await.unwrap().unwrap(), intent());
    gate.shut();
    assert_eq!(schemas.read::<Envelope>(&foreign).await.unwrap(), intent(), "it is known now");
}

#[tokio::test]
async fn an_id_that_the_registry_does_not_know_is_never_read() {
    let Some(registry) = Registry::real().await else { return };
    let schemas = reader(&registry.settings(&[]).registry);
    let value = [&[0][..], &i32::MAX.to_be_bytes(), b"whatever"].concat();
    let Err(Unreadable::Never(why)) = schemas.read::<Envelope>(&value).await else {
        panic!("it should not be waited for")
    };
    assert!(why.contains("does not know schema id 2147483647"), "{why}");
}

#[tokio::test]
async fn a_schema_of_others_is_of_no_use() {
    let Some(registry) = Registry::real().await else { return };
    let subject = subject_of(&topics(1)[0]);
    let order = json!({"type": "record", "name": "Order", "namespace": "shop",
        "fields": [{"name": "id", "type": "string"}]});
    let id = registry.put(&subject, &order).await;
    let schemas = reader(&registry.settings(&[]).registry);
    let value = [&[0][..], &id.to_be_bytes(), b"\x02x"].concat();
    let Err(Unreadable::Never(why)) = schemas.read::<Envelope>(&value).await else {
        panic!("it should not be waited for")
    };
    assert!(why.contains("Envelope"), "{why}");
}
