//! What is wanted of every row.

use super::{identity::BatchTag, line::RowName, template::GoalTemplate};
use crate::{args::Strategy, client::Submission};
use serde_json::{Map, Value};
use starling_protocol::{Intent, Limits, Timestamp};
use std::time::Duration;

/// An intent with places for the columns of a row.
#[derive(Debug)]
pub struct Wish {
    /// What is wanted.
    pub goal: GoalTemplate,
    /// How it is planned.
    pub strategy: Strategy,
    /// Who pays.
    pub tenant: String,
    /// 0 (batch) to 9 (somebody waits).
    pub priority: i32,
    /// Bounds of one row.
    pub limits: Limits,
    /// How long a row may take.
    pub timeout: Duration,
    /// When all must be done.
    pub deadline: Option<Timestamp>,
}

/// Less time than this is none.
const LEAST: Duration = Duration::from_secs(1);

impl Wish {
    /// The intent of a row that is submitted now.
    ///
    /// # Errors
    /// Says what is wrong with the row.
    pub(super) fn submission(
        &self,
        tag: &BatchTag,
        row: &RowName,
        columns: &Map<String, Value>,
        now: Timestamp,
    ) -> Result<Submission, String> {
        let intent = Intent {
            goal: self.goal.goal(columns)?,
            strategy: self.strategy.name().to_owned(),
            priority: self.priority,
            limits: self.limits.clone(),
            ..Intent::default()
        };
        Ok(Submission {
            id: tag.intent_id(row.instance),
            intent,
            tenant: self.tenant.clone(),
            timeout: Some(self.time_of_a_row(now)),
            traceparent: None,
        })
    }

    /// How long a row may take that is submitted now.
    pub(super) fn time_of_a_row(&self, now: Timestamp) -> Duration {
        let left = self.deadline.map_or(Duration::MAX, |deadline| deadline.since(now));
        self.timeout.min(left).max(LEAST)
    }
}
