//! A measurement, not a part of the product: what a Kafka transaction over many partitions costs, beside
//! which the state log is judged (see docs/adr).

use super::KafkaOptions;
use crate::{BusError, OutRecord};
use rdkafka::{
    ClientConfig,
    error::KafkaError,
    producer::{BaseProducer, BaseRecord, Producer as _},
};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A transactional producer.
#[derive(Debug)]
pub struct TransactionProbe {
    brokers: String,
    id: String,
}

impl TransactionProbe {
    /// For the cluster at `options.brokers`; `id` names the producer.
    #[must_use]
    pub fn new(options: &KafkaOptions, id: &str) -> Self {
        Self { brokers: options.brokers.clone(), id: id.to_owned() }
    }

    /// Runs `count` transactions one after the other, each writing all `records`, and tells how long each
    /// took from begin to committed. Consumer offsets, which a real one would add, are left out: that
    /// favours the transaction.
    ///
    /// # Errors
    /// The cluster is unreachable or refuses.
    pub async fn run(self, count: usize, records: Vec<OutRecord>) -> Result<Vec<Duration>, BusError> {
        tokio::task::spawn_blocking(move || self.run_blocking(count, &records))
            .await
            .map_err(|error| BusError::Fatal(error.to_string()))?
            .map_err(|error| BusError::Refused(error.to_string()))
    }

    fn run_blocking(&self, count: usize, records: &[OutRecord]) -> Result<Vec<Duration>, KafkaError> {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", &self.brokers)
            .set("transactional.id", &self.id)
            .set("linger.ms", "0")
            .set("compression.type", "lz4") // as the bus does
            .set("queue.buffering.max.kbytes", "1048576")
            .create()?;
        producer.init_transactions(PATIENCE)?;
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = Instant::now();
            producer.begin_transaction()?;
            for record in records {
                let payload = record.payload.as_deref().unwrap_or_default();
                let out: BaseRecord<'_, (), [u8]> =
                    BaseRecord::to(&record.to.topic).partition(record.to.partition).payload(payload);
                producer.send(out).map_err(|(error, _)| error)?;
            }
            // Committing with records still under way waits in slices of 100 ms.
            while producer.in_flight_count() > 0 {
                producer.poll(Duration::from_millis(1));
            }
            producer.commit_transaction(PATIENCE)?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }
}
