//! The files of every released version keep decoding, and to the same values.
//!
//! `STARLING_WRITE_GOLDEN=1 cargo test -p starling-protocol --test golden` writes the files of the present
//! version. It overwrites none: a released file never changes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod samples;

use apache_avro::{Schema, rabin::Rabin, schema_compatibility::SchemaCompatibility};
use serde::Serialize;
use serde_json::{Value, json};
use starling_protocol::codec::{Codec, Record, RecordKind, SchemaError, released_versions, schema_json};
use starling_protocol::fleet::FleetBeat;
use starling_protocol::{Envelope, state::StateRecord};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/golden")
}

fn versions() -> Vec<PathBuf> {
    let mut versions: Vec<_> = fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().path()).collect();
    versions.sort();
    assert!(!versions.is_empty(), "there are no golden files");
    versions
}

/// Name, encoding and JSON of every sample.
fn encoded_samples() -> Vec<(String, Vec<u8>, Value)> {
    fn sample<R: Record + Serialize>(name: String, record: &R) -> (String, Vec<u8>, Value) {
        (name, Codec::default().encode(record).unwrap(), serde_json::to_value(record).unwrap())
    }
    let envelopes = samples::bodies().into_iter().map(|body| {
        let name = format!("Envelope.{}", body.kind());
        sample(name, &samples::envelope(body))
    });
    let states = samples::state_records().into_iter().map(|record| {
        let name = match &record {
            StateRecord::EpochStart(_) => "EpochStart",
            StateRecord::Decision(_) => "Decision",
            StateRecord::SnapshotChunk(_) => "SnapshotChunk",
        };
        sample(format!("StateRecord.{name}"), &record)
    });
    let fleet = sample("FleetBeat".into(), &samples::fleet_beat());
    envelopes.chain(states).chain([fleet]).collect()
}

fn decoded(kind: &str, bytes: &[u8]) -> Value {
    fn json<R: Record + Serialize>(bytes: &[u8]) -> Value {
        serde_json::to_value(Codec::default().decode::<R>(bytes).unwrap()).unwrap()
    }
    match kind {
        "Envelope" => json::<Envelope>(bytes),
        "StateRecord" => json::<StateRecord>(bytes),
        "FleetBeat" => json::<FleetBeat>(bytes),
        other => panic!("{other} is no kind of record"),
    }
}

/// Whether `found` has everything that `expected` has; fields that are newer than the file may be there too.
fn contains(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            expected.iter().all(|(name, value)| found.get(name).is_some_and(|found| contains(found, value)))
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, value)| contains(found, value))
        }
        (found, expected) => found == expected,
    }
}

#[test]
fn every_golden_file_decodes_to_the_value_beside_it() {
    write_if_asked();
    for version in versions() {
        let mut seen = BTreeSet::new();
        for entry in fs::read_dir(&version).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "bin") {
                continue;
            }
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let kind = name.split('.').next().unwrap();
            let found = decoded(kind, &fs::read(&path).unwrap());
            let json = fs::read_to_string(path.with_extension("json")).unwrap();
            let expected: Value = serde_json::from_str(&json).unwrap();
            assert!(contains(&found, &expected), "{}: {found:#} is not {expected:#}", path.display());
            seen.insert(name);
        }
        for entry in fs::read_dir(&version).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let name = path.file_stem().unwrap().to_str().unwrap();
                assert!(seen.contains(name), "{} has no encoded file", path.display());
            }
        }
    }
}

#[test]
fn the_present_version_has_a_golden_file_of_every_kind() {
    write_if_asked();
    let present = golden().join(env!("CARGO_PKG_VERSION"));
    for (name, bytes, _) in encoded_samples() {
        let golden = fs::read(present.join(format!("{name}.bin"))).expect(&name);
        assert_eq!(golden, bytes, "the encoding of {name} is not what its golden file says");
    }
    for kind in RecordKind::ALL {
        let golden = fs::read_to_string(present.join(format!("{kind}.avsc"))).unwrap();
        let golden: Value = serde_json::from_str(&golden).unwrap();
        assert_eq!(golden, schema_json(kind), "the schema of {kind} is not its golden file's");
    }
}

#[test]
fn the_present_schemas_read_what_every_released_one_wrote() {
    for version in versions() {
        for kind in RecordKind::ALL {
            let json = fs::read_to_string(version.join(format!("{kind}.avsc"))).unwrap();
            let writer = Schema::parse_str(&json).unwrap();
            let reader = Schema::parse(&schema_json(kind)).unwrap();
            SchemaCompatibility::can_read(&writer, &reader)
                .unwrap_or_else(|why| panic!("{kind} of {}: {why}", version.display()));
            Codec::default().with_confluent([(1, json.as_str())]).unwrap();
        }
    }
}

/// The check above is worth something only if it fails for a change that breaks a reader.
#[test]
fn changes_that_break_a_reader_are_recognised() {
    type Change = fn(&mut Value);
    let breaking: [(&str, Change); 3] = [
        ("a field without default is missing", |schema| {
            schema["fields"].as_array_mut().unwrap().remove(0);
        }),
        ("a field has another type", |schema| schema["fields"][3]["type"] = "string".into()),
        ("a record has another name", |schema| schema["name"] = "Letter".into()),
    ];
    for (what, change) in breaking {
        let reader = Schema::parse(&schema_json(RecordKind::Envelope)).unwrap();
        let mut json = schema_json(RecordKind::Envelope);
        change(&mut json);
        let writer = Schema::parse(&json).unwrap();
        assert!(SchemaCompatibility::can_read(&writer, &reader).is_err(), "{what}");
        let refused = Codec::default().with_confluent([(1, json.to_string().as_str())]).unwrap_err();
        assert!(
            matches!(refused, SchemaError::Incompatible(_) | SchemaError::Unsupported(_)),
            "{what}: {refused}"
        );
    }
}

/// Every record has one field more, with a default, as the next version may have it.
fn next_schema(kind: RecordKind) -> String {
    fn grow(schema: &mut Value) {
        match schema {
            Value::Object(object) => {
                object.values_mut().for_each(grow);
                if let Some(Value::Array(fields)) = object.get_mut("fields") {
                    fields.push(json!({"name": "newer", "type": ["null", "string"], "default": null}));
                    fields.push(json!({"name": "still_newer", "type": "string", "default": "later"}));
                }
            }
            Value::Array(parts) => parts.iter_mut().for_each(grow),
            _ => {}
        }
    }
    let mut schema = schema_json(kind);
    grow(&mut schema);
    schema.to_string()
}

#[test]
fn the_next_version_reads_this_one_and_writes_for_it() {
    fn travels<R: Record + Serialize>(record: &R, present: &Codec, next: &Codec) {
        let ours = present.encode(record).unwrap();
        let theirs = next.encode(record).unwrap();
        assert_ne!(ours, theirs);
        let json = |record: &R| serde_json::to_value(record).unwrap();
        assert_eq!(json(&next.decode::<R>(&ours).unwrap()), json(record), "what this one wrote");
        assert_eq!(json(&next.decode::<R>(&theirs).unwrap()), json(record), "what it wrote itself");
        let unknown = present.decode::<R>(&theirs).map(|_| ()).unwrap_err();
        assert!(unknown.is_newer() && present.has_unknown_schema(&theirs), "{unknown}");
        let version = released_versions().last().unwrap();
        let for_us = Codec::default().writing_version(version).unwrap();
        assert_eq!(for_us.encode(record).unwrap(), ours, "written for {version}, it is as that wrote it");
    }
    let schemas: Vec<String> = RecordKind::ALL.into_iter().map(next_schema).collect();
    let all = || schemas.iter().map(String::as_str);
    let present = Codec::default();
    let next = Codec::default().knowing(all()).unwrap().writing_as(all()).unwrap();
    samples::bodies().into_iter().for_each(|body| travels(&samples::envelope(body), &present, &next));
    samples::state_records().iter().for_each(|record| travels(record, &present, &next));
    travels(&samples::fleet_beat(), &present, &next);
    assert!(Codec::default().writing_version("0.0.1").is_err());
}

/// A variant that a newer version has is not a broken value: its reader is yet to come.
#[test]
fn what_a_newer_version_says_in_kind_is_newer_not_malformed() {
    let mut schema = schema_json(RecordKind::Envelope);
    let body = schema["fields"][7]["type"].as_array_mut().unwrap();
    let cancel = body.iter_mut().find(|variant| variant["name"] == "Cancel").unwrap();
    cancel["name"] = "Halt".into();
    let json = schema.to_string();
    let cancel = samples::bodies().into_iter().find(|body| body.kind() == "Cancel").unwrap();
    let mut bytes = Codec::default().encode(&samples::envelope(cancel)).unwrap();
    let fingerprint = Schema::parse_str(&json).unwrap().fingerprint::<Rabin>();
    bytes[2..10].copy_from_slice(&fingerprint.bytes);
    let codec = Codec::default().knowing([json.as_str()]).unwrap();
    let error = codec.decode::<Envelope>(&bytes).unwrap_err();
    assert!(error.is_newer() && error.to_string().contains("unknown to this version"), "{error}");
    assert!(!codec.decode::<Envelope>(&[0xc3, 1, 2]).unwrap_err().is_newer());
}

fn write_if_asked() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    if std::env::var_os("STARLING_WRITE_GOLDEN").is_some() {
        ONCE.call_once(|| write(&golden().join(env!("CARGO_PKG_VERSION"))));
    }
}

fn write(present: &Path) {
    let create = |name: String, bytes: &[u8]| {
        let path = present.join(name);
        let mut file = fs::File::create_new(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        std::io::Write::write_all(&mut file, bytes).unwrap();
    };
    fs::create_dir_all(present).unwrap();
    for (name, bytes, json) in encoded_samples() {
        create(format!("{name}.bin"), &bytes);
        create(format!("{name}.json"), (serde_json::to_string_pretty(&json).unwrap() + "\n").as_bytes());
    }
    for kind in RecordKind::ALL {
        let json = serde_json::to_string_pretty(&schema_json(kind)).unwrap() + "\n";
        create(format!("{kind}.avsc"), json.as_bytes());
    }
}
