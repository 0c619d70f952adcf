//! What a plan must look like.

use super::settings::CoordinatorSettings;
use starling_protocol::{AnswerSpec, TaskSpec, TaskTerms};
use std::collections::{HashMap, HashSet};

/// Bounds of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    /// Most tasks.
    pub max_tasks: usize,
    /// Most tasks in a chain of dependencies.
    pub max_depth: usize,
    /// Longest instruction in bytes.
    pub max_instruction_bytes: usize,
    /// Longest title in bytes.
    pub max_title_bytes: usize,
    /// Longest key in bytes.
    pub max_key_bytes: usize,
}

impl PlanLimits {
    /// The bounds for an intent that allows `max_tasks` tasks.
    #[must_use]
    pub fn new(settings: &CoordinatorSettings, max_tasks: i32) -> Self {
        Self {
            max_tasks: usize::try_from(max_tasks).unwrap_or(0),
            max_depth: usize::try_from(settings.max_depth).unwrap_or(0),
            max_instruction_bytes: settings.max_instruction_bytes,
            max_title_bytes: settings.max_title_bytes,
            max_key_bytes: settings.max_key_bytes,
        }
    }
}

/// One thing that is wrong with a plan. Its text is the planner's feedback.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanFault {
    /// No tasks.
    #[error("the plan has no tasks")]
    Empty,
    /// Too many tasks.
    #[error("the plan has more than {limit} tasks")]
    TooManyTasks {
        /// Most tasks.
        limit: usize,
    },
    /// Positions must count from 0 without gaps.
    #[error("task {key:?} has position {ordinal}, expected was {expected}")]
    Position {
        /// The task.
        key: String,
        /// Its position.
        ordinal: i32,
        /// The position that was due.
        expected: usize,
    },
    /// A text that must not be empty is.
    #[error("task {key:?} has an empty {field}")]
    EmptyField {
        /// The task.
        key: String,
        /// Name of the field.
        field: &'static str,
    },
    /// A text is too long.
    #[error("task {key:?} has {bytes} bytes of {field}, at most {limit} are allowed")]
    LongField {
        /// The task.
        key: String,
        /// Name of the field.
        field: &'static str,
        /// Its length in bytes.
        bytes: usize,
        /// The greatest length.
        limit: usize,
    },
    /// Two tasks have the same key.
    #[error("more than one task has the key {key:?}")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// More dependencies than there can be tasks.
    #[error("task {key:?} names more than {limit} dependencies")]
    TooManyDependencies {
        /// The task.
        key: String,
        /// Most dependencies.
        limit: usize,
    },
    /// A task waits for one that is not in the plan.
    #[error("task {key:?} depends on {dependency:?}, which is not in the plan")]
    UnknownDependency {
        /// The task.
        key: String,
        /// What it names.
        dependency: String,
    },
    /// A task waits for itself.
    #[error("task {key:?} depends on itself")]
    SelfDependency {
        /// The task.
        key: String,
    },
    /// Tasks wait for each other.
    #[error("these tasks depend on each other in a circle: {}", keys.join(", "))]
    Cycle {
        /// Some of the tasks that can never start.
        keys: Vec<String>,
    },
    /// A chain is too long.
    #[error("the longest chain of dependencies has {depth} tasks, at most {limit} are allowed")]
    TooDeep {
        /// Tasks in the longest chain.
        depth: usize,
        /// Most tasks in a chain.
        limit: usize,
    },
}

/// Checks a whole plan.
///
/// # Errors
/// Every fault of every task; faults of the graph only if the tasks themselves are sound.
pub fn validate(tasks: &[TaskSpec], limits: &PlanLimits) -> Result<(), Vec<PlanFault>> {
    if tasks.is_empty() {
        return Err(vec![PlanFault::Empty]);
    }
    let faults = fragment_faults(0, |_| false, tasks, limits);
    let faults = if faults.is_empty() { graph_faults(tasks, limits) } else { faults };
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// What is wrong with a part of a plan that comes after `before` tasks, as far as it can be seen before
/// the rest is known. `is_taken` tells which keys these tasks have.
pub(super) fn fragment_faults(
    before: usize,
    is_taken: impl Fn(&str) -> bool,
    tasks: &[TaskSpec],
    limits: &PlanLimits,
) -> Vec<PlanFault> {
    if before + tasks.len() > limits.max_tasks {
        return vec![PlanFault::TooManyTasks { limit: limits.max_tasks }];
    }
    let mut faults = Vec::new();
    let mut keys = HashSet::new();
    for (expected, task) in (before..).zip(tasks) {
        let key = || excerpt(&task.key);
        if usize::try_from(task.ordinal) != Ok(expected) {
            faults.push(PlanFault::Position { key: key(), ordinal: task.ordinal, expected });
        }
        for (field, text, limit) in [
            ("key", &task.key, limits.max_key_bytes),
            ("title", &task.title, limits.max_title_bytes),
            ("instruction", &task.instruction, limits.max_instruction_bytes),
        ] {
            if text.trim().is_empty() {
                faults.push(PlanFault::EmptyField { key: key(), field });
            } else if text.len() > limit {
                faults.push(PlanFault::LongField { key: key(), field, bytes: text.len(), limit });
            }
        }
        faults.extend(long_fallback(&task.terms, &key(), limits));
        if is_taken(&task.key) || !keys.insert(task.key.as_str()) {
            faults.push(PlanFault::DuplicateKey { key: key() });
        }
        if task.depends_on.len() > limits.max_tasks {
            faults.push(PlanFault::TooManyDependencies { key: key(), limit: limits.max_tasks });
        }
        if task.depends_on.contains(&task.key) {
            faults.push(PlanFault::SelfDependency { key: key() });
        }
    }
    faults
}

/// Checks how a plan wants the answer to be made.
///
/// # Errors
/// Its texts are too long.
pub fn validate_answer(answer: &AnswerSpec, limits: &PlanLimits) -> Result<(), Vec<PlanFault>> {
    const KEY: &str = "answer";
    let (bytes, limit) = (answer.instruction.len(), limits.max_instruction_bytes);
    let long = PlanFault::LongField { key: KEY.to_owned(), field: "instruction", bytes, limit };
    let mut faults: Vec<PlanFault> = (bytes > limit).then_some(long).into_iter().collect();
    faults.extend(long_fallback(&answer.terms, KEY, limits));
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// A fallback is kept like an instruction, and may be no longer.
fn long_fallback(terms: &TaskTerms, key: &str, limits: &PlanLimits) -> Option<PlanFault> {
    let (bytes, limit) = (terms.fallback.as_ref()?.text.len(), limits.max_instruction_bytes);
    (bytes > limit).then(|| PlanFault::LongField { key: key.to_owned(), field: "fallback", bytes, limit })
}

fn graph_faults(tasks: &[TaskSpec], limits: &PlanLimits) -> Vec<PlanFault> {
    let index: HashMap<&str, usize> =
        tasks.iter().enumerate().map(|(at, task)| (task.key.as_str(), at)).collect();
    let mut faults = Vec::new();
    let mut unmet = vec![0_usize; tasks.len()];
    let mut dependants = vec![Vec::new(); tasks.len()];
    for (at, task) in tasks.iter().enumerate() {
        for dependency in &task.depends_on {
            match index.get(dependency.as_str()) {
                Some(&on) => {
                    dependants[on].push(at);
                    unmet[at] += 1;
                }
                None => faults.push(PlanFault::UnknownDependency {
                    key: excerpt(&task.key),
                    dependency: excerpt(dependency),
                }),
            }
        }
    }
    if !faults.is_empty() {
        return faults;
    }
    // Take away what can start, again and again: what stays is in a circle or behind one.
    let mut depth = vec![1_usize; tasks.len()];
    let mut startable: Vec<usize> = (0..tasks.len()).filter(|&at| unmet[at] == 0).collect();
    let mut started = 0;
    while let Some(at) = startable.pop() {
        started += 1;
        for &next in &dependants[at] {
            depth[next] = depth[next].max(depth[at] + 1);
            unmet[next] -= 1;
            if unmet[next] == 0 {
                startable.push(next);
            }
        }
    }
    let deepest = depth.iter().copied().max().unwrap_or(0);
    if started < tasks.len() {
        let stuck = tasks.iter().zip(&unmet).filter(|(_, unmet)| **unmet > 0);
        faults.push(PlanFault::Cycle { keys: stuck.map(|(task, _)| excerpt(&task.key)).take(10).collect() });
    } else if deepest > limits.max_depth {
        faults.push(PlanFault::TooDeep { depth: deepest, limit: limits.max_depth });
    }
    faults
}

/// The faults as one text for the planner and for people, of bounded length.
pub(super) fn describe(faults: &[PlanFault]) -> String {
    const SHOWN: usize = 10;
    let mut text = faults.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    if faults.len() > SHOWN {
        text.push_str(&format!("; and {} more", faults.len() - SHOWN));
    }
    text
}

fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}
