//! Reads what lies in topics now: from an offset or a time up to the end as it was at the beginning, and then ends.
//!
//! Records come in the order of their partition; partitions come as the broker delivers them, topic after topic.
//! One record is in hand at a time, beside what the bus has fetched ahead. Offsets without a record (compacted
//! ones, markers of transactions) are passed over; where the beginning of a partition is deleted while it is read,
//! reading goes on with what is left, and [`Scan::shortened`] says so.

use crate::installation::all_partitions;
use futures::{Stream, stream};
use starling_bus::{
    Bus, BusError, InRecord, Inspector, LogReader, PartitionId, ReaderEvent, StartAt, Watermarks,
};
use starling_protocol::Timestamp;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::time::timeout;

/// How long a broker may say nothing while there is something to be read.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Which records are wanted, by the times in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// Written then or later.
    pub since: Option<Timestamp>,
    /// Written before that.
    pub until: Option<Timestamp>,
}

impl Period {
    /// Whether a record that was written at that time is wanted.
    #[must_use]
    pub fn contains(&self, time: Timestamp) -> bool {
        self.since.is_none_or(|since| time >= since) && self.until.is_none_or(|until| time < until)
    }
}

/// A piece of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which partition.
    pub at: PartitionId,
    /// The first offset.
    pub from: i64,
    /// The offset behind the last one.
    pub to: i64,
}

/// Why records cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The broker cannot be asked, or refuses.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// Nothing more came.
    #[error(
        "reading {at}: nothing came for {} s, though there are records up to offset {to}{}",
        patience.as_secs(),
        trouble.as_ref().map(|trouble| format!("; the last that was heard: {trouble}")).unwrap_or_default()
    )]
    Silent {
        /// A partition that is not read to its end.
        at: PartitionId,
        /// Its end.
        to: i64,
        /// How long was waited.
        patience: Duration,
        /// What the client complained of meanwhile.
        trouble: Option<BusError>,
    },
}

/// The pieces of all partitions of these topics that lie there now, from a time on. Those with nothing in them are
/// left out.
///
/// # Errors
/// A topic is missing, or the broker does not tell.
pub async fn spans(
    bus: &dyn Bus,
    topics: &[String],
    since: Option<Timestamp>,
) -> Result<Vec<Span>, ScanError> {
    let inspector = bus.inspector();
    let mut spans = Vec::new();
    for topic in topics {
        let partitions = all_partitions(topic, bus.partitions(topic).await?);
        let marks = watermarks(inspector.as_ref(), &partitions).await?;
        let starts = match since {
            Some(since) => inspector.offsets_since(&partitions, since).await?,
            None => vec![Some(0); partitions.len()],
        };
        for ((at, Watermarks { low, high }), start) in marks.into_iter().zip(starts) {
            let start = start.ok_or_else(|| leaderless(&at))?;
            if low.max(start) < high {
                spans.push(Span { at, from: low.max(start), to: high });
            }
        }
    }
    Ok(spans)
}

/// What lies in each of these partitions.
///
/// # Errors
/// The broker does not tell, of one of them or at all.
pub async fn watermarks(
    inspector: &dyn Inspector,
    at: &[PartitionId],
) -> Result<Vec<(PartitionId, Watermarks)>, BusError> {
    let marks = inspector.watermarks(at).await?;
    let known = |(at, marks): (&PartitionId, Option<Watermarks>)| match marks {
        Some(marks) => Ok((at.clone(), marks)),
        None => Err(leaderless(at)),
    };
    at.iter().zip(marks).map(known).collect()
}

fn leaderless(at: &PartitionId) -> BusError {
    BusError::Retry(format!("nobody tells what lies in {at}: it has no leader"))
}

/// What is being read.
pub struct Scan {
    bus: Arc<dyn Bus>,
    period: Period,
    patience: Duration,
    /// Topics that come later, with their pieces.
    later: VecDeque<Vec<Span>>,
    /// One topic at a time: a client that reads the same partition of two topics cannot tell at whose end it is.
    reader: Option<Arc<dyn LogReader>>,
    /// Where partitions of the present topic are to end that have not.
    open: BTreeMap<PartitionId, i64>,
    shortened: BTreeSet<PartitionId>,
    trouble: Option<BusError>,
}

impl Scan {
    /// All records of these topics that were written in that period and lie there now.
    ///
    /// # Errors
    /// As for [`spans`].
    pub async fn open(bus: Arc<dyn Bus>, topics: &[String], period: Period) -> Result<Self, ScanError> {
        let spans = spans(bus.as_ref(), topics, period.since).await?;
        Ok(Self::over(bus, spans).within(period))
    }

    /// The records of these pieces. Of one partition it must be one piece.
    pub fn over(bus: Arc<dyn Bus>, spans: Vec<Span>) -> Self {
        let mut later: VecDeque<Vec<Span>> = VecDeque::new();
        for span in spans.into_iter().filter(|span| span.from < span.to) {
            match later
                .iter_mut()
                .find(|others| others.first().is_some_and(|first| first.at.topic == span.at.topic))
            {
                Some(others) => others.push(span),
                None => later.push_back(vec![span]),
            }
        }
        Self {
            bus,
            period: Period::default(),
            patience: PATIENCE,
            later,
            reader: None,
            open: BTreeMap::new(),
            shortened: BTreeSet::new(),
            trouble: None,
        }
    }

    /// Only those of them that were written in that period.
    #[must_use]
    pub fn within(self, period: Period) -> Self {
        Self { period, ..self }
    }

    /// The same, waiting only so long for a broker that says nothing.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Partitions whose first records were deleted before they could be read.
    pub fn shortened(&self) -> &BTreeSet<PartitionId> {
        &self.shortened
    }

    /// The next record; `None` when all are read.
    ///
    /// # Errors
    /// The broker is silent, or refuses.
    pub async fn next(&mut self) -> Result<Option<InRecord>, ScanError> {
        loop {
            let Some(reader) = self.reader.clone() else {
                match self.later.pop_front() {
                    Some(spans) => self.begin(spans).await?,
                    None => return Ok(None),
                }
                continue;
            };
            if self.open.is_empty() {
                self.reader = None;
                continue;
            }
            let Ok(event) = timeout(self.patience, self.hear(&reader)).await else {
                return Err(self.silent());
            };
            match event? {
                ReaderEvent::Record(record) => {
                    if let Some(record) = self.came(&reader, record).await {
                        return Ok(Some(record));
                    }
                }
                ReaderEvent::End { at, next_offset } => self.reached(&reader, &at, next_offset).await,
                ReaderEvent::OutOfRange { at, .. } => {
                    // Retention was faster than we are.
                    reader.remove(&at).await;
                    reader.add(at.clone(), StartAt::Beginning).await?;
                    self.shortened.insert(at);
                }
                ReaderEvent::Trouble(_) => {} // `hear` keeps it
            }
        }
    }

    /// The same as a stream, which ends after the first error.
    pub fn records(self) -> impl Stream<Item = Result<InRecord, ScanError>> {
        stream::try_unfold(
            self,
            |mut scan| async move { Ok(scan.next().await?.map(|record| (record, scan))) },
        )
    }

    fn silent(&mut self) -> ScanError {
        let (trouble, patience) = (self.trouble.take(), self.patience);
        match self.open.first_key_value() {
            Some((at, to)) => ScanError::Silent { at: at.clone(), to: *to, patience, trouble },
            None => BusError::Retry("nothing is being read".to_owned()).into(),
        }
    }

    async fn begin(&mut self, spans: Vec<Span>) -> Result<(), ScanError> {
        let reader = self.bus.reader().await?;
        for Span { at, from, to } in spans {
            reader.add(at.clone(), StartAt::Offset(from)).await?;
            self.open.insert(at, to);
        }
        self.reader = Some(reader);
        Ok(())
    }

    /// The next event that is no trouble. What may pass is waited out, and told if it does not.
    async fn hear(&mut self, reader: &Arc<dyn LogReader>) -> Result<ReaderEvent, ScanError> {
        loop {
            match reader.next().await {
                ReaderEvent::Trouble(error @ (BusError::Refused(_) | BusError::Fatal(_))) => {
                    return Err(error.into());
                }
                ReaderEvent::Trouble(error) => self.trouble = Some(error),
                event => return Ok(event),
            }
        }
    }

    /// The record, if it is wanted.
    async fn came(&mut self, reader: &Arc<dyn LogReader>, record: InRecord) -> Option<InRecord> {
        let to = *self.open.get(&record.at)?;
        let wanted = record.offset < to && self.period.contains(record.timestamp);
        self.reached(reader, &record.at, record.offset.saturating_add(1)).await;
        wanted.then_some(record)
    }

    async fn reached(&mut self, reader: &Arc<dyn LogReader>, at: &PartitionId, next_offset: i64) {
        if self.open.get(at).is_some_and(|to| next_offset >= *to) {
            self.open.remove(at);
            reader.remove(at).await; // what follows is not wanted, so it should not be fetched
        }
    }
}
