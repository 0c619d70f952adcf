//! State-log decisions against Kafka transactions over the same partitions.
//!
//! Both make the same thing durable: what was decided for one input, and the records that follow from it.
//! The state log appends one record that contains them and produces them once it is acknowledged; the
//! transaction writes all of them and the consumer's offset, and commits.

use super::{
    measure::{Figures, Percentiles},
    scene::prefix,
    stage::clear,
};
use crate::{args::DecisionArgs, exit::CliError, session::Session};
use bytes::Bytes;
use starling_bus::{OutRecord, PartitionId, TopicSpec, TransactionProbe};
use starling_runtime::process::Traffic;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

const EFFECT_BYTES: usize = 1_000;

pub(super) async fn run(session: &Session, args: &DecisionArgs) -> Result<Figures, CliError> {
    let bus = session.kafka(Traffic::FanOut)?;
    let prefix = prefix();
    let topic = |name: &str, partitions| TopicSpec {
        name: format!("{prefix}.{name}"),
        partitions,
        replication: -1,
        settings: BTreeMap::new(),
    };
    let (state, effects) = (topic("state", 1), topic("effects", args.partitions));
    bus.create_topics(&[state.clone(), effects.clone()]).await?;
    let record = |topic: &str, partition, size| OutRecord {
        to: PartitionId::new(topic, partition),
        key: None,
        headers: Vec::new(),
        payload: Some(Bytes::from(vec![b'x'; size])),
    };
    let all_effects: Vec<OutRecord> =
        (0..args.partitions).map(|p| record(&effects.name, p, EFFECT_BYTES)).collect();
    let decision_bytes = EFFECT_BYTES * all_effects.len();
    let failed = |error: &dyn std::fmt::Display| CliError::Failed(error.to_string());

    let mut logged = Vec::with_capacity(args.decisions);
    let start = Instant::now();
    for _ in 0..args.decisions {
        let begun = Instant::now();
        bus.send(record(&state.name, 0, decision_bytes)).await.map_err(|e| failed(&e))?;
        logged.push(begun.elapsed());
        // The effects need not be waited for before the next decision.
        for effect in &all_effects {
            drop(bus.send(effect.clone()));
        }
    }
    bus.flush(Duration::from_secs(30)).await;
    let logged_wall = start.elapsed();

    let probe = TransactionProbe::new(&session.kafka_options(Traffic::OneByOne), &prefix);
    let mut all_records = all_effects;
    all_records.push(record(&state.name, 0, decision_bytes));
    let start = Instant::now();
    let transactions = probe.run(args.decisions, all_records).await?;
    let transactions_wall = start.elapsed();
    clear(session.kafka_options(Traffic::OneByOne), &[state.name.as_str(), effects.name.as_str()]).await;

    let per_second = |wall: Duration| args.decisions as f64 / wall.as_secs_f64();
    let (log, transaction) = (Percentiles::of(logged), Percentiles::of(transactions));
    let mut figures = Figures::new("decision", "kafka");
    if let (Some(log), Some(transaction)) = (log, transaction) {
        figures.more = vec![
            ("state_log_p50_ms", log.p50),
            ("state_log_p99_ms", log.p99),
            ("state_log_per_s", per_second(logged_wall)),
            ("transaction_p50_ms", transaction.p50),
            ("transaction_p99_ms", transaction.p99),
            ("transaction_per_s", per_second(transactions_wall)),
            ("ratio_per_s", per_second(logged_wall) / per_second(transactions_wall)),
        ];
    }
    Ok(figures)
}
