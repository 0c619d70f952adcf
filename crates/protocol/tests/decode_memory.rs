//! Whatever the bytes are, decoding them holds no more memory than the limit. The allocator of this test
//! counts, so there is one test only: another one beside it would be counted too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod samples;

use peak_alloc::PeakAlloc;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use starling_protocol::codec::{Codec, CodecLimits, DecodeError, Record, RecordKind, schema_json};
use starling_protocol::fleet::FleetBeat;
use starling_protocol::state::StateRecord;
use starling_protocol::{Body, Cancel, Envelope, Intent};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const LIMITS: CodecLimits = CodecLimits { max_bytes: 1 << 20, max_memory: 2 << 20, max_schemas: 1 };
/// Messages of errors, which quote a part of the schema.
const SLACK: usize = 64 << 10;

/// Decodes and returns what it took at most, after checking it against the limit.
fn measured<R: Record>(codec: &Codec, bytes: &[u8]) -> (Result<(), DecodeError>, usize) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let result = codec.decode::<R>(bytes).map(drop);
    let taken = ALLOCATOR.peak_usage().saturating_sub(before);
    assert!(taken <= LIMITS.max_memory + SLACK, "{taken} bytes for {} of input: {result:?}", bytes.len());
    (result, taken)
}

fn long(value: i64, out: &mut Vec<u8>) {
    let mut zigzag = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while zigzag > 0x7f {
        out.push(0x80 | (zigzag & 0x7f) as u8);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

/// The header of a record's encoding.
fn header<R: Record>(record: &R) -> Vec<u8> {
    Codec::default().encode(record).unwrap()[..10].to_vec()
}

/// An envelope up to where the fields of its body begin.
fn envelope_with_body(variant: i64) -> Vec<u8> {
    let mut bytes = header(&samples::envelope(Body::Cancel(Cancel { reason: String::new() })));
    bytes.extend([0, 0]); // ids
    long(11, &mut bytes);
    bytes.extend(b"role:critic");
    bytes.extend([0, 0, 0, 0]); // hop, times, tenant
    long(variant, &mut bytes);
    bytes
}

/// A snapshot chunk up to its entities.
fn chunk() -> Vec<u8> {
    let mut bytes = header(&samples::state_records()[0]);
    long(2, &mut bytes);
    bytes.extend([0; 8]); // epoch to parts
    bytes
}

fn lengths_that_lie() {
    let codec = Codec::new(LIMITS);
    for lie in [1 << 19, 1 << 21, 1 << 40, i64::MAX, -1, i64::MIN, i64::MIN + 1] {
        let mut reason = envelope_with_body(12);
        long(lie, &mut reason);
        reason.extend([b'x'; 100]);
        assert!(measured::<Envelope>(&codec, &reason).0.is_err());

        let mut entities = chunk();
        long(lie, &mut entities);
        entities.extend([0; 4000]);
        assert!(measured::<StateRecord>(&codec, &entities).0.is_err());
    }
}

fn items_that_weigh_little() {
    let codec = Codec::new(LIMITS);
    let mut refused = 0;
    let mut largest = 0;
    for items in (1..40).map(|step| step * 20_000_i64).chain([100, 1_000, 5_000, 10_000]) {
        // Empty strings: one byte each.
        let mut intent = envelope_with_body(0);
        intent.extend([0; 11]); // goal to inputs
        long(items, &mut intent);
        intent.extend(vec![0; usize::try_from(items).unwrap() + 2]); // with the ends of items and of parameters
        let (result, taken) = measured::<Envelope>(&codec, &intent);
        refused += usize::from(result.is_err());
        largest = largest.max(taken);

        // Parameters: the same name again and again, and no two of them the same.
        for distinct in [false, true] {
            let mut intent = envelope_with_body(0);
            intent.extend([0; 12]); // goal to items
            long(items, &mut intent);
            for at in 0..items {
                let name = if distinct { at.to_string() } else { String::new() };
                long(i64::try_from(name.len()).unwrap(), &mut intent);
                intent.extend(name.as_bytes());
                intent.push(0); // no value
            }
            intent.push(0);
            let (result, taken) = measured::<Envelope>(&codec, &intent);
            refused += usize::from(result.is_err());
            largest = largest.max(taken);
        }

        // Cancelled entities without text: five bytes each, in one block and in blocks of one.
        let entity = [8, 0, 0, 0, 0];
        let count = usize::try_from(items.min(200_000)).unwrap();
        let mut one_block = chunk();
        long(i64::try_from(count).unwrap(), &mut one_block);
        one_block.extend(entity.repeat(count));
        one_block.extend([0, 0, 0]); // end, pending, effects_done
        let mut blocks = chunk();
        blocks.extend([[2].as_slice(), &entity].concat().repeat(count.min(150_000)));
        blocks.extend([0, 0, 0]);
        for bytes in [one_block, blocks] {
            let (result, taken) = measured::<StateRecord>(&codec, &bytes);
            refused += usize::from(result.is_err());
            largest = largest.max(taken);
        }
    }
    // The test would be worth little if all of them were refused at once, or if none were.
    assert!(refused > 10, "{refused}");
    assert!(largest > LIMITS.max_memory / 8, "the limit refuses what would take {largest} bytes");
}

fn text_up_to_the_limit() {
    let codec = Codec::new(LIMITS);
    let goal = "x".repeat(900_000);
    let bytes = codec.encode(&samples::envelope(Body::Intent(Intent { goal, ..Intent::default() }))).unwrap();
    let (result, taken) = measured::<Envelope>(&codec, &bytes);
    result.unwrap();
    assert!(taken >= 900_000);
}

/// A codec that also reads, under id 5, envelopes of a version whose intents had no items.
fn codec_of_two_versions() -> Codec {
    let mut schema = schema_json(RecordKind::Envelope);
    let intent = &mut schema["fields"][7]["type"][0]["fields"];
    intent.as_array_mut().unwrap().retain(|field| field["name"] != "items");
    Codec::new(LIMITS).with_confluent([(5, schema.to_string().as_str())]).unwrap()
}

fn another_version(codec: &Codec) {
    let framed = |datum: &[u8]| [[0, 0, 0, 0, 5].as_slice(), datum].concat();
    let mut decoded = 0;
    for inputs in [0, 10, 1_000, 5_000, 20_000, 100_000, 300_000] {
        let mut bytes = framed(&envelope_with_body(0)[10..]);
        bytes.extend([0; 10]); // goal to limits
        bytes.extend([[2].as_slice(), &[0, 0, 0, 0]].concat().repeat(inputs)); // in blocks of one
        bytes.extend([0; 2]); // the ends of inputs and of parameters
        decoded += usize::from(measured::<Envelope>(codec, &bytes).0.is_ok());
    }
    assert!((2..7).contains(&decoded), "{decoded}");
    for lie in [1 << 40, i64::MAX, i64::MIN] {
        let mut bytes = framed(&envelope_with_body(12)[10..]);
        long(lie, &mut bytes);
        assert!(measured::<Envelope>(codec, &bytes).0.is_err());
    }
}

fn anything(runner: &mut TestRunner, codec: &Codec) {
    let other_version = [[0, 0, 0, 0, 5].as_slice(), &envelope_with_body(0)[10..]].concat();
    let beginnings = vec![
        envelope_with_body(0),
        envelope_with_body(3),
        other_version,
        chunk(),
        header(&samples::fleet_beat()),
    ];
    let bytes = (
        proptest::sample::select(beginnings),
        proptest::collection::vec(prop_oneof![4 => 0_u8..6, 1 => any::<u8>()], 0..3_000),
    );
    let outcome = runner.run(&bytes, |(beginning, tail)| {
        let bytes = [beginning, tail].concat();
        let _ = measured::<Envelope>(codec, &bytes);
        let _ = measured::<StateRecord>(codec, &bytes);
        let _ = measured::<FleetBeat>(codec, &bytes);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn decoding_holds_no_more_memory_than_the_limit() {
    // Built on first use and kept: not part of any one decoding.
    let warm = Codec::new(LIMITS);
    for bytes in [
        envelope_with_body(0),
        chunk(),
        header(&samples::fleet_beat()),
        vec![0xc3, 1, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        let _ = warm.decode::<Envelope>(&bytes);
        let _ = warm.decode::<StateRecord>(&bytes);
        let _ = warm.decode::<FleetBeat>(&bytes);
    }
    lengths_that_lie();
    items_that_weigh_little();
    text_up_to_the_limit();
    let codec = codec_of_two_versions();
    another_version(&codec);
    anything(&mut TestRunner::default(), &codec);
}
