//! From a task as a model writes it to a task spec. Lenient where the meaning is clear.

use serde_json::Value;
use starling_agents::{AgentCatalogue, DEFAULT_WORKER};
use starling_llm::Encoding;
use starling_protocol::{TaskSpec, TaskTerms};

/// A title made out of an instruction has at most so many characters.
const DERIVED_TITLE_CHARS: usize = 80;

/// How long an instruction may be that a model writes. One that a person writes is bounded by its bytes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstructionLimit {
    /// Most tokens.
    pub tokens: i64,
    /// How they are counted.
    pub encoding: Encoding,
}

impl InstructionLimit {
    fn check(self, instruction: &str) -> Result<(), String> {
        // No token is shorter than a byte: most need not be counted.
        if i64::try_from(instruction.len()).is_ok_and(|bytes| bytes <= self.tokens) {
            return Ok(());
        }
        let tokens = self.encoding.count(instruction);
        let start: String = instruction.chars().take(60).collect();
        match tokens <= self.tokens {
            true => Ok(()),
            false => {
                Err(format!("at most {} tokens, found {tokens} ({start:?}…): say it shorter", self.tokens))
            }
        }
    }
}

/// Reads one task object.
///
/// What is missing and has a safe meaning is filled in: no `key` (nobody can depend on it then), no
/// `title` (the instruction's beginning), no `depends_on` (none), no `critic` (yes), no `agent` or one
/// that does not exist (the default worker). Numbers may stand where names belong.
///
/// # Errors
/// Says what is wrong with which field.
pub fn task_spec(
    task: &Value,
    ordinal: i32,
    catalogue: &AgentCatalogue,
    limit: InstructionLimit,
) -> Result<TaskSpec, String> {
    let fault = |field: &str, expected: &str| {
        let found = task.get(field).map_or_else(|| "nothing".to_owned(), describe);
        format!("task {}: {field}: expected {expected}, found {found}", ordinal.saturating_add(1))
    };
    let instruction = match task.get("instruction") {
        Some(Value::String(text)) if !text.trim().is_empty() => text.trim().to_owned(),
        _ => return Err(fault("instruction", "a text that says what to do")),
    };
    limit
        .check(&instruction)
        .map_err(|wrong| format!("task {}: instruction: expected {wrong}", ordinal.saturating_add(1)))?;
    let key = match task.get("key") {
        None | Some(Value::Null) => format!("task-{}", ordinal.saturating_add(1)),
        Some(key) => name(key).ok_or_else(|| fault("key", "a short name"))?,
    };
    let title = match task.get("title") {
        None | Some(Value::Null) => derived_title(&instruction),
        Some(Value::String(title)) if title.trim().is_empty() => derived_title(&instruction),
        Some(Value::String(title)) => title.trim().to_owned(),
        Some(_) => return Err(fault("title", "a text")),
    };
    let agent = match task.get("agent") {
        None | Some(Value::Null) => DEFAULT_WORKER,
        Some(Value::String(agent)) if catalogue.is_worker(agent) => agent,
        Some(Value::String(_)) => DEFAULT_WORKER,
        Some(_) => return Err(fault("agent", "the name of an agent")),
    };
    let depends_on = match task.get("depends_on") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(keys)) => keys
            .iter()
            .map(name)
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| fault("depends_on", "an array of keys"))?,
        Some(key) => vec![name(key).ok_or_else(|| fault("depends_on", "an array of keys"))?],
    };
    let critic = match task.get("critic") {
        None | Some(Value::Null) => true,
        Some(Value::Bool(critic)) => *critic,
        Some(_) => return Err(fault("critic", "true or false")),
    };
    Ok(TaskSpec {
        ordinal,
        key,
        title,
        instruction,
        agent: agent.to_owned(),
        depends_on,
        critic,
        terms: TaskTerms::default(),
    })
}

fn name(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn derived_title(instruction: &str) -> String {
    let line = instruction.lines().next().unwrap_or_default().trim();
    let title: String = line.chars().take(DERIVED_TITLE_CHARS).collect();
    if title.len() < line.len() { format!("{}…", title.trim_end()) } else { title }
}

fn describe(value: &Value) -> String {
    let text = value.to_string();
    let start: String = text.chars().take(60).collect();
    if start.len() < text.len() { format!("{start}…") } else { start }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    fn read(task: Value) -> Result<TaskSpec, String> {
        let limit = InstructionLimit { tokens: 20, encoding: Encoding::Estimate };
        task_spec(&task, 4, &AgentCatalogue::load(None).unwrap(), limit)
    }

    #[test]
    fn a_complete_task_is_taken_as_it_is() {
        let spec = read(json!({
            "key": "a", "title": "T", "instruction": "Do", "agent": "analyst", "depends_on": ["b"],
            "critic": false, "extra": 1
        }))
        .unwrap();
        assert_eq!(
            spec,
            TaskSpec {
                ordinal: 4,
                key: "a".into(),
                title: "T".into(),
                instruction: "Do".into(),
                agent: "analyst".into(),
                depends_on: vec!["b".into()],
                critic: false,
                ..TaskSpec::default()
            }
        );
    }

    #[test]
    fn what_is_missing_gets_its_safe_meaning() {
        let spec =
            read(json!({ "key": 3, "instruction": "Do\nthis", "depends_on": 1, "agent": "wizard" })).unwrap();
        assert_eq!((spec.key.as_str(), spec.title.as_str(), spec.agent.as_str()), ("3", "Do", "worker"));
        assert_eq!(spec.depends_on, ["1"]);
        assert!(spec.critic);
        let spec = read(json!({ "instruction": "Do", "depends_on": null, "critic": null })).unwrap();
        assert_eq!((spec.key.as_str(), spec.depends_on.len()), ("task-5", 0));
    }

    #[test]
    fn what_has_no_meaning_is_refused_with_its_field() {
        for (task, field) in [
            (json!({ "key": "a" }), "instruction"),
            (json!({ "key": "a", "instruction": " " }), "instruction"),
            (json!({ "key": "a", "instruction": "x".repeat(81) }), "instruction"),
            (json!({ "key": {}, "instruction": "x" }), "key"),
            (json!({ "key": "a", "instruction": "x", "title": 1 }), "title"),
            (json!({ "key": "a", "instruction": "x", "agent": ["b"] }), "agent"),
            (json!({ "key": "a", "instruction": "x", "depends_on": [[]] }), "depends_on"),
            (json!({ "key": "a", "instruction": "x", "critic": "yes" }), "critic"),
        ] {
            let fault = read(task).unwrap_err();
            assert!(fault.starts_with(&format!("task 5: {field}: expected")), "{fault}");
        }
    }
}
