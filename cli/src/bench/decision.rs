//! State-log decisions against Kafka transactions over the same partitions.
//!
//! Both make the same thing durable: what was decided for one input, and the records that follow from it.
//! The state log appends one record that contains them and produces them once it is acknowledged; the
//! transaction writes all of them and the consumer's offset, and commits. Both go on with the next decision when
//! the last is durable; the time of the state log ends when the last effect is acknowledged. What a decision takes
//! while nothing else goes on is measured before.

use super::{
    measure::{Figures, Percentiles},
    scene::{on_kafka, prefix},
};
use crate::{args::DecisionArgs, exit::CliError, session::Session};
use bytes::Bytes;
use futures::future::try_join_all;
use starling_bus::{Bus, KafkaOptions, OutRecord, PartitionId, SendError, TopicSpec, TransactionProbe};
use starling_runtime::process::Traffic;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

const EFFECT_BYTES: usize = 1_000;
/// Decisions of each kind beforehand, which open connections and learn where partitions are.
const WARM: usize = 10;

/// What is decided, again and again.
struct Load {
    decision: OutRecord,
    effects: Vec<OutRecord>,
}

/// When the next decision is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// When all that followed from the last one is acknowledged.
    Alone,
    /// When the last one is durable, as the owner of a partition does that has enough to decide.
    OneAfterTheOther,
}

/// How long each decision took until it was durable, and all of them with everything that followed.
struct Times {
    each: Vec<Duration>,
    all: Duration,
}

pub(super) async fn run(session: &Session, args: &DecisionArgs) -> Result<Figures, CliError> {
    let prefix = prefix();
    let topic = |name: &str, partitions| TopicSpec {
        name: format!("{prefix}.{name}"),
        partitions,
        replication: -1,
        settings: BTreeMap::new(),
    };
    let (state, effects) = (topic("state", 1), topic("effects", args.partitions));
    let load = Load::new(&state.name, &effects.name, args.partitions);
    let options =
        KafkaOptions { urgent_topics: vec![state.name.clone()], ..session.kafka_options(Traffic::FanOut) };
    let (bus, litter) = on_kafka(options.clone(), &[state, effects]).await?;
    let measured = async {
        logged(bus.as_ref(), &load, WARM, Pace::Alone).await?;
        let alone = logged(bus.as_ref(), &load, args.decisions, Pace::Alone).await?;
        let log = logged(bus.as_ref(), &load, args.decisions, Pace::OneAfterTheOther).await?;
        let probe = TransactionProbe::new(&options, &prefix);
        let all_records = load.effects.iter().chain([&load.decision]).cloned().collect();
        let each = probe.run(WARM + args.decisions, all_records).await?.split_off(WARM);
        Ok::<_, CliError>((alone, log, Times { all: each.iter().sum(), each }))
    };
    let measured = measured.await;
    litter.clear().await;
    let (alone, log, transactions) = measured?;

    let per_second = |times: &Times| times.each.len() as f64 / times.all.as_secs_f64();
    let (log_rate, transaction_rate) = (per_second(&log), per_second(&transactions));
    let mut figures = Figures::new("decision", "kafka");
    let percentiles = [alone, log, transactions].map(|times| Percentiles::of(times.each));
    if let [Some(alone), Some(log), Some(transaction)] = percentiles {
        figures.more = vec![
            ("state_log_alone_p50_ms", alone.p50),
            ("state_log_p50_ms", log.p50),
            ("state_log_p99_ms", log.p99),
            ("state_log_per_s", log_rate),
            ("transaction_p50_ms", transaction.p50),
            ("transaction_p99_ms", transaction.p99),
            ("transaction_per_s", transaction_rate),
            ("ratio_per_s", log_rate / transaction_rate),
        ];
    }
    Ok(figures)
}

impl Load {
    fn new(state: &str, effects: &str, partitions: i32) -> Self {
        let record = |topic: &str, partition, size| OutRecord {
            to: PartitionId::new(topic, partition),
            key: None,
            headers: Vec::new(),
            // Nothing that compression makes small.
            payload: Some((0..size).map(|_| rand::random::<u8>()).collect::<Bytes>()),
        };
        let effects: Vec<_> = (0..partitions).map(|p| record(effects, p, EFFECT_BYTES)).collect();
        Self { decision: record(state, 0, EFFECT_BYTES * effects.len()), effects }
    }
}

/// Decides so many times.
async fn logged(bus: &dyn Bus, load: &Load, decisions: usize, pace: Pace) -> Result<Times, CliError> {
    let failed = |error: SendError| CliError::Failed(error.to_string());
    let mut each = Vec::with_capacity(decisions);
    let mut under_way = Vec::with_capacity(decisions * load.effects.len());
    let start = Instant::now();
    for _ in 0..decisions {
        let begun = Instant::now();
        bus.send(load.decision.clone()).await.map_err(failed)?;
        each.push(begun.elapsed());
        under_way.extend(load.effects.iter().map(|effect| bus.send(effect.clone())));
        if pace == Pace::Alone {
            try_join_all(under_way.drain(..)).await.map_err(failed)?;
        }
    }
    try_join_all(under_way).await.map_err(failed)?;
    Ok(Times { each, all: start.elapsed() })
}
