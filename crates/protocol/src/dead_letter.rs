//! What the headers of a dead letter say, and those of the marks that settle dead letters. Beside them a dead letter
//! is the record as it was: key, headers and value.

use crate::Timestamp;
use std::{collections::BTreeMap, fmt, str::from_utf8};

/// Every header that is about the burial of a record begins so; all others are the record's own.
pub const PREFIX: &str = "starling-dlq-";
/// Why, in a word: the name of a [`DeadReason`].
pub const CODE: &str = "starling-dlq-code";
/// Why, in a sentence.
pub const REASON: &str = "starling-dlq-reason";
/// The topic that it was read from.
pub const TOPIC: &str = "starling-dlq-topic";
/// The partition that it was read from.
pub const PARTITION: &str = "starling-dlq-partition";
/// The offset that it was read from.
pub const OFFSET: &str = "starling-dlq-offset";
/// When it was buried, in milliseconds since the Unix epoch.
pub const TIME: &str = "starling-dlq-time";
/// How often it has been buried. The only one of these headers that a replayed record has.
pub const COUNT: &str = "starling-dlq-count";
/// The consumer group that buried it.
pub const GROUP: &str = "starling-dlq-group";
/// The process that buried it.
pub const PROCESS: &str = "starling-dlq-process";
/// Says that the value is not here, because it is too large.
pub const PAYLOAD: &str = "starling-dlq-payload";
/// Size of a value that is not here.
pub const BYTES: &str = "starling-dlq-bytes";
/// Digest of a value that is not here.
pub const DIGEST: &str = "starling-dlq-digest";
/// Makes a record of the dead letters a mark: how letters were settled.
pub const MARK: &str = "starling-dlq-mark";
/// Which letters of its partition a mark settles, such as `3-7,9`.
pub const MARK_OFFSETS: &str = "starling-dlq-mark-offsets";

/// Most ranges of offsets in one mark.
pub const MAX_MARK_RANGES: usize = 256;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why a record became a dead letter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DeadReason {
            $($(#[$doc])* $variant,)*
        }

        impl DeadReason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word for it, in headers and metrics.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// Its bytes are no record that this version can read.
    Undecodable = "undecodable",
    /// A broker refuses what follows from it.
    Refused = "refused",
    /// It was handled so often without success.
    Tries = "tries",
    /// Its handler says that nobody can handle it.
    Handler = "handler",
    /// Its handler panicked.
    Panic = "panic",
    /// Its handler took too long.
    Deadline = "deadline",
    /// It belongs into another partition, or another inbox.
    Misplaced = "misplaced",
    /// It is so old, or from so far in the future, that a duplicate of it would not be recognised.
    Stale = "stale",
    /// The coordinator's memory is full.
    Full = "full",
    /// What follows from it does not fit into a record of the state log.
    Unfit = "unfit",
}

impl fmt::Display for DeadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a record was buried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burial {
    /// Why, in a word. Another version may have words that this one does not know; the first ones had none.
    pub code: String,
    /// Why, in a sentence.
    pub reason: String,
    /// The topic that it was read from.
    pub topic: String,
    /// The partition that it was read from.
    pub partition: i32,
    /// The offset that it was read from.
    pub offset: i64,
    /// When.
    pub time: Timestamp,
    /// How often by now.
    pub count: u32,
    /// The consumer group that did it.
    pub group: String,
    /// The process that did it.
    pub process: String,
    /// What its value was, if that is not here.
    pub omitted: Option<OmittedValue>,
}

/// A value that was too large for the dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OmittedValue {
    /// Its size.
    pub bytes: Option<usize>,
    /// Its digest, see [`crate::ids::content_digest`].
    pub digest: Option<String>,
}

impl Burial {
    /// Reads the headers of a dead letter; `None` if they are not those of one.
    #[must_use]
    pub fn read<V: AsRef<[u8]>>(headers: &[(String, V)]) -> Option<Self> {
        let all = Headers::of(headers);
        if all.text(MARK).is_some() {
            return None;
        }
        Some(Self {
            code: all.owned(CODE),
            reason: all.owned(REASON),
            topic: all.text(TOPIC)?.to_owned(),
            partition: all.number(PARTITION)?,
            offset: all.number(OFFSET)?,
            time: Timestamp(all.number(TIME).unwrap_or(0)),
            count: all.number(COUNT).unwrap_or(1).max(1),
            group: all.owned(GROUP),
            process: all.owned(PROCESS),
            omitted: all.text(PAYLOAD).map(|_| OmittedValue {
                bytes: all.number(BYTES),
                digest: all.text(DIGEST).map(str::to_owned),
            }),
        })
    }

    /// As headers.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            (CODE, self.code.clone()),
            (REASON, self.reason.clone()),
            (TOPIC, self.topic.clone()),
            (PARTITION, self.partition.to_string()),
            (OFFSET, self.offset.to_string()),
            (TIME, self.time.0.to_string()),
            (COUNT, self.count.to_string()),
            (GROUP, self.group.clone()),
            (PROCESS, self.process.clone()),
        ];
        if let Some(omitted) = &self.omitted {
            headers.push((PAYLOAD, "omitted: too large".to_owned()));
            headers.extend(omitted.bytes.map(|bytes| (BYTES, bytes.to_string())));
            headers.extend(omitted.digest.clone().map(|digest| (DIGEST, digest)));
        }
        headers
    }
}

/// How often a record was buried before, as its headers say.
#[must_use]
pub fn burials<V: AsRef<[u8]>>(headers: &[(String, V)]) -> u32 {
    Headers::of(headers).number(COUNT).unwrap_or(0)
}

/// The headers that a record had before it was buried.
pub fn own_headers<V>(headers: &[(String, V)]) -> impl Iterator<Item = &(String, V)> {
    headers.iter().filter(|(name, _)| !name.starts_with(PREFIX))
}

/// How dead letters were settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// They were sent again to where they came from.
    Replayed,
    /// Nobody wants them.
    Dropped,
}

impl Settled {
    /// The word for it, in headers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Replayed => "replayed",
            Self::Dropped => "dropped",
        }
    }
}

/// A record among the dead letters that says what became of others in its partition: of those at these offsets, from
/// the first to the second of each pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What.
    pub settled: Settled,
    /// Of which.
    pub offsets: Vec<(i64, i64)>,
}

impl Mark {
    /// Reads the headers of a mark; `None` if they are not those of one.
    #[must_use]
    pub fn read<V: AsRef<[u8]>>(headers: &[(String, V)]) -> Option<Self> {
        let all = Headers::of(headers);
        let settled = match all.text(MARK)? {
            "replayed" => Settled::Replayed,
            "dropped" => Settled::Dropped,
            _ => return None,
        };
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let range: (i64, i64) = (first.parse().ok()?, last.parse().ok()?);
            (0 <= range.0 && range.0 <= range.1).then_some(range)
        };
        let offsets: Option<Vec<_>> = all.text(MARK_OFFSETS)?.split(',').map(range).collect();
        Some(Self { settled, offsets: offsets.filter(|ranges| ranges.len() <= MAX_MARK_RANGES)? })
    }

    /// As headers.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let text = |(first, last): &(i64, i64)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        let offsets: Vec<String> = self.offsets.iter().map(text).collect();
        vec![(MARK, self.settled.name().to_owned()), (MARK_OFFSETS, offsets.join(","))]
    }
}

/// The last header of each name that is ours and text.
struct Headers<'h>(BTreeMap<&'h str, &'h str>);

impl<'h> Headers<'h> {
    fn of<V: AsRef<[u8]>>(headers: &'h [(String, V)]) -> Self {
        let ours = headers.iter().filter(|(name, _)| name.starts_with(PREFIX));
        Self(
            ours.filter_map(|(name, value)| Some((name.as_str(), from_utf8(value.as_ref()).ok()?))).collect(),
        )
    }

    fn text(&self, name: &str) -> Option<&'h str> {
        self.0.get(name).copied()
    }

    fn owned(&self, name: &str) -> String {
        self.text(name).unwrap_or_default().to_owned()
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.text(name)?.parse().ok()
    }
}
