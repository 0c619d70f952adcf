//! Plans: what there is to work on, cut into tasks.

use super::table::Table;
use super::words::{shorten, wanted_count};
use crate::prompt::{Input, Prompt};
use serde_json::json;

/// Most tasks where the prompt sets no limit.
const DEFAULT_MAX_TASKS: usize = 24;

/// Tables with at most so many rows get a task for each row; longer ones are cut into groups.
const ROWS_ONE_BY_ONE: usize = 48;

/// Groups that a longer table is cut into.
const MAX_GROUPS: usize = 24;

struct Draft {
    key: String,
    title: String,
    instruction: String,
    depends_on: Vec<String>,
    critic: bool,
}

impl Draft {
    fn new(key: impl Into<String>, title: impl Into<String>, instruction: String) -> Draft {
        Draft { key: key.into(), title: title.into(), instruction, depends_on: vec![], critic: true }
    }

    fn after(mut self, keys: Vec<String>) -> Draft {
        self.depends_on = keys;
        self
    }

    fn uncriticised(mut self) -> Draft {
        self.critic = false;
        self
    }
}

/// The plan as JSON.
pub(super) fn plan(prompt: &Prompt<'_>) -> String {
    let most = prompt.max_tasks().unwrap_or(DEFAULT_MAX_TASKS).max(1);
    // A plan that was refused is tried again with fewer tasks; its shape is right by construction.
    let most = match prompt.section("Feedback") {
        Some(feedback) if !feedback.is_empty() => most.div_ceil(2),
        _ => most,
    };
    let goal = prompt.goal();
    let inputs = prompt.inputs();
    let items = prompt.items();
    let drafts = if !items.is_empty() {
        for_items(&items, most)
    } else if let Some(table) = Table::first(&inputs) {
        for_table(&table, goal, most)
    } else if !inputs.is_empty() {
        for_prose(&inputs, most)
    } else {
        for_goal(goal, most)
    };
    let agent = agent(prompt);
    let tasks: Vec<_> = drafts
        .into_iter()
        .map(|draft| {
            json!({
                "key": draft.key,
                "title": draft.title,
                "instruction": draft.instruction,
                "agent": agent,
                "depends_on": draft.depends_on,
                "critic": draft.critic,
            })
        })
        .collect();
    json!({ "tasks": tasks }).to_string()
}

/// The agent for tasks: `worker` if there is one, else the first that has no other office.
fn agent(prompt: &Prompt<'_>) -> String {
    let agents = prompt.agents();
    let names = || agents.iter().map(|(name, _)| *name);
    names()
        .find(|name| *name == "worker")
        .or_else(|| names().find(|name| !["planner", "critic", "synthesizer"].contains(name)))
        .unwrap_or("worker")
        .to_owned()
}

fn for_table(table: &Table, goal: &str, most: usize) -> Vec<Draft> {
    // Nobody has to know all of a long name, and an instruction has its limit.
    let source = &shorten(&table.source, 100);
    let wanted = wanted_count(goal).unwrap_or(3);
    let rank = |after: Vec<String>| {
        Draft::new(
            "rank",
            format!("Rank the rows of {source}"),
            format!(
                "Rank all rows of {source} by the scores of the tasks before, best first, and name the best {wanted} with the reasons for each in figures."
            ),
        )
        .after(after)
    };
    if most < 4 {
        return vec![rank(vec![])];
    }
    let mut drafts = vec![Draft::new(
        "profile",
        format!("Profile {source}"),
        format!(
            "Profile the table {source}: number of rows, and for each column its range and what a good value is."
        ),
    )];
    // The profile, the ranking and the check come on top.
    let room = most - 3;
    let rows = table.rows.len();
    if rows <= room.min(ROWS_ONE_BY_ONE) {
        for row in &table.rows {
            let name = shorten(&table.name_of(row), 60);
            drafts.push(Draft::new(
                format!("row-{}", row.number),
                format!("Assess {name}"),
                format!(
                    "Assess row {} of {source} ({name}): its figures against those of the other rows, what speaks for it and against it, and a score from 0 to 1 on a last line `score:`.",
                    row.number
                ),
            ));
        }
    } else {
        let size = rows.div_ceil(room.min(MAX_GROUPS));
        for first in (1..=rows).step_by(size) {
            let last = (first + size - 1).min(rows);
            drafts.push(Draft::new(
                format!("rows-{first}-{last}"),
                format!("Assess rows {first} to {last} of {source}"),
                format!(
                    "Assess rows {first} to {last} of {source}: for each its figures against those of the other rows, and a score from 0 to 1 on a line `score:`."
                ),
            ));
        }
    }
    let before = drafts.iter().map(|draft| draft.key.clone()).collect();
    drafts.push(rank(before));
    drafts.push(
        Draft::new(
            "check",
            "Check the ranking",
            format!(
                "Check the ranking against {source}: are the recommended rows in the table, do their scores hold, and is another row better in everything?"
            ),
        )
        .after(vec!["rank".to_owned()])
        .uncriticised(),
    );
    drafts
}

fn for_prose(inputs: &[Input<'_>], most: usize) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (at, input) in inputs.iter().enumerate() {
        let number = at + 1;
        let name = shorten(input.name, 60);
        drafts.push(Draft::new(
            format!("facts-{number}"),
            format!("Extract the facts from {name}"),
            format!("Extract the facts from {name}: the sentences that say most, and the figures, dates and names in it."),
        ));
        drafts.push(Draft::new(
            format!("requests-{number}"),
            format!("List the requests in {name}"),
            format!("List the requests in {name}: questions, wishes and demands, in the writer's own words."),
        ));
    }
    let closing = most >= 3;
    drafts.truncate(if closing { most - 1 } else { most });
    if closing {
        let before = drafts.iter().map(|draft| draft.key.clone()).collect();
        drafts.push(
            Draft::new(
                "priorities",
                "Order the requests by urgency",
                "Order the requests that were found by urgency, most urgent first, with the words that make them urgent.".to_owned(),
            )
            .after(before),
        );
    }
    drafts
}

fn for_items(items: &[&str], most: usize) -> Vec<Draft> {
    let closing = most >= 3;
    let room = if closing { most - 1 } else { most };
    let size = items.len().div_ceil(room.max(1));
    let mut drafts: Vec<Draft> = items
        .chunks(size.max(1))
        .enumerate()
        .map(|(at, group)| {
            let first = at * size + 1;
            let last = first + group.len() - 1;
            match group {
                [item] => Draft::new(
                    format!("item-{first}"),
                    format!("Item {first}: {}", shorten(item, 60)),
                    format!("Handle item {first} ({}): what the goal asks of it, and what the inputs say about it.", shorten(item, 150)),
                ),
                _ => Draft::new(
                    format!("items-{first}-{last}"),
                    format!("Items {first} to {last}"),
                    format!("Handle items {first} to {last}: for each what the goal asks of it, and what the inputs say about it."),
                ),
            }
        })
        .collect();
    if closing {
        let before = drafts.iter().map(|draft| draft.key.clone()).collect();
        drafts.push(together(before, "items"));
    }
    drafts
}

fn for_goal(goal: &str, most: usize) -> Vec<Draft> {
    const ASPECTS: [(&str, &str); 5] = [
        ("Terms and scope", "which terms of the goal need a definition, and what is in scope"),
        ("Criteria", "by which criteria an answer to the goal would be judged"),
        ("Information needed", "which information is missing to answer the goal"),
        ("Risks", "what could go wrong on the way to the goal"),
        ("Next steps", "which steps lead from here to the goal"),
    ];
    let mut drafts: Vec<Draft> = parts(goal)
        .into_iter()
        .take(8)
        .enumerate()
        .map(|(at, part)| {
            let part = shorten(&part, 120);
            Draft::new(
                format!("part-{}", at + 1),
                format!("Part {}: {}", at + 1, shorten(&part, 60)),
                format!("Work on this part of the goal: {part}"),
            )
        })
        .collect();
    drafts.extend(ASPECTS.iter().enumerate().map(|(at, (title, question))| {
        Draft::new(
            format!("aspect-{}", at + 1),
            *title,
            format!("Consider the aspect \"{title}\": {question}."),
        )
    }));
    let closing = most >= 3;
    drafts.truncate(if closing { most - 1 } else { most });
    if closing {
        let before = drafts.iter().map(|draft| draft.key.clone()).collect();
        drafts.push(together(before, "parts"));
    }
    drafts
}

fn together(before: Vec<String>, what: &str) -> Draft {
    Draft::new(
        "together",
        format!("Bring the {what} together"),
        format!("Bring the results of the {what} together: one line for each, and what is still open."),
    )
    .after(before)
}

/// The parts of a goal: its sentences, cut at "and", "then" and semicolons where both sides can stand
/// alone.
pub(super) fn parts(goal: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for sentence in super::words::sentences(goal) {
        let cut = sentence
            .replace(" and then ", "\n")
            .replace(", then ", "\n")
            .replace(", and ", "\n")
            .replace("; ", "\n")
            .replace(" and ", "\n");
        for part in cut.lines() {
            let part = part.trim().trim_end_matches(['.', '!', ',']);
            // A lone word belongs to what stands before it: "cats and dogs".
            match parts.last_mut() {
                Some(before) if part.split_whitespace().count() < 2 => {
                    before.push_str(" and ");
                    before.push_str(part);
                }
                _ if !part.is_empty() => parts.push(part.to_owned()),
                _ => {}
            }
        }
    }
    parts
}
