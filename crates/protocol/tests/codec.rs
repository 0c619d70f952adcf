//! The codec by its public door: what it reads, and how it refuses the rest.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod samples;

use apache_avro::{Schema, writer::datum::GenericDatumWriter};
use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};
use starling_protocol::codec::{
    Codec, CodecLimits, DecodeError, EncodeError, Fault, RecordKind, schema_json,
};
use starling_protocol::fleet::FleetBeat;
use starling_protocol::state::StateRecord;
use starling_protocol::*;

fn codec() -> Codec {
    Codec::default()
}

fn fault(error: DecodeError) -> Fault {
    match error {
        DecodeError::Malformed(malformed) => malformed.fault,
        other => panic!("not malformed: {other}"),
    }
}

#[test]
fn every_kind_of_record_survives_in_both_framings() {
    let confluent = codec()
        .writing_confluent(RecordKind::Envelope, 7)
        .writing_confluent(RecordKind::StateRecord, 8)
        .writing_confluent(RecordKind::FleetBeat, i32::MAX);
    for codec in [codec(), confluent] {
        for body in samples::bodies() {
            let envelope = samples::envelope(body);
            assert_eq!(codec.decode::<Envelope>(&codec.encode(&envelope).unwrap()).unwrap(), envelope);
        }
        for record in samples::state_records() {
            assert_eq!(codec.decode::<StateRecord>(&codec.encode(&record).unwrap()).unwrap(), record);
        }
        let beat = samples::fleet_beat();
        assert_eq!(codec.decode::<FleetBeat>(&codec.encode(&beat).unwrap()).unwrap(), beat);
    }
}

#[test]
fn both_framings_are_laid_out_as_specified() {
    let beat = samples::fleet_beat();
    let single = codec().encode(&beat).unwrap();
    let confluent = codec().writing_confluent(RecordKind::FleetBeat, 0x0102_0304).encode(&beat).unwrap();
    assert_eq!(single[..2], [0xc3, 0x01]);
    assert_eq!(confluent[..5], [0x00, 1, 2, 3, 4]);
    assert_eq!(single[10..], confluent[5..]);
}

#[test]
fn what_cannot_be_read_is_refused_by_its_reason() {
    let valid = codec().encode(&samples::fleet_beat()).unwrap();
    let decode = |bytes: &[u8]| codec().decode::<FleetBeat>(bytes).unwrap_err();

    assert_eq!(decode(b""), DecodeError::Empty);
    assert_eq!(decode(b"{}"), DecodeError::UnknownFraming { first: b'{' });
    assert_eq!(decode(&[0, 0, 0, 0, 9, 1]), DecodeError::UnknownSchemaId { id: 9 });
    assert_eq!(fault(decode(&[0xc3, 0x01, 1, 2])), Fault::Truncated);
    assert_eq!(fault(decode(&valid[..valid.len() - 1])), Fault::Truncated);
    assert_eq!(fault(decode(&[valid.as_slice(), b"xy"].concat())), Fault::TrailingBytes(2));
    assert_eq!(
        codec().decode::<Envelope>(&valid).unwrap_err(),
        DecodeError::OtherRecord { expected: RecordKind::Envelope, found: RecordKind::FleetBeat }
    );
    let unknown = decode(&[0xc3, 0x01, 0xde, 0xad, 0xbe, 0xef, 0, 1, 2, 3, 4]);
    assert!(unknown.to_string().contains("deadbeef00010203"), "{unknown}");

    let mut no_tag =
        codec().encode(&samples::envelope(Body::Cancel(Cancel { reason: String::new() }))).unwrap();
    let tag = no_tag.windows(5).position(|bytes| bytes == b"role:").unwrap();
    no_tag[tag] = b'R';
    let refused = codec().decode::<Envelope>(&no_tag).unwrap_err();
    assert!(matches!(fault(refused.clone()), Fault::Value(_)), "{refused}");
    assert!(refused.to_string().contains("is not a tag"), "{refused}");
}

#[test]
fn sizes_are_limited_in_both_directions() {
    let record = samples::fleet_beat();
    let bytes = codec().encode(&record).unwrap();
    let limits = CodecLimits { max_bytes: bytes.len(), ..CodecLimits::default() };
    let exact = Codec::new(limits);
    assert_eq!(exact.decode::<FleetBeat>(&exact.encode(&record).unwrap()).unwrap(), record);
    let tight = Codec::new(CodecLimits { max_bytes: bytes.len() - 1, ..limits });
    assert_eq!(tight.encode(&record).unwrap_err(), EncodeError::TooLarge { limit: bytes.len() - 1 });
    assert_eq!(
        tight.decode::<FleetBeat>(&bytes).unwrap_err(),
        DecodeError::TooLarge { bytes: bytes.len(), limit: bytes.len() - 1 }
    );
    let frugal = Codec::new(CodecLimits { max_memory: 100, ..limits });
    assert_eq!(frugal.decode::<FleetBeat>(&bytes).unwrap_err(), DecodeError::TooCostly { limit: 100 });
}

/// Writes `value` with a schema that only a registry knows, in Confluent framing under id 5.
fn foreign(schema: &Value, value: &impl Serialize) -> (Codec, Vec<u8>) {
    let parsed = Schema::parse(schema).unwrap();
    let writer = GenericDatumWriter::builder(&parsed).human_readable(false).build().unwrap();
    let mut bytes = vec![0, 0, 0, 0, 5];
    bytes.extend(writer.write_ser_to_vec(value).unwrap());
    (codec().with_confluent([(5, schema.to_string().as_str())]).unwrap(), bytes)
}

#[derive(Serialize)]
struct ForeignBeat {
    zone: Vec<Option<String>>,
    at: i32,
    process: String,
    role: String,
    pool: String,
    version: String,
    slots: i32,
    busy: i32,
    active: i32,
    leaving: bool,
}

/// More fields, fewer fields, another order, a narrower type.
fn foreign_schema() -> Value {
    let mut schema = schema_json(RecordKind::FleetBeat);
    let fields = schema["fields"].as_array_mut().unwrap();
    fields.retain(|field| field["name"] != "partitions" && field["name"] != "at");
    let zones = json!({"type": "array", "items": ["null", "string"]});
    fields.insert(0, json!({"name": "zone", "type": zones}));
    fields.insert(1, json!({"name": "at", "type": "int"}));
    schema
}

fn foreign_beat() -> (Codec, Vec<u8>) {
    let schema = foreign_schema();
    let beat = samples::fleet_beat();
    foreign(
        &schema,
        &ForeignBeat {
            zone: vec![Some("a".into()), None],
            at: 17,
            process: beat.process,
            role: beat.role,
            pool: beat.pool,
            version: beat.version,
            slots: beat.slots,
            busy: beat.busy,
            active: beat.active,
            leaving: beat.leaving,
        },
    )
}

#[test]
fn another_version_of_a_record_is_read_by_the_names_of_its_fields() {
    let (codec, bytes) = foreign_beat();
    let expected = FleetBeat { partitions: vec![], at: Timestamp(17), asks: vec![], ..samples::fleet_beat() };
    assert_eq!(codec.decode::<FleetBeat>(&bytes).unwrap(), expected);
    let trailing = codec.decode::<FleetBeat>(&[bytes.as_slice(), b"x"].concat()).unwrap_err();
    assert_eq!(fault(trailing), Fault::TrailingBytes(1));
}

#[test]
fn an_unknown_id_is_named_and_can_be_learned_by_all_clones() {
    let (knowing, bytes) = foreign_beat();
    let codec = codec();
    let clone = codec.clone();
    assert_eq!(codec.unknown_id(&bytes), Some(5));
    assert_eq!(codec.decode::<FleetBeat>(&bytes).unwrap_err(), DecodeError::UnknownSchemaId { id: 5 });
    codec.learn(5, &foreign_schema().to_string()).unwrap();
    for codec in [codec, clone] {
        assert_eq!(codec.unknown_id(&bytes), None);
        assert_eq!(codec.decode::<FleetBeat>(&bytes).unwrap(), knowing.decode::<FleetBeat>(&bytes).unwrap());
    }
}

#[test]
fn what_is_learned_is_bounded_and_what_is_given_stays() {
    let limits = CodecLimits { max_schemas: 3, ..CodecLimits::default() };
    let codec = Codec::new(limits).writing_confluent(RecordKind::Envelope, 100);
    let schema = foreign_schema().to_string();
    for id in 0..50 {
        codec.learn(id, &schema).unwrap();
        codec.learn(id, &schema).unwrap(); // twice is once
    }
    let framed = |id: i32| [&[0][..], &id.to_be_bytes(), b"x"].concat();
    let known: Vec<i32> = (0..50).filter(|id| codec.unknown_id(&framed(*id)).is_none()).collect();
    assert_eq!(known, [47, 48, 49]);
    assert_eq!(codec.unknown_id(&framed(100)), None);
}

#[test]
fn only_a_complete_confluent_frame_has_an_id() {
    for bytes in [b"".as_slice(), b"{}", &[0, 0, 0, 1], &[0xc3, 1, 1, 2, 3, 4, 5, 6, 7, 8]] {
        assert_eq!(codec().unknown_id(bytes), None, "{bytes:?}");
    }
    assert_eq!(codec().unknown_id(&[0, 0, 0, 1, 2]), Some(258));
}

#[derive(Serialize)]
struct NewerEnvelope {
    id: &'static str,
    intent_id: &'static str,
    tag: &'static str,
    hop: i32,
    created_at: i64,
    deadline: i64,
    tenant: &'static str,
    body: NewerBody,
}

#[derive(Serialize)]
enum NewerBody {
    Wish(Wish),
    Cancel(Cancel),
}

#[derive(Serialize)]
struct Wish {
    reason: &'static str,
}

#[test]
fn variants_are_matched_by_name_and_an_unknown_one_is_refused() {
    let mut schema = schema_json(RecordKind::Envelope);
    let fields = schema["fields"].as_array_mut().unwrap();
    let body = fields.iter_mut().find(|field| field["name"] == "body").unwrap();
    let variants = body["type"].as_array().unwrap();
    let cancel = variants.iter().find(|variant| variant["name"] == "Cancel").unwrap().clone();
    // The same fields under another name: nothing but the name tells them apart.
    let wish = json!({"type": "record", "name": "Wish", "fields": [{"name": "reason", "type": "string"}]});
    body["type"] = json!([wish, cancel]);
    let envelope = |body| NewerEnvelope {
        id: "e",
        intent_id: "i",
        tag: "role:coordinator",
        hop: 0,
        created_at: 1,
        deadline: 2,
        tenant: "t",
        body,
    };
    let (codec, bytes) = foreign(&schema, &envelope(NewerBody::Cancel(Cancel { reason: "r".into() })));
    assert_eq!(codec.decode::<Envelope>(&bytes).unwrap().body, Body::Cancel(Cancel { reason: "r".into() }));
    let (codec, bytes) = foreign(&schema, &envelope(NewerBody::Wish(Wish { reason: "r" })));
    assert!(matches!(fault(codec.decode::<Envelope>(&bytes).unwrap_err()), Fault::Newer(_)));
}

#[test]
fn schemas_that_could_not_be_read_within_bounds_are_refused() {
    let endless = json!({"type": "record", "name": "FleetBeat", "namespace": "dev.starling",
        "fields": [{"name": "next", "type": ["null", "FleetBeat"]}]});
    let weightless = json!({"type": "record", "name": "FleetBeat", "namespace": "dev.starling",
        "fields": [{"name": "nothing", "type": {"type": "array", "items": "null"}}]});
    for schema in [endless, weightless, json!("string"), json!({"type": "nonsense"})] {
        assert!(codec().with_confluent([(1, schema.to_string().as_str())]).is_err(), "{schema}");
    }
}

/// Every valid encoding there is a sample of.
fn encodings() -> Vec<Vec<u8>> {
    let envelopes = samples::bodies().into_iter().map(|body| codec().encode(&samples::envelope(body)));
    let states = samples::state_records().into_iter().map(|record| codec().encode(&record));
    let beat = [codec().encode(&samples::fleet_beat())];
    let mut all: Vec<_> = envelopes.chain(states).chain(beat).map(Result::unwrap).collect();
    all.push(foreign_beat().1);
    all
}

/// Decodes as each kind, with a codec that knows a foreign schema too. What is decoded can be encoded.
fn decode_as_everything(codec: &Codec, bytes: &[u8]) {
    if let Ok(envelope) = codec.decode::<Envelope>(bytes) {
        codec.encode(&envelope).unwrap();
    }
    if let Ok(record) = codec.decode::<StateRecord>(bytes) {
        codec.encode(&record).unwrap();
    }
    if let Ok(beat) = codec.decode::<FleetBeat>(bytes) {
        codec.encode(&beat).unwrap();
    }
}

prop_compose! {
    fn any_envelope()(
        id in ".{0,20}",
        lane in proptest::option::of(".{1,12}"),
        numbers in (any::<i32>(), any::<i64>(), any::<i64>()),
        body in any_body(),
    ) -> Envelope {
        Envelope {
            id: EnvelopeId::from_string(id.as_str()),
            intent_id: IntentId::from_string(id),
            tag: Tag { role: Role::Worker, pool: None, lane },
            hop: numbers.0,
            created_at: Timestamp(numbers.1),
            deadline: Timestamp(numbers.2),
            tenant: "t".into(),
            body,
        }
    }
}

fn any_body() -> impl Strategy<Value = Body> {
    let number = -1e300_f64..1e300;
    let intent =
        (".*", any::<i32>(), proptest::collection::vec(".{0,8}", 0..20), proptest::option::of(number))
            .prop_map(|(goal, priority, items, min_score)| {
                let limits = Limits { min_score, ..Limits::default() };
                let parameters = items.iter().map(|item| (item.clone(), goal.clone())).collect();
                Body::Intent(Intent { goal, priority, items, limits, parameters, ..Intent::default() })
            });
    let judgement = prop_oneof![
        (0.0..1.0_f64, ".*").prop_map(|(score, feedback)| Judgement::Scored(Scored { score, feedback })),
        ".*".prop_map(|excerpt| Judgement::Unparseable(Unparseable { excerpt })),
        ".*".prop_map(|reason| Judgement::Unavailable(Unavailable { reason })),
    ];
    let verdict = (judgement, any::<i32>(), any::<i64>()).prop_map(|(judgement, attempt, calls)| {
        let work = CallReport { calls, ..CallReport::default() };
        Body::Verdict(Verdict { judgement, attempt, work, ..samples::verdict() })
    });
    let fragment = (proptest::collection::vec((".{0,9}", any::<bool>()), 0..9), any::<i32>()).prop_map(
        |(tasks, seq)| {
            let task = |(key, critic): (String, bool)| TaskSpec {
                ordinal: seq,
                depends_on: vec![key.clone(); 2],
                title: key.clone(),
                instruction: key.clone(),
                agent: key.clone(),
                key,
                critic,
                ..TaskSpec::default()
            };
            let tasks = tasks.into_iter().map(task).collect();
            Body::PlanFragment(PlanFragment {
                plan_attempt: 1,
                run: RunId::from_random(1),
                seq,
                tasks,
                end: None,
            })
        },
    );
    prop_oneof![intent, verdict, fragment]
}

proptest! {
    #[test]
    fn random_envelopes_survive(envelope in any_envelope()) {
        let bytes = codec().encode(&envelope).unwrap();
        prop_assert_eq!(codec().decode::<Envelope>(&bytes).unwrap(), envelope);
    }

    #[test]
    fn either_framing_says_the_same_to_every_reader(envelope in any_envelope(), id in any::<i32>()) {
        let writer = codec().writing_confluent(RecordKind::Envelope, id);
        let (single, confluent) = (codec().encode(&envelope).unwrap(), writer.encode(&envelope).unwrap());
        prop_assert_eq!(&confluent[..5], &[&[0][..], &id.to_be_bytes()].concat()[..]);
        prop_assert_eq!(&single[10..], &confluent[5..]);
        let reader = codec();
        prop_assert_eq!(
            reader.decode::<Envelope>(&confluent).unwrap_err(),
            DecodeError::UnknownSchemaId { id }
        );
        reader.learn(id, &schema_json(RecordKind::Envelope).to_string()).unwrap();
        for (codec, bytes) in [(&reader, &single), (&reader, &confluent), (&writer, &single), (&writer, &confluent)] {
            prop_assert_eq!(&codec.decode::<Envelope>(bytes).unwrap(), &envelope);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        decode_as_everything(&codec(), &bytes);
    }

    #[test]
    fn arbitrary_bytes_behind_a_valid_header_never_panic(
        encoding in proptest::sample::select(encodings()),
        tail in proptest::collection::vec(prop_oneof![3 => 0_u8..8, 1 => any::<u8>()], 0..400),
    ) {
        let header = if encoding[0] == 0 { 5 } else { 10 };
        decode_as_everything(&foreign_beat().0, &[&encoding[..header], tail.as_slice()].concat());
    }

    #[test]
    fn damaged_encodings_never_panic(
        mut bytes in proptest::sample::select(encodings()),
        damages in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0..4_u8), 1..6),
    ) {
        for (position, byte, damage) in damages {
            let position = position.index(bytes.len().max(1));
            match damage {
                0 if position < bytes.len() => bytes[position] ^= byte,
                1 => bytes.insert(position.min(bytes.len()), byte),
                2 if position < bytes.len() => drop(bytes.remove(position)),
                _ => bytes.truncate(position),
            }
        }
        decode_as_everything(&foreign_beat().0, &bytes);
    }
}
