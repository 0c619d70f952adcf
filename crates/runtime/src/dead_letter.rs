//! What a dead letter looks like: one form for both runtimes.

use bytes::Bytes;
use starling_bus::{InRecord, OutRecord, PartitionId};
use starling_protocol::{
    DeadReason, Timestamp,
    dead_letter::{self, Burial, OmittedValue},
    ids::content_digest,
};

/// Why a record is a dead letter: a word for counting, and a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) code: DeadReason,
    pub(crate) text: String,
}

impl Reason {
    pub(crate) fn new(code: DeadReason, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

/// Who buries a record, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undertaker<'u> {
    pub(crate) group: &'u str,
    pub(crate) process: &'u str,
    pub(crate) now: Timestamp,
}

/// The record as it was, with the reason and where it came from in its headers. Those of an earlier burial, which
/// a replayed record may have, are replaced.
pub(crate) fn dead_letter(
    record: &InRecord,
    to: PartitionId,
    reason: &Reason,
    by: Undertaker<'_>,
) -> OutRecord {
    letter(record, to, reason, by, None)
}

/// The same without its value, for a record that not even the dead letters take. The value is still where
/// it was, as the headers say.
pub(crate) fn without_value(
    record: &InRecord,
    to: PartitionId,
    reason: &Reason,
    by: Undertaker<'_>,
) -> OutRecord {
    let value = record.value();
    let omitted = OmittedValue { bytes: Some(value.len()), digest: Some(content_digest(value)) };
    OutRecord { payload: None, ..letter(record, to, reason, by, Some(omitted)) }
}

fn letter(
    record: &InRecord,
    to: PartitionId,
    reason: &Reason,
    by: Undertaker<'_>,
    omitted: Option<OmittedValue>,
) -> OutRecord {
    let burial = Burial {
        code: reason.code.name().to_owned(),
        reason: reason.text.clone(),
        topic: record.at.topic.to_string(),
        partition: record.at.partition,
        offset: record.offset,
        time: by.now,
        count: dead_letter::burials(&record.headers).saturating_add(1),
        group: by.group.to_owned(),
        process: by.process.to_owned(),
        omitted,
    };
    let own = dead_letter::own_headers(&record.headers).cloned();
    let added = burial.headers().into_iter().map(|(name, value)| (name.to_owned(), Bytes::from(value)));
    OutRecord {
        to,
        key: record.key.clone(),
        headers: own.chain(added).collect(),
        payload: record.payload.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY: Undertaker<'_> = Undertaker { group: "s.worker", process: "worker-1", now: Timestamp(5) };

    fn record(headers: Vec<(String, Bytes)>) -> InRecord {
        InRecord {
            at: PartitionId::new("s.worker", 3),
            offset: 9,
            timestamp: Timestamp(1),
            key: Some(Bytes::from_static(b"k")),
            headers,
            payload: Some(Bytes::from_static(b"value")),
        }
    }

    #[test]
    fn a_second_burial_replaces_the_first_and_counts() {
        let to = PartitionId::new("s.dlq", 0);
        let own = vec![("who".to_owned(), Bytes::from_static(b"me"))];
        let first =
            dead_letter(&record(own.clone()), to.clone(), &Reason::new(DeadReason::Tries, "first"), BY);
        let burial = Burial::read(&first.headers).unwrap_or_else(|| unreachable!("it is a letter"));
        assert_eq!((burial.code.as_str(), burial.count, burial.offset), ("tries", 1, 9));
        assert_eq!((burial.group.as_str(), burial.process.as_str()), ("s.worker", "worker-1"));

        let again = without_value(&record(first.headers), to, &Reason::new(DeadReason::Panic, "second"), BY);
        let burial = Burial::read(&again.headers).unwrap_or_else(|| unreachable!("it is a letter"));
        assert_eq!((burial.reason.as_str(), burial.count), ("second", 2));
        let omitted = OmittedValue { bytes: Some(5), digest: Some(content_digest(b"value")) };
        assert_eq!((burial.omitted, again.payload), (Some(omitted), None));
        let mut names: Vec<_> = again.headers.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), again.headers.len(), "no header twice: {names:?}");
        let kept: Vec<_> = dead_letter::own_headers(&again.headers).cloned().collect();
        assert_eq!(kept, own);
    }
}
