//! State partitions as every released version wrote them are replayed, and what they were in the middle of is
//! brought to its end.
//!
//! `STARLING_WRITE_GOLDEN=1 cargo test -p starling-engine --test coordinator golden` writes those of the present
//! version. It overwrites none: a released file never changes. A file is records one after the other: offset
//! (8 bytes) and length (4 bytes), both big-endian, then the record's value as it lies in Kafka.

use crate::builders::*;
use serde_json::{Value, json};
use starling_engine::coordinator::{Coordinator, Destination, Effect, Event};
use starling_engine::statelog::{
    Batch, Ignored, LogFold, Observed, Owner, RECORD_OVERHEAD, Replayed, Step, Takeover,
};
use starling_protocol::state::{LoggedEffect, LoggedHeader, StateRecord};
use starling_protocol::{Body, Codec, Envelope, Role, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::{fs, io::Write as _};

const LIMIT: usize = 100_000;

/// A state partition.
type Log = Vec<(i64, StateRecord)>;

fn versions() -> Vec<PathBuf> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/golden");
    let mut versions: Vec<_> = fs::read_dir(golden).unwrap().map(|entry| entry.unwrap().path()).collect();
    versions.sort();
    versions
}

/// What was read back.
struct Rebuilt {
    coordinator: Coordinator,
    owner: Box<Owner>,
    ignored: Vec<Ignored>,
}

/// Takes a log over, as a process does: announces itself behind its last record and reads up to that.
fn take_over(log: &mut Log, nonce: &str) -> Rebuilt {
    let takeover = Takeover::new(nonce.to_owned(), 1, "test".to_owned(), START);
    let epoch = log.last().map_or(0, |(offset, _)| offset + 1);
    log.push((epoch, takeover.record()));
    let mut coordinator = coordinator(settings());
    let mut replay = takeover.appended(epoch);
    let mut ignored = Vec::new();
    for (offset, record) in log.iter() {
        match replay.observe(*offset, record.clone()).unwrap() {
            Replayed::More(more, observed) => {
                replay = more;
                match observed {
                    Observed::Decision { changed, deleted } => coordinator.apply(&changed, &deleted),
                    Observed::Base(entities) => coordinator.apply(&entities, &[]),
                    Observed::Ignored(why) => ignored.push(why),
                    Observed::Epoch | Observed::SnapshotPart | Observed::Snapshot => {}
                }
            }
            Replayed::Owned(owner) => {
                coordinator.resume_at(owner.position().now);
                return Rebuilt { coordinator, owner, ignored };
            }
        }
    }
    panic!("the own epoch is not in the log");
}

impl Rebuilt {
    /// What a file says beside the records.
    fn described(&self) -> Value {
        let position = self.owner.position();
        let ignored: Vec<String> = self.ignored.iter().map(|why| format!("{why:?}")).collect();
        json!({
            "seq": position.seq,
            "now": position.now,
            "next_input": position.next_input,
            "effects_done": position.effects_done,
            "pending": position.pending.iter().map(|(seq, of)| (seq.to_string(), json!(of.len()))).collect::<serde_json::Map<_, _>>(),
            "ignored": ignored,
            "entities": self.coordinator.entities(),
        })
    }

    /// Performs what is not known to be done, answers as the other services would, lets time go by; gives how each
    /// intent ended.
    fn go_on(mut self) -> BTreeMap<String, String> {
        let codec = Codec::default();
        let undone = self.owner.pending().flat_map(|(_, effects)| effects);
        let mut sent: VecDeque<Envelope> =
            undone.map(|effect| codec.decode(&effect.payload).expect("an envelope in flight")).collect();
        let (mut outcomes, mut now, mut offset) = (BTreeMap::new(), self.coordinator.now(), 1_000_000);
        for _ in 0..1_000 {
            let event = match sent.pop_front() {
                Some(envelope) => match answer(&envelope, &mut outcomes) {
                    Some(answer) => received(offset, answer),
                    None => continue,
                },
                None if self.coordinator.load().live + self.coordinator.load().waiting == 0 => {
                    return outcomes;
                }
                None => {
                    now = now.max(self.coordinator.next_timer().expect("something is waited for"));
                    Event::Tick
                }
            };
            offset += 1;
            let effects = self.coordinator.step(now, event);
            sent.extend(super::builders::sent(&effects).cloned());
        }
        panic!("it never ends: {:#?}", self.coordinator.entities());
    }
}

fn answer(envelope: &Envelope, outcomes: &mut BTreeMap<String, String>) -> Option<Envelope> {
    match &envelope.body {
        Body::PlanRequest(request) => {
            let tasks = vec![spec(0, "only", &[])];
            let id = envelope.intent_id.as_str();
            Some(fragment(id, request.plan_attempt, &run(77), 0, tasks, plan_end()))
        }
        Body::Task(task) if task.next_tag.role == Role::Critic => Some(verdict(envelope, scored(0.9))),
        Body::Task(_) => Some(result(envelope, None)),
        Body::Outcome(outcome) => {
            outcomes.insert(envelope.intent_id.to_string(), outcome.status.name().to_owned());
            None
        }
        _ => None,
    }
}

/// Whether `found` has everything that `expected` has; fields that are newer than the file may be there too.
fn contains(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            expected.iter().all(|(name, value)| found.get(name).is_some_and(|found| contains(found, value)))
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len() && found.iter().zip(expected).all(|(f, e)| contains(f, e))
        }
        (found, expected) => found == expected,
    }
}

fn read(path: &Path) -> Log {
    let bytes = fs::read(path).unwrap();
    let mut rest = bytes.as_slice();
    let mut log = Log::new();
    while let Some((offset, after)) = rest.split_first_chunk::<8>() {
        let (length, after) = after.split_first_chunk::<4>().unwrap();
        let (value, after) = after.split_at(usize::try_from(u32::from_be_bytes(*length)).unwrap());
        let record = Codec::default().decode(value);
        log.push((
            i64::from_be_bytes(*offset),
            record.unwrap_or_else(|why| panic!("{}: {why}", path.display())),
        ));
        rest = after;
    }
    log
}

#[test]
fn golden_state_logs_of_every_version_are_replayed_and_brought_to_their_end() {
    write_if_asked();
    for version in versions() {
        let mut logs = 0;
        for entry in fs::read_dir(version.join("statelog")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "log") {
                continue;
            }
            logs += 1;
            let expected = fs::read_to_string(path.with_extension("json")).unwrap();
            let expected: Value = serde_json::from_str(&expected).unwrap();
            let rebuilt = take_over(&mut read(&path), "successor");
            let found = rebuilt.described();
            let state = &expected["state"];
            assert!(contains(&found, state), "{}: {found:#} is not {state:#}", path.display());
            assert_eq!(json!(rebuilt.go_on()), expected["outcomes"], "{}", path.display());
        }
        assert_eq!(logs, 3, "{}", version.display());
    }
}

#[test]
fn the_present_version_has_golden_state_logs() {
    write_if_asked();
    let version = env!("CARGO_PKG_VERSION");
    let folder = versions().into_iter().find(|path| path.ends_with(version)).expect(version).join("statelog");
    for (name, log) in logs() {
        assert_eq!(read(&folder.join(format!("{name}.log"))), log, "{name} is not what is written now");
    }
}

// ---- how they are made ----

/// A process that works on a partition.
struct Scribe {
    log: Log,
    at: Rebuilt,
    input: i64,
}

impl Scribe {
    fn new() -> Self {
        let mut log = Log::new();
        let at = take_over(&mut log, "first");
        Self { log, at, input: 0 }
    }

    fn append(&mut self, record: StateRecord) {
        let offset = self.log.last().map_or(0, |(offset, _)| offset + 1);
        self.log.push((offset, record.clone()));
        self.at.owner.observe(offset, record).unwrap();
    }

    /// One input, one decision. Gives what is sent.
    fn take(&mut self, envelope: Envelope) -> Vec<Envelope> {
        let decision = self.decide(envelope);
        let sent = decision.1;
        self.append(StateRecord::Decision(decision.0));
        sent
    }

    fn decide(&mut self, envelope: Envelope) -> (starling_protocol::state::Decision, Vec<Envelope>) {
        let now = START.plus(std::time::Duration::from_secs(self.input.unsigned_abs()));
        let effects = self.at.coordinator.step(now, received(self.input, envelope));
        self.input += 1;
        let changes = self.at.coordinator.take_changes();
        let mut batch = Batch::new(LIMIT);
        let step = Step {
            now,
            next_input: Some(self.input),
            changed: changes.changed,
            deleted: changes.deleted,
            effects: effects.iter().filter_map(logged).collect(),
        };
        batch.push(step).unwrap();
        (self.at.owner.decide(batch, 0), sent(&effects).cloned().collect())
    }

    /// Everything that was to be sent so far is sent.
    fn performed(&mut self) {
        let undone: Vec<i64> =
            self.at.owner.pending().flat_map(|(seq, of)| std::iter::repeat_n(seq, of.len())).collect();
        undone.into_iter().for_each(|seq| self.at.owner.effect_done(seq));
    }

    /// So many chunks of a snapshot, or all.
    fn snapshot(&mut self, most: usize) -> usize {
        let chunks = self.at.owner.snapshot(self.at.coordinator.entities(), 0, RECORD_OVERHEAD + 1_500);
        let count = chunks.len();
        chunks.into_iter().take(most).for_each(|chunk| self.append(StateRecord::SnapshotChunk(chunk)));
        count
    }

    /// Another process takes over.
    fn hand_over(&mut self, nonce: &str) {
        self.at = take_over(&mut self.log, nonce);
    }

    /// An intent in the middle of its tasks, one that waits for its plan, one that has ended.
    fn begin(&mut self) {
        self.take(intent("shop", "llm", 5));
        let tasks = vec![spec(0, "a", &[]), spec(1, "b", &[])];
        let tasks = self.take(fragment("shop", 1, &run(1), 0, tasks, None));
        self.performed();
        self.take(fragment("shop", 1, &run(1), 1, vec![spec(2, "c", &["a", "b"])], plan_end()));
        self.take(verdict(&tasks[0], scored(0.9)));
        self.take(verdict(&tasks[1], scored(0.3))); // to be tried again
        self.take(intent("gone", "llm", 1));
        self.take(cancel("gone"));
    }

    /// More, of which nothing is known to be done.
    fn go_on(&mut self) {
        self.take(cancel("never seen"));
        self.take(intent("stroll", "llm", 0));
        self.take(intent("alone", "single", 9));
    }
}

fn logged(effect: &Effect) -> Option<LoggedEffect> {
    let Effect::Send { to, envelope, trace, .. } = effect else { return None };
    let (topic, partition) = match to {
        Destination::Planner => ("starling.planner", 0),
        Destination::Worker { partition, .. } => ("starling.worker", *partition),
        Destination::Outcomes => ("starling.outcomes", 0),
        Destination::Control => ("starling.control", 0),
        Destination::Coordinator => ("starling.coordinator", 0),
    };
    Some(LoggedEffect {
        topic: topic.to_owned(),
        partition,
        key: Some(envelope.intent_id.as_str().as_bytes().to_vec()),
        headers: vec![LoggedHeader { name: "traceparent".to_owned(), value: trace.clone().into_bytes() }],
        payload: Codec::default().encode(envelope).unwrap(),
    })
}

fn logs() -> [(&'static str, Log); 3] {
    // From its beginning, with two owners; what the first one appends after the second has come does not count.
    let mut whole = Scribe::new();
    whole.begin();
    let (late, _) = whole.decide(intent("late", "llm", 0));
    whole.input -= 1;
    whole.hand_over("second");
    whole.append(StateRecord::Decision(late));
    whole.go_on();

    // Trimmed below the last snapshot but one.
    let mut trimmed = Scribe::new();
    trimmed.begin();
    assert!(trimmed.snapshot(usize::MAX) > 1, "in several chunks");
    trimmed.take(intent("stop", "llm", 2));
    trimmed.take(cancel("stop"));
    trimmed.snapshot(usize::MAX);
    trimmed.go_on();
    let from = trimmed.at.owner.trim_to().expect("two snapshots");
    trimmed.log.retain(|(offset, _)| *offset >= from);

    // Its owner died in the middle of a snapshot.
    let mut torn = Scribe::new();
    torn.begin();
    assert!(torn.snapshot(1) > 1);
    torn.hand_over("second");
    torn.go_on();
    [("whole", whole.log), ("trimmed", trimmed.log), ("torn", torn.log)]
}

fn write_if_asked() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    if std::env::var_os("STARLING_WRITE_GOLDEN").is_some() {
        ONCE.call_once(write);
    }
}

fn write() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/golden");
    let folder = golden.join(env!("CARGO_PKG_VERSION")).join("statelog");
    fs::create_dir_all(&folder).unwrap();
    let create = |name: String, bytes: &[u8]| {
        let path = folder.join(name);
        let mut file = fs::File::create_new(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        file.write_all(bytes).unwrap();
    };
    for (name, log) in logs() {
        let mut bytes = Vec::new();
        for (offset, record) in &log {
            let value = Codec::default().encode(record).unwrap();
            bytes.extend(offset.to_be_bytes());
            bytes.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
            bytes.extend(value);
        }
        create(format!("{name}.log"), &bytes);
        let rebuilt = take_over(&mut log.clone(), "successor");
        let described = json!({ "state": rebuilt.described(), "outcomes": rebuilt.go_on() });
        create(format!("{name}.json"), (serde_json::to_string_pretty(&described).unwrap() + "\n").as_bytes());
    }
}

/// The folds of owner and replay are one: a log that is read without taking it over says the same.
#[test]
fn whoever_reads_a_golden_log_comes_to_the_same_end() {
    for (_, mut log) in logs() {
        let mut fold = LogFold::new(1);
        let mut last = Timestamp(0);
        for (offset, record) in &log {
            fold.observe(*offset, record.clone()).unwrap();
            let now = fold.position().map_or(last, |position| position.now);
            assert!(now >= last, "time falls at {offset}");
            last = now;
        }
        let position = fold.position().unwrap().clone();
        assert_eq!(&position, take_over(&mut log, "successor").owner.position());
    }
}
