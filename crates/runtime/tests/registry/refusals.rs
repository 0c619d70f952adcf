//! What no well-behaved registry says, and how often it is asked.

use crate::{
    false_registry::FalseRegistry,
    world::{intent, reader, settings},
};
use starling_protocol::{
    Codec, Envelope,
    codec::{RecordKind, schema_json},
};
use starling_runtime::{
    Schemas,
    registry::{RegistryError, Unreadable},
    settings::Settings,
};
use std::time::Duration;

fn framed(id: i32) -> Vec<u8> {
    let envelope = Codec::default().encode(&intent()).unwrap();
    [&[0][..], &id.to_be_bytes(), &envelope[10..]].concat()
}

#[tokio::test]
async fn many_records_of_one_unknown_id_are_one_request() {
    let registry = FalseRegistry::start().await;
    registry.knows(7, &schema_json(RecordKind::Envelope).to_string());
    let schemas = reader(&settings(&registry.url, &[]).registry);
    let value = framed(7);
    let reads = (0..50).map(|_| schemas.read::<Envelope>(&value));
    for read in futures::future::join_all(reads).await {
        assert_eq!(read.unwrap(), intent());
    }
    assert_eq!(registry.asked(), ["/schemas/ids/7"]);
}

#[tokio::test]
async fn a_request_goes_on_when_nobody_waits_for_it_any_more() {
    let registry = FalseRegistry::start().await;
    registry.knows(7, &schema_json(RecordKind::Envelope).to_string());
    let schemas = reader(&settings(&registry.url, &[]).registry);
    let value = framed(7);
    let mut reading = Box::pin(schemas.read::<Envelope>(&value));
    assert!(futures::poll!(&mut reading).is_pending());
    drop(reading);
    crate::support::until("it is learned all the same", || async {
        schemas.codec().unknown_id(&value).is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_id_in_trouble_is_left_alone_for_a_moment_and_an_unknown_one_for_longer() {
    let registry = FalseRegistry::start().await;
    let schemas = reader(&settings(&registry.url, &[]).registry);
    for _ in 0..20 {
        let Err(Unreadable::Never(_)) = schemas.read::<Envelope>(&framed(8)).await else {
            panic!("it is unknown")
        };
    }
    // Twice, because another node of the registry may be a moment behind.
    assert_eq!(registry.asked(), ["/schemas/ids/8"; 2]);
    registry.always(Some((503, "")));
    for _ in 0..20 {
        let Err(Unreadable::Later(why)) = schemas.read::<Envelope>(&framed(9)).await else {
            panic!("it may be known later")
        };
        assert!(why.contains("503"), "{why}");
    }
    assert_eq!(registry.asked().len(), 3);
    registry.always(None);
    registry.knows(9, &schema_json(RecordKind::Envelope).to_string());
    assert_eq!(schemas.read_patiently::<Envelope>(&framed(9)).await.unwrap(), intent());
}

#[tokio::test]
async fn a_record_is_not_lost_to_a_wrong_address_or_a_wrong_password() {
    for (status, body) in [
        (404, "<html>no such page</html>"),
        (401, r#"{"error_code": 401, "message": "Unauthorized"}"#),
        (403, ""),
        (302, ""),
        (200, "welcome"),
        (500, r#"{"error_code": 50001, "message": "Error in the backend"}"#),
    ] {
        let registry = FalseRegistry::start().await;
        registry.always(Some((status, body)));
        let schemas = reader(&settings(&registry.url, &[]).registry);
        let read = schemas.read::<Envelope>(&framed(1)).await;
        assert!(matches!(read, Err(Unreadable::Later(_))), "{status}: {read:?}");
    }
}

#[tokio::test]
async fn schemas_that_are_no_avro_or_not_complete_are_of_no_use() {
    let schema = serde_json::to_string(&schema_json(RecordKind::Envelope).to_string()).unwrap();
    for (answer, expected) in [
        (r#"{"schema": "syntax = \"proto3\";", "schemaType": "PROTOBUF"}"#.to_owned(), "PROTOBUF"),
        (format!(r#"{{"schema": {schema}, "references": [{{"name": "x"}}]}}"#), "refers to other schemas"),
        (r#"{"schema": "nonsense"}"#.to_owned(), "not a valid Avro schema"),
    ] {
        let registry = FalseRegistry::start().await;
        registry.always(Some((200, &answer)));
        let schemas = reader(&settings(&registry.url, &[]).registry);
        let Err(Unreadable::Never(why)) = schemas.read::<Envelope>(&framed(1)).await else {
            panic!("{answer}")
        };
        assert!(why.contains(expected), "{why}");
    }
}

#[tokio::test]
async fn nothing_secret_is_in_errors_or_shown_settings() {
    let registry = FalseRegistry::start().await;
    let login = registry.url.replace("http://", "http://me:hunter2%21@");
    let settings: Settings = settings(&login, &[]);
    let shown = format!("{:?} {:?}", settings.registry, reader(&settings.registry));
    assert!(!shown.contains("hunter2"), "{shown}");
    assert_eq!(settings.registry.user.as_deref(), Some("me"));

    let echo = r#"{"error_code": 40101, "message": "me:hunter2! may not"}"#;
    registry.always(Some((401, echo)));
    let topics = ["t".to_owned()];
    let error = reader(&settings.registry).writing(&settings.registry, &topics).await.unwrap_err();
    let RegistryError::Refused { .. } = error else { panic!("{error}") };
    let text = format!("{error} {error:?}");
    assert!(text.contains("t-value") && text.contains("me:*** may not"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");

    registry.always(Some((503, echo)));
    let error = reader(&settings.registry).writing(&settings.registry, &topics).await.unwrap_err();
    let RegistryError::Unreachable { .. } = error else { panic!("{error}") };
    let text = format!("{error} {error:?}");
    assert!(text.contains(&registry.url) && !text.contains("hunter2"), "{text}");
}

/// Eight bytes that name a schema can be anything; what they stand for may come with the next version.
#[tokio::test(start_paused = true)]
async fn what_a_newer_version_wrote_is_kept_for_its_successor_and_not_for_ever() {
    let patience = Duration::from_secs(600);
    let schemas = Schemas::from(Codec::default());
    let mut newer = Codec::default().encode(&intent()).unwrap();
    newer[2] ^= 1; // of the fingerprint
    for _ in 0..2 {
        let read = schemas.read::<Envelope>(&newer).await;
        assert!(matches!(&read, Err(Unreadable::Newer(why)) if why.contains("a newer version")), "{read:?}");
        assert!(schemas.meet(&newer).await.is_err());
        assert!(schemas.read_patiently::<Envelope>(&newer).await.is_err(), "no registry will help");
    }
    let began = tokio::time::Instant::now();
    let read = schemas.read_in_order::<Envelope>(&newer).await;
    assert!(read.unwrap_err().contains("a newer version"));
    let waited = began.elapsed();
    assert!(waited >= patience.mul_f64(0.9) && waited < patience * 2, "{waited:?}");
    assert!(matches!(schemas.read::<Envelope>(&newer).await, Err(Unreadable::Never(_))));
    assert!(schemas.meet(&newer).await.is_ok(), "whoever decodes it says what is wrong");
    assert_eq!(
        schemas.read::<Envelope>(&Codec::default().encode(&intent()).unwrap()).await.unwrap(),
        intent()
    );
}
