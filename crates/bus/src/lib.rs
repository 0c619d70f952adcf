//! The bus: the only door to Kafka.
//!
//! One port, [`Bus`], and two implementations that pass the same contract tests: Kafka, and a bus in
//! memory for the embedded default and for simulation. Nothing outside this crate knows rdkafka.

mod error;
mod inspect;
mod kafka;
mod memory;
mod port;
mod record;

pub use error::{BusError, CommitError, ReadError, SendError};
pub use inspect::{
    BrokerDescription, ClusterDescription, GroupDescription, Inspector, MemberDescription,
    PartitionDescription, TopicDescription,
};
pub use kafka::{
    GroupProtocol, KafkaBus, KafkaIdentity, KafkaLogin, KafkaOptions, KafkaSecurity, KafkaTls, SaslMechanism,
    TransactionProbe, delete_topics,
};
pub use memory::{
    Clock, CommitFault, MemberId, MemoryBus, MemoryFaults, MemoryOptions, MemoryRetention, SendFault,
};
pub use port::{
    Assignment, Bus, CommitOffset, Committed, Deliver, DeliveryFuture, GroupConfig, GroupConsumer,
    GroupEvent, LogReader, ReaderEvent, RevokeAck, StartAt, TopicSpec, Watermarks,
};
pub use record::{Delivered, InRecord, OutRecord, PartitionId};
