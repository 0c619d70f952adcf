//! Work on prose, items and bare goals: quoting and ordering what is there, inventing nothing.

use super::DISCLAIMER;
use super::aspects;
use super::table::Table;
use super::words::{key_sentences, mentions, sentences, shorten, unwrapped, words};
use crate::prompt::{Dependency, Input, Prompt};
use std::fmt::Write as _;

/// Characters of an input that are read; prompts are bounded, but not by this module.
const MAX_CHARS: usize = 200_000;

/// The result of an instruction that is not about a table.
pub(super) fn work(prompt: &Prompt<'_>, instruction: &str) -> String {
    let inputs = prompt.inputs();
    let results = prompt.results();
    if let Some(name) = instruction.strip_prefix("Extract the facts from ") {
        return facts(named(&inputs, name), prompt.goal());
    }
    if let Some(name) = instruction.strip_prefix("List the requests in ") {
        return requests(named(&inputs, name));
    }
    if instruction.starts_with("Order the requests") {
        return priorities(&results, &inputs);
    }
    if instruction.starts_with("Handle item") {
        return items(prompt, instruction);
    }
    if instruction.starts_with("Bring the results") {
        return together(&results);
    }
    if inputs.is_empty()
        && let Some(text) = aspects::work(prompt.goal(), instruction)
    {
        return text;
    }
    considered(prompt, instruction)
}

/// The input that an instruction names, else the first.
fn named<'a>(inputs: &[Input<'a>], rest: &str) -> Option<Input<'a>> {
    let name = rest.split(": ").next().unwrap_or(rest);
    inputs.iter().find(|input| shorten(input.name, 60) == name).or_else(|| inputs.first()).copied()
}

/// The part of a text that is read, with wrapped lines made whole.
fn beginning(text: &str) -> String {
    let cut = match text.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => text.get(..at).unwrap_or_default(),
        None => text,
    };
    unwrapped(cut)
}

fn no_input() -> String {
    format!("({DISCLAIMER}) The text is not in the inputs that came with this task.")
}

fn facts(input: Option<Input<'_>>, goal: &str) -> String {
    let Some(input) = input else {
        return no_input();
    };
    let text = &beginning(input.text);
    let mut out = format!("The facts in {}, the sentences that say most:\n", input.name);
    for sentence in key_sentences(text, &words(goal), 6) {
        let _ = write!(out, "\n- {}", shorten(sentence, 300));
    }
    let figures = figures(text);
    if !figures.is_empty() {
        let _ = write!(out, "\n\nFigures, dates and names in it: {}.", figures.join(", "));
    }
    out
}

/// Words with digits, addresses, and capitalised words inside sentences; each once, 25 at most.
fn figures(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for sentence in sentences(text) {
        for (at, word) in sentence.split_whitespace().enumerate() {
            let bare = word.trim_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '$' | '€' | '%'));
            let telling = bare.chars().any(|c| c.is_ascii_digit())
                || bare.contains('@')
                || (at > 0
                    && bare.chars().next().is_some_and(char::is_uppercase)
                    && bare.chars().count() > 2);
            if telling && !found.iter().any(|known| known == bare) {
                found.push(bare.to_owned());
                if found.len() == 25 {
                    return found;
                }
            }
        }
    }
    found
}

const ASKING: &[&str] = &[
    "please",
    "need",
    "want",
    "must",
    "require",
    "request",
    "could you",
    "can you",
    "would like",
    "expect",
    "should",
    "asap",
    "let me know",
];

fn is_request(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    sentence.contains('?')
        || ASKING.iter().any(|word| lower.contains(word))
        // "We cannot ship today" asks for something as well.
        || urgency(sentence).len() >= 2
}

fn requests(input: Option<Input<'_>>) -> String {
    let Some(input) = input else {
        return no_input();
    };
    let text = beginning(input.text);
    let found: Vec<&str> =
        sentences(&text).into_iter().filter(|sentence| is_request(sentence)).take(20).collect();
    if found.is_empty() {
        return format!(
            "No requests: there are no questions, wishes or demands in {} by their wording.",
            input.name
        );
    }
    let mut out = format!(
        "The requests in {}: {} questions, wishes or demands, in the writer's own words.\n",
        input.name,
        found.len()
    );
    for request in found {
        let _ = write!(out, "\n- request: {}", shorten(request, 300));
    }
    out
}

const URGENT: &[&str] = &[
    "urgent",
    "immediately",
    "asap",
    "today",
    "tonight",
    "now",
    "down",
    "outage",
    "blocked",
    "lost",
    "cannot",
    "can't",
    "deadline",
    "refund",
    "legal",
    "security",
    "breach",
    "cancel",
    "escalate",
    "tomorrow",
    "critical",
];

/// The words that make a sentence urgent.
fn urgency(sentence: &str) -> Vec<&'static str> {
    let lower = sentence.to_lowercase();
    let has =
        |wanted: &str| lower.split(|c: char| !c.is_alphanumeric() && c != '\'').any(|word| word == wanted);
    URGENT.iter().copied().filter(|word| has(word)).collect()
}

fn priorities(results: &[Dependency<'_>], inputs: &[Input<'_>]) -> String {
    let texts: Vec<String> = inputs.iter().map(|input| beginning(input.text)).collect();
    let mut requests: Vec<&str> = results
        .iter()
        .flat_map(|result| result.text.lines())
        .filter_map(|line| line.trim().strip_prefix("- request: "))
        .collect();
    if requests.is_empty() {
        // Nothing came of the tasks before; the inputs themselves may still tell.
        requests = texts
            .iter()
            .flat_map(|text| sentences(text))
            .filter(|sentence| is_request(sentence))
            .take(20)
            .collect();
    }
    if requests.is_empty() {
        return "There are no requests to order by urgency.".to_owned();
    }
    let mut weighed: Vec<(usize, &str, Vec<&str>)> =
        requests.into_iter().enumerate().map(|(at, request)| (at, request, urgency(request))).collect();
    weighed.sort_by(|a, b| b.2.len().cmp(&a.2.len()).then(a.0.cmp(&b.0)));
    let mut out = "The requests that were found, by urgency, most urgent first:\n".to_owned();
    for (place, (_, request, why)) in weighed.iter().enumerate() {
        let why = if why.is_empty() {
            "no words of urgency".to_owned()
        } else {
            format!("urgent by its words: {}", why.join(", "))
        };
        let _ = write!(out, "\n{}. {} ({why})", place + 1, shorten(request, 300));
    }
    out
}

/// `Handle item 3 (…)` or `Handle items 3 to 7: …`.
fn items(prompt: &Prompt<'_>, instruction: &str) -> String {
    let all = prompt.items();
    let numbers: Vec<usize> = instruction
        .split([' ', ':'])
        .skip(2)
        .filter(|word| *word != "to")
        .map_while(|word| word.parse().ok())
        .take(2)
        .collect();
    let first = numbers.first().copied().unwrap_or(1).max(1);
    let last = numbers.get(1).copied().unwrap_or(first).max(first);
    let chosen: Vec<&str> = all.iter().skip(first - 1).take(last - first + 1).copied().collect();
    if chosen.is_empty() {
        return format!("({DISCLAIMER}) Item {first} is not in the inputs that came with this task.");
    }
    let inputs = prompt.inputs();
    let told: Vec<String> = chosen.iter().map(|item| handle(item, &inputs, prompt.goal())).collect();
    told.join("\n\n")
}

fn handle(item: &str, inputs: &[Input<'_>], goal: &str) -> String {
    let mut out = format!("**{}**\n", shorten(item, 120));
    let _ = write!(out, "\n- The goal asks of it: {}", shorten(goal, 160));
    if let Some(table) = Table::first(inputs) {
        let row = table.rows.iter().find(|row| {
            let name = table.name_of(row);
            name.eq_ignore_ascii_case(item)
        });
        if let Some(row) = row {
            let cells: Vec<String> = table
                .columns
                .iter()
                .zip(&row.cells)
                .map(|(column, cell)| format!("{} {cell}", column.label()))
                .collect();
            let _ = write!(out, "\n- {} says: {}", table.source, cells.join(", "));
        }
    }
    let own = words(item);
    let texts: Vec<String> = inputs.iter().map(|input| beginning(input.text)).collect();
    let about: Vec<&str> = texts
        .iter()
        .flat_map(|text| sentences(text))
        .filter(|sentence| words(sentence).iter().any(|word| mentions(&own, word)))
        .take(3)
        .collect();
    for sentence in &about {
        let _ = write!(out, "\n- The inputs say: {}", shorten(sentence, 200));
    }
    if about.is_empty() {
        let list = if own.is_empty() { shorten(item, 60) } else { own.join(", ") };
        let _ = write!(out, "\n- The inputs say nothing more about it; its own words are: {list}");
    }
    out
}

fn together(results: &[Dependency<'_>]) -> String {
    if results.is_empty() {
        return "There are no results to bring together.".to_owned();
    }
    let mut out = format!("The results of {} tasks together, one line for each:\n", results.len());
    for result in results {
        let line = if result.failed() { shorten(result.text, 160) } else { headline(result.text) };
        let _ = write!(out, "\n- **{}**: {line}", shorten(result.title, 80));
    }
    let open: Vec<String> =
        results.iter().filter(|result| result.failed()).map(|result| shorten(result.title, 80)).collect();
    if open.is_empty() {
        out.push_str("\n\nStill open: whatever needs knowledge that is not in the inputs.");
    } else {
        let _ = write!(out, "\n\nStill open, because their tasks failed: {}.", open.join(", "));
    }
    out
}

/// The line that says what came out: the first of a list, else the first at all.
fn headline(text: &str) -> String {
    let lines = || {
        text.lines()
            .map(str::trim)
            .filter(|line| line.chars().any(char::is_alphanumeric))
            .filter(|line| !line.contains(DISCLAIMER))
    };
    let line = lines().find_map(|line| line.strip_prefix("- ")).or_else(|| lines().next());
    line.map_or_else(|| "nothing".to_owned(), |line| shorten(line, 160))
}

/// An instruction that no rule fits: what can be said from the texts at hand, and no more.
fn considered(prompt: &Prompt<'_>, instruction: &str) -> String {
    let goal = prompt.goal();
    let asked = words(&format!("{goal} {instruction}"));
    let mut out = format!("For the instruction: {}\n", shorten(instruction, 300));
    let mut quoted = 0;
    for input in prompt.inputs() {
        for sentence in key_sentences(&beginning(input.text), &asked, 4) {
            let _ = write!(out, "\n- {} says: {}", input.name, shorten(sentence, 240));
            quoted += 1;
        }
    }
    for result in prompt.results().iter().filter(|result| !result.failed()) {
        for sentence in key_sentences(&beginning(result.text), &asked, 2) {
            let _ = write!(out, "\n- {} found: {}", shorten(result.title, 80), shorten(sentence, 240));
            quoted += 1;
        }
    }
    if quoted == 0 {
        let _ = write!(out, "\n- The goal in its own words: {}", shorten(goal, 300));
        let _ = write!(out, "\n- What the inputs do not tell: {}", asked.join(", "));
    }
    let _ = write!(
        out,
        "\n\n(This is the {DISCLAIMER}: it puts in order what it was given and knows nothing beyond it.)"
    );
    out
}
