//! A playbook that was checked: what stands in it makes sense, whatever intent it is used for.

use crate::duration::milliseconds;
use crate::each::ForEach;
use crate::fault::{Fault, Faults, excerpt};
use crate::file::{AnswerFile, PartFile, PlaybookFile, TaskFile};
use crate::parameter::{Kind, Parameter};
use crate::template::{Condition, Names, Text};
use minijinja::Value;
use starling_protocol::{IndexRange, body::is_slug};
use std::collections::{BTreeMap, BTreeSet};

/// Most tasks that stand in a playbook; the plan may have more of them where they are repeated.
const MAX_TASKS: usize = 100;
/// Longest key of a task, in bytes; its number follows where it is repeated.
const MAX_KEY_BYTES: usize = 80;

/// A plan template.
#[derive(Clone, Debug, PartialEq)]
pub struct Playbook {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) goal: Option<Text>,
    pub(crate) auto: Option<Condition>,
    pub(crate) parameters: BTreeMap<String, Parameter>,
    pub(crate) tasks: Vec<TaskTemplate>,
    pub(crate) answer: Option<AnswerTemplate>,
}

/// A task, or many where it is repeated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TaskTemplate {
    pub(crate) key: String,
    pub(crate) title: Option<Text>,
    pub(crate) instruction: Text,
    pub(crate) agent: String,
    pub(crate) critic: bool,
    pub(crate) depends_on: Vec<On>,
    pub(crate) when: Option<Condition>,
    pub(crate) for_each: Option<ForEach>,
    pub(crate) terms: Terms,
}

/// What a task builds on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// A task that is not repeated.
    One(String),
    /// All of a repeated task: `key-*`.
    All(String),
    /// Those of a repeated task that treat the same: `key-same`.
    Same(String),
}

impl On {
    fn read(text: &str) -> Self {
        if let Some(key) = text.strip_suffix("-*") {
            On::All(key.to_owned())
        } else if let Some(key) = text.strip_suffix("-same") {
            On::Same(key.to_owned())
        } else {
            On::One(text.to_owned())
        }
    }

    pub(crate) fn key(&self) -> &str {
        match self {
            On::One(key) | On::All(key) | On::Same(key) => key,
        }
    }
}

/// What is read of items or inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Part {
    /// Nothing is said: what the task is repeated for, or all.
    #[default]
    Unsaid,
    /// All.
    All,
    /// These.
    Range(IndexRange),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Terms {
    pub(crate) items: Part,
    pub(crate) inputs: Part,
    pub(crate) timeout_ms: Option<i64>,
    pub(crate) fallback: Option<(Text, bool)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AnswerTemplate {
    pub(crate) instruction: Option<Text>,
    pub(crate) terms: Terms,
}

impl Playbook {
    /// Reads a playbook's file. `is_worker` tells which agents can do tasks.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str, is_worker: impl Fn(&str) -> bool) -> Result<Self, Vec<Fault>> {
        let file: PlaybookFile = toml::from_str(text).map_err(|error| {
            let message = error.to_string().trim_end().to_owned();
            vec![Fault { path: String::new(), message }]
        })?;
        Self::check(&file, is_worker)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is for.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// What it takes, by name.
    #[must_use]
    pub fn parameters(&self) -> &BTreeMap<String, Parameter> {
        &self.parameters
    }

    /// Whether an intent for it needs a goal of its own.
    #[must_use]
    pub fn needs_goal(&self) -> bool {
        self.goal.is_none()
    }

    /// What it repeats tasks for, such as `items`.
    #[must_use]
    pub fn repeats_for(&self) -> Vec<String> {
        let loops = self.tasks.iter().filter_map(|task| task.for_each.as_ref()).flat_map(ForEach::loops);
        let sources: BTreeSet<String> = loops.map(|of| of.source.to_string()).collect();
        sources.into_iter().collect()
    }

    pub(crate) fn check(file: &PlaybookFile, is_worker: impl Fn(&str) -> bool) -> Result<Self, Vec<Fault>> {
        let mut faults = Faults::default();
        if !is_slug(&file.name) {
            let found = excerpt(&file.name);
            faults.add("name", format!("expected 1 to 64 characters of a-z 0-9 - _, found {found}"));
        }
        if file.description.trim().is_empty() {
            faults.add("description", "expected a sentence that says what it is for, found nothing");
        }
        let mut parameters = BTreeMap::new();
        for (name, parameter) in &file.parameters {
            let read = Parameter::read(&format!("parameters.{name}"), name, parameter, &mut faults);
            parameters.extend(read.map(|parameter| (name.clone(), parameter)));
        }
        let own = samples(file, &parameters);
        let mut with_goal = own.clone();
        with_goal.insert("goal".to_owned(), Value::from("goal"));
        let goal = file.goal.as_deref().and_then(|text| faults.note("goal", Text::parse(text, &own)));
        let auto =
            file.auto.as_deref().and_then(|text| faults.note("auto", Condition::parse(text, &with_goal)));
        if file.tasks.is_empty() || file.tasks.len() > MAX_TASKS {
            faults.add("tasks", format!("expected 1 to {MAX_TASKS} tasks, found {}", file.tasks.len()));
        }
        let reader = Reader { names: &with_goal, parameters: &parameters, timeout: file.timeout.as_deref() };
        let tasks: Vec<TaskTemplate> = (file.tasks.iter().enumerate())
            .filter_map(|(at, task)| reader.task(&format!("tasks[{at}]"), task, &is_worker, &mut faults))
            .collect();
        if tasks.len() == file.tasks.len() {
            check_graph(&tasks, &mut faults);
        }
        let answer = match (&file.answer, &file.timeout) {
            (Some(answer), _) => reader.answer(answer, &mut faults),
            (None, Some(_)) => reader.answer(&AnswerFile::default(), &mut faults),
            (None, None) => None,
        };
        let (name, description) = (file.name.clone(), file.description.trim().to_owned());
        faults.into_result(Self { name, description, goal, auto, parameters, tasks, answer })
    }
}

/// What a playbook's names may stand for. A parameter with a fault is still a name that texts may use.
fn samples(file: &PlaybookFile, parameters: &BTreeMap<String, Parameter>) -> Names {
    let list = || Value::from(vec!["entry"]);
    let of = |name: &String| match parameters.get(name).map(|parameter| parameter.kind) {
        Some(Kind::Number) => Value::from(1),
        Some(Kind::Bool) => Value::from(true),
        Some(Kind::List) => list(),
        Some(Kind::Text) | None => Value::from("text"),
    };
    let parameters = file.parameters.keys().map(|name| (name.clone(), of(name)));
    parameters.chain(["items", "inputs", "chunks"].map(|name| (name.to_owned(), list()))).collect()
}

/// What holds for all texts of a playbook.
struct Reader<'f> {
    names: &'f Names,
    parameters: &'f BTreeMap<String, Parameter>,
    timeout: Option<&'f str>,
}

impl Reader<'_> {
    fn task(
        &self,
        path: &str,
        file: &TaskFile,
        is_worker: impl Fn(&str) -> bool,
        faults: &mut Faults,
    ) -> Option<TaskTemplate> {
        let at = |field: &str| format!("{path}.{field}");
        let strange = |c: char| c.is_control() || matches!(c, '*' | '{' | '}');
        if file.key.trim().is_empty() || file.key.len() > MAX_KEY_BYTES || file.key.contains(strange) {
            let found = excerpt(&file.key);
            faults.add(
                at("key"),
                format!("expected 1 to {MAX_KEY_BYTES} bytes without * {{ }}, found {found}"),
            );
        } else if file.key.ends_with("-same") {
            faults.add(
                at("key"),
                "expected a key that does not end with -same, which has a meaning in depends_on",
            );
        }
        let for_each = match (&file.for_each, file.each) {
            (Some(loops), each) => faults.note(at("for_each"), ForEach::read(loops, each, self.parameters)),
            (None, Some(_)) => {
                faults.add(at("each"), "is of no use without for_each");
                None
            }
            (None, None) => None,
        };
        let variables =
            for_each.iter().flat_map(ForEach::loops).map(|of| (of.variable.clone(), Value::from("entry")));
        let counters =
            for_each.iter().flat_map(|_| ["index", "count"]).map(|name| (name.to_owned(), Value::from(1)));
        let mut names = self.names.clone();
        names.extend(variables.chain(counters));
        let title =
            file.title.as_deref().and_then(|text| faults.note(at("title"), Text::parse(text, &names)));
        let instruction = faults.note(at("instruction"), said(&file.instruction, &names));
        let when =
            file.when.as_deref().and_then(|text| faults.note(at("when"), Condition::parse(text, &names)));
        let agent = file.agent.clone().unwrap_or_else(|| "worker".to_owned());
        if !is_worker(&agent) {
            faults.add(at("agent"), format!("there is no agent {} for tasks", excerpt(&agent)));
        }
        let terms = self.terms(path, &Said::of_task(file), &names, faults);
        for (part, source, said) in [
            ("items", "items", file.items.is_some()),
            ("inputs", "inputs", file.inputs.is_some()),
            ("inputs", "chunks", file.inputs.is_some()),
        ] {
            let repeated = for_each.iter().flat_map(ForEach::loops).any(|of| of.source.to_string() == source);
            if said && repeated {
                faults.add(at(part), format!("for_each says which {part} a task reads"));
            }
        }
        Some(TaskTemplate {
            key: file.key.clone(),
            title,
            instruction: instruction?,
            agent,
            critic: file.critic.unwrap_or(true),
            depends_on: file.depends_on.iter().map(|text| On::read(text)).collect(),
            when,
            for_each,
            terms,
        })
    }

    fn answer(&self, file: &AnswerFile, faults: &mut Faults) -> Option<AnswerTemplate> {
        let instruction = file.instruction.as_deref();
        let instruction =
            instruction.and_then(|text| faults.note("answer.instruction", said(text, self.names)));
        let terms = self.terms("answer", &Said::of_answer(file), self.names, faults);
        Some(AnswerTemplate { instruction, terms })
    }

    fn terms(&self, path: &str, said: &Said<'_>, names: &Names, faults: &mut Faults) -> Terms {
        let at = |field: &str| format!("{path}.{field}");
        let timeout = said.timeout.or(self.timeout);
        let timeout_ms = timeout.and_then(|text| faults.note(at("timeout"), milliseconds(text)));
        let fallback = said.fallback.and_then(|text| faults.note(at("fallback"), self::said(text, names)));
        if said.fallback.is_none() && said.with_results.is_some() {
            faults.add(at("with_results"), "is of no use without fallback");
        }
        Terms {
            items: faults.note(at("items"), part(said.items)).unwrap_or_default(),
            inputs: faults.note(at("inputs"), part(said.inputs)).unwrap_or_default(),
            timeout_ms,
            fallback: fallback.map(|text| (text, said.with_results.unwrap_or(false))),
        }
    }
}

/// What tasks and the answer have in common.
struct Said<'f> {
    timeout: Option<&'f str>,
    fallback: Option<&'f str>,
    with_results: Option<bool>,
    items: Option<&'f PartFile>,
    inputs: Option<&'f PartFile>,
}

impl<'f> Said<'f> {
    fn of_task(file: &'f TaskFile) -> Self {
        Self {
            timeout: file.timeout.as_deref(),
            fallback: file.fallback.as_deref(),
            with_results: file.with_results,
            items: file.items.as_ref(),
            inputs: file.inputs.as_ref(),
        }
    }

    fn of_answer(file: &'f AnswerFile) -> Self {
        Self {
            timeout: file.timeout.as_deref(),
            fallback: file.fallback.as_deref(),
            with_results: file.with_results,
            items: file.items.as_ref(),
            inputs: file.inputs.as_ref(),
        }
    }
}

fn said(text: &str, names: &Names) -> Result<Text, String> {
    if text.trim().is_empty() {
        Err("expected a text, found nothing".to_owned())
    } else {
        Text::parse(text, names)
    }
}

fn part(file: Option<&PartFile>) -> Result<Part, String> {
    let expected = "expected \"all\", \"none\" or { from = 0, to = 1 }";
    match file {
        None => Ok(Part::Unsaid),
        Some(PartFile::Word(word)) if word == "all" => Ok(Part::All),
        Some(PartFile::Word(word)) if word == "none" => Ok(Part::Range(IndexRange::NONE)),
        Some(PartFile::Word(word)) => Err(format!("{expected}, found {}", excerpt(word))),
        Some(&PartFile::Range { from, to }) if 0 <= from && from <= to => {
            Ok(Part::Range(IndexRange { from, to }))
        }
        Some(PartFile::Range { from, to }) => Err(format!("{expected}, found from {from} to {to}")),
    }
}

/// Keys are unique, dependencies are there and in the form that fits, and no task waits for itself.
fn check_graph(tasks: &[TaskTemplate], faults: &mut Faults) {
    let mut by_key: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, task) in tasks.iter().enumerate() {
        if let Some(first) = by_key.insert(&task.key, at) {
            faults.add(
                format!("tasks[{at}].key"),
                format!("tasks[{first}] has the key {:?} already", task.key),
            );
        }
    }
    for (at, task) in tasks.iter().enumerate() {
        for on in &task.depends_on {
            if let Err(fault) = check_dependency(task, on, by_key.get(on.key()).map(|at| &tasks[*at])) {
                faults.add(format!("tasks[{at}].depends_on"), fault);
            }
        }
    }
    if !faults.is_empty() {
        return;
    }
    // Take away what can start, again and again: what stays waits for itself.
    let mut waiting: BTreeSet<&str> = by_key.keys().copied().collect();
    loop {
        let can_start = |task: &&TaskTemplate| {
            waiting.contains(task.key.as_str())
                && task.depends_on.iter().all(|on| !waiting.contains(on.key()))
        };
        let Some(task) = tasks.iter().find(can_start) else { break };
        waiting.remove(task.key.as_str());
    }
    if !waiting.is_empty() {
        let circle: Vec<&str> = waiting.into_iter().collect();
        faults.add("tasks", format!("these depend on each other in a circle: {}", circle.join(", ")));
    }
}

fn check_dependency(task: &TaskTemplate, on: &On, found: Option<&TaskTemplate>) -> Result<(), String> {
    let key = on.key();
    let Some(found) = found else { return Err(format!("there is no task {}", excerpt(key))) };
    match (on, &found.for_each, &task.for_each) {
        (On::One(_), Some(_), _) => Err(format!(
            "{key} is repeated: expected {key}-* for all of them, or {key}-same for those of the same"
        )),
        (On::All(_) | On::Same(_), None, _) => Err(format!("{key} is not repeated: expected {key}")),
        (On::Same(_), Some(_), None) => Err(format!("{} is not repeated itself: expected {key}-*", task.key)),
        (On::Same(_), Some(other), Some(own)) if !own.goes_with(other) => Err(format!(
            "{key} is not repeated for the same: expected the same for_each and each, or {key}-*"
        )),
        _ => Ok(()),
    }
}
