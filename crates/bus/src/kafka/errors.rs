//! librdkafka's errors, sorted by the reaction that they call for.

use super::access::{Access, is_denied};
use crate::{BusError, CommitError, SendError};
use rdkafka::{
    error::{KafkaError, RDKafkaErrorCode as Code},
    types::RDKafkaErrorCode,
};

pub(super) fn code_of(error: &KafkaError) -> Option<RDKafkaErrorCode> {
    match error {
        KafkaError::AdminOp(code) => Some(*code),
        other => other.rdkafka_error_code(),
    }
}

pub(super) fn send_error(access: &Access, to: String, error: &KafkaError) -> SendError {
    let reason = if is_denied(error) {
        access.denied(error, &format!("the right Write on the topic of {to}"))
    } else {
        error.to_string()
    };
    match code_of(error) {
        Some(
            Code::MessageSizeTooLarge
            | Code::InvalidMessageSize
            | Code::InvalidRecord
            | Code::InvalidTopic
            | Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::UnknownTopicOrPartition
            | Code::UnknownTopic
            | Code::UnknownPartition
            | Code::MessageBatchTooLarge
            | Code::PolicyViolation,
        ) => SendError::Refused { to, reason },
        Some(Code::QueueFull | Code::PurgeQueue) => SendError::NotSent { to, reason },
        _ => SendError::Unknown { to, reason },
    }
}

/// Whether a broker refuses all of a batch with this for the sake of one record in it, or of its size.
pub(super) fn is_of_batch(error: &KafkaError) -> bool {
    matches!(
        code_of(error),
        Some(
            Code::MessageSizeTooLarge
                | Code::InvalidMessageSize
                | Code::InvalidRecord
                | Code::MessageBatchTooLarge
        )
    )
}

/// Whether a commit is refused only for a moment: the group takes none while it hands out partitions, and a member whose
/// client has not yet heard of the new generation speaks of the one before. The member has its partitions all the same:
/// nobody else gets them until it lets go, and if it commits for that reason it has no later chance. A member that the
/// group has given up is unknown to it instead.
pub(super) fn is_between_generations(error: &KafkaError) -> bool {
    matches!(
        code_of(error),
        Some(Code::RebalanceInProgress | Code::IllegalGeneration | Code::StaleMemberEpoch)
    )
}

pub(super) fn commit_error(error: &KafkaError) -> CommitError {
    let reason = error.to_string();
    match code_of(error) {
        Some(
            Code::UnknownMemberId
            | Code::IllegalGeneration
            | Code::FencedInstanceId
            | Code::FencedMemberEpoch
            | Code::StaleMemberEpoch
            | Code::AssignmentLost,
        ) => CommitError::Fenced(reason),
        Some(Code::OffsetMetadataTooLarge) => CommitError::MetadataTooLarge(reason),
        _ => CommitError::Retry(reason),
    }
}

pub(super) fn bus_error(brokers: &str, error: &KafkaError) -> BusError {
    let reason = error.to_string();
    match code_of(error) {
        Some(
            Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::Resolve
            | Code::BrokerNotAvailable
            | Code::WaitingForCoordinator
            | Code::CoordinatorNotAvailable
            | Code::CoordinatorLoadInProgress,
        ) => BusError::Unreachable { brokers: brokers.to_owned(), reason },
        Some(
            Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::InvalidReplicationFactor
            | Code::InvalidPartitions
            | Code::InvalidConfig
            | Code::InvalidTopic
            | Code::PolicyViolation
            | Code::Authentication
            | Code::SSL
            | Code::OffsetOutOfRange
            | Code::UnsupportedVersion,
        ) => BusError::Refused(reason),
        Some(Code::Fatal | Code::FencedInstanceId) => BusError::Fatal(reason),
        _ => match error {
            KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_) => BusError::Refused(reason),
            KafkaError::MessageConsumptionFatal(_) => BusError::Fatal(reason),
            _ => BusError::Retry(reason),
        },
    }
}
