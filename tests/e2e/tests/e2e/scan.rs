//! Reading what lies in topics of a real broker, with all that an offset can be other than a record.

use anyhow::Result;
use bytes::Bytes;
use starling::scan::{PATIENCE, Period, Scan};
use starling_bus::{Bus, KafkaBus, KafkaOptions, OutRecord, PartitionId, TopicSpec, TransactionProbe};
use starling_e2e::brokers;
use std::{collections::BTreeMap, time::Instant};

#[tokio::test(flavor = "multi_thread")]
async fn gaps_trimmed_beginnings_and_empty_partitions_are_read_over() -> Result<()> {
    let options = KafkaOptions::new(brokers()?);
    let bus = KafkaBus::new(options.clone())?;
    let prefix = format!("t{:08x}", rand::random::<u32>());
    let topics = [("one", 4), ("two", 4), ("none", 2)].map(|(name, partitions)| TopicSpec {
        name: format!("{prefix}.{name}"),
        partitions,
        replication: 1,
        settings: BTreeMap::new(),
    });
    bus.create_topics(&topics).await?;
    let names = topics.map(|topic| topic.name);
    let at = |topic: usize, partition| PartitionId::new(names[topic].as_str(), partition);
    let record = |to: PartitionId, value: &str| OutRecord {
        to,
        key: None,
        headers: Vec::new(),
        payload: Some(Bytes::from(value.to_owned())),
    };
    let plain = async |to: PartitionId, values: &[&str]| {
        for value in values {
            bus.send(record(to.clone(), value)).await?;
        }
        anyhow::Ok(())
    };
    plain(at(0, 0), &["a", "b", "c", "d"]).await?;
    bus.trim(&at(0, 0), 2).await?;
    // The end of a transaction takes an offset, here the last one of its partition.
    let together = vec![record(at(0, 2), "e"), record(at(0, 2), "f"), record(at(1, 2), "g")];
    TransactionProbe::new(&options, &prefix).run(2, together).await?;
    plain(at(1, 1), &["h"]).await?;
    plain(at(1, 3), &["gone"]).await?;
    bus.trim(&at(1, 3), 1).await?;

    let began = Instant::now();
    let mut scan = Scan::open(bus.clone(), &names, Period::default()).await?;
    plain(at(1, 2), &["later"]).await?;
    let mut read = Vec::new();
    while let Some(record) = scan.next().await? {
        read.push((
            record.at.topic.to_string(),
            record.at.partition,
            String::from_utf8_lossy(record.value()).into_owned(),
        ));
    }
    assert!(began.elapsed() < PATIENCE, "nothing was waited for: {:?}", began.elapsed());
    read.sort();
    let expected = [(0, 0, "c"), (0, 0, "d"), (0, 2, "e"), (0, 2, "e"), (0, 2, "f"), (0, 2, "f")];
    let more = [(1, 1, "h"), (1, 2, "g"), (1, 2, "g")];
    let expected = expected.into_iter().chain(more);
    let expected: Vec<_> = expected
        .map(|(topic, partition, value)| (names[topic].clone(), partition, value.to_owned()))
        .collect();
    assert_eq!(read, expected);
    starling_bus::delete_topics(options, &names.each_ref().map(String::as_str)).await?;
    Ok(())
}
