//! From a playbook and an intent to a plan: a pure function.

use crate::each::{ForEach, Source, group, groups};
use crate::fault::{Fault, Faults};
use crate::parameter::{bind, entries};
use crate::part::TextPart;
use crate::playbook::{On, Playbook, TaskTemplate};
use crate::template::{Names, own_words};
use crate::texts::{answer_spec, one_line, terms, within};
use minijinja::Value;
use starling_protocol::{AnswerSpec, IndexRange, PartRange, TaskSpec, TaskTerms};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// An item longer than this is not repeated in an instruction: it stands under Items anyway.
const MAX_QUOTED_BYTES: usize = 200;
/// What else a prompt about parts says: its headings.
const FRAME_BYTES: usize = 512;

/// What an intent brings for its plan.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// The wish in words; empty where the playbook has to say it.
    pub goal: &'a str,
    /// Named values.
    pub parameters: &'a BTreeMap<String, String>,
    /// Things to treat one by one.
    pub items: &'a [String],
    /// The names of the texts that come with it.
    pub inputs: &'a [&'a str],
    /// The parts of these texts, in their order.
    pub parts: &'a [TextPart<'a>],
    /// Most bytes of parts that one task has room for in its prompt, together with what is said about them.
    pub part_bytes: usize,
    /// Most tasks in the plan.
    pub max_tasks: usize,
}

/// What a playbook makes of an intent.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The goal: the intent's own, or the playbook's.
    pub goal: String,
    /// The tasks, with positions from 0.
    pub tasks: Vec<TaskSpec>,
    /// How the answer is to be made, where the playbook says so.
    pub answer: Option<AnswerSpec>,
}

impl Playbook {
    /// The plan for an intent. More items than tasks are allowed are grouped evenly, so that each is treated by one task.
    ///
    /// # Errors
    /// Everything that the intent lacks or has wrong.
    pub fn expand(&self, wish: &Wish<'_>) -> Result<Plan, Vec<Fault>> {
        let mut faults = Faults::default();
        let mut names = bind(&self.parameters, wish.parameters, &mut faults);
        names.insert("items".into(), wish.items.iter().map(String::as_str).collect());
        names.insert("inputs".into(), wish.inputs.iter().copied().collect());
        names.insert("chunks".into(), wish.parts.iter().map(TextPart::to_string).collect());
        if !faults.is_empty() {
            return Err(faults.into_list());
        }
        let goal = self.goal_of(wish, &names, &mut faults).unwrap_or_default();
        names.insert("goal".into(), Value::from(goal.as_str()));
        let tasks = Expansion { playbook: self, wish, names: &names }.tasks(&mut faults);
        let answer = self.answer.as_ref().and_then(|answer| {
            let made = answer_spec(answer, &names);
            faults.note("answer", made)
        });
        faults.into_result(Plan { goal, tasks, answer })
    }

    /// Whether its own condition says that it is for such an intent, and the intent has all that it needs.
    #[must_use]
    pub fn is_for(&self, wish: &Wish<'_>) -> bool {
        let Some(auto) = &self.auto else { return false };
        let Ok(plan) = self.expand(wish) else { return false };
        let mut names = bind(&self.parameters, wish.parameters, &mut Faults::default());
        names.insert("items".into(), wish.items.iter().map(String::as_str).collect());
        names.insert("inputs".into(), wish.inputs.iter().copied().collect());
        names.insert("chunks".into(), wish.parts.iter().map(TextPart::to_string).collect());
        names.insert("goal".into(), Value::from(plan.goal));
        auto.holds(&names).unwrap_or(false)
    }

    fn goal_of(&self, wish: &Wish<'_>, names: &Names, faults: &mut Faults) -> Option<String> {
        match (wish.goal.trim(), &self.goal) {
            ("", Some(own)) => faults.note("goal", own.for_model(names)),
            ("", None) => {
                faults.add("goal", "missing, expected a text that says what is wanted");
                None
            }
            (goal, _) => Some(goal.to_owned()),
        }
    }
}

struct Expansion<'p> {
    playbook: &'p Playbook,
    wish: &'p Wish<'p>,
    names: &'p Names,
}

/// Where a task comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    template: usize,
    /// The group of the first loop, and the entry of the second; nothing where it is not repeated.
    first: Option<usize>,
    second: Option<usize>,
}

/// How names are told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Telling {
    /// To a model, which sees the items and inputs themselves.
    Model,
    /// To people.
    People,
    /// To a condition.
    Condition,
}

impl Expansion<'_> {
    fn tasks(&self, faults: &mut Faults) -> Vec<TaskSpec> {
        let templates = &self.playbook.tasks;
        let wanted: Vec<bool> =
            (0..templates.len()).map(|at| self.is_wanted(at, faults).unwrap_or(false)).collect();
        let Some(factor) = self.factor(&wanted, faults) else { return Vec::new() };
        let mut made: Vec<(Place, TaskSpec)> = Vec::new();
        for (at, template) in templates.iter().enumerate().filter(|(at, _)| wanted[*at]) {
            let path = format!("tasks[{at}]");
            for place in self.places(at, template, factor) {
                // One fault of a repeated task stands for those of all of it.
                match self.task(template, place, factor) {
                    Ok(Some(task)) => made.push((place, task)),
                    Ok(None) => {}
                    Err(fault) => {
                        faults.add(&path, fault);
                        break;
                    }
                }
            }
        }
        self.check_room(&made, faults);
        if made.is_empty() && faults.is_empty() {
            faults.add("tasks", "the plan has no tasks: no condition of the playbook holds");
        }
        self.link(made, faults)
    }

    /// Whether a template makes tasks at all, as far as that does not depend on what it is repeated for.
    fn is_wanted(&self, at: usize, faults: &mut Faults) -> Option<bool> {
        let template = &self.playbook.tasks[at];
        let wanted = match &template.when {
            Some(when) if when.is_free_of(own_names(template)) => {
                faults.note(format!("tasks[{at}].when"), when.holds(self.names))?
            }
            _ => true,
        };
        if !wanted {
            return Some(false);
        }
        for of in template.for_each.iter().flat_map(ForEach::loops) {
            if matches!(of.source, Source::Items | Source::Inputs | Source::Chunks)
                && self.count(&of.source) == 0
            {
                let source = &of.source;
                faults.add(
                    source.to_string(),
                    format!("missing, the playbook {} has a task for each of them", self.playbook.name),
                );
                return None;
            }
        }
        Some(true)
    }

    fn count(&self, source: &Source) -> usize {
        match source {
            Source::Items => self.wish.items.len(),
            Source::Inputs => self.wish.inputs.len(),
            Source::Chunks => self.wish.parts.len(),
            Source::List(name) => self.names.get(name).and_then(Value::len).unwrap_or(0),
        }
    }

    /// How many tasks a template makes, with groups `factor` times as large as it says.
    fn repetitions(&self, template: &TaskTemplate, factor: usize) -> (usize, usize) {
        let Some(of) = &template.for_each else { return (1, 1) };
        let second = of.second.as_ref().map_or(1, |second| self.count(&second.source));
        (groups(self.count(&of.first.source), of.each, factor), second)
    }

    /// How much larger groups have to be than the playbook says, so that the plan is not too large.
    fn factor(&self, wanted: &[bool], faults: &mut Faults) -> Option<usize> {
        let total = |factor: usize| {
            let templates = self.playbook.tasks.iter().zip(wanted).filter(|(_, wanted)| **wanted);
            templates
                .map(|(template, _)| {
                    let (first, second) = self.repetitions(template, factor);
                    first.saturating_mul(second)
                })
                .fold(0, usize::saturating_add)
        };
        let firsts =
            self.playbook.tasks.iter().filter_map(|task| task.for_each.as_ref()).map(|of| &of.first.source);
        let largest = firsts.map(|source| self.count(source)).max().unwrap_or(1).max(1);
        let most = self.wish.max_tasks;
        let fitting = (1..=largest).find(|factor| total(*factor) <= most);
        if fitting.is_none() {
            let least = total(largest);
            faults.add(
                "limits.max_tasks",
                format!("the plan has at least {least} tasks, at most {most} are allowed"),
            );
        }
        fitting
    }

    /// Parts are read whole or not at all, so those of one task have to fit into a prompt.
    fn check_room(&self, made: &[(Place, TaskSpec)], faults: &mut Faults) {
        let goal = self.names.get("goal").and_then(Value::as_str).map_or(0, str::len);
        let needed = |task: &TaskSpec| {
            let PartRange { from, to, .. } = task.terms.parts?;
            let place = |at: i32| usize::try_from(at).unwrap_or(0);
            let parts = self.wish.parts.get(place(from)..place(to)).unwrap_or_default();
            let bytes: usize = parts.iter().map(|part| part.bytes + part.input.len()).sum();
            Some(bytes + goal + task.instruction.len() + FRAME_BYTES)
        };
        let largest = made.iter().filter_map(|(_, task)| needed(task)).max().unwrap_or(0);
        let most = self.wish.part_bytes;
        if largest > most {
            let (parts, tasks) = (self.wish.parts.len(), self.wish.max_tasks);
            faults.add(
                "inputs",
                format!(
                    "{parts} parts in at most {tasks} tasks: a task would read up to {largest} bytes of them whole, and \
                     agents.prompt has room for {most}: more tasks (max_tasks), a larger agents.prompt with a model whose \
                     window holds it, or fewer inputs at once"
                ),
            );
        }
    }

    fn places(&self, at: usize, template: &TaskTemplate, factor: usize) -> Vec<Place> {
        let (first, second) = self.repetitions(template, factor);
        let Some(of) = &template.for_each else {
            return vec![Place { template: at, first: None, second: None }];
        };
        let pairs = (0..first).flat_map(|first| (0..second).map(move |second| (first, second)));
        let second = |entry| of.second.is_some().then_some(entry);
        pairs
            .map(|(first, entry)| Place { template: at, first: Some(first), second: second(entry) })
            .collect()
    }

    fn task(&self, template: &TaskTemplate, place: Place, factor: usize) -> Result<Option<TaskSpec>, String> {
        if let Some(when) = &template.when
            && !when.holds(&self.names_at(template, place, factor, Telling::Condition))?
        {
            return Ok(None);
        }
        let told = self.names_at(template, place, factor, Telling::Model);
        let shown = self.names_at(template, place, factor, Telling::People);
        let key = [place.first, place.second]
            .into_iter()
            .flatten()
            .fold(template.key.clone(), |key, number| format!("{key}-{}", number + 1));
        let title = match &template.title {
            Some(title) => one_line(&title.for_people(&shown).map_err(within("title"))?),
            None => one_line(&key),
        };
        Ok(Some(TaskSpec {
            ordinal: 0, // once all are known
            title: if title.is_empty() { key.clone() } else { title },
            key,
            instruction: template.instruction.for_model(&told).map_err(within("instruction"))?,
            agent: template.agent.clone(),
            depends_on: Vec::new(), // once all are known
            critic: template.critic,
            terms: self.terms(template, place, factor, &shown)?,
        }))
    }

    fn terms(
        &self,
        template: &TaskTemplate,
        place: Place,
        factor: usize,
        shown: &Names,
    ) -> Result<TaskTerms, String> {
        let mut terms = terms(&template.terms, shown)?;
        for (of, range) in self.ranges(template, place, factor) {
            let int = |at: usize| i32::try_from(at).unwrap_or(i32::MAX);
            let index = Some(IndexRange { from: int(range.start), to: int(range.end) });
            match of {
                Source::Items => terms.items = index,
                Source::Inputs => terms.inputs = index,
                Source::Chunks => {
                    let parts = self.wish.parts.get(range.clone()).unwrap_or_default();
                    let tokens = parts.iter().map(|part| part.tokens).fold(0, i64::saturating_add);
                    terms.parts = Some(PartRange { from: int(range.start), to: int(range.end), tokens });
                }
                Source::List(_) => {}
            }
        }
        Ok(terms)
    }

    /// What a task treats of the things that its template is repeated for.
    fn ranges<'t>(
        &self,
        template: &'t TaskTemplate,
        place: Place,
        factor: usize,
    ) -> Vec<(&'t Source, Range<usize>)> {
        let Some(of) = &template.for_each else { return Vec::new() };
        let (count, first) = (self.count(&of.first.source), place.first.unwrap_or(0));
        let first = group(count, groups(count, of.each, factor), first);
        let second = of.second.as_ref().zip(place.second).map(|(of, entry)| (&of.source, entry..entry + 1));
        std::iter::once((&of.first.source, first)).chain(second).collect()
    }

    fn names_at(&self, template: &TaskTemplate, place: Place, factor: usize, telling: Telling) -> Names {
        let mut names = self.names.clone();
        let Some(of) = &template.for_each else { return names };
        for (of, (source, range)) in of.loops().zip(self.ranges(template, place, factor)) {
            names.insert(of.variable.clone(), self.told(source, range, telling));
        }
        let (first, second) = self.repetitions(template, factor);
        let index = place.first.unwrap_or(0) * second + place.second.unwrap_or(0) + 1;
        names.insert("index".to_owned(), Value::from(index));
        names.insert("count".to_owned(), Value::from(first * second));
        names
    }

    /// What stands for the things that a task treats.
    fn told(&self, source: &Source, range: Range<usize>, telling: Telling) -> Value {
        let all: Vec<Value> = match source {
            Source::Items => self
                .wish
                .items
                .get(range.clone())
                .unwrap_or_default()
                .iter()
                .map(|t| t.as_str().into())
                .collect(),
            Source::Inputs => {
                self.wish.inputs.get(range.clone()).unwrap_or_default().iter().map(|t| (*t).into()).collect()
            }
            Source::Chunks => {
                let parts = self.wish.parts.get(range.clone()).unwrap_or_default();
                parts.iter().map(|part| part.to_string().into()).collect()
            }
            Source::List(name) => {
                let all = self.names.get(name).map(entries).unwrap_or_default();
                all.get(range.clone()).unwrap_or_default().to_vec()
            }
        };
        let (one, many) = match source {
            Source::Items => ("item under Items", "items under Items"),
            Source::Inputs => ("input under Inputs", "inputs under Inputs"),
            Source::Chunks => ("part under Inputs", "parts under Inputs"),
            Source::List(_) => ("", ""),
        };
        let is_list = matches!(source, Source::List(_));
        match (telling, &all[..]) {
            (Telling::Model, [only])
                if !is_list && only.as_str().is_some_and(|text| text.len() > MAX_QUOTED_BYTES) =>
            {
                own_words(format!("the {one}"))
            }
            (_, [only]) => only.clone(),
            (Telling::Model, all) if !is_list => own_words(format!("each of the {} {many}", all.len())),
            (Telling::People, _) if !is_list => {
                own_words(format!("{source} {} to {}", range.start + 1, range.end))
            }
            _ => Value::from(all),
        }
    }

    /// Gives tasks their positions and the keys that they depend on. What a condition left out is waited for by nobody.
    fn link(&self, made: Vec<(Place, TaskSpec)>, faults: &mut Faults) -> Vec<TaskSpec> {
        let templates = &self.playbook.tasks;
        let mut by_template: BTreeMap<&str, Vec<(Place, String)>> = BTreeMap::new();
        let mut keys = BTreeSet::new();
        for (place, task) in &made {
            by_template.entry(&templates[place.template].key).or_default().push((*place, task.key.clone()));
            if !keys.insert(task.key.clone()) {
                faults.add(
                    format!("tasks[{}].key", place.template),
                    format!("more than one task is {:?}", task.key),
                );
            }
        }
        let agrees = |own: Place, other: Place| {
            let same = |a: Option<usize>, b: Option<usize>| a.is_none() || b.is_none() || a == b;
            same(own.first, other.first) && same(own.second, other.second)
        };
        let linked = made.into_iter().enumerate().map(|(ordinal, (place, mut task))| {
            for on in &templates[place.template].depends_on {
                let found = by_template.get(on.key()).map(Vec::as_slice).unwrap_or_default();
                let meant = found.iter().filter(|(other, _)| match on {
                    On::One(_) | On::All(_) => true,
                    On::Same(_) => agrees(place, *other),
                });
                task.depends_on.extend(meant.map(|(_, key)| key.clone()));
            }
            task.ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
            task
        });
        linked.collect()
    }
}

/// The names that only the tasks of one repeated template know.
fn own_names(template: &TaskTemplate) -> impl Iterator<Item = &str> {
    let of = template.for_each.iter();
    let variables = of.clone().flat_map(ForEach::loops).map(|of| of.variable.as_str());
    variables.chain(of.flat_map(|_| ["index", "count"]))
}
