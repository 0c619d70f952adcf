//! What makes an intent valid, however it was written.

use super::fault::{Faults, InvalidIntent, excerpt};
use super::{
    DEFAULT_PRIORITY, DEFAULT_STRATEGY, DEFAULT_TENANT, IntentLimits, MAX_DEADLINE_MS, ParsedIntent,
};
use crate::body::is_slug;
use crate::ids::MAX_INTENT_ID_BYTES;
use crate::{Input, Intent, IntentId, Limits, PlanStrategy};
use std::collections::{BTreeMap, BTreeSet};

const MAX_NAME_BYTES: usize = 255;

/// An intent as far as it could be read: types are right, values are unchecked.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) id: Option<String>,
    pub(super) goal: Option<String>,
    /// A fault of the goal is already known; that it is missing would be no news.
    pub(super) goal_is_faulty: bool,
    pub(super) strategy: Option<String>,
    pub(super) tenant: Option<String>,
    pub(super) priority: Option<i64>,
    pub(super) deadline_ms: Option<i64>,
    pub(super) max_tasks: Option<i64>,
    pub(super) max_attempts: Option<i64>,
    pub(super) min_score: Option<f64>,
    pub(super) max_calls: Option<i64>,
    pub(super) max_tokens: Option<i64>,
    pub(super) max_cost_usd: Option<f64>,
    pub(super) degrade_after_ms: Option<i64>,
    pub(super) inputs: Vec<Input>,
    pub(super) items: Vec<String>,
    pub(super) parameters: BTreeMap<String, String>,
}

/// Checks a draft and fills in the defaults. `faults` are those of reading it.
pub(super) fn finish(
    draft: Draft,
    limits: &IntentLimits,
    mut faults: Faults,
) -> Result<ParsedIntent, InvalidIntent> {
    check(&draft, limits, &mut faults);
    if !faults.is_empty() {
        return Err(faults.into_invalid(draft.id.as_deref(), draft.tenant.as_deref()));
    }
    let int = |value: i64| i32::try_from(value).unwrap_or(i32::MAX); // checked to be small
    Ok(ParsedIntent {
        id: draft.id.map(IntentId::from_string),
        tenant: draft.tenant.unwrap_or_else(|| DEFAULT_TENANT.into()),
        deadline_ms: draft.deadline_ms,
        intent: Intent {
            goal: draft.goal.map(|goal| goal.trim().to_owned()).unwrap_or_default(),
            strategy: draft.strategy.unwrap_or_else(|| DEFAULT_STRATEGY.into()),
            priority: draft.priority.map_or(DEFAULT_PRIORITY, int),
            limits: Limits {
                max_tasks: draft.max_tasks.map(int),
                max_attempts: draft.max_attempts.map(int),
                min_score: draft.min_score,
                max_calls: draft.max_calls,
                max_tokens: draft.max_tokens,
                max_cost_usd: draft.max_cost_usd,
                degrade_after_ms: draft.degrade_after_ms,
            },
            inputs: draft.inputs,
            items: draft.items,
            parameters: draft.parameters,
        },
    })
}

fn check(draft: &Draft, limits: &IntentLimits, faults: &mut Faults) {
    check_name("id", draft.id.as_deref(), faults);
    check_goal(draft, limits, faults);
    check_strategy(draft, faults);
    check_name("tenant", draft.tenant.as_deref(), faults);
    check_range("priority", draft.priority, 0, 9, faults);
    check_range("deadline_ms", draft.deadline_ms, 1, MAX_DEADLINE_MS, faults);
    check_range("limits.max_tasks", draft.max_tasks, 1, 100, faults);
    check_range("limits.max_attempts", draft.max_attempts, 1, 10, faults);
    if let Some(score) = draft.min_score.filter(|score| !(0.0..=1.0).contains(score)) {
        faults.add("limits.min_score", format!("expected a number from 0 to 1, found {score}"));
    }
    for (path, value) in [("limits.max_calls", draft.max_calls), ("limits.max_tokens", draft.max_tokens)] {
        if let Some(value) = value.filter(|value| *value < 1) {
            faults.add(path, format!("expected an integer of at least 1, found {value}"));
        }
    }
    if let Some(cost) = draft.max_cost_usd.filter(|cost| !(cost.is_finite() && *cost > 0.0)) {
        faults.add("limits.max_cost_usd", format!("expected a number of US dollars above 0, found {cost}"));
    }
    check_range("limits.degrade_after_ms", draft.degrade_after_ms, 0, MAX_DEADLINE_MS, faults);
    check_inputs(&draft.inputs, limits, faults);
    check_count("items", draft.items.len(), limits.max_items, faults);
    for (position, item) in draft.items.iter().enumerate() {
        check_text(&format!("items[{position}]"), item, faults);
    }
    check_parameters(&draft.parameters, limits, faults);
}

fn check_strategy(draft: &Draft, faults: &mut Faults) {
    let Some(text) = draft.strategy.as_deref() else { return };
    match text.parse::<PlanStrategy>() {
        Err(unknown) => faults.add("strategy", format!("{unknown}, found {}", excerpt(text))),
        Ok(PlanStrategy::Map) if draft.items.is_empty() => {
            faults.add("items", "missing, the strategy \"map\" treats items one by one");
        }
        Ok(_) => {}
    }
}

fn check_parameters(parameters: &BTreeMap<String, String>, limits: &IntentLimits, faults: &mut Faults) {
    check_count("parameters", parameters.len(), limits.max_parameters, faults);
    for (name, value) in parameters {
        if !is_slug(name) {
            let expected = "expected a name of 1 to 64 characters of a-z 0-9 - _";
            faults.add("parameters", format!("{expected}, found {}", excerpt(name)));
            continue;
        }
        let path = format!("parameters.{name}");
        if value.len() > limits.max_parameter_bytes {
            let most = limits.max_parameter_bytes;
            faults.add(&path, format!("expected at most {most} bytes, found {}", value.len()));
        }
        check_characters(&path, value, faults);
    }
}

/// A playbook may have a goal of its own, so that an intent for one needs none.
fn check_goal(draft: &Draft, limits: &IntentLimits, faults: &mut Faults) {
    let strategy = draft.strategy.as_deref().map(str::parse);
    let by_playbook = matches!(strategy, Some(Ok(PlanStrategy::Playbook(_))));
    match &draft.goal {
        Some(goal) if by_playbook && goal.trim().is_empty() => {}
        None if by_playbook => {}
        Some(goal) if goal.len() > limits.max_goal_bytes => {
            faults.add(
                "goal",
                format!("expected at most {} bytes, found {}", limits.max_goal_bytes, goal.len()),
            );
        }
        Some(goal) => check_text("goal", goal, faults),
        None if draft.goal_is_faulty => {}
        None => faults.add("goal", "missing, expected a text that says what is wanted"),
    }
}

fn check_inputs(inputs: &[Input], limits: &IntentLimits, faults: &mut Faults) {
    check_count("inputs", inputs.len(), limits.max_inputs, faults);
    let parts = inputs.iter().map(Input::parts).sum::<usize>();
    if parts > limits.max_parts {
        faults.add(
            "inputs",
            format!("expected at most {} parts of all inputs, found {parts}", limits.max_parts),
        );
    }
    let mut names = BTreeSet::new();
    for (position, input) in inputs.iter().enumerate() {
        let path = |field: &str| format!("inputs[{position}].{field}");
        let name = input.name.as_str();
        if name.trim().is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            let expected = format!("expected 1 to {MAX_NAME_BYTES} bytes without control characters");
            faults.add(&path("name"), format!("{expected}, found {}", excerpt(name)));
        } else if !names.insert(name) {
            faults.add(
                &path("name"),
                format!("expected a name that no other input has, found {} again", excerpt(name)),
            );
        }
        if !is_media_type(&input.media_type) {
            let found = excerpt(&input.media_type);
            faults.add(&path("media_type"), format!("expected a media type such as text/csv, found {found}"));
        }
        if input.is_stored() && !input.content.is_empty() {
            faults.add(&path("content"), "expected nothing where there are chunks, found a text");
        }
        // Files have all sorts of characters in them; only this one no tool downstream can bear.
        if let Some(at) = input.content.find('\0') {
            faults.add(&path("content"), format!("expected text, found a NUL character at byte {at}"));
        }
    }
}

fn is_media_type(text: &str) -> bool {
    let token = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    let essence = text.split(';').next().unwrap_or_default().trim();
    text.len() <= MAX_NAME_BYTES
        && !text.chars().any(char::is_control)
        && essence.split_once('/').is_some_and(|(kind, subtype)| token(kind) && token(subtype))
}

fn check_name(path: &str, name: Option<&str>, faults: &mut Faults) {
    if let Some(name) = name.filter(|name| IntentId::parse(name).is_err()) {
        let expected = format!("expected 1 to {MAX_INTENT_ID_BYTES} characters of A-Z a-z 0-9 . _ : -");
        faults.add(path, format!("{expected}, found {}", excerpt(name)));
    }
}

fn check_range(path: &str, value: Option<i64>, least: i64, most: i64, faults: &mut Faults) {
    if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
        faults.add(path, format!("expected an integer from {least} to {most}, found {value}"));
    }
}

fn check_count(path: &str, count: usize, most: usize, faults: &mut Faults) {
    if count > most {
        faults.add(path, format!("expected at most {most} entries, found {count}"));
    }
}

/// Words for a model: not empty, and of characters that it can read.
fn check_text(path: &str, text: &str, faults: &mut Faults) {
    if text.trim().is_empty() {
        faults.add(path, "expected a text that is not empty");
    }
    check_characters(path, text, faults);
}

/// No control characters but line breaks and tabs.
fn check_characters(path: &str, text: &str, faults: &mut Faults) {
    let control = text.char_indices().find(|(_, c)| c.is_control() && !matches!(c, '\n' | '\r' | '\t'));
    if let Some((at, character)) = control {
        faults.add(
            path,
            format!("expected text, found the control character U+{:04X} at byte {at}", u32::from(character)),
        );
    }
}
