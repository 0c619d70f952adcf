//! Settling letters: sends them again, and marks those that are done with.

use super::{
    letter::{Letter, LetterId},
    replay::Replay,
    selection::{DeadLetters, Selection, Survey},
    settled::Ranges,
};
use crate::exit::CliError;
use futures::future::join_all;
use starling_bus::{Bus, OutRecord, PartitionId, SendError};
use starling_protocol::dead_letter::{MAX_MARK_RANGES, Mark, Settled};
use starling_runtime::settings::DlqSettings;
use std::{collections::BTreeMap, sync::Arc};

/// What became of one letter. Told as it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It lies in its inbox again.
    Replayed(LetterId, PartitionId, Option<i64>),
    /// It would be sent there.
    WouldReplay(LetterId, PartitionId),
    /// Nobody wants it.
    Dropped(LetterId),
    /// It would be dropped.
    WouldDrop(LetterId),
    /// It was settled before, and is passed over.
    Before(LetterId, Settled),
    /// It was not sent.
    Failed(LetterId, String),
}

/// How many came to what end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Settled, or would be.
    pub settled: u64,
    /// Settled before.
    pub before: u64,
    /// Not sent.
    pub failed: u64,
}

/// What is done with letters.
pub enum What {
    /// They are sent again.
    Replay(Replay),
    /// They are marked.
    Drop,
}

/// How letters are settled.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Also those that were settled before.
    pub again: bool,
    /// Only say what would be done.
    pub dry_run: bool,
}

impl DeadLetters {
    /// How many letters are wanted and not settled, and how many are and would be passed over.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn count(&self, survey: &Survey, selection: &Selection, again: bool) -> Result<Sum, CliError> {
        let mut sum = Sum::default();
        let mut letters = self.letters(survey, selection);
        while let Some((_, settled)) = letters.next().await? {
            match settled {
                Some(_) if !again => sum.before += 1,
                _ => sum.settled += 1,
            }
        }
        letters.all_found()?;
        Ok(sum)
    }

    /// Settles the letters that are wanted, in the order of their partitions.
    ///
    /// # Errors
    /// They cannot be read, or not be marked. Letters that cannot be sent are told and counted.
    pub async fn settle(
        &self,
        survey: &Survey,
        selection: &Selection,
        what: What,
        how: How,
        settings: &DlqSettings,
        tell: impl FnMut(Told),
    ) -> Result<Sum, CliError> {
        let mut settling = Settling {
            bus: self.bus.clone(),
            topic: self.topic.clone(),
            what,
            how,
            settings,
            batch: Vec::new(),
            bytes: 0,
            marks: BTreeMap::new(),
            sum: Sum::default(),
            tell,
        };
        let mut letters = self.letters(survey, selection);
        while let Some((letter, settled)) = letters.next().await? {
            settling.take(letter, settled).await?;
        }
        settling.send().await?;
        settling.mark().await?;
        letters.all_found()?;
        Ok(settling.sum)
    }
}

/// One letter on its way.
struct Sending {
    id: LetterId,
    record: OutRecord,
}

struct Settling<'s, T> {
    bus: Arc<dyn Bus>,
    topic: Arc<str>,
    what: What,
    how: How,
    settings: &'s DlqSettings,
    /// To be sent together.
    batch: Vec<Sending>,
    bytes: usize,
    /// To be marked together.
    marks: BTreeMap<i32, Ranges>,
    sum: Sum,
    tell: T,
}

impl<T: FnMut(Told)> Settling<'_, T> {
    async fn take(&mut self, letter: Letter, settled: Option<Settled>) -> Result<(), CliError> {
        let id = LetterId::of(&letter.record);
        if let Some(settled) = settled.filter(|_| !self.how.again) {
            self.sum.before += 1;
            (self.tell)(Told::Before(id, settled));
            return Ok(());
        }
        let record = match &mut self.what {
            What::Drop => return self.drop_letter(id).await,
            What::Replay(replay) => replay.record(&letter).await,
        };
        match record {
            Err(why) => self.failed(id, why),
            Ok(record) if self.how.dry_run => {
                self.sum.settled += 1;
                (self.tell)(Told::WouldReplay(id, record.to));
            }
            Ok(record) => {
                let size = record.payload.as_ref().map_or(0, bytes::Bytes::len);
                let full = self.batch.len() >= self.settings.batch
                    || self.bytes.saturating_add(size) > self.settings.batch_bytes;
                if full {
                    self.send().await?;
                }
                self.bytes = self.bytes.saturating_add(size);
                self.batch.push(Sending { id, record });
            }
        }
        Ok(())
    }

    fn failed(&mut self, id: LetterId, why: String) {
        self.sum.failed += 1;
        (self.tell)(Told::Failed(id, why));
    }

    async fn drop_letter(&mut self, id: LetterId) -> Result<(), CliError> {
        self.sum.settled += 1;
        if self.how.dry_run {
            (self.tell)(Told::WouldDrop(id));
            return Ok(());
        }
        (self.tell)(Told::Dropped(id));
        let ranges = self.marks.entry(id.partition).or_default();
        ranges.insert(id.offset, id.offset);
        if ranges.len() >= MAX_MARK_RANGES {
            self.mark().await?;
        }
        Ok(())
    }

    /// Sends the batch and marks those of it that arrived. Between the two a crash can come: then they are sent again
    /// the next time, and recognised where they arrive.
    async fn send(&mut self) -> Result<(), CliError> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        let sends = batch.iter().map(|sending| self.bus.send(sending.record.clone()));
        let sent = join_all(sends.collect::<Vec<_>>()).await;
        for (Sending { id, record }, sent) in batch.into_iter().zip(sent) {
            match sent {
                Ok(delivered) => {
                    self.sum.settled += 1;
                    (self.tell)(Told::Replayed(id, record.to, delivered.offset));
                    self.marks.entry(id.partition).or_default().insert(id.offset, id.offset);
                }
                Err(error) => self.failed(id, error.to_string()),
            }
        }
        self.mark().await
    }

    async fn mark(&mut self) -> Result<(), CliError> {
        let settled = match &self.what {
            What::Replay(_) => Settled::Replayed,
            What::Drop => Settled::Dropped,
        };
        let marks = std::mem::take(&mut self.marks);
        let marks = marks.into_iter().flat_map(|(partition, ranges)| {
            let all = ranges.all();
            let pieces = all.chunks(MAX_MARK_RANGES).map(|offsets| offsets.to_vec()).collect::<Vec<_>>();
            pieces.into_iter().map(move |offsets| (partition, Mark { settled, offsets }))
        });
        let sends = marks.map(|(partition, mark)| {
            let headers = mark.headers().into_iter();
            self.bus.send(OutRecord {
                to: PartitionId { topic: self.topic.clone(), partition },
                key: None,
                headers: headers.map(|(name, value)| (name.to_owned(), value.into())).collect(),
                payload: None,
            })
        });
        for sent in join_all(sends.collect::<Vec<_>>()).await {
            sent.map_err(|error| {
                let error_text = format!("letters are settled and could not be marked so: {error}");
                match error {
                    SendError::Refused { .. } => CliError::Failed(error_text),
                    SendError::NotSent { .. } | SendError::Unknown { .. } => {
                        CliError::Unavailable(error_text)
                    }
                }
            })?;
        }
        Ok(())
    }
}
