//! What is wanted of every row.

use super::{identity::BatchTag, input::ID, line::RowName, template::GoalTemplate};
use crate::client::Submission;
use serde_json::{Map, Value};
use starling_protocol::{Intent, Limits, PlanStrategy, Timestamp, is_slug};
use std::{collections::BTreeMap, time::Duration};

/// An intent with places for the columns of a row.
#[derive(Debug)]
pub struct Wish {
    /// What is wanted; a playbook may know that itself.
    pub goal: Option<GoalTemplate>,
    /// How it is planned.
    pub strategy: PlanStrategy,
    /// The column with things to treat one by one.
    pub items: Option<String>,
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
    /// Whether it can be had of rows with these columns; `None` where each row has its own.
    ///
    /// # Errors
    /// Names all that is wrong.
    pub(super) fn fits(&self, columns: Option<&[String]>) -> Result<(), String> {
        let Some(columns) = columns else { return Ok(()) };
        let mut missing = self.goal.as_ref().map_or_else(Vec::new, |goal| goal.missing(columns));
        missing.extend(self.items.iter().filter(|items| !columns.contains(items)).cloned());
        let mut faults: Vec<String> =
            missing.iter().map(|name| format!("there is no column {name}, which is needed")).collect();
        if self.is_by_playbook() {
            let odd = columns.iter().filter(|name| !is_slug(name));
            faults.extend(odd.map(|name| {
                format!(
                    "the column {name} cannot be a parameter of a playbook: expected a name of a-z 0-9 - _"
                )
            }));
        }
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }

    fn is_by_playbook(&self) -> bool {
        matches!(self.strategy, PlanStrategy::Playbook(_))
    }

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
        let goal = self.goal.as_ref().map_or(Ok(String::new()), |goal| goal.goal(columns))?;
        let items =
            self.items.as_ref().map_or(Ok(Vec::new()), |column| items(column, columns.get(column)))?;
        let intent = Intent {
            goal,
            strategy: self.strategy.to_string(),
            priority: self.priority,
            limits: self.limits.clone(),
            items,
            parameters: if self.is_by_playbook() { self.parameters(columns) } else { BTreeMap::new() },
            ..Intent::default()
        };
        Ok(Submission {
            id: tag.intent_id(row.instance),
            intent,
            tenant: self.tenant.clone(),
            timeout: Some(self.time_of_a_row(now)),
            traceparent: None,
            parts: BTreeMap::new(),
        })
    }

    /// The columns as a playbook takes them: texts, and everything else as JSON. What is null is not there; the row's key and
    /// its items have their own places.
    fn parameters(&self, columns: &Map<String, Value>) -> BTreeMap<String, String> {
        let is_one = |name: &str| name != ID && Some(name) != self.items.as_deref();
        let present = columns.iter().filter(|(name, value)| !value.is_null() && is_one(name));
        present.map(|(name, value)| (name.clone(), text(value))).collect()
    }

    /// How long a row may take that is submitted now.
    pub(super) fn time_of_a_row(&self, now: Timestamp) -> Duration {
        let left = self.deadline.map_or(Duration::MAX, |deadline| deadline.since(now));
        self.timeout.min(left).max(LEAST)
    }
}

fn items(column: &str, value: Option<&Value>) -> Result<Vec<String>, String> {
    let expected = || format!("the column {column} is no JSON array");
    let list = match value {
        Some(Value::Array(list)) => list.clone(),
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| expected())?,
        _ => return Err(expected()),
    };
    Ok(list.iter().map(text).collect())
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::batch::identity::{Instance, RowId};
    use serde_json::json;

    fn wish(strategy: PlanStrategy) -> Wish {
        Wish {
            goal: Some(GoalTemplate::parse("Describe {{name}}").unwrap()),
            strategy,
            items: Some("parts".to_owned()),
            tenant: "t".to_owned(),
            priority: 0,
            limits: Limits::default(),
            timeout: Duration::from_secs(900),
            deadline: Some(Timestamp(100_000)),
        }
    }

    fn submission(wish: &Wish, row: Value, now: i64) -> Result<Submission, String> {
        let instance = Instance { row: RowId::of_key("k"), generation: 0 };
        let name = RowName { instance, number: 1, key: "k".to_owned() };
        wish.submission(&BatchTag::of("b"), &name, row.as_object().unwrap(), Timestamp(now))
    }

    #[test]
    fn columns_are_the_goal_the_items_and_a_playbooks_parameters() {
        let row = json!({"id": "r-1", "name": "it", "parts": ["a", 2], "size": 3, "none": null});
        let map = submission(&wish(PlanStrategy::Map), row.clone(), 0).unwrap();
        assert_eq!(
            (map.intent.goal.as_str(), &map.intent.items[..]),
            ("Describe it", &["a".to_owned(), "2".to_owned()][..])
        );
        assert!(map.intent.parameters.is_empty());
        let playbook = submission(&wish(PlanStrategy::Playbook("p".to_owned())), row, 0).unwrap();
        let parameters: Vec<(&str, &str)> =
            playbook.intent.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(parameters, [("name", "it"), ("size", "3")], "key and items have their own places");
        let columns = ["Full Name".to_owned()];
        let faults = wish(PlanStrategy::Playbook("p".to_owned())).fits(Some(&columns)).unwrap_err();
        assert!(
            ["column name", "column parts", "Full Name"].iter().all(|fault| faults.contains(fault)),
            "{faults}"
        );
        assert_eq!(wish(PlanStrategy::Map).fits(None), Ok(()));
        let text =
            submission(&wish(PlanStrategy::Map), json!({"name": "it", "parts": "[\"a\"]"}), 0).unwrap();
        assert_eq!(text.intent.items, ["a"]);
        assert!(
            submission(&wish(PlanStrategy::Map), json!({"name": "it", "parts": 1}), 0)
                .unwrap_err()
                .contains("parts")
        );
    }

    #[test]
    fn no_row_may_take_longer_than_the_batch() {
        let timeout = |now| {
            submission(&wish(PlanStrategy::Single), json!({"name": "it", "parts": []}), now).unwrap().timeout
        };
        assert_eq!(timeout(0), Some(Duration::from_secs(100)));
        assert_eq!(timeout(100_500), Some(LEAST));
        assert_eq!(timeout(-10_000_000), Some(Duration::from_secs(900)));
    }
}
