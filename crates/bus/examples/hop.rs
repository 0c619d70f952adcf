//! How long a record takes from one process to another, and how many go through.
//!
//!     cargo run --release -p starling-bus --example hop -- HOST:PORT|memory [linger in ms]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use starling_bus::{
    Bus, CommitOffset, Deliver, GroupConfig, GroupConsumer, GroupEvent, KafkaBus, KafkaOptions, MemoryBus,
    MemoryOptions, OutRecord, PartitionId, TopicSpec,
};
use std::{
    collections::BTreeMap,
    env,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const PARTITIONS: i32 = 12;
const RECORDS: usize = 200_000;

#[tokio::main]
async fn main() {
    let brokers = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9092".into());
    let linger = env::args().nth(2).map_or(0.0, |linger| linger.parse().unwrap());
    let bus: Arc<dyn Bus> = if brokers == "memory" {
        MemoryBus::new(MemoryOptions { max_bytes_per_partition: 1 << 30, ..MemoryOptions::default() })
    } else {
        let linger = Duration::from_secs_f64(linger / 1000.0);
        KafkaBus::new(KafkaOptions { linger, ..KafkaOptions::new(brokers) }).unwrap()
    };
    let stamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let topic: Arc<str> = format!("hop-{stamp}").into();
    let spec = TopicSpec {
        name: topic.to_string(),
        partitions: PARTITIONS,
        replication: 1,
        settings: BTreeMap::new(),
    };
    bus.create_topics(&[spec]).await.unwrap();
    let member = bus
        .join(GroupConfig {
            group: topic.to_string(),
            topics: vec![topic.to_string()],
            deliver: Deliver::Records,
            instance: None,
            session_timeout: Duration::from_secs(10),
            revoke_timeout: Duration::from_secs(5),
            queue_records: 10_000,
        })
        .await
        .unwrap();
    while !matches!(member.next().await, GroupEvent::Assigned(_)) {}

    let record = |n: usize| OutRecord {
        to: PartitionId { topic: topic.clone(), partition: i32::try_from(n).unwrap() % PARTITIONS },
        key: None,
        headers: (0..6).map(|n| (format!("header-{n}"), Bytes::from_static(b"0123456789abcdef"))).collect(),
        payload: Some(Bytes::from_static(&[7; 512])),
    };
    let (mut hops, mut acks) = (Vec::new(), Vec::new());
    for n in 0..2000 {
        let started = Instant::now();
        let sent = bus.send(record(n));
        next_record(&member).await;
        hops.push(started.elapsed());
        sent.await.unwrap();
        acks.push(started.elapsed());
    }
    print_times("hop", hops);
    print_times("hop and acknowledgement", acks);

    let mut commits = Vec::new();
    for offset in 0..500 {
        let started = Instant::now();
        let at = PartitionId { topic: topic.clone(), partition: 0 };
        member
            .commit(vec![CommitOffset { at, offset: offset % 100, metadata: "m".repeat(200) }])
            .await
            .unwrap();
        commits.push(started.elapsed());
    }
    print_times("commit", commits);

    let mut reads = Vec::new();
    for n in 0..500 {
        let started = Instant::now();
        let at = PartitionId { topic: topic.clone(), partition: n % PARTITIONS };
        bus.read(&[(at, i64::from(n % 100))]).await.pop().unwrap().unwrap();
        reads.push(started.elapsed());
    }
    print_times("read of one record", reads);
    let mut reads = Vec::new();
    for n in 0..200 {
        let started = Instant::now();
        let at: Vec<_> = (0..PARTITIONS)
            .map(|partition| (PartitionId { topic: topic.clone(), partition }, n % 100))
            .collect();
        bus.read(&at).await.into_iter().for_each(|record| drop(record.unwrap()));
        reads.push(started.elapsed());
    }
    print_times("read of 12 records of 12 partitions", reads);

    let (started, used) = (Instant::now(), cpu_ticks());
    let (sender, window) = (bus.clone(), Arc::new(tokio::sync::Semaphore::new(20_000)));
    let records: Vec<OutRecord> = (0..RECORDS).map(record).collect();
    let sending = tokio::spawn(async move {
        for record in records {
            let permit = window.clone().acquire_owned().await.unwrap();
            let sent = sender.send(record);
            tokio::spawn(async move {
                sent.await.unwrap();
                drop(permit);
            });
        }
    });
    for _ in 0..RECORDS {
        next_record(&member).await;
    }
    sending.await.unwrap();
    let rate = RECORDS as f64 / started.elapsed().as_secs_f64();
    let cpu = (cpu_ticks() - used) as f64 * 10_000.0 / RECORDS as f64;
    println!("through: {rate:.0} records/s, {cpu:.1} µs of CPU each in this process");
}

/// Hundredths of a second of CPU that this process has used.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

async fn next_record(member: &Arc<dyn GroupConsumer>) {
    while !matches!(member.next().await, GroupEvent::Record(_)) {}
}

fn print_times(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{what}: p10 {:?}, p50 {:?}, p99 {:?}", at(0.1), at(0.5), at(0.99));
}
