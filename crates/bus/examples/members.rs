//! How long a group of many members takes to balance, and what it costs in memory.
//!
//!     cargo run --release -p starling-bus --example members -- HOST:PORT [members] [classic|consumer]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use starling_bus::{
    Bus, Deliver, GroupConfig, GroupEvent, GroupProtocol, KafkaBus, KafkaOptions, OutRecord, PartitionId,
    TopicSpec,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const PARTITIONS: i32 = 128;

#[derive(Default)]
struct Seen {
    owned: BTreeMap<usize, BTreeSet<i32>>,
    worked: BTreeSet<usize>,
    records: usize,
}

#[tokio::main]
async fn main() {
    let brokers = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9092".into());
    let members: usize = env::args().nth(2).map_or(100, |count| count.parse().unwrap());
    let group_protocol = match env::args().nth(3).as_deref() {
        Some("consumer") => GroupProtocol::Consumer,
        _ => GroupProtocol::Classic,
    };
    let bus = KafkaBus::new(KafkaOptions { group_protocol, ..KafkaOptions::new(brokers) }).unwrap();
    let stamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let topic: Arc<str> = format!("members-{stamp}").into();
    let spec = TopicSpec {
        name: topic.to_string(),
        partitions: PARTITIONS,
        replication: 1,
        settings: BTreeMap::new(),
    };
    bus.create_topics(&[spec]).await.unwrap();
    print_memory("before");
    let started = Instant::now();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut all = Vec::new();
    for number in 0..members {
        let config = GroupConfig {
            group: topic.to_string(),
            topics: vec![topic.to_string()],
            deliver: Deliver::Records,
            instance: None,
            session_timeout: Duration::from_secs(10),
            revoke_timeout: Duration::from_secs(5),
            queue_records: 100,
        };
        let member = bus.join(config).await.unwrap();
        all.push(member.clone());
        let seen = seen.clone();
        tokio::spawn(async move {
            loop {
                let event = member.next().await;
                let mut seen = seen.lock().unwrap();
                match event {
                    GroupEvent::Assigned(list) => {
                        seen.owned.entry(number).or_default().extend(list.iter().map(|one| one.at.partition));
                    }
                    GroupEvent::Revoked(list, acknowledge) => {
                        list.iter().for_each(|at| {
                            assert!(seen.owned.entry(number).or_default().remove(&at.partition))
                        });
                        acknowledge.acknowledge();
                    }
                    GroupEvent::Record(_) => {
                        seen.worked.insert(number);
                        seen.records += 1;
                    }
                    GroupEvent::Closed => return,
                    GroupEvent::End { .. } => {}
                    other => println!("member {number}: {other:?}"),
                }
            }
        });
    }
    println!("joined after {:?}", started.elapsed());
    let balanced = |seen: &Seen| {
        let sizes = || seen.owned.values().map(BTreeSet::len);
        sizes().sum::<usize>() == PARTITIONS as usize && sizes().filter(|size| *size > 0).count() == members
    };
    while !balanced(&seen.lock().unwrap()) {
        assert!(started.elapsed() < Duration::from_secs(120), "no balance: {:?}", seen.lock().unwrap().owned);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("balanced after {:?}", started.elapsed());
    print_memory("balanced");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let sending = Instant::now();
    for partition in 0..PARTITIONS {
        let to = PartitionId { topic: topic.clone(), partition };
        drop(bus.send(OutRecord { to, key: None, headers: Vec::new(), payload: Some("x".into()) }));
    }
    while seen.lock().unwrap().records < PARTITIONS as usize {
        assert!(sending.elapsed() < Duration::from_secs(30), "records are missing");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!(
        "{PARTITIONS} records reached {} members in {:?}",
        seen.lock().unwrap().worked.len(),
        sending.elapsed()
    );
    let leaving = Instant::now();
    futures::future::join_all(all.iter().map(|member| member.leave(Duration::from_secs(20)))).await;
    println!("all left after {:?}", leaving.elapsed());
}

fn print_memory(when: &str) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("Threads"));
    println!("{when}: {}", lines.map(|line| line.replace('\t', " ")).collect::<Vec<_>>().join(", "));
}
