//! When so much of an inbox is buried that its reader should stop: a broken release or a broken producer must not
//! drain a topic into the dead letters.

use std::collections::VecDeque;

/// Reasons that an [`Excess`] tells.
const REASONS: usize = 3;
/// Longest of them, in characters.
const REASON_LENGTH: usize = 200;

/// How much may be buried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurialLimit {
    /// Records that came to an end last, among which the dead letters are counted.
    pub window: usize,
    /// So many dead letters among them are never too many.
    pub least: usize,
    /// Share of dead letters among them, 0 to 1, above which there are too many. With 1 there never are.
    pub share: f64,
}

/// Too much is buried.
#[derive(Clone, Debug, PartialEq)]
pub struct Excess {
    /// Dead letters, the one that was not buried any more included.
    pub dead: usize,
    /// Among so many records.
    pub of: usize,
    /// The share that was allowed.
    pub share: f64,
    /// The last reasons, the latest first.
    pub reasons: Vec<String>,
}

/// What became of the last records of an inbox.
#[derive(Clone, Debug)]
pub struct Burials {
    limit: BurialLimit,
    /// Whether they were buried, oldest first.
    ended: VecDeque<bool>,
    buried: usize,
    /// Burials that have begun.
    under_way: usize,
    reasons: VecDeque<String>,
    excess: Option<Excess>,
}

impl Burials {
    /// Nothing has been handled yet.
    #[must_use]
    pub fn new(limit: BurialLimit) -> Self {
        let limit = BurialLimit { window: limit.window.max(1), ..limit };
        Self {
            limit,
            ended: VecDeque::with_capacity(limit.window),
            buried: 0,
            under_way: 0,
            reasons: VecDeque::new(),
            excess: None,
        }
    }

    /// A record came to a good end.
    pub fn handled(&mut self) {
        self.ended(false);
    }

    /// A record is to be buried. It counts from now on, until [`Burials::buried`] or [`Burials::withdrawn`] says
    /// what came of it.
    ///
    /// # Errors
    /// Too many are: it must not be, and neither must any after it.
    pub fn begin(&mut self, reason: &str) -> Result<(), Excess> {
        if let Some(excess) = &self.excess {
            return Err(excess.clone());
        }
        self.reasons.push_front(reason.chars().take(REASON_LENGTH).collect());
        self.reasons.truncate(REASONS);
        let dead = self.buried + self.under_way + 1;
        let of = self.ended.len() + self.under_way + 1;
        if dead > self.limit.least && dead as f64 > self.limit.share * of as f64 {
            let reasons = self.reasons.iter().cloned().collect();
            let excess = Excess { dead, of, share: self.limit.share, reasons };
            self.excess = Some(excess.clone());
            return Err(excess);
        }
        self.under_way += 1;
        Ok(())
    }

    /// A burial that had begun is done.
    pub fn buried(&mut self) {
        self.withdrawn();
        self.ended(true);
    }

    /// A burial that had begun has not come about; it may begin again.
    pub fn withdrawn(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    fn ended(&mut self, buried: bool) {
        if self.ended.len() >= self.limit.window && self.ended.pop_front() == Some(true) {
            self.buried -= 1;
        }
        self.ended.push_back(buried);
        self.buried += usize::from(buried);
    }
}
