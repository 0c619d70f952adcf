//! Which rights a client needs, so that a broker's refusal can be said in words that help.

use super::{
    KafkaOptions,
    errors::{bus_error, code_of},
};
use crate::BusError;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// Who asks, and of whom.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) brokers: String,
    user: String,
}

impl Access {
    pub(super) fn of(options: &KafkaOptions) -> Self {
        Self { brokers: options.brokers.clone(), user: options.security.user() }
    }

    /// The error of an operation that needs `rights`, such as `Read on topic starling.worker`.
    pub(super) fn error(&self, error: &KafkaError, rights: &str) -> BusError {
        if is_denied(error) {
            BusError::Refused(self.denied(error, rights))
        } else {
            bus_error(&self.brokers, error)
        }
    }

    /// What a denial means.
    pub(super) fn denied(&self, error: &KafkaError, rights: &str) -> String {
        format!("{error}: {} needs {rights}", self.user)
    }
}

/// Whether the broker knows who asks and does not let them.
pub(super) fn is_denied(error: &KafkaError) -> bool {
    matches!(
        code_of(error),
        Some(
            Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::TransactionalIdAuthorizationFailed
        )
    )
}
