//! Finding dead letters: a first pass over the topic learns what was settled, a second one brings the letters.

use super::{
    args::FilterArgs,
    letter::{Found, Letter, LetterId},
    settled::Settlements,
};
use crate::{
    exit::CliError,
    scan::{Period, Scan, Span, spans},
};
use starling_bus::Bus;
use starling_protocol::{
    IntentId, Topic, TopicNames,
    dead_letter::{Mark, Settled},
};
use starling_runtime::Schemas;
use std::{collections::BTreeSet, sync::Arc};

/// Which letters are wanted.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    reasons: Vec<String>,
    /// Full names.
    topics: Vec<String>,
    intent: Option<IntentId>,
    period: Period,
    /// Single ones; all if there are none.
    ids: BTreeSet<LetterId>,
}

impl Selection {
    /// What the command line says.
    ///
    /// # Errors
    /// What it names as an intent's id is none.
    pub fn new(names: &TopicNames, filter: FilterArgs, ids: Vec<LetterId>) -> Result<Self, CliError> {
        let prefix = names.group("");
        let full = |topic: String| match topic.starts_with(&prefix) {
            true => topic,
            false => format!("{prefix}{topic}"),
        };
        Ok(Self {
            reasons: filter.reason,
            topics: filter.topic.into_iter().map(full).collect(),
            intent: filter.intent.map(|id| IntentId::parse(&id)).transpose().map_err(CliError::Usage)?,
            period: Period { since: filter.since, until: filter.until },
            ids: ids.into_iter().collect(),
        })
    }

    /// Whether it is simply everything.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        let Self { reasons, topics, intent, period, ids } = self;
        reasons.is_empty()
            && topics.is_empty()
            && intent.is_none()
            && *period == Period::default()
            && ids.is_empty()
    }

    fn wants(&self, letter: &Letter) -> bool {
        let burial = &letter.burial;
        (self.reasons.is_empty() || self.reasons.contains(&burial.code))
            && (self.topics.is_empty() || self.topics.contains(&burial.topic))
            && self.intent.as_ref().is_none_or(|intent| letter.intent.as_ref() == Some(intent))
            && self.wants_id(LetterId::of(&letter.record))
    }

    fn wants_id(&self, id: LetterId) -> bool {
        self.ids.is_empty() || self.ids.contains(&id)
    }
}

/// The dead letters of an installation.
pub struct DeadLetters {
    pub(super) bus: Arc<dyn Bus>,
    pub(super) schemas: Schemas,
    pub(super) names: TopicNames,
    pub(super) topic: Arc<str>,
    most_settled: usize,
}

/// The dead letters as they lay there at one moment.
#[derive(Clone, Debug)]
pub struct Survey {
    spans: Vec<Span>,
    settled: Settlements,
}

impl DeadLetters {
    /// Those of the installation with these names. At most so many settled ranges are remembered.
    pub fn new(bus: Arc<dyn Bus>, schemas: Schemas, names: TopicNames, most_settled: usize) -> Self {
        let topic = names.name(&Topic::Dlq).into();
        Self { bus, schemas, names, topic, most_settled }
    }

    /// Learns what was settled of what may be wanted.
    ///
    /// # Errors
    /// The topic cannot be read, or too much was settled.
    pub async fn survey(&self, selection: &Selection) -> Result<Survey, CliError> {
        let topics = [self.topic.to_string()];
        let mut spans = spans(self.bus.as_ref(), &topics, selection.period.since).await?;
        let of = |partition| selection.ids.iter().filter(move |id| id.partition == partition);
        if !selection.ids.is_empty() {
            spans.retain(|span| of(span.at.partition).next().is_some());
            for span in &mut spans {
                let first = of(span.at.partition).next().map_or(0, |id| id.offset);
                span.from = span.from.max(first);
            }
        }
        let mut settled = Settlements::new(self.most_settled);
        // A mark comes after what it settles, be that wanted until then only.
        let mut scan = Scan::over(self.bus.clone(), spans.clone());
        while let Some(record) = scan.next().await? {
            if let Some(mark) = Mark::read(&record.headers) {
                settled.add(record.at.partition, &mark)?;
            }
        }
        for span in spans.iter_mut().filter(|_| !selection.ids.is_empty()) {
            let last = of(span.at.partition).next_back().map_or(0, |id| id.offset);
            span.to = span.to.min(last.saturating_add(1));
        }
        Ok(Survey { spans, settled })
    }

    /// The letters of a survey that are wanted.
    #[must_use]
    pub fn letters<'a>(&'a self, survey: &'a Survey, selection: &'a Selection) -> Letters<'a> {
        let scan = Scan::over(self.bus.clone(), survey.spans.clone()).within(selection.period);
        Letters { of: self, survey, selection, scan, foreign: 0, missing: selection.ids.clone() }
    }
}

/// Brings letters, in the order of each partition.
pub struct Letters<'a> {
    of: &'a DeadLetters,
    survey: &'a Survey,
    selection: &'a Selection,
    scan: Scan,
    /// Records that are neither letters nor marks.
    pub foreign: u64,
    /// Single ones that were asked for and have not come.
    pub missing: BTreeSet<LetterId>,
}

impl Letters<'_> {
    /// The next one, and whether it was settled.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub async fn next(&mut self) -> Result<Option<(Letter, Option<Settled>)>, CliError> {
        while let Some(record) = self.scan.next().await? {
            let id = LetterId::of(&record);
            if !self.selection.wants_id(id) {
                continue;
            }
            match Found::read(&self.of.schemas, &self.of.names, record).await {
                Found::Letter(letter) if self.selection.wants(&letter) => {
                    self.missing.remove(&id);
                    return Ok(Some((*letter, self.survey.settled.of(id.partition, id.offset))));
                }
                Found::Letter(_) | Found::Mark(_) => {}
                Found::Foreign => self.foreign += 1,
            }
        }
        Ok(None)
    }

    /// An error if single letters were asked for that are not there.
    ///
    /// # Errors
    /// Names them.
    pub fn all_found(&self) -> Result<(), CliError> {
        if self.missing.is_empty() {
            return Ok(());
        }
        let missing: Vec<String> = self.missing.iter().map(ToString::to_string).collect();
        Err(CliError::Failed(format!(
            "no such dead letter, or not one that the filter takes: {}",
            missing.join(", ")
        )))
    }
}
