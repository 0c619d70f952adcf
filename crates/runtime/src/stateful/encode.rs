//! Effects in their final form, as they are logged and performed.

use crate::{
    dead_letter::{Reason, Undertaker, dead_letter, without_value},
    registry::Schemas,
    router::{Router, key_of, task_of},
    telemetry::{ActiveSpan, Spans},
    wire,
};
use bytes::Bytes;
use starling_bus::{InRecord, OutRecord, PartitionId};
use starling_engine::coordinator::{Destination, Event};
use starling_engine::statelog::{RECORD_OVERHEAD, upper_bound};
use starling_protocol::state::{LoggedEffect, LoggedHeader};
use starling_protocol::{Envelope, Priority, TaskId, Timestamp, Topic};
use std::sync::Arc;

/// Turns what a machine wants into bytes with an address.
pub(super) struct Encoder {
    pub(super) schemas: Schemas,
    pub(super) router: Router,
    pub(super) spans: Spans,
    pub(super) max_record: usize,
    /// Consumer group of the inbox.
    pub(super) group: Arc<str>,
    /// Name of this process.
    pub(super) process: Arc<str>,
}

impl Encoder {
    /// An effect that publishes `envelope`, under a `send` span. If it can never be sent, what the
    /// machine is to be told.
    pub(super) fn send(
        &self,
        to: &Destination,
        envelope: &Envelope,
        trace: &str,
        links: &[String],
        priority: Priority,
    ) -> Result<(LoggedEffect, ActiveSpan), Box<Event>> {
        let refused = |reason: String| Box::new(refusal_of(envelope, reason));
        let (topic, partition) = address(to);
        let key = key_of(&topic, envelope);
        let at = self.router.route(&topic, key, partition).map_err(|e| refused(e.to_string()))?;
        let payload = self.schemas.codec().encode(envelope).map_err(|e| refused(e.to_string()))?;
        let mut span = self.spans.send(&at, trace);
        links.iter().for_each(|link| span.link(link));
        span.set_with("starling.intent_id", || envelope.intent_id.as_str().to_owned());
        span.set_with("messaging.message.id", || envelope.id.as_str().to_owned());
        let context = wire::Context { parent: span.traceparent(), state: None, priority: Some(priority) };
        let headers = wire::headers_within(envelope, &context);
        let effect = LoggedEffect {
            topic: at.topic.to_string(),
            partition: at.partition,
            key: key.map(|key| key.as_bytes().to_vec()),
            headers: headers.into_iter().map(logged_header).collect(),
            payload,
        };
        match self.fits(&effect) {
            true => Ok((effect, span)),
            false => Err(refused(format!(
                "it takes {} bytes, and a record has room for {}",
                effect.payload.len(),
                self.max_record
            ))),
        }
    }

    /// An effect that gives `record` to people.
    pub(super) fn dead_letter(&self, record: &InRecord, reason: &Reason, now: Timestamp) -> LoggedEffect {
        let partitions = self.router.partitions(&Topic::Dlq).unwrap_or(1).max(1);
        let topic = self.router.names().name(&Topic::Dlq);
        let to = PartitionId::new(topic, record.at.partition.rem_euclid(partitions));
        let by = Undertaker { group: &self.group, process: &self.process, now };
        let effect = logged(dead_letter(record, to.clone(), reason, by));
        if self.fits(&effect) { effect } else { logged(without_value(record, to, reason, by)) }
    }

    /// A record that is sent once and not logged; `None` if it cannot be.
    pub(super) fn notice(&self, envelope: &Envelope, trace: &str) -> Option<OutRecord> {
        let key = key_of(&Topic::Progress, envelope);
        let to = self.router.route(&Topic::Progress, key, None).ok()?;
        let payload = self.schemas.codec().encode(envelope).ok()?;
        Some(OutRecord {
            to,
            key: key.map(|key| Bytes::copy_from_slice(key.as_bytes())),
            headers: wire::headers(envelope, trace),
            payload: Some(payload.into()),
        })
    }

    /// Whether an effect gives a record to people.
    pub(super) fn is_dead_letter(&self, effect: &LoggedEffect) -> bool {
        effect.topic == self.router.names().name(&Topic::Dlq)
    }

    /// What the machine is to be told about an effect that the broker refused. `None` if the effect was
    /// no envelope, so that no intent waits for it.
    pub(super) fn refusal(&self, effect: &LoggedEffect, reason: &str) -> Option<Event> {
        let envelope = self.schemas.codec().decode::<Envelope>(&effect.payload).ok()?;
        Some(refusal_of(&envelope, reason.to_owned()))
    }

    fn fits(&self, effect: &LoggedEffect) -> bool {
        upper_bound(effect).saturating_add(RECORD_OVERHEAD) <= self.max_record
    }
}

fn address(to: &Destination) -> (Topic, Option<i32>) {
    match to {
        Destination::Planner => (Topic::Planner, None),
        Destination::Worker { pool, partition } => (Topic::Worker(pool.clone()), Some(*partition)),
        Destination::Outcomes => (Topic::Outcomes, None),
        Destination::Control => (Topic::Control, None),
        Destination::Coordinator => (Topic::Coordinator, None),
    }
}

fn refusal_of(envelope: &Envelope, reason: String) -> Event {
    Event::EffectRefused {
        envelope_id: envelope.id.clone(),
        intent_id: envelope.intent_id.clone(),
        task_id: task_of(&envelope.body).map(TaskId::from_string),
        reason,
    }
}

fn logged_header((name, value): (String, Bytes)) -> LoggedHeader {
    LoggedHeader { name, value: value.to_vec() }
}

fn logged(record: OutRecord) -> LoggedEffect {
    LoggedEffect {
        topic: record.to.topic.to_string(),
        partition: record.to.partition,
        key: record.key.map(|key| key.to_vec()),
        headers: record.headers.into_iter().map(logged_header).collect(),
        // A tombstone and an empty value cannot be told apart in the log; neither says anything.
        payload: record.payload.map(|payload| payload.to_vec()).unwrap_or_default(),
    }
}

/// The record that performs an effect: the same bytes each time.
pub(super) fn performed(effect: &LoggedEffect) -> OutRecord {
    OutRecord {
        to: PartitionId::new(effect.topic.as_str(), effect.partition),
        key: effect.key.clone().map(Bytes::from),
        headers: effect
            .headers
            .iter()
            .map(|header| (header.name.clone(), Bytes::copy_from_slice(&header.value)))
            .collect(),
        payload: Some(Bytes::copy_from_slice(&effect.payload)),
    }
}
