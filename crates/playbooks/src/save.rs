//! A plan as the file of a playbook that makes the same plan again.

use crate::file::{AnswerFile, PartFile, PlaybookFile, TaskFile};
use crate::{Plan, Playbook, duration};
use starling_protocol::{AnswerSpec, IndexRange, TaskSpec};
use std::collections::BTreeMap;

/// A plan that cannot be a playbook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the plan cannot be saved as a playbook: {0}")]
pub struct Unsavable(pub String);

/// The text of a playbook `name` that makes this plan, whatever it is asked for.
///
/// # Errors
/// The plan would not be a valid playbook.
pub fn as_playbook(
    name: &str,
    description: &str,
    plan: &Plan,
    is_worker: impl Fn(&str) -> bool,
) -> Result<String, Unsavable> {
    if plan.tasks.iter().any(|task| task.terms.parts.is_some()) {
        let why = "its tasks read parts of these inputs; the playbook that it came from does so for any";
        return Err(Unsavable(why.to_owned()));
    }
    let keys = keys(&plan.tasks);
    let file = PlaybookFile {
        name: name.to_owned(),
        description: description.to_owned(),
        goal: Some(literal(&plan.goal)),
        tasks: plan.tasks.iter().map(|task| task_file(task, &keys)).collect(),
        answer: plan.answer.as_ref().map(answer_file),
        ..PlaybookFile::default()
    };
    Playbook::check(&file, is_worker).map_err(|faults| {
        let faults: Vec<String> = faults.iter().take(5).map(ToString::to_string).collect();
        Unsavable(faults.join("; "))
    })?;
    toml::to_string_pretty(&file).map_err(|error| Unsavable(error.to_string()))
}

/// A key for each key of the plan: its own, where a playbook can have it.
fn keys(tasks: &[TaskSpec]) -> BTreeMap<&str, String> {
    let usable = |key: &str| {
        !key.contains(['*', '{', '}'])
            && !key.contains(char::is_control)
            && !key.ends_with("-same")
            && key.len() <= 80
    };
    let number = |at: usize| {
        let mut key = format!("task-{}", at + 1);
        while tasks.iter().any(|task| task.key == key) {
            key.push('x');
        }
        key
    };
    let named = tasks.iter().enumerate().map(|(at, task)| {
        let key = if usable(&task.key) { task.key.clone() } else { number(at) };
        (task.key.as_str(), key)
    });
    named.collect()
}

fn task_file(task: &TaskSpec, keys: &BTreeMap<&str, String>) -> TaskFile {
    let key = |key: &String| keys.get(key.as_str()).unwrap_or(key).clone();
    let terms = &task.terms;
    TaskFile {
        key: key(&task.key),
        title: Some(literal(&task.title)),
        instruction: literal(&task.instruction),
        agent: Some(task.agent.clone()),
        critic: Some(task.critic),
        depends_on: task.depends_on.iter().map(key).collect(),
        timeout: terms.timeout_ms.map(duration::text),
        fallback: terms.fallback.as_ref().map(|fallback| literal(&fallback.text)),
        with_results: terms.fallback.as_ref().map(|fallback| fallback.with_results),
        items: terms.items.map(part),
        inputs: terms.inputs.map(part),
        ..TaskFile::default()
    }
}

fn answer_file(answer: &AnswerSpec) -> AnswerFile {
    let terms = &answer.terms;
    AnswerFile {
        instruction: Some(literal(&answer.instruction)).filter(|text| !text.is_empty()),
        timeout: terms.timeout_ms.map(duration::text),
        fallback: terms.fallback.as_ref().map(|fallback| literal(&fallback.text)),
        with_results: terms.fallback.as_ref().map(|fallback| fallback.with_results),
        items: terms.items.map(part),
        inputs: terms.inputs.map(part),
    }
}

fn part(range: IndexRange) -> PartFile {
    PartFile::Range { from: range.from, to: range.to }
}

/// A template that says exactly this.
fn literal(text: &str) -> String {
    let mut template = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        if character == '{' && matches!(rest.peek(), Some('{' | '%' | '#')) {
            template.push_str("{% raw %}{{% endraw %}");
        } else {
            template.push(character);
        }
    }
    template
}
