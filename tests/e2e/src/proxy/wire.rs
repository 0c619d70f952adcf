//! As much of Kafka's wire protocol as it takes to tell what passes: which request, about which topics.

use std::collections::HashMap;

/// Requests that a rule can be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Records are written.
    Produce,
    /// Records are read.
    Fetch,
    /// Topics and leaders are asked for.
    Metadata,
    /// A group's offsets are committed.
    OffsetCommit,
    /// Who coordinates a group.
    FindCoordinator,
    /// A member joins its group.
    JoinGroup,
    /// A member says that it is alive.
    Heartbeat,
    /// Anything else.
    Other(i16),
}

impl Api {
    fn of(key: i16) -> Self {
        match key {
            0 => Self::Produce,
            1 => Self::Fetch,
            3 => Self::Metadata,
            8 => Self::OffsetCommit,
            10 => Self::FindCoordinator,
            11 => Self::JoinGroup,
            12 => Self::Heartbeat,
            other => Self::Other(other),
        }
    }
}

/// What is known of a request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) api: Api,
    version: i16,
    pub(super) correlation: i32,
    /// Names of the topics that it is about; only for [`Api::Produce`] and [`Api::Fetch`].
    pub(super) topics: Vec<String>,
}

/// Names of topics by their ids.
pub(super) type TopicIds = HashMap<[u8; 16], String>;

/// Reads the head of a request, which begins after its length. `None` if it is no Kafka request.
pub(super) fn request(frame: &[u8], ids: &TopicIds) -> Option<Request> {
    let mut cursor = Cursor(frame);
    let (key, version, correlation) = (cursor.i16()?, cursor.i16()?, cursor.i32()?);
    let api = Api::of(key);
    let _client = cursor.string()?;
    let topics = match api {
        Api::Produce => produced(&mut cursor, version, ids),
        Api::Fetch => fetched(&mut cursor, version, ids),
        _ => None,
    };
    Some(Request { api, version, correlation, topics: topics.unwrap_or_default() })
}

/// The topics of a produce request. Clients of librdkafka put one partition into each; of others only the first
/// topic is seen.
fn produced(cursor: &mut Cursor<'_>, version: i16, ids: &TopicIds) -> Option<Vec<String>> {
    let flexible = version >= 9;
    if flexible {
        cursor.tags()?;
        let _transaction = cursor.compact_string()?;
    } else if version >= 3 {
        let _transaction = cursor.string()?;
    }
    cursor.skip(2 + 4)?; // acks, timeout
    let count = if flexible { cursor.compact_len()? } else { usize::try_from(cursor.i32()?).ok()? };
    if count == 0 {
        return None;
    }
    let name = match version {
        13.. => ids.get(cursor.uuid()?)?.clone(),
        9..13 => cursor.compact_string()??.to_owned(),
        _ => cursor.string()??.to_owned(),
    };
    Some(vec![name])
}

/// The topics of a fetch request. Clients of librdkafka name all that they read each time; others might name only what
/// has changed in their fetch session.
fn fetched(cursor: &mut Cursor<'_>, version: i16, ids: &TopicIds) -> Option<Vec<String>> {
    let flexible = version >= 12;
    if flexible {
        cursor.tags()?;
    }
    if version < 15 {
        cursor.skip(4)?; // replica
    }
    cursor.skip(4 + 4)?; // longest wait, least bytes
    if version >= 3 {
        cursor.skip(4)?; // most bytes
    }
    if version >= 4 {
        cursor.skip(1)?; // isolation
    }
    if version >= 7 {
        cursor.skip(4 + 4)?; // session, its epoch
    }
    let count = if flexible { cursor.compact_len()? } else { usize::try_from(cursor.i32()?).ok()? };
    let mut topics = Vec::new();
    for _ in 0..count {
        topics.push(match version {
            13.. => ids.get(cursor.uuid()?)?.clone(),
            12 => cursor.compact_string()??.to_owned(),
            _ => cursor.string()??.to_owned(),
        });
        let partitions =
            if flexible { cursor.compact_len()? } else { usize::try_from(cursor.i32()?).ok()? };
        for _ in 0..partitions {
            cursor.skip(4)?; // partition
            if version >= 9 {
                cursor.skip(4)?; // the leader's epoch
            }
            cursor.skip(8)?; // offset
            if version >= 12 {
                cursor.skip(4)?; // the epoch of the last record fetched
            }
            if version >= 5 {
                cursor.skip(8)?; // where the log begins
            }
            cursor.skip(4)?; // most bytes
            if flexible {
                cursor.tags()?;
            }
        }
        if flexible {
            cursor.tags()?;
        }
    }
    Some(topics)
}

/// Learns the ids of topics from an answer to `request`, if it is one that tells them.
pub(super) fn learn(request: &Request, frame: &[u8], ids: &mut TopicIds) {
    if request.api == Api::Metadata && request.version >= 10 {
        let _ = metadata(frame, ids); // what could not be read stays unknown
    }
}

fn metadata(frame: &[u8], ids: &mut TopicIds) -> Option<()> {
    let mut cursor = Cursor(frame);
    cursor.skip(4)?; // correlation
    cursor.tags()?;
    cursor.skip(4)?; // throttle time
    for _ in 0..cursor.compact_len()? {
        cursor.skip(4)?; // broker
        cursor.compact_string()?; // host
        cursor.skip(4)?; // port
        cursor.compact_string()?; // rack
        cursor.tags()?;
    }
    cursor.compact_string()?; // cluster
    cursor.skip(4)?; // controller
    for _ in 0..cursor.compact_len()? {
        cursor.skip(2)?; // error
        let name = cursor.compact_string()?.map(str::to_owned);
        let id = *cursor.uuid()?;
        if let Some(name) = name {
            ids.insert(id, name);
        }
        cursor.skip(1)?; // internal
        for _ in 0..cursor.compact_len()? {
            cursor.skip(2 + 4 + 4 + 4)?; // error, partition, leader, its epoch
            for _ in 0..3 {
                let replicas = cursor.compact_len()?; // all, in sync, offline
                cursor.skip(replicas * 4)?;
            }
            cursor.tags()?;
        }
        cursor.skip(4)?; // rights
        cursor.tags()?;
    }
    Some(())
}

/// The broker tells clients where to find it; through the proxy they must find the proxy. Ports have a fixed size on
/// the wire and follow their host, so they can be exchanged in place.
pub(super) fn readdress(request: &Request, frame: &mut [u8], ports: &HashMap<u16, u16>) {
    const HOST: &[u8] = b"127.0.0.1";
    if !matches!(request.api, Api::Metadata | Api::FindCoordinator) {
        return;
    }
    let mut at = 0;
    while let Some(found) = frame.get(at..).and_then(|rest| rest.windows(HOST.len()).position(|w| w == HOST))
    {
        at += found + HOST.len();
        let Some(port) = frame.get_mut(at..at + 4) else { return };
        let known = u16::from_be_bytes([port[2], port[3]]);
        if port[..2] == [0, 0]
            && let Some(other) = ports.get(&known)
        {
            port[2..].copy_from_slice(&other.to_be_bytes());
        }
    }
}

/// The correlation of an answer.
pub(super) fn correlation(frame: &[u8]) -> Option<i32> {
    Cursor(frame).i32()
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(|_| ())
    }

    fn i16(&mut self) -> Option<i16> {
        self.take(2)?.try_into().ok().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take(4)?.try_into().ok().map(i32::from_be_bytes)
    }

    fn uuid(&mut self) -> Option<&'a [u8; 16]> {
        self.take(16)?.try_into().ok()
    }

    fn varint(&mut self) -> Option<usize> {
        let mut value = 0_usize;
        for shift in (0..35).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The length of a compact array; an absent one has none.
    fn compact_len(&mut self) -> Option<usize> {
        Some(self.varint()?.saturating_sub(1))
    }

    /// `Some(None)` is a string that is null.
    fn string(&mut self) -> Option<Option<&'a str>> {
        match usize::try_from(self.i16()?) {
            Ok(length) => std::str::from_utf8(self.take(length)?).ok().map(Some),
            Err(_) => Some(None),
        }
    }

    /// `Some(None)` is a string that is null.
    fn compact_string(&mut self) -> Option<Option<&'a str>> {
        match self.varint()?.checked_sub(1) {
            Some(length) => std::str::from_utf8(self.take(length)?).ok().map(Some),
            None => Some(None),
        }
    }

    fn tags(&mut self) -> Option<()> {
        for _ in 0..self.varint()? {
            self.varint()?;
            let length = self.varint()?;
            self.skip(length)?;
        }
        Some(())
    }
}
