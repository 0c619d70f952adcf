#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{Material, Sources, foreseen, outlined};
use crate::{
    client::{Client, Submission},
    exit::CliError,
};
use starling_bus::{Bus, MemoryBus, MemoryOptions, PartitionId};
use starling_protocol::{Body, Codec, Envelope, Intent, IntentId, Topic, TopicNames, ids::content_digest};
use starling_runtime::{Settings, settings::Sources as SettingSources, topics::topic_specs};
use std::path::PathBuf;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn settings(overrides: &[(&str, &str)]) -> Settings {
    let overrides = overrides.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned()));
    Settings::load(&SettingSources { overrides: overrides.collect(), ..SettingSources::default() }).unwrap()
}

fn usage(read: Result<Material, CliError>) -> String {
    match read {
        Err(CliError::Usage(why)) => why,
        other => panic!("expected a usage fault, found {other:?}"),
    }
}

fn whole(material: &Material, at: usize) -> String {
    material.parts[&at].iter().map(|part| part.content.text.as_str()).collect()
}

#[test]
fn small_files_stay_in_the_intent_and_large_ones_are_cut() {
    let folder = Folder::new();
    let (long, table) = ("A sentence of it. ".repeat(1_000), format!("a,b\n{}", "1,2\n".repeat(2_000)));
    let sources = Sources {
        files: vec![
            folder.file("s.md", "# Short"),
            folder.file("long.txt", &long),
            folder.file("t.csv", &table),
        ],
        chunk_tokens: Some(500),
        overlap: Some(50),
        ..Sources::default()
    };
    let material = Material::read(&sources, &settings(&[("inputs.inline", "4KiB")])).unwrap();
    let [short, long_one, table_one] = &material.inputs[..] else { panic!("three inputs") };
    assert_eq!(
        (short.name.as_str(), short.media_type.as_str(), short.content.as_str()),
        ("s.md", "text/markdown", "# Short")
    );
    assert!(long_one.content.is_empty() && table_one.content.is_empty());
    assert_eq!((whole(&material, 1), whole(&material, 2)), (long, table));
    for parts in material.parts.values() {
        assert!(parts.len() > 3 && parts.iter().all(|part| (1..=500).contains(&part.tokens)));
        assert!(parts[1..].iter().all(|part| !part.content.overlap.is_empty()));
    }
    let ahead = foreseen(&material.inputs, &material.parts);
    let parts: Vec<usize> = ahead.iter().map(starling_protocol::Input::parts).collect();
    assert_eq!(parts, [1, material.parts[&1].len(), material.parts[&2].len()]);
    assert!(ahead[1].tokens() >= 4_500, "what it takes can be told before: {}", ahead[1].tokens());
    let outlined = outlined(&material.inputs, &material.parts);
    assert!(outlined[1].content.starts_with("A sentence") && outlined[1].name.contains("the beginning of"));
    assert!(material.parts[&2][1..].iter().all(|part| part.content.heading == "a,b\n"));
    assert_eq!(material, Material::read(&sources, &settings(&[("inputs.inline", "4KiB")])).unwrap());
}

#[test]
fn what_is_inline_leaves_room_in_the_intent() {
    let folder = Folder::new();
    let files = (0..10).map(|n| folder.file(&format!("{n}.txt"), "x ".repeat(5_000))).collect();
    let settings = settings(&[("intake.max_intent", "64KiB")]);
    let material = Material::read(&Sources { files, ..Sources::default() }, &settings).unwrap();
    assert_eq!(
        material.inputs.iter().filter(|input| !input.content.is_empty()).count(),
        3,
        "32 KiB of 10 KB each"
    );
    assert_eq!(material.parts.len(), 7);
}

#[test]
fn all_faults_of_all_files_are_told_at_once() {
    let folder = Folder::new();
    let good = folder.file("good.txt", "fine");
    let sources = Sources {
        files: vec![
            folder.file("latin.txt", b"caf\xe9"),
            good.clone(),
            folder.file("empty.txt", ""),
            PathBuf::from("/nonexistent/x.txt"),
            folder.file("large.txt", "x".repeat(3_000)),
            good,
        ],
        item_files: vec![folder.file("items.json", "{}")],
        chunk_tokens: Some(100),
        overlap: Some(80),
        ..Sources::default()
    };
    let why = usage(Material::read(&sources, &settings(&[("inputs.max_file", "2KiB")])));
    assert!(why.starts_with("7 faults:\n"), "{why}");
    for says in [
        "latin.txt: is neither UTF-8",
        "empty.txt: has no text",
        "/nonexistent/x.txt: No such file",
        "large.txt: is larger than inputs.max_file, 2048 bytes",
        "good.txt: is given twice",
        "items.json: is no JSON array",
        "an overlap of 80 tokens is more than half of a part of 100",
    ] {
        assert!(why.contains(says), "{says}: {why}");
    }
}

#[test]
fn more_parts_than_an_intent_has_room_for_are_refused_before_anything_is_stored() {
    let folder = Folder::new();
    let files = vec![folder.file("long.txt", "some words ".repeat(40_000))];
    let sources = Sources { files, chunk_tokens: Some(100), ..Sources::default() };
    let why = usage(Material::read(&sources, &settings(&[("intake.max_intent", "64KiB")])));
    assert!(
        why.contains("parts of up to 100 tokens, and an intent has room for 409: take larger parts"),
        "{why}"
    );
}

#[test]
fn files_of_one_name_go_by_their_paths_and_items_come_from_files() {
    let folder = Folder::new();
    let sources = Sources {
        files: vec![folder.file("a/x.txt", "1"), folder.file("b/x.txt", "2"), folder.file("y.txt", "3")],
        item_files: vec![folder.file("list.txt", "one\ntwo\n"), folder.file("t.csv", "id,name\n1,three\n")],
        items_column: Some("name".to_owned()),
        ..Sources::default()
    };
    // The list has no column.
    assert!(usage(Material::read(&sources, &settings(&[]))).contains("list.txt: is no table"));
    let sources = Sources { item_files: sources.item_files[1..].to_vec(), ..sources };
    let material = Material::read(&sources, &settings(&[])).unwrap();
    let names: Vec<&str> = material.inputs.iter().map(|input| input.name.as_str()).collect();
    assert!(names[0].ends_with("/a/x.txt") && names[1].ends_with("/b/x.txt"), "{names:?}");
    assert_eq!((names[2], material.items), ("y.txt", vec!["three".to_owned()]));
}

#[tokio::test]
async fn parts_are_stored_once_and_before_the_intent() {
    let folder = Folder::new();
    let text = "The same again and again. ".repeat(2_000) + "And an end.";
    let sources = Sources {
        files: vec![folder.file("one.txt", &text), folder.file("two.txt", &text)],
        chunk_tokens: Some(1_000),
        ..Sources::default()
    };
    let settings = settings(&[("inputs.inline", "1KiB")]);
    let material = Material::read(&sources, &settings).unwrap();
    let bus = MemoryBus::new(MemoryOptions::default());
    bus.create_topics(&topic_specs(&settings.topics)).await.unwrap();
    let names = TopicNames::new("starling");
    let client = Client::new(bus.clone(), names.clone());
    for id in ["a", "b"] {
        let submission = Submission {
            id: IntentId::from_string(id),
            intent: Intent { goal: "g".to_owned(), inputs: material.inputs.clone(), ..Intent::default() },
            tenant: "t".to_owned(),
            timeout: None,
            traceparent: None,
            parts: material.parts.clone(),
        };
        client.submit(submission).await.unwrap();
    }
    let mut distinct: Vec<_> =
        material.parts.values().flatten().map(|part| part.content.envelope_id()).collect();
    distinct.sort();
    distinct.dedup();
    let (content, intents) = (names.name(&Topic::Content), names.name(&Topic::Intents));
    assert_eq!(
        count(&bus, &content, 12).await,
        distinct.len() as i64,
        "both files and both intents have the same parts"
    );
    let mut seen = 0;
    for partition in 0..12 {
        let at = PartitionId::new(intents.as_str(), partition);
        for offset in 0..bus.watermarks(&at).await.unwrap().high {
            let record = bus.read(&[(at.clone(), offset)]).await.pop().unwrap().unwrap();
            let envelope: Envelope = Codec::default().decode(record.value()).unwrap();
            let Body::Intent(intent) = envelope.body else { panic!("an intent") };
            assert!(record.value().len() < text.len() / 4, "an intent of a long file is small");
            for input in &intent.inputs {
                let mut read = String::new();
                for chunk in &input.chunks {
                    let at = PartitionId::new(chunk.topic.as_str(), chunk.partition);
                    let stored = bus.read(&[(at, chunk.offset)]).await.pop().unwrap().unwrap();
                    assert_eq!(content_digest(stored.value()), chunk.digest);
                    assert_eq!(stored.key.as_deref(), Some(chunk.envelope_id.as_str().as_bytes()));
                    let envelope: Envelope = Codec::default().decode(stored.value()).unwrap();
                    let Body::Content(content) = envelope.body else { panic!("content") };
                    read.push_str(&content.text);
                }
                assert_eq!(read, text);
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 4);
}

async fn count(bus: &MemoryBus, topic: &str, partitions: i32) -> i64 {
    let mut all = 0;
    for partition in 0..partitions {
        all += bus.watermarks(&PartitionId::new(topic, partition)).await.unwrap().high;
    }
    all
}
