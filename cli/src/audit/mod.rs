//! `starling audit`: reads the topics and accounts for every record of an intent. The judging is
//! [`starling_audit`]'s; here is the reading.

mod cut;

use crate::scan::{Scan, ScanError, Span};
use cut::take_cut;
use futures::{StreamExt as _, stream};
use starling_audit::{Account, Cut, Extent, Installation, Ledger, Limits, LogRecord, Report, Scope, Terms};
use starling_bus::{Bus, BusError, InRecord, PartitionId};
use starling_protocol::incoming::IntentLimits;
use starling_protocol::topic::partition_of;
use starling_protocol::{IntentId, Timestamp, Topic, TopicNames};
use starling_runtime::{Schemas, Settings};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Accounts for intents on a bus. Reads only.
pub struct Auditor {
    bus: Arc<dyn Bus>,
    schemas: Schemas,
    names: TopicNames,
    /// Every topic of the installation, in the order in which they are read.
    topics: Vec<Topic>,
    intents: IntentLimits,
    limits: Limits,
}

impl Auditor {
    /// An auditor of the installation that the settings describe.
    pub fn new(bus: Arc<dyn Bus>, schemas: Schemas, settings: &Settings) -> Self {
        let names = TopicNames::new(settings.topics.prefix.as_str());
        let intents = IntentLimits { max_bytes: settings.intake.max_intent, ..IntentLimits::default() };
        let limits = Limits {
            intents: settings.audit.at_once,
            waiting: settings.audit.max_intents,
            records: settings.audit.max_records,
            strays: settings.audit.max_strays,
        };
        Self { bus, schemas, names, topics: in_reading_order(&settings.topics.pools), intents, limits }
    }

    /// An auditor of an installation with that name, everything else being as it is by default.
    pub fn of(bus: Arc<dyn Bus>, schemas: impl Into<Schemas>, names: TopicNames) -> Self {
        let (topics, limits) = (in_reading_order(&[]), Limits::default());
        let intents = IntentLimits { max_bytes: 1 << 20, ..IntentLimits::default() };
        Self { bus, schemas: schemas.into(), names, topics, intents, limits }
    }

    /// The account of one intent.
    ///
    /// # Errors
    /// The broker is unreachable, topics are missing, or nothing more comes.
    pub async fn intent(&self, id: &IntentId, terms: Terms) -> Result<Account, ScanError> {
        let ids = BTreeSet::from([id.clone()]);
        let ledger = self.read(Scope::Named(ids), None).await?;
        let account = ledger.account(id, terms);
        account.ok_or_else(|| BusError::Fatal(format!("the ledger has no book of {id}")).into())
    }

    /// Accounts of all intents that began in a period; without bounds, of all that anything is left of.
    ///
    /// # Errors
    /// As for [`Auditor::intent`].
    pub async fn range(
        &self,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        terms: Terms,
    ) -> Result<Report, ScanError> {
        let mut report = Report::keeping(self.limits.intents);
        let ledger = self.read(Scope::Begun { since, until }, since).await?;
        report.add(&ledger, terms);
        let mut waiting: Vec<IntentId> = ledger.waiting().iter().cloned().collect();
        drop(ledger);
        // There was no place for these; each reading takes as many as there is place for.
        while !waiting.is_empty() {
            let rest = waiting.split_off(waiting.len().min(self.limits.intents.max(1)));
            let ids = std::mem::replace(&mut waiting, rest).into_iter().collect();
            let ledger = self.read(Scope::Named(ids), since).await?;
            report.add(&ledger, terms);
        }
        Ok(report)
    }

    /// Reads everything that lies in the topics now, from a time on.
    ///
    /// # Errors
    /// As for [`Auditor::intent`].
    pub async fn read(&self, scope: Scope, since: Option<Timestamp>) -> Result<Ledger, ScanError> {
        let cut = take_cut(self.bus.as_ref(), &self.names, &self.topics, since).await?;
        let coordinators = self.bus.partitions(&self.names.name(&Topic::Coordinator)).await?;
        let homes: Option<BTreeSet<i32>> = match &scope {
            Scope::Named(ids) => Some(ids.iter().map(|id| partition_of(id.as_str(), coordinators)).collect()),
            Scope::Begun { .. } => None,
        };
        let installation = Installation {
            codec: self.schemas.codec().clone(),
            names: self.names.clone(),
            coordinators,
            intents: self.intents,
        };
        let mut ledger = Ledger::new(installation, scope, self.limits, cut.clone());
        // Where it is said who is asked for, nobody has to be met first.
        let at_once = homes.is_some();
        let topics: Vec<Topic> =
            self.topics.iter().filter(|topic| **topic != Topic::Content).cloned().collect();
        for topics in topics.chunk_by(|one, other| at_once || turn_of(one) == turn_of(other)) {
            self.read_topics(topics, homes.as_ref(), &cut, &mut ledger).await?;
        }
        // Of what is stored only what somebody refers to, which is known by now.
        let wanted = ledger.contents();
        let within = |(partition, wanted): (&i32, &Extent)| {
            let at = (Topic::Content, *partition);
            let there = cut.extents.get(&at)?;
            let extent = Extent { low: wanted.low.max(there.low), high: wanted.high.min(there.high) };
            (extent.low < extent.high).then_some((at, extent))
        };
        let contents = Cut { extents: wanted.iter().filter_map(within).collect(), ..Cut::default() };
        if !contents.extents.is_empty() {
            self.read_topics(&[Topic::Content], None, &contents, &mut ledger).await?;
        }
        Ok(ledger)
    }

    /// Reads topics side by side: most of the time of a reading is waiting for the broker.
    async fn read_topics(
        &self,
        topics: &[Topic],
        homes: Option<&BTreeSet<i32>>,
        cut: &Cut,
        ledger: &mut Ledger,
    ) -> Result<(), ScanError> {
        let scans = topics.iter().map(|topic| {
            let homes = homes.filter(|_| *topic == Topic::State);
            let scan = Scan::over(self.bus.clone(), self.spans(topic, homes, cut));
            scan.records().map(move |record| (topic, record)).boxed()
        });
        let mut records = stream::select_all(scans);
        while let Some((topic, record)) = records.next().await {
            let record = record?;
            // What no registry can tell of, the ledger says that it cannot read.
            let asks = self.schemas.codec().unknown_id(record.value()).is_some();
            if asks && let Err(why) = self.schemas.meet(record.value()).await {
                return Err(BusError::Retry(format!("the schema registry: {why}")).into());
            }
            ledger.observe(topic, &as_logged(&record));
        }
        Ok(())
    }

    fn spans(&self, topic: &Topic, only: Option<&BTreeSet<i32>>, cut: &Cut) -> Vec<Span> {
        let name: Arc<str> = self.names.name(topic).into();
        let of_topic = cut.extents.iter().filter(|((other, partition), _)| {
            other == topic && only.is_none_or(|only| only.contains(partition))
        });
        let span = |((_, partition), extent): (&(Topic, i32), &Extent)| Span {
            at: PartitionId::new(name.clone(), *partition),
            from: extent.low,
            to: extent.high,
        };
        of_topic.map(span).collect()
    }
}

/// A record as the ledger takes it.
#[must_use]
pub fn as_logged(record: &InRecord) -> LogRecord<'_> {
    LogRecord {
        partition: record.at.partition,
        offset: record.offset,
        timestamp: record.timestamp,
        key: record.key.as_deref(),
        headers: &record.headers,
        value: record.payload.as_deref(),
    }
}

/// Topics of one turn are read side by side: an intent is known by what begins it before anything else of it is
/// read, and the state log comes last.
fn turn_of(topic: &Topic) -> u8 {
    match topic {
        Topic::Intents | Topic::Coordinator => 0,
        Topic::State => 2,
        _ => 1,
    }
}

/// Causes before consequences, and the state log last.
fn in_reading_order(pools: &[String]) -> Vec<Topic> {
    [Topic::Content, Topic::Intents, Topic::Coordinator, Topic::Planner, Topic::Worker(None)]
        .into_iter()
        .chain(Topic::pools(pools))
        .chain([
            Topic::Critic,
            Topic::Tool,
            Topic::Outcomes,
            Topic::Progress,
            Topic::Control,
            Topic::Dlq,
            Topic::Fleet,
            Topic::State,
        ])
        .collect()
}
