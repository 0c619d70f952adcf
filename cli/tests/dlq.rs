//! Finding, replaying and dropping dead letters, on the bus in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use starling::{
    dlq::{DeadLetters, FilterArgs, How, LetterId, Replay, Row, Selection, Told, What, json, text},
    installation::inboxes,
};
use starling_bus::{Bus, InRecord, MemoryBus, MemoryOptions, OutRecord, PartitionId};
use starling_protocol::{
    Body, Cancel, Codec, Envelope, EnvelopeId, IntentId, Role, Tag, Timestamp, TopicNames,
    dead_letter::{Burial, OmittedValue, Settled},
    ids::content_digest,
    topic::partition_of,
};
use starling_runtime::{Schemas, Settings, settings::Sources, topics::topic_specs};
use std::{sync::Arc, time::Duration};

const HOUR: Duration = Duration::from_secs(3600);
const NOW: Timestamp = Timestamp(1_800_000_000_000);

struct Stage {
    bus: Arc<MemoryBus>,
    settings: Settings,
    letters: DeadLetters,
}

/// Two partitions of dead letters, three of the coordinator, four of the others.
async fn stage() -> Stage {
    let overrides = [
        ("topics.prefix", "s"),
        ("topics.partitions.dlq", "2"),
        ("topics.partitions.coordinator", "3"),
        ("topics.partitions.worker", "4"),
        ("topics.partitions.intents", "4"),
        ("dlq.batch", "2"),
    ];
    let overrides = overrides.map(|(path, value)| (path.to_owned(), value.to_owned())).to_vec();
    let settings = Settings::load(&Sources { overrides, ..Sources::default() }).unwrap();
    let bus = MemoryBus::new(MemoryOptions::default());
    bus.create_topics(&topic_specs(&settings.topics)).await.unwrap();
    let letters = DeadLetters::new(bus.clone(), Codec::default().into(), TopicNames::new("s"), 100);
    Stage { bus, settings, letters }
}

fn burial(topic: &str, partition: i32, offset: i64) -> Burial {
    Burial {
        code: "handler".to_owned(),
        reason: "not this".to_owned(),
        topic: topic.to_owned(),
        partition,
        offset,
        time: NOW,
        count: 1,
        group: topic.to_owned(),
        process: "worker-1".to_owned(),
        omitted: None,
    }
}

fn cancel(intent: &str) -> Bytes {
    let envelope = Envelope {
        id: EnvelopeId::derive("cancel", &[intent]),
        intent_id: IntentId::from_string(intent),
        tag: Tag::role(Role::Coordinator),
        hop: 0,
        created_at: NOW,
        deadline: Timestamp::MAX,
        tenant: "default".to_owned(),
        body: Body::Cancel(Cancel { reason: "enough".to_owned() }),
    };
    Codec::default().encode(&envelope).unwrap().into()
}

fn id(partition: i32, offset: i64) -> LetterId {
    LetterId { partition, offset }
}

fn headers(pairs: &[(&str, &str)]) -> Vec<(String, Bytes)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), Bytes::from((*value).to_owned()))).collect()
}

impl Stage {
    async fn bury(
        &self,
        partition: i32,
        burial: &Burial,
        own: &[(&str, &str)],
        value: Option<Bytes>,
    ) -> LetterId {
        let dlq = burial.headers().into_iter().map(|(name, value)| (name.to_owned(), Bytes::from(value)));
        let record = OutRecord {
            to: PartitionId::new("s.dlq", partition),
            key: Some(Bytes::from_static(b"the key")),
            headers: headers(own).into_iter().chain(dlq).collect(),
            payload: value,
        };
        id(partition, self.bus.send(record).await.unwrap().offset.unwrap())
    }

    fn select(&self, filter: FilterArgs, ids: Vec<LetterId>) -> Selection {
        Selection::new(&TopicNames::new("s"), filter, ids).unwrap()
    }

    async fn found(&self, filter: FilterArgs) -> Vec<(LetterId, Option<Settled>)> {
        let selection = self.select(filter, Vec::new());
        let survey = self.letters.survey(&selection).await.unwrap();
        let mut letters = self.letters.letters(&survey, &selection);
        let mut found = Vec::new();
        while let Some((letter, settled)) = letters.next().await.unwrap() {
            found.push((LetterId::of(&letter.record), settled));
        }
        found.sort_unstable_by_key(|(id, _)| *id);
        found
    }

    async fn settle(&self, what: What, filter: FilterArgs, ids: &[LetterId], again: bool) -> Vec<Told> {
        let selection = self.select(filter, ids.to_vec());
        let survey = self.letters.survey(&selection).await.unwrap();
        let mut told = Vec::new();
        let how = How { again, dry_run: false };
        let tell = |one| told.push(one);
        self.letters.settle(&survey, &selection, what, how, &self.settings.dlq, tell).await.unwrap();
        told
    }

    fn replaying(&self) -> What {
        let schemas: Schemas = Codec::default().into();
        What::Replay(Replay::new(self.bus.clone(), schemas, inboxes(&self.settings.topics), HOUR, NOW))
    }

    async fn replay(&self, ids: &[LetterId]) -> Vec<Told> {
        self.settle(self.replaying(), FilterArgs::default(), ids, false).await
    }

    async fn contents(&self, topic: &str, partition: i32) -> Vec<InRecord> {
        let at = PartitionId::new(topic, partition);
        let marks = self.bus.watermarks(&at).await.unwrap();
        let wanted: Vec<_> = (marks.low..marks.high).map(|offset| (at.clone(), offset)).collect();
        self.bus.read(&wanted).await.into_iter().map(Result::unwrap).collect()
    }
}

#[tokio::test]
async fn letters_are_found_by_reason_topic_intent_and_time() {
    let stage = stage().await;
    let worker = stage.bury(0, &burial("s.worker", 1, 4), &[("ce_subject", "i1")], None).await;
    let panicked = Burial { code: "panic".to_owned(), ..burial("s.worker", 2, 9) };
    let panicked = stage.bury(1, &panicked, &[], Some(cancel("i2"))).await;
    let coordinator = stage.bury(1, &burial("s.coordinator", 2, 9), &[], Some(cancel("i1"))).await;
    let foreign = OutRecord { to: PartitionId::new("s.dlq", 0), key: None, headers: vec![], payload: None };
    stage.bus.send(foreign).await.unwrap();

    let filter = FilterArgs::default;
    let one = |id| vec![(id, None)];
    assert_eq!(stage.found(filter()).await.len(), 3);
    assert_eq!(stage.found(FilterArgs { reason: vec!["panic".into()], ..filter() }).await, one(panicked));
    for topic in ["coordinator", "s.coordinator"] {
        assert_eq!(stage.found(FilterArgs { topic: vec![topic.into()], ..filter() }).await, one(coordinator));
    }
    let of_intent = stage.found(FilterArgs { intent: Some("i1".into()), ..filter() }).await;
    assert_eq!(of_intent, [(worker, None), (coordinator, None)], "by its headers, and by its value");
    let times: Vec<_> = stage.contents("s.dlq", 1).await.iter().map(|record| record.timestamp).collect();
    let later = Some(times[1].plus(HOUR));
    assert!(stage.found(FilterArgs { since: later, ..filter() }).await.is_empty());
    assert_eq!(stage.found(FilterArgs { until: later, ..filter() }).await.len(), 3);
    assert!(stage.found(FilterArgs { until: Some(Timestamp(1)), ..filter() }).await.is_empty());

    let everything = stage.select(filter(), vec![]);
    assert!(everything.is_everything());
    let survey = stage.letters.survey(&everything).await.unwrap();
    let mut letters = stage.letters.letters(&survey, &everything);
    while letters.next().await.unwrap().is_some() {}
    assert_eq!(letters.foreign, 1);
}

#[tokio::test]
async fn a_replayed_record_is_the_one_that_it_was_and_is_replayed_once() {
    let stage = stage().await;
    let own = [("traceparent", "00-a-b-01"), ("mine", "1")];
    let twice = Burial { count: 2, ..burial("s.worker", 7, 4) };
    let letter = stage.bury(0, &twice, &own, Some(cancel("i1"))).await;
    let told = stage.replay(&[letter]).await;
    // Four partitions are left of at least eight.
    let to = PartitionId::new("s.worker", 3);
    assert_eq!(told, [Told::Replayed(letter, to, Some(0))]);
    let replayed = stage.contents("s.worker", 3).await.remove(0);
    assert_eq!(replayed.key.as_deref(), Some(&b"the key"[..]));
    assert_eq!(replayed.payload, Some(cancel("i1")));
    let expected = [&own[..], &[("starling-dlq-count", "2")]].concat();
    assert_eq!(replayed.headers, headers(&expected));

    assert_eq!(stage.replay(&[letter]).await, [Told::Before(letter, Settled::Replayed)]);
    assert_eq!(stage.contents("s.worker", 3).await.len(), 1);
    assert_eq!(stage.found(FilterArgs::default()).await, [(letter, Some(Settled::Replayed))]);
    let again = stage.settle(stage.replaying(), FilterArgs::default(), &[letter], true).await;
    assert!(matches!(again[..], [Told::Replayed(..)]), "{again:?}");
    assert_eq!(stage.contents("s.worker", 3).await.len(), 2);
}

#[tokio::test]
async fn an_input_of_the_coordinator_goes_to_the_partition_of_its_intent() {
    let stage = stage().await;
    let home = partition_of("i1", 3);
    let misplaced = burial("s.coordinator", (home + 1) % 3, 4);
    let letter = stage.bury(0, &misplaced, &[], Some(cancel("i1"))).await;
    let garbage = stage.bury(0, &misplaced, &[], Some(Bytes::from_static(b"garbage"))).await;
    let told = stage.replay(&[letter, garbage]).await;
    let at = |partition| PartitionId::new("s.coordinator", partition);
    // Of the garbage only the key is known, and that is no intent's id.
    assert_eq!(told[0], Told::Replayed(letter, at(home), Some(0)));
    assert_eq!(told[1], Told::Replayed(garbage, at((home + 1) % 3), Some(0)));
}

#[tokio::test]
async fn an_intent_keeps_the_id_of_the_place_where_it_lay_first() {
    let stage = stage().await;
    let first = burial("s.intents", 1, 40);
    let goal = Some(Bytes::from_static(b"Compare the laptops"));
    let unnamed = stage.bury(0, &first, &[], goal.clone()).await;
    let named = stage.bury(0, &first, &[], Some(Bytes::from_static(br#"{"id":"mine","goal":"g"}"#))).await;
    let pinned = stage.bury(0, &first, &[("starling-intent-id", "earlier")], goal.clone()).await;
    let long_ago = Burial { time: Timestamp(NOW.0 - 2 * 3_600_000), ..first };
    let stale = stage.bury(0, &long_ago, &[], goal).await;
    let told = stage.replay(&[unnamed, named, pinned, stale]).await;
    let failed = told.iter().find(|told| matches!(told, Told::Failed(..))).unwrap();
    assert!(matches!(failed, Told::Failed(id, why) if *id == stale && why.contains("dedup_horizon")));
    let replayed = stage.contents("s.intents", 1).await;
    let ids: Vec<_> = replayed.iter().map(|record| record.header("starling-intent-id")).collect();
    let of_record = IntentId::of_record("s.intents", 1, 40);
    assert_eq!(ids, [Some(of_record.as_str()), None, Some("earlier")]);
}

#[tokio::test]
async fn a_value_that_was_too_large_is_taken_from_where_it_lay() {
    let stage = stage().await;
    let at = PartitionId::new("s.coordinator", 0);
    let key = Some(Bytes::from_static(b"the key"));
    let original =
        OutRecord { to: at.clone(), key, headers: headers(&[("mine", "1")]), payload: Some(cancel("i1")) };
    stage.bus.send(original.clone()).await.unwrap();
    stage.bus.send(OutRecord { payload: Some(cancel("i2")), ..original }).await.unwrap();
    let omitted = |offset, value: &Bytes| Burial {
        omitted: Some(OmittedValue { bytes: Some(value.len()), digest: Some(content_digest(value)) }),
        ..burial("s.coordinator", 0, offset)
    };
    let there = stage.bury(0, &omitted(0, &cancel("i1")), &[("mine", "1")], None).await;
    let other = stage.bury(0, &omitted(1, &cancel("i1")), &[("mine", "1")], None).await;
    let gone = stage.bury(0, &omitted(99, &cancel("i1")), &[("mine", "1")], None).await;
    let told = stage.replay(&[there, other, gone]).await;
    let home = PartitionId::new("s.coordinator", partition_of("i1", 3));
    assert!(told.iter().any(|told| matches!(told, Told::Replayed(id, to, _) if *id == there && *to == home)));
    let failed = |letter, words: &str| {
        let is = |told: &Told| matches!(told, Told::Failed(id, why) if *id == letter && why.contains(words));
        assert!(told.iter().any(is), "{words}: {told:?}");
    };
    failed(other, "another record");
    failed(gone, "is gone");
    let replayed = stage.contents(&home.topic, home.partition).await.pop().unwrap();
    assert_eq!(replayed.payload, Some(cancel("i1")));
}

#[tokio::test]
async fn a_letter_cannot_send_its_record_anywhere_else() {
    let stage = stage().await;
    for topic in ["s.state", "s.outcomes", "other.worker"] {
        let letter = stage.bury(1, &burial(topic, 0, 0), &[], None).await;
        let told = stage.replay(&[letter]).await;
        assert!(matches!(&told[..], [Told::Failed(_, why)] if why.contains("no inbox")), "{told:?}");
    }
}

#[tokio::test]
async fn what_is_dropped_is_passed_over_from_then_on() {
    let stage = stage().await;
    let mut all = Vec::new();
    for n in 0..5 {
        all.push(stage.bury(0, &burial("s.worker", 0, n), &[], Some(cancel("i1"))).await);
    }
    let told = stage.settle(What::Drop, FilterArgs::default(), &[all[1], all[3]], false).await;
    assert_eq!(told, [Told::Dropped(all[1]), Told::Dropped(all[3])]);
    let left = |found: Vec<(LetterId, Option<Settled>)>| -> Vec<LetterId> {
        found.into_iter().filter(|(_, settled)| settled.is_none()).map(|(id, _)| id).collect()
    };
    assert_eq!(left(stage.found(FilterArgs::default()).await), [all[0], all[2], all[4]]);
    // Those that are left, in batches of two.
    let told = stage.settle(stage.replaying(), FilterArgs::default(), &[], false).await;
    let replayed = told.iter().filter(|told| matches!(told, Told::Replayed(..))).count();
    assert_eq!((replayed, told.len()), (3, 5));
    assert!(left(stage.found(FilterArgs::default()).await).is_empty());
    assert_eq!(stage.contents("s.worker", 0).await.len(), 3);
}

#[tokio::test]
async fn a_dry_run_leaves_everything_as_it_is_and_missing_letters_are_named() {
    let stage = stage().await;
    let letter = stage.bury(0, &burial("s.worker", 0, 1), &[], Some(cancel("i1"))).await;
    let selection = stage.select(FilterArgs::default(), vec![letter]);
    let survey = stage.letters.survey(&selection).await.unwrap();
    let how = How { again: false, dry_run: true };
    for (what, expected) in [
        (stage.replaying(), Told::WouldReplay(letter, PartitionId::new("s.worker", 0))),
        (What::Drop, Told::WouldDrop(letter)),
    ] {
        let mut told = Vec::new();
        let tell = |one| told.push(one);
        stage.letters.settle(&survey, &selection, what, how, &stage.settings.dlq, tell).await.unwrap();
        assert_eq!(told, [expected]);
    }
    assert_eq!(stage.contents("s.dlq", 0).await.len(), 1);
    assert!(stage.contents("s.worker", 0).await.is_empty());

    let selection = stage.select(FilterArgs::default(), vec![letter, id(1, 7)]);
    let survey = stage.letters.survey(&selection).await.unwrap();
    let error = stage.letters.count(&survey, &selection, false).await.unwrap_err();
    assert!(error.to_string().ends_with(": 1:7"), "{error}");
}

#[tokio::test]
async fn what_can_be_read_is_shown_and_nothing_moves_the_cursor() {
    let stage = stage().await;
    let nasty = Burial { reason: "\u{1b}[2Joops\n".to_owned(), ..burial("s.coordinator", 2, 9) };
    stage.bury(0, &nasty, &[("bin", "\u{1}")], Some(cancel("i1"))).await;
    stage.bury(0, &burial("s.worker", 2, 9), &[], Some(Bytes::from_static(b"\x00\x00\x00\x00\x07xy"))).await;
    stage.bury(0, &burial("s.intents", 2, 9), &[], Some(Bytes::from_static(b"Do it"))).await;
    let everything = stage.select(FilterArgs::default(), vec![]);
    let survey = stage.letters.survey(&everything).await.unwrap();
    let mut letters = stage.letters.letters(&survey, &everything);
    let mut shown = Vec::new();
    while let Some((letter, settled)) = letters.next().await.unwrap() {
        let row = Row::of(&letter, settled);
        shown.push((text(&letter, settled) + &row.lines(), json(&letter, settled)));
    }
    let [(cancel, cancel_json), (framed, framed_json), (goal, goal_json)] = &shown[..] else {
        panic!("{shown:?}")
    };
    for part in
        ["single-object encoding", "Cancel for role:coordinator", "enough", "i1", "base64 AQ==", "handler"]
    {
        assert!(cancel.contains(part), "{part}: {cancel}");
    }
    assert!(!cancel.chars().any(|c| c.is_control() && c != '\n'), "{cancel:?}");
    assert_eq!(cancel_json["envelope"]["intent_id"], "i1");
    for part in ["Confluent framing of schema id 7", "00 00 00 00 07 78 79", ".....xy"] {
        assert!(framed.contains(part), "{part}: {framed}");
    }
    assert_eq!(framed_json["unreadable"]["begins_base64"], "AAAAAAd4eQ==");
    assert!(goal.contains("Do it") && goal.contains("by the place"), "{goal}");
    assert_eq!(goal_json["wanted"]["intent"]["goal"], "Do it");
}
