//! What users do, and what happens to the swarm, as a scenario says.

use super::{SESSION, World};
use crate::{
    judge::ready,
    process::BEGIN,
    scenario::{Bound, Garbage, Inbox, What, Wish},
};
use bytes::Bytes;
use starling_bus::{Bus as _, InRecord, OutRecord, PartitionId};
use starling_protocol::{
    Body, Cancel, Envelope, EnvelopeId, IntentId, Role, Tag, Timestamp, Topic, topic::partition_of,
};
use std::sync::atomic::Ordering;

impl World {
    pub(super) fn meet(&mut self, what: What) {
        match what {
            What::Intent(wish) => self.wish(&wish),
            What::Again(number) => {
                if let Some((id, record)) = self.wishes.get(&number).cloned() {
                    // Without an id of its own each record is an intent of its own.
                    let known = named(number) == id;
                    self.publish(record, known.then(|| id.as_str().to_owned()), !known);
                }
            }
            What::Altered(number) => self.altered(number),
            What::Cancel(number) => self.cancel(number),
            What::Garbage(inbox, sort) => self.garbage(inbox, sort),
            What::Duplicate(inbox, back) => self.duplicate(inbox, back),
            What::Redeliver(inbox, partition, back) => {
                let at = self.partition(inbox, partition);
                self.rewound.insert(at.clone());
                if let Some(Ok(marks)) = ready(self.memory.watermarks(&at)) {
                    self.memory.faults().redeliver(&at, (marks.high - back).max(marks.low));
                }
                self.network.touched();
            }
            What::Crash(number, down) => {
                let index = self.process(number);
                self.disturb(self.processes[index].service);
                if let Some(life) = self.processes[index].kill() {
                    self.network.orphan(life, &mut self.dice);
                    let session = self.dice.between(SESSION / 2, SESSION);
                    self.ghosts.push((self.now + session, life));
                    self.processes[index].start_at = Some(self.now + down);
                }
            }
            What::Stop(number, down) => {
                let index = self.process(number);
                if self.processes[index].life().is_some() {
                    self.disturb(self.processes[index].service);
                    self.processes[index].terminate();
                    self.processes[index].start_at = Some(self.now + down);
                }
            }
            What::Pause(number, length) => {
                let (index, now) = (self.process(number), self.now);
                let process = &mut self.processes[index];
                process.pause(now + length);
                if let Some(life) = process.life() {
                    self.sleepers.push((now + SESSION, life, process.service));
                }
            }
            What::Expire(number) => {
                let index = self.process(number);
                if let Some(life) = self.processes[index].life() {
                    self.disturb(self.processes[index].service);
                    self.network.expire(life);
                }
            }
            What::Rebalance(inbox) => {
                let (topic, group) = (topic_of(inbox), group_of(inbox));
                self.judge.disturbed(&topic);
                self.memory.faults().rebalance(&self.names.group(group));
                self.network.touched();
            }
            What::Skew(number, millis) => {
                let index = self.process(number);
                self.processes[index].skew.store(millis, Ordering::Relaxed);
            }
            What::Outage(inbox, length) => {
                let topic = self.names.name(&topic_of(inbox));
                self.network.outage(&topic, self.now + length);
            }
            What::Storm(length) => self.network.begin_storm(self.now + length),
            What::Forget(partition) => self.forget(partition),
        }
    }

    pub(super) fn partition(&self, inbox: Inbox, number: i32) -> PartitionId {
        let topic = self.names.name(&topic_of(inbox));
        let count = ready(self.memory.partitions(&topic)).and_then(Result::ok).unwrap_or(1);
        PartitionId::new(topic, number.rem_euclid(count))
    }

    /// Writes a record that no service wrote; `intent` is the id of the valid intent that it is, `derives` says that the
    /// id follows from where it lies.
    pub(super) fn publish(
        &mut self,
        record: OutRecord,
        intent: Option<String>,
        derives: bool,
    ) -> Option<i64> {
        let at = record.to.clone();
        let offset = ready(self.memory.send(record))?.ok()?.offset?;
        self.network.touched();
        let id = match intent {
            None if derives => Some(IntentId::of_record(&at.topic, at.partition, offset).as_str().to_owned()),
            id => id,
        };
        self.judge.published(&at, offset, id.as_deref());
        Some(offset)
    }

    fn wish(&mut self, wish: &Wish) {
        let number = wish.number;
        let to = self.partition(Inbox::Intents, i32::try_from(number).unwrap_or(0));
        let mut value = serde_json::json!({
            "goal": format!("wish <i{number}>"),
            "strategy": if wish.planned { "llm" } else { "single" },
            "limits": { "max_attempts": wish.attempts },
        });
        match wish.bound {
            Bound::None => {}
            Bound::Calls(most) => value["limits"]["max_calls"] = most.into(),
            Bound::Tokens(most) => value["limits"]["max_tokens"] = most.into(),
        }
        if wish.named {
            value["id"] = named(number).as_str().into();
        }
        if let Some(deadline) = wish.deadline {
            value["deadline_ms"] = deadline.into();
        }
        if wish.inputs {
            value["inputs"] = serde_json::json!([{ "name": "a.txt", "content": "some text" }]);
        }
        if wish.invalid {
            value["limits"]["max_attempts"] = 99.into();
        }
        let record = OutRecord {
            to: to.clone(),
            key: None,
            headers: vec![("content-type".into(), Bytes::from_static(b"application/json"))],
            payload: Some(value.to_string().into()),
        };
        let id = wish.named.then(|| named(number));
        let offset = self.publish(record.clone(), id.as_ref().map(|id| id.as_str().to_owned()), id.is_none());
        let of_record = || IntentId::of_record(&to.topic, to.partition, offset.unwrap_or(0));
        self.wishes.insert(number, (id.unwrap_or_else(of_record), record));
    }

    fn altered(&mut self, number: u32) {
        let Some((id, mut record)) = self.wishes.get(&number).cloned() else { return };
        let value = serde_json::json!({ "id": id.as_str(), "goal": format!("another wish <i{number}>") });
        record.payload = Some(value.to_string().into());
        self.publish(record, Some(id.as_str().to_owned()), false);
    }

    fn cancel(&mut self, number: u32) {
        let id = self.wishes.get(&number).map_or_else(|| named(number), |(id, _)| id.clone());
        let now = Timestamp(BEGIN + self.now);
        let envelope = Envelope {
            id: EnvelopeId::derive("cancel", &[id.as_str()]),
            intent_id: id.clone(),
            tag: Tag::role(Role::Coordinator).with_lane(id.as_str()),
            hop: 0,
            created_at: now,
            deadline: Timestamp::MAX,
            tenant: "default".into(),
            body: Body::Cancel(Cancel { reason: "not wanted any more".into() }),
        };
        let Ok(payload) = self.codec.encode(&envelope) else { return };
        let partition = partition_of(id.as_str(), self.scenario.shape.coordinator_partitions);
        let to = self.partition(Inbox::Coordinator, partition);
        self.publish(
            OutRecord { to, key: None, headers: Vec::new(), payload: Some(payload.into()) },
            None,
            false,
        );
    }

    fn garbage(&mut self, inbox: Inbox, sort: Garbage) {
        let number = i32::try_from(self.dice.count(0, 7)).unwrap_or(0);
        let to = self.partition(inbox, number);
        let noise: Vec<u8> = (0..self.dice.count(1, 60)).map(|_| self.dice.bits() as u8 | 0x80).collect();
        let payload = match sort {
            Garbage::Empty => Vec::new(),
            Garbage::Noise => noise,
            Garbage::UnknownSchema => [&[0xc3, 0x01, 1, 2, 3, 4, 5, 6, 7, 8], noise.as_slice()].concat(),
            Garbage::Truncated => {
                let value = self.some_record(inbox, 0).map(|record| record.value().to_vec());
                let mut value = value.unwrap_or(noise);
                value.truncate(value.len() * 2 / 3);
                value
            }
            Garbage::Misplaced => {
                let others = [Inbox::Coordinator, Inbox::Planner, Inbox::Worker, Inbox::Critic];
                let other = self.dice.pick(&others);
                match self.some_record(other, 0) {
                    // In its own inbox it would be a repetition, which is another matter.
                    Some(record) if other != inbox && inbox != Inbox::Intents => record.value().to_vec(),
                    _ => noise,
                }
            }
        };
        self.publish(
            OutRecord { to, key: None, headers: Vec::new(), payload: Some(payload.into()) },
            None,
            false,
        );
    }

    /// A record of an inbox, so many before the last of its first partition that has any.
    fn some_record(&self, inbox: Inbox, back: usize) -> Option<InRecord> {
        (0..8).find_map(|number| {
            let at = self.partition(inbox, number);
            let marks = ready(self.memory.watermarks(&at))?.ok()?;
            let back = i64::try_from(back).unwrap_or(0) % (marks.high - marks.low).max(1);
            ready(self.memory.read(&[(at, marks.high - 1 - back)]))?.pop()?.ok()
        })
    }

    fn duplicate(&mut self, inbox: Inbox, back: usize) {
        let Some(record) = self.some_record(inbox, back) else { return };
        let InRecord { at, key, headers, payload, .. } = record;
        let intent = match inbox {
            Inbox::Intents => {
                self.wishes.values().find(|(_, wish)| wish.payload == payload).map(|(id, _)| id.clone())
            }
            _ => None,
        };
        // The id of a nameless one follows from where it lies: its copy is another intent.
        let derives = intent.as_ref().is_some_and(|id| !id.as_str().starts_with('i'));
        let id = intent.filter(|_| !derives).map(|id| id.as_str().to_owned());
        self.publish(OutRecord { to: at, key, headers, payload }, id, derives);
    }

    /// Old results are gone, as retention takes them; never one that a critic has not read.
    fn forget(&mut self, number: i32) {
        let at = self.partition(Inbox::Critic, number);
        if self.rewound.contains(&at) {
            return;
        }
        let group = self.names.group("critic");
        let committed = ready(self.memory.committed(&group, &at)).and_then(Result::ok).flatten();
        if let Some(committed) = committed {
            let _ = ready(self.memory.trim(&at, committed.offset)); // what is gone cannot be trimmed again
            self.network.touched();
        }
    }
}

/// The id that a user gives.
fn named(number: u32) -> IntentId {
    IntentId::from_string(format!("i{number}"))
}

fn topic_of(inbox: Inbox) -> Topic {
    match inbox {
        Inbox::Intents => Topic::Intents,
        Inbox::Coordinator => Topic::Coordinator,
        Inbox::Planner => Topic::Planner,
        Inbox::Worker => Topic::Worker(None),
        Inbox::Critic => Topic::Critic,
        Inbox::State => Topic::State,
        Inbox::Outcomes => Topic::Outcomes,
        Inbox::Dlq => Topic::Dlq,
    }
}

fn group_of(inbox: Inbox) -> &'static str {
    match inbox {
        Inbox::Intents => "intake",
        Inbox::Planner => "planner",
        Inbox::Worker => "worker",
        Inbox::Critic => "critic",
        Inbox::Coordinator | Inbox::State | Inbox::Outcomes | Inbox::Dlq => "coordinator",
    }
}
