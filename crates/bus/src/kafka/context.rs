//! What librdkafka says beside its answers goes to the log.

use rdkafka::{ClientContext, config::RDKafkaLogLevel, consumer::ConsumerContext, error::KafkaError};
use std::sync::{Arc, Mutex, PoisonError};

/// The context of a client that needs no callbacks.
pub(super) struct Plain;

impl ClientContext for Plain {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, reason);
    }
}

impl ConsumerContext for Plain {}

/// The context of a client that remembers why it is not let in.
#[derive(Clone, Default)]
pub(super) struct Attentive(Arc<Mutex<Option<String>>>);

impl Attentive {
    /// The last thing that was wrong with credentials or certificates.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ClientContext for Attentive {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // It is told nowhere else; requests only time out.
        let is_refusal = ["SASL", "SSL", "security.protocol"].iter().any(|word| message.contains(word));
        if facility == "FAIL" && is_refusal {
            let words = message.split_once("]: ").map_or(message, |(_, words)| words);
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(words.to_owned());
        }
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, reason);
    }
}

impl ConsumerContext for Attentive {}

pub(super) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error => {
            tracing::error!(target: "librdkafka", facility, "{message}");
        }
        RDKafkaLogLevel::Warning => tracing::warn!(target: "librdkafka", facility, "{message}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
            tracing::info!(target: "librdkafka", facility, "{message}");
        }
        RDKafkaLogLevel::Debug => tracing::debug!(target: "librdkafka", facility, "{message}"),
    }
}
