//! Between librdkafka's types and ours.

use crate::{Committed, InRecord, PartitionId};
use bytes::BytesMut;
use rdkafka::{
    Message, Offset, TopicPartitionList,
    message::{BorrowedMessage, Headers},
};
use starling_protocol::Timestamp;

/// Copies a message out of librdkafka, all of its bytes into one allocation.
pub(super) fn decode(message: &BorrowedMessage<'_>, at: PartitionId) -> InRecord {
    let headers = || message.headers().into_iter().flat_map(Headers::iter);
    let parts = message.payload().into_iter().chain(message.key());
    let size = parts.chain(headers().filter_map(|header| header.value)).map(<[u8]>::len).sum();
    let mut bytes = BytesMut::with_capacity(size);
    let mut copy = |part: &[u8]| {
        bytes.extend_from_slice(part);
        bytes.split().freeze()
    };
    InRecord {
        at,
        offset: message.offset(),
        timestamp: Timestamp(message.timestamp().to_millis().unwrap_or(0)),
        key: message.key().map(&mut copy),
        headers: headers()
            .map(|header| (header.key.to_owned(), copy(header.value.unwrap_or_default())))
            .collect(),
        payload: message.payload().map(&mut copy),
    }
}

pub(super) fn list_of(partitions: &[PartitionId]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for at in partitions {
        list.add_partition(&at.topic, at.partition);
    }
    list
}

pub(super) fn committed_in(list: &TopicPartitionList, at: &PartitionId) -> Option<Committed> {
    let element = list.find_partition(&at.topic, at.partition)?;
    match element.offset() {
        Offset::Offset(offset) => Some(Committed { offset, metadata: element.metadata().to_owned() }),
        _ => None,
    }
}
