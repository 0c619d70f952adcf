//! The goal of a row: a template over its columns.

use minijinja::{Environment, UndefinedBehavior};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The template's name within its environment.
const GOAL: &str = "goal";

/// A goal with places for columns. A column that a row does not have is a fault of that row.
#[derive(Debug)]
pub struct GoalTemplate {
    environment: Environment<'static>,
}

impl GoalTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// Says where it is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.add_template_owned(GOAL, text.to_owned()).map_err(|error| error.to_string())?;
        Ok(Self { environment })
    }

    /// The columns that it needs and that are not among these.
    #[must_use]
    pub fn missing(&self, columns: &[String]) -> Vec<String> {
        let Ok(template) = self.environment.get_template(GOAL) else { return Vec::new() };
        let wanted: BTreeSet<String> = template.undeclared_variables(false).into_iter().collect();
        wanted.into_iter().filter(|name| !columns.contains(name)).collect()
    }

    /// The goal of a row with these columns.
    ///
    /// # Errors
    /// Says what is wrong with the row.
    pub fn goal(&self, columns: &Map<String, Value>) -> Result<String, String> {
        let template = self.environment.get_template(GOAL).map_err(|error| error.to_string())?;
        let goal = template.render(columns).map_err(|error| format!("the goal cannot be made: {error}"))?;
        if goal.trim().is_empty() {
            return Err("the goal is empty".to_owned());
        }
        Ok(goal)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_column_that_is_missing_is_a_fault_and_known_beforehand() {
        let template = GoalTemplate::parse("Describe {{ name | upper }} for {{ who }}").unwrap();
        let row = json!({"name": "the {{bold}}", "who": "all"});
        assert_eq!(template.goal(row.as_object().unwrap()).unwrap(), "Describe THE {{BOLD}} for all");
        assert_eq!(template.missing(&["name".to_owned()]), ["who"]);
        let fault = template.goal(json!({"name": "x"}).as_object().unwrap()).unwrap_err();
        assert!(fault.contains("undefined"), "{fault}");
        assert!(GoalTemplate::parse("{{").is_err());
        let blank = GoalTemplate::parse("{{ name }}").unwrap();
        assert!(blank.goal(json!({"name": " "}).as_object().unwrap()).unwrap_err().contains("empty"));
    }
}
