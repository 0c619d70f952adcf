//! Names that must never change silently: tags, ids, partitions, trace context, times.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use starling_protocol::headers::{self, headers_of};
use starling_protocol::ids::content_digest;
use starling_protocol::topic::partition_of;
use starling_protocol::*;

fn any_role() -> impl Strategy<Value = Role> {
    proptest::sample::select(vec![
        Role::Intake,
        Role::Coordinator,
        Role::Planner,
        Role::Worker,
        Role::Critic,
        Role::Tool,
    ])
}

proptest! {
    #[test]
    fn tags_survive_as_text(
        role in any_role(),
        pool in proptest::option::of("[a-z0-9-]{1,64}"),
        lane in proptest::option::of(".{1,40}"),
    ) {
        let tag = Tag { role, pool, lane };
        prop_assert_eq!(tag.to_string().parse::<Tag>().unwrap(), tag);
    }

    #[test]
    fn what_parses_as_a_tag_is_written_the_same(text in "role:[a-z]{0,12}[.#]?.{0,20}") {
        if let Ok(tag) = text.parse::<Tag>() {
            prop_assert_eq!(tag.to_string(), text);
        }
    }

    #[test]
    fn trace_parents_survive_as_text(trace_id: [u8; 16], span_id: [u8; 8], flags: u8) {
        prop_assume!(trace_id != [0; 16] && span_id != [0; 8]);
        let parent = TraceParent { trace_id, span_id, flags };
        prop_assert_eq!(parent.to_string().parse::<TraceParent>().unwrap(), parent);
    }

    #[test]
    fn every_key_has_a_partition(key in ".*", partitions in 1..1_000_i32) {
        prop_assert!((0..partitions).contains(&partition_of(&key, partitions)));
    }
}

#[test]
fn what_is_no_tag_is_refused() {
    let long_pool = format!("role:worker.{}", "x".repeat(65));
    for text in
        ["", "role:", "worker", "role:boss", "role:worker.", "role:worker.GPU", "role:worker#", &long_pool]
    {
        assert!(text.parse::<Tag>().is_err(), "{text}");
    }
}

#[test]
fn partitions_of_keys_never_change() {
    let golden = [
        ("", 1, 0),
        ("laptops-2024:1", 12, 8),
        ("laptops-2024:1", 128, 86),
        ("a", 12, 4),
        ("b", 12, 9),
        ("5f2b1c9e8a7d4e3f", 12, 2),
        ("5f2b1c9e8a7d4e3f", 128, 26),
        ("Überraschung", 12, 3),
        ("", 128, 124),
    ];
    for (key, partitions, expected) in golden {
        assert_eq!(partition_of(key, partitions), expected, "{key:?} of {partitions}");
    }
}

#[test]
fn keys_spread_evenly_over_partitions() {
    for partitions in [12, 128] {
        let keys = 1_000 * partitions;
        let mut counts = vec![0_i32; usize::try_from(partitions).unwrap()];
        for key in 0..keys / 2 {
            let record = IntentId::of_record("starling.intents", key % 12, i64::from(key));
            counts[usize::try_from(partition_of(record.as_str(), partitions)).unwrap()] += 1;
            let by_hand = format!("order-{key}");
            counts[usize::try_from(partition_of(&by_hand, partitions)).unwrap()] += 1;
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least > 800 && *most < 1_200, "{least} to {most} of 1,000 in {partitions}");
    }
}

#[test]
fn ids_never_change() {
    let intent = IntentId::of_record("starling.intents", 3, 42);
    let run = RunId::from_random(1);
    let task = TaskId::planned(&intent, &run, 7);
    let ids = [
        intent.to_string(),
        task.to_string(),
        TaskId::synthesis(&intent, &run).to_string(),
        EnvelopeId::of_step("Task", &task, 1, 0).to_string(),
        TraceParent::for_intent(&intent).to_string(),
    ];
    assert_eq!(ids, IDS.map(str::to_owned));
    assert_eq!(run.as_str(), "00000000000000000000000000000001");
    assert_eq!(content_digest(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

const IDS: [&str; 5] = [
    "42087180d9d33b57151c3a0ead7f6e04",
    "f87c1df2aabda090e7f479577fd0dad6",
    "e2145babbb12d5beff0b065208509588",
    "b28ec68fa384971a4206e52d6d0e1e08",
    "00-3d6c3468778138ba60be2124cabdecc4-71c7c30b9aaab14a-01",
];

#[test]
fn ids_of_users_are_checked() {
    for id in ["a", "A-Z.a_z:0-9", &"x".repeat(128)] {
        assert_eq!(IntentId::parse(id).unwrap().as_str(), id);
    }
    for id in ["", "a b", "ä", "a/b", "a\n", &"x".repeat(129)] {
        assert!(IntentId::parse(id).is_err(), "{id:?}");
    }
}

#[test]
fn only_w3c_trace_parents_are_accepted() {
    let valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let parent: TraceParent = valid.parse().unwrap();
    assert_eq!(parent.to_string(), valid);
    assert_eq!(parent.trace_id_hex(), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert!("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what".parse::<TraceParent>().is_ok());
    for text in [
        "",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e47é-00f067aa0ba902b7-01",
    ] {
        assert!(text.parse::<TraceParent>().is_err(), "{text}");
    }
}

#[test]
fn times_are_written_as_rfc_3339() {
    let written = |millis| Timestamp(millis).to_rfc3339();
    assert_eq!(written(0).unwrap(), "1970-01-01T00:00:00.000Z");
    assert_eq!(written(-1).unwrap(), "1969-12-31T23:59:59.999Z");
    assert_eq!(written(951_782_400_000).unwrap(), "2000-02-29T00:00:00.000Z");
    assert_eq!(written(1_767_225_600_123).unwrap(), "2026-01-01T00:00:00.123Z");
    assert_eq!(written(4_107_542_399_999).unwrap(), "2100-02-28T23:59:59.999Z");
    assert_eq!(written(253_402_300_799_999).unwrap(), "9999-12-31T23:59:59.999Z");
    assert_eq!((written(i64::MAX), written(i64::MIN)), (None, None));
    for millis in [0, -1, 951_782_400_000, 1_767_225_600_123, 4_107_542_399_999, 253_402_300_799_999] {
        assert_eq!(Timestamp::from_rfc3339(&written(millis).unwrap()), Some(Timestamp(millis)));
    }
}

#[test]
fn times_are_read_as_people_write_them() {
    for (text, millis) in [
        ("2026-01-01", 1_767_225_600_000),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        ("2026-01-01 01:30:00+01:30", 1_767_225_600_000),
        ("2025-12-31t20:00:00.5-04:00", 1_767_225_600_500),
        ("2026-01-01T00:00:00.123456789z", 1_767_225_600_123),
    ] {
        assert_eq!(Timestamp::from_rfc3339(text), Some(Timestamp(millis)), "{text}");
    }
    for text in [
        "",
        "2026",
        "2026-1-1",
        "2026-02-30",
        "2026-13-01",
        "2026-01-01T",
        "2026-01-01T00:00:00",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z",
        "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00+1:00",
        "2026-01-01T00:00:00Zulu",
        "2026-01-01X00:00:00Z",
        "2026-01-01T00:00:00+24:00",
        "yesterday!",
        "2026-01-0é",
    ] {
        assert_eq!(Timestamp::from_rfc3339(text), None, "{text}");
    }
}

#[test]
fn headers_carry_trace_context_and_cloud_events() {
    let envelope = Envelope {
        id: EnvelopeId::from_string("e1"),
        intent_id: IntentId::from_string("i1"),
        tag: "role:worker.gpu#7".parse().unwrap(),
        hop: 0,
        created_at: Timestamp(1_767_225_600_123),
        deadline: Timestamp::MAX,
        tenant: "acme".into(),
        body: Body::Cancel(Cancel { reason: String::new() }),
    };
    let headers = headers_of(&envelope, Some("00-a-b-01"), Some("vendor=1"));
    let text: Vec<_> =
        headers.iter().map(|(name, value)| (name.as_str(), std::str::from_utf8(value).unwrap())).collect();
    assert_eq!(
        text,
        [
            ("traceparent", "00-a-b-01"),
            ("tracestate", "vendor=1"),
            ("content-type", "application/avro"),
            ("starling-tag", "role:worker.gpu#7"),
            ("ce_specversion", "1.0"),
            ("ce_id", "e1"),
            ("ce_source", "/starling/acme"),
            ("ce_type", "dev.starling.Cancel"),
            ("ce_subject", "i1"),
            ("ce_time", "2026-01-01T00:00:00.123Z"),
        ]
    );
    let without = headers_of(&envelope, None, Some("vendor=1"));
    assert!(without.iter().all(|(name, _)| name != headers::TRACEPARENT && name != headers::TRACESTATE));
}

#[test]
fn a_record_ref_identifies_its_record() {
    let envelope = Envelope {
        id: EnvelopeId::from_string("e1"),
        intent_id: IntentId::from_string("i1"),
        tag: Tag::role(Role::Critic),
        hop: 0,
        created_at: Timestamp(0),
        deadline: Timestamp::MAX,
        tenant: "acme".into(),
        body: Body::Cancel(Cancel { reason: String::new() }),
    };
    let reference = RecordRef::of("starling.critic", 3, 9, &envelope, b"12345");
    assert_eq!(
        reference,
        RecordRef {
            topic: "starling.critic".into(),
            partition: 3,
            offset: 9,
            envelope_id: envelope.id,
            bytes: 5,
            tokens: 2,
            digest: content_digest(b"12345"),
        }
    );
}

/// Where a tenant's budget is kept follows from names alone, and no user can give an intent such a name.
#[test]
fn banks_and_purses_have_addresses_of_their_own() {
    let (monday, tuesday) = (Timestamp(1_767_225_600_000), Timestamp(1_767_312_000_000));
    assert_eq!(IntentId::bank("shop", monday).as_str(), "bank/785fb9ffcfd62c9a0e8ebfc5a960b97f");
    assert_ne!(IntentId::bank("shop", monday), IntentId::bank("shop", tuesday));
    assert_ne!(IntentId::bank("shop", monday), IntentId::bank("shed", monday));
    for partitions in [1, 2, 12, 997] {
        for partition in [0, partitions / 2, partitions - 1] {
            let purse = IntentId::purse("shop", monday, partition, partitions);
            assert_eq!(partition_of(purse.as_str(), partitions), partition, "{purse} of {partitions}");
            assert!(purse.is_address() && IntentId::parse(purse.as_str()).is_err(), "{purse}");
            assert!(purse.as_str().len() <= ids::MAX_INTENT_ID_BYTES);
        }
    }
    assert!(!IntentId::of_record("t", 0, 1).is_address());
}
