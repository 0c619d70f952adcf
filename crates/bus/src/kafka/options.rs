//! Settings of the Kafka bus, and what they mean to librdkafka.

use super::KafkaSecurity;
use crate::GroupConfig;
use rdkafka::ClientConfig;
use std::{collections::BTreeMap, time::Duration};

/// How members of a group agree on who gets what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupProtocol {
    /// The members themselves decide, cooperatively (the assignor is `cooperative-sticky`).
    #[default]
    Classic,
    /// The broker decides (KIP-848, Kafka 4). The session timeout is then a setting of the broker.
    Consumer,
}

/// Settings of a [`KafkaBus`](crate::KafkaBus).
#[derive(Clone, Debug)]
pub struct KafkaOptions {
    /// Addresses to begin with, `host:port`, comma-separated.
    pub brokers: String,
    /// Name of this client in the broker's logs and quotas (default `starling`).
    pub client_id: String,
    /// Who this client is, and whether others may listen in (default: nobody, and they may).
    pub security: KafkaSecurity,
    /// More librdkafka properties. They override what tunes and secures, but not what correctness rests on
    /// (idempotence, acks, manual commits, no silent offset reset).
    pub extra: BTreeMap<String, String>,
    /// How long a record may wait for others to share its batch (default 0: only for those that are
    /// queued already, which is enough to form batches under load).
    pub linger: Duration,
    /// The group protocol (default classic).
    pub group_protocol: GroupProtocol,
    /// Largest record that is sent (default 8 MiB). The topic's `max.message.bytes` may be smaller.
    pub max_message_bytes: usize,
    /// Producers side by side (default 1), for processes that send to many partitions at once: each has at
    /// most five requests under way, of one partition each.
    pub producers: usize,
    /// Topics with a producer of their own (default none), whose records therefore never wait behind those of others:
    /// what a decision causes may be many requests, and the next decision must not stand in line behind them.
    pub urgent_topics: Vec<String>,
    /// Records that may wait to be acknowledged, for each producer (default 100,000); beyond it sending is refused.
    pub send_queue_records: usize,
    /// Bytes that may wait to be acknowledged (default 64 MiB); beyond it sending is refused.
    pub send_queue_bytes: usize,
    /// How long a record may take, retries included, before its fate is unknown (default 30 s).
    pub send_timeout: Duration,
    /// Bytes that a consumer fetches ahead, over all its partitions (default 2 MiB), and bytes of records that wait
    /// beyond them to be taken.
    pub fetch_ahead_bytes: usize,
    /// How long metadata, offsets and administration may take (default 5 s).
    pub request_timeout: Duration,
    /// How long a commit may take (default 10 s).
    pub commit_timeout: Duration,
    /// How long reading single records may take (default 5 s).
    pub read_timeout: Duration,
    /// Consumers that read single records at the same time (default 4); more readers wait their turn.
    pub read_consumers: usize,
}

impl KafkaOptions {
    /// The defaults, for a cluster.
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            client_id: "starling".into(),
            security: KafkaSecurity::default(),
            extra: BTreeMap::new(),
            linger: Duration::ZERO,
            group_protocol: GroupProtocol::Classic,
            max_message_bytes: 8 << 20,
            producers: 1,
            urgent_topics: Vec::new(),
            send_queue_records: 100_000,
            send_queue_bytes: 64 << 20,
            send_timeout: Duration::from_secs(30),
            fetch_ahead_bytes: 2 << 20,
            request_timeout: Duration::from_secs(5),
            commit_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(5),
            read_consumers: 4,
        }
    }

    pub(super) fn admin(&self) -> ClientConfig {
        self.client(&[], &[("allow.auto.create.topics", "false".into())])
    }

    /// For a producer whose records share no batch.
    pub(super) fn lone_producer(&self) -> ClientConfig {
        let mut config = self.producer();
        config.set("batch.num.messages", "1");
        config
    }

    pub(super) fn producer(&self) -> ClientConfig {
        let tuning = [
            ("linger.ms", format!("{}", self.linger.as_secs_f64() * 1000.0)),
            ("message.max.bytes", self.max_message_bytes.to_string()),
            ("queue.buffering.max.messages", self.send_queue_records.to_string()),
            ("queue.buffering.max.kbytes", self.send_queue_bytes.div_ceil(1024).to_string()),
            ("message.timeout.ms", self.send_timeout.as_millis().to_string()),
            ("compression.type", "lz4".into()),
        ];
        self.client(&tuning, &[("enable.idempotence", "true".into()), ("acks", "all".into())])
    }

    pub(super) fn member(&self, group: &GroupConfig) -> ClientConfig {
        let mut tuning = self.fetching();
        if self.group_protocol == GroupProtocol::Classic {
            let session = group.session_timeout.as_millis();
            tuning.push(("session.timeout.ms", session.to_string()));
            // Ten chances to be heard within a session, since one process may serve many members.
            tuning.push(("heartbeat.interval.ms", (session / 10).clamp(100, 3000).to_string()));
            tuning.push(("partition.assignment.strategy", "cooperative-sticky".into()));
        }
        let mut must = consuming(&group.group);
        must.push(("enable.partition.eof", "true".into()));
        if self.group_protocol == GroupProtocol::Consumer {
            must.push(("group.protocol", "consumer".into()));
        }
        if let Some(instance) = &group.instance {
            must.push(("group.instance.id", instance.clone()));
        }
        self.client(&tuning, &must)
    }

    pub(super) fn reader(&self) -> ClientConfig {
        let mut must = consuming(&self.reader_group());
        must.push(("enable.partition.eof", "true".into()));
        self.client(&self.fetching(), &must)
    }

    /// For single records: ask for little, and never wait behind a long poll or a full queue.
    pub(super) fn single(&self) -> ClientConfig {
        let tuning = [
            ("fetch.wait.max.ms", "10".into()),
            ("queued.min.messages", "1".into()),
            ("fetch.queue.backoff.ms", "1".into()),
            // A larger record still comes whole: a broker returns the first batch whatever its size.
            ("max.partition.fetch.bytes", "65536".into()),
        ];
        let mut must = consuming(&self.reader_group());
        must.push(("enable.partition.eof", "true".into()));
        self.client(&tuning, &must)
    }

    /// To ask what a group has committed, without becoming its member.
    pub(super) fn offsets(&self, group: &str) -> ClientConfig {
        self.client(&[], &consuming(group))
    }

    /// librdkafka assigns only with a group id, and looks for that group's coordinator; nothing else is done with it.
    pub(super) fn reader_group(&self) -> String {
        format!("{}.reader", self.client_id)
    }

    fn fetching(&self) -> Vec<(&'static str, String)> {
        vec![
            ("fetch.min.bytes", "1".into()),
            ("fetch.wait.max.ms", "500".into()),
            ("fetch.queue.backoff.ms", "2".into()),
            ("queued.min.messages", "10000".into()),
            ("queued.max.messages.kbytes", self.fetch_ahead_bytes.div_ceil(1024).to_string()),
        ]
    }

    /// Tuning may be overridden by `extra`; what correctness needs may not.
    fn client(&self, tuning: &[(&str, String)], must: &[(&str, String)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("statistics.interval.ms", "0");
        config.set("socket.nagle.disable", "true");
        let extra = self.extra.iter().map(|(name, value)| (name.as_str(), value));
        let security = self.security.properties();
        let security = security.iter().map(|(name, value)| (*name, value));
        let tuning = security.chain(tuning.iter().map(|(name, value)| (*name, value)));
        let must = must.iter().map(|(name, value)| (*name, value));
        for (name, value) in tuning.chain(extra).chain(must) {
            config.set(name, value);
        }
        config.set("bootstrap.servers", &self.brokers).set("client.id", &self.client_id);
        config
    }
}

fn consuming(group: &str) -> Vec<(&'static str, String)> {
    vec![
        ("group.id", group.to_owned()),
        ("enable.auto.commit", "false".into()),
        ("enable.auto.offset.store", "false".into()),
        ("auto.offset.reset", "error".into()),
        ("allow.auto.create.topics", "false".into()),
    ]
}
