//! One record is missing, there twice, or another: the auditor sees it, and names the promise.

use crate::history::{History, header, terms};
use starling_audit::{Account, Promise, Purpose, Standing, Status, Terms, tree_of};
use starling_bus::InRecord;
use starling_protocol::{
    Body, OutcomeStatus, RecordRef, Timestamp, Topic,
    state::{EpochStart, LoggedEffect, LoggedHeader, StateRecord},
};

fn promises(account: &Account) -> Vec<Promise> {
    let mut broken: Vec<Promise> = account.entries.iter().filter_map(|entry| entry.promise).collect();
    broken.sort_unstable();
    broken.dedup();
    broken
}

/// Of the intent, as it is.
fn is_accounted(topic: &Topic) -> bool {
    !matches!(topic, Topic::Progress | Topic::Fleet)
}

fn effect_of(record: &InRecord, topic: &Topic) -> LoggedEffect {
    LoggedEffect {
        topic: format!("s.{}", topic.suffix()),
        partition: record.at.partition,
        key: record.key.as_ref().map(|key| key.to_vec()),
        headers: (record.headers.iter())
            .map(|(name, value)| LoggedHeader { name: name.clone(), value: value.to_vec() })
            .collect(),
        payload: record.value().to_vec(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_record_is_missing_it_is_noticed() {
    let history = History::of_one_intent().await;
    assert_eq!(history.audit().standing, Standing::Clean);
    let home = history.home();
    let mut tried = 0;
    for n in 0..history.records.len() {
        let (topic, record) = &history.records[n];
        if !is_accounted(topic) || (*topic == Topic::State && record.at.partition != home) {
            continue;
        }
        let mut tampered = history.clone();
        let (topic, record) = tampered.records.remove(n);
        tampered.cut = history.cut.clone(); // it was there to be read
        let account = tampered.audit();
        assert!(
            !account.is_fine(),
            "{topic:?} {} @{} is missing:\n{}",
            record.at,
            record.offset,
            tree_of(&account)
        );
        tried += 1;
    }
    assert!(tried > 20, "{tried} records were taken away");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_effect_has_other_bytes_breaks_a_promise() {
    let history = History::of_one_intent().await;
    for n in history.find(|topic, _| matches!(topic, Topic::Planner | Topic::Worker(_) | Topic::Outcomes)) {
        let topic = history.records[n].0.clone();
        let expected = if topic == Topic::Outcomes { Promise::OneOutcome } else { Promise::AppliedOnce };
        // Another value, another key, other headers: each is another record.
        let mut tampered = history.clone();
        tampered.append_changed(n, |envelope| envelope.created_at = Timestamp(envelope.created_at.0 + 1));
        let account = tampered.audit();
        assert!(promises(&account).contains(&expected), "{}", tree_of(&account));
        for change in [
            (|record: &mut InRecord| record.key = Some("other".into())) as fn(&mut InRecord),
            |record| record.headers.push(header("x", "y")),
            |record| record.at.partition = (record.at.partition + 1) % 2,
        ] {
            let mut tampered = history.clone();
            change(&mut tampered.records[n].1);
            let account = tampered.audit();
            assert!(promises(&account).contains(&expected), "{}", tree_of(&account));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_effect_twice_is_a_duplicate_and_says_why() {
    let history = History::of_one_intent().await;
    let effects =
        history.find(|topic, _| matches!(topic, Topic::Worker(_) | Topic::Outcomes | Topic::Planner));
    for n in effects {
        let mut tampered = history.clone();
        let (topic, record) = history.records[n].clone();
        let offset = tampered.append(topic, record);
        let account = tampered.audit();
        assert_eq!(account.standing, Standing::Clean, "{}", tree_of(&account));
        let copy = account.entries.iter().find(|e| e.status == Status::Duplicate).unwrap();
        assert_eq!(copy.record.as_ref().unwrap().offset, offset);
        assert!(copy.why.starts_with("sent again"), "nobody took over: {}", copy.why);
    }
    // An owner that could not know what its predecessor had done does it again.
    let mut tampered = history.clone();
    let ended = tampered.find(|topic, _| *topic == Topic::Outcomes)[0];
    let (topic, record) = tampered.records[ended].clone();
    tampered.append(topic, record);
    let deciding = tampered.state().into_iter().find(|n| match tampered.state_record(*n) {
        StateRecord::Decision(decision) => decision.effects.iter().any(|effect| effect.topic == "s.outcomes"),
        _ => false,
    });
    let after = deciding.unwrap();
    let later = tampered.state().into_iter().filter(|n| *n > after).collect::<Vec<_>>();
    later.into_iter().rev().for_each(|n| drop(tampered.records.remove(n)));
    let start = EpochStart { nonce: "later".into(), partitions: 3, version: "x".into(), at: Timestamp(1) };
    let epoch = tampered.append_state(&StateRecord::EpochStart(start));
    let mut decision = tampered.next_decision();
    (decision.epoch, decision.nonce) = (epoch, "later".into());
    tampered.append_state(&StateRecord::Decision(decision));
    let account = tampered.audit();
    assert_eq!(account.standing, Standing::Clean, "{}", tree_of(&account));
    let copy = account.entries.iter().find(|e| e.status == Status::Duplicate).unwrap();
    assert!(copy.why.contains("a later owner"), "{}", copy.why);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_outcome_breaks_the_first_promise() {
    let mut history = History::of_one_intent().await;
    let n = history.find(|topic, _| *topic == Topic::Outcomes)[0];
    history.append_changed(n, |envelope| {
        if let Body::Outcome(outcome) = &mut envelope.body {
            outcome.status = OutcomeStatus::Failed;
        }
    });
    let account = history.audit();
    assert_eq!((account.standing, promises(&account)), (Standing::Violated, vec![Promise::OneOutcome]));
    assert!(tree_of(&account).contains("VIOLATION of promise 1: "), "{}", tree_of(&account));
    let report = history.report();
    assert!(!report.is_fine() && report.violated == 1, "{}", report.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_of_a_decision_that_does_not_count_breaks_a_promise() {
    let history = History::of_one_intent().await;
    let n = history.find(|topic, _| matches!(topic, Topic::Worker(_)))[0];
    let (topic, mut record) = history.records[n].clone();
    record.headers.push(header("traceparent", "of another owner"));
    // Written by somebody who did not own the partition, and performed.
    let mut tampered = history.clone();
    let mut decision = tampered.next_decision();
    decision.nonce = "a zombie".into();
    decision.effects = vec![effect_of(&record, &topic)];
    tampered.append_state(&StateRecord::Decision(decision));
    tampered.append(topic.clone(), record.clone());
    let account = tampered.audit();
    assert_eq!(promises(&account), [Promise::AppliedOnce], "{}", tree_of(&account));
    assert!(tree_of(&account).contains("does not count"), "{}", tree_of(&account));
    // Decided by the owner, but a second time.
    let mut tampered = history.clone();
    let mut decision = tampered.next_decision();
    decision.effects = vec![effect_of(&record, &topic)];
    tampered.append_state(&StateRecord::Decision(decision));
    tampered.append(topic, record);
    let account = tampered.audit();
    assert_eq!(promises(&account), [Promise::AppliedOnce], "{}", tree_of(&account));
    assert!(tree_of(&account).contains("decided once more"), "{}", tree_of(&account));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_repeated_is_counted_with_who_made_it() {
    let mut history = History::of_one_intent().await;
    let result =
        history.find(|topic, body| *topic == Topic::Critic && matches!(body, Body::TaskResult(_)))[0];
    let offset = history.append_changed(result, |envelope| {
        envelope.created_at = Timestamp(envelope.created_at.0 + 1);
        if let Body::TaskResult(result) = &mut envelope.body {
            result.worker = "another".into();
        }
    });
    let second = history.records.last().unwrap().1.clone();
    let envelope = history.envelope(history.records.len() - 1);
    let at = RecordRef::of("s.critic", second.at.partition, offset, &envelope, second.value());
    let id = |body: &Body| match body {
        Body::Verdict(verdict) => Some((verdict.task_id.clone(), verdict.attempt)),
        Body::TaskResult(result) => Some((result.task_id.clone(), result.attempt)),
        _ => None,
    };
    let step = id(&envelope.body);
    let verdict = history.find(|topic, body| {
        *topic == Topic::Coordinator && matches!(body, Body::Verdict(_)) && id(body) == step
    })[0];
    history.append_changed(verdict, |envelope| {
        if let Body::Verdict(verdict) = &mut envelope.body {
            verdict.result = at;
            verdict.worker = "another".into();
        }
    });
    let pending = history.audit();
    assert_eq!(pending.standing, Standing::Unaccounted, "nobody has read the second verdict");
    history.decide_rest();
    let account = history.audit();
    let text = tree_of(&account);
    assert_eq!(account.standing, Standing::Clean, "{text}");
    assert_eq!(account.repetitions(Purpose::Work), 1, "{text}");
    let call = account.repeated.iter().find(|call| call.purpose == Purpose::Work).unwrap();
    let by: Vec<(&str, bool)> = call.answers.iter().map(|a| (a.process.as_str(), a.taken)).collect();
    assert_eq!((by[0].1, by[1]), (true, ("another", false)), "{text}");
    assert_eq!(account.counts.of(Status::Superseded), 1, "its verdict came when all was over: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_reads_must_be_a_dead_letter() {
    let history = History::of_one_intent().await;
    let n = history.find(|topic, _| matches!(topic, Topic::Worker(_)))[0];
    let (topic, mut record) = history.records[n].clone();
    record.payload = Some("garbage".into());
    record.headers.clear();
    let mut tampered = history.clone();
    let offset = tampered.append(topic.clone(), record.clone());
    tampered.measure();
    let report = tampered.report();
    assert_eq!((report.is_fine(), report.strays, report.unaccounted), (false, 1, 0), "{}", report.text());
    // Its consumer has committed it: it was dropped.
    tampered.cut.handled.insert((topic, record.at.partition), offset + 1);
    let report = tampered.report();
    assert_eq!(report.lost_strays[0].promise, Some(Promise::NothingDropped), "{}", report.text());

    let mut letter = record.clone();
    letter.at.partition = 0;
    for (name, value) in [
        ("starling-dlq-reason", "no envelope".to_owned()),
        ("starling-dlq-topic", "s.worker".to_owned()),
        ("starling-dlq-partition", record.at.partition.to_string()),
        ("starling-dlq-offset", offset.to_string()),
    ] {
        letter.headers.push(header(name, value));
    }
    tampered.append(Topic::Dlq, letter.clone());
    let report = tampered.report();
    assert!(report.is_fine() && report.lost_strays.is_empty(), "{}", report.text());

    // A letter of the intent must be what it was.
    let mut tampered = history.clone();
    let (_, was) = history.records[n].clone();
    let last = letter.headers.len() - 1;
    letter.headers[last] = header("starling-dlq-offset", was.offset.to_string());
    letter.payload = was.payload.clone();
    tampered.append(Topic::Dlq, letter.clone());
    let account = tampered.audit();
    assert_eq!(account.counts.of(Status::DeadLetter), 2, "{}", tree_of(&account));
    assert!(account.is_fine(), "{}", tree_of(&account));
    let envelope = history.envelope(history.find(|topic, _| matches!(topic, Topic::Worker(_)))[1]);
    letter.payload = Some(starling_protocol::Codec::default().encode(&envelope).unwrap().into());
    let mut tampered = history.clone();
    tampered.append(Topic::Dlq, letter);
    assert_eq!(promises(&tampered.audit()), [Promise::NothingDropped]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_is_not_known_and_breaks_no_promise() {
    let history = History::of_one_intent().await;
    for topic in [Topic::Worker(None), Topic::Critic, Topic::Planner, Topic::Intents, Topic::Outcomes] {
        let mut tampered = history.clone();
        tampered.records.retain(|(other, _)| *other != topic);
        for ((other, _), extent) in &mut tampered.cut.extents {
            if *other == topic {
                extent.low = extent.high.max(1);
                extent.high = extent.low;
            }
        }
        let account = tampered.audit();
        assert!(promises(&account).is_empty(), "{topic:?}: {}", tree_of(&account));
        assert_eq!(account.counts.of(Status::Unaccounted), 0, "{topic:?}: {}", tree_of(&account));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_past_its_deadline_without_an_outcome_breaks_the_first_promise() {
    let mut history = History::of_one_intent().await;
    // As it was before the last word: the coordinator stands still.
    let ended = history.state().into_iter().find(|n| match history.state_record(*n) {
        StateRecord::Decision(decision) => decision.effects.iter().any(|effect| effect.topic == "s.outcomes"),
        _ => false,
    });
    let from = history.records[ended.unwrap()].1.offset;
    let home = history.home();
    history.records.retain(|(topic, record)| match topic {
        Topic::State => record.at.partition != home || record.offset < from,
        Topic::Outcomes => false,
        _ => true,
    });
    history.cut.done_by.insert(home, 0);
    let lenient = Terms { ended: false, ..terms() };
    let account = history.audit_on(lenient);
    assert_eq!(account.standing, Standing::Live, "{}", tree_of(&account));
    assert!(account.is_fine() && account.counts.of(Status::Pending) > 0, "{}", tree_of(&account));
    assert_eq!(history.audit().standing, Standing::Unaccounted, "nothing may be under way");

    let day = 24 * 3600 * 1000;
    let account = history.audit_on(Terms { now: Timestamp(lenient.now.0 + day), ..lenient });
    assert_eq!(promises(&account), [Promise::OneOutcome], "{}", tree_of(&account));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_replayed_by_hand_is_a_duplicate() {
    let mut history = History::of_one_intent().await;
    let n = history.find(|topic, _| matches!(topic, Topic::Worker(_)))[0];
    let (topic, mut record) = history.records[n].clone();
    record.headers.push(header("starling-dlq-count", "1"));
    history.append(topic, record);
    let account = history.audit();
    assert!(account.is_fine(), "{}", tree_of(&account));
    assert_eq!(account.counts.of(Status::Duplicate), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_was_applied_twice_breaks_the_second_promise() {
    let mut history = History::of_one_intent().await;
    // The coordinator has decided an outcome in which one result counts twice.
    let n = history.find(|topic, _| *topic == Topic::Outcomes)[0];
    let was = history.records[n].1.payload.clone().unwrap();
    let mut envelope = history.envelope(n);
    if let Body::Outcome(outcome) = &mut envelope.body {
        outcome.calls += 1;
    }
    let wrong = starling_protocol::Codec::default().encode(&envelope).unwrap();
    history.records[n].1.payload = Some(wrong.clone().into());
    for n in history.state() {
        let StateRecord::Decision(mut decision) = history.state_record(n) else { continue };
        for effect in decision.effects.iter_mut().filter(|effect| effect.payload == was) {
            effect.payload.clone_from(&wrong);
        }
        let record = StateRecord::Decision(decision);
        let payload = starling_protocol::Codec::default().encode(&record).unwrap();
        history.records[n].1.payload = Some(payload.into());
    }
    let account = history.audit();
    assert_eq!(promises(&account), [Promise::AppliedOnce], "{}", tree_of(&account));
    assert!(tree_of(&account).contains("calls, what the coordinator was told"), "{}", tree_of(&account));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reference_that_leads_to_another_record_is_found() {
    let history = History::of_one_intent().await;
    let with_critics = history.find(|topic, _| *topic == Topic::Critic);
    for n in with_critics {
        // Another record lies where a result was: whoever follows a reference to it finds the wrong one.
        let mut tampered = history.clone();
        let mut envelope = history.envelope(n);
        envelope.created_at = Timestamp(envelope.created_at.0 + 1);
        let payload = starling_protocol::Codec::default().encode(&envelope).unwrap();
        tampered.records[n].1.payload = Some(payload.into());
        let account = tampered.audit();
        assert!(promises(&account).contains(&Promise::NothingDropped), "{}", tree_of(&account));
        assert!(tree_of(&account).contains("where another record lies"), "{}", tree_of(&account));
    }
}
