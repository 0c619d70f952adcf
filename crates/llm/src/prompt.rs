//! The shape that the services give their prompts, read back.
//!
//! A user message is a row of sections, each begun by a line `## Name`. Inputs and results are divided
//! by lines `### …`. The offline model and the mock endpoint understand prompts by this shape alone.

use crate::Purpose;

/// The section names. Other `## ` lines are text, since inputs may be Markdown themselves.
const NAMES: [&str; 13] = [
    "Goal",
    "Limits",
    "Parameters",
    "Inputs",
    "Items",
    "Agents",
    "Feedback",
    "Task",
    "Instruction",
    "Rubric",
    "Results",
    "Result",
    "Threshold",
];

/// A prompt, taken apart.
pub(crate) struct Prompt<'a> {
    sections: Vec<(&'a str, &'a str)>,
    whole: &'a str,
}

/// An input of the intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Input<'a> {
    pub(crate) name: &'a str,
    pub(crate) media_type: &'a str,
    pub(crate) text: &'a str,
}

/// What a task before brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dependency<'a> {
    /// By which it is cited.
    pub(crate) number: Option<u32>,
    pub(crate) title: &'a str,
    pub(crate) text: &'a str,
}

fn dependency<'a>(heading: &'a str, text: &'a str) -> Dependency<'a> {
    let numbered = heading.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    match numbered.and_then(|(number, title)| Some((number.parse().ok()?, title))) {
        Some((number, title)) => Dependency { number: Some(number), title, text },
        None => Dependency { number: None, title: heading, text },
    }
}

impl Dependency<'_> {
    pub(crate) fn failed(&self) -> bool {
        self.text.starts_with("(failed")
    }
}

impl<'a> Prompt<'a> {
    pub(crate) fn parse(text: &'a str) -> Prompt<'a> {
        let sections = split_at_lines(text, |line| {
            let name = line.strip_prefix("## ")?.trim();
            NAMES.contains(&name).then_some(name)
        });
        Prompt { sections, whole: text }
    }

    /// Whether it has the shape of a prompt at all.
    pub(crate) fn has_sections(&self) -> bool {
        !self.sections.is_empty()
    }

    /// The text of a section; `None` if the prompt has no such section.
    pub(crate) fn section(&self, name: &str) -> Option<&'a str> {
        let found = self.sections.iter().find(|(n, _)| *n == name);
        found.map(|(_, text)| *text)
    }

    /// The goal; a prompt without sections is all goal.
    pub(crate) fn goal(&self) -> &'a str {
        match self.section("Goal") {
            Some(goal) => goal,
            None if self.sections.is_empty() => self.whole.trim(),
            None => "",
        }
    }

    pub(crate) fn max_tasks(&self) -> Option<usize> {
        self.section("Limits")?
            .lines()
            .find_map(|line| line.trim().strip_prefix("max_tasks:"))
            .and_then(|number| number.trim().parse().ok())
    }

    /// The parameters and the inputs.
    pub(crate) fn inputs(&self) -> Vec<Input<'a>> {
        let parameters = split_at_lines(self.section("Parameters").unwrap_or_default(), |line| {
            Some(line.strip_prefix("### ")?.trim())
        });
        let parameters =
            parameters.into_iter().map(|(name, text)| Input { name, media_type: "text/plain", text });
        let parts = split_at_lines(self.section("Inputs").unwrap_or_default(), |line| {
            let head = line.strip_prefix("### ")?.trim_end();
            head.ends_with(" bytes)").then_some(head)
        });
        let inputs = parts.into_iter().map(|(head, text)| {
            let (name, rest) = head.rsplit_once(" (").unwrap_or((head, ""));
            let media_type = rest.split(',').next().unwrap_or_default().trim();
            Input { name, media_type, text }
        });
        parameters.chain(inputs).collect()
    }

    pub(crate) fn results(&self) -> Vec<Dependency<'a>> {
        let parts = split_at_lines(self.section("Results").unwrap_or_default(), |line| {
            Some(line.strip_prefix("### ")?.trim())
        });
        parts.into_iter().map(|(heading, text)| dependency(heading, text)).collect()
    }

    pub(crate) fn items(&self) -> Vec<&'a str> {
        bullets(self.section("Items").unwrap_or_default())
    }

    /// Name and description of each agent.
    pub(crate) fn agents(&self) -> Vec<(&'a str, &'a str)> {
        bullets(self.section("Agents").unwrap_or_default())
            .into_iter()
            .map(|line| line.split_once(':').unwrap_or((line, "")))
            .map(|(name, about)| (name.trim(), about.trim()))
            .collect()
    }

    /// What a prompt of this shape is for.
    pub(crate) fn purpose(&self) -> Purpose {
        let has = |name| self.section(name).is_some();
        if has("Limits") || has("Agents") {
            Purpose::Plan
        } else if has("Result") {
            Purpose::Judge
        } else if has("Task") {
            Purpose::Work
        } else {
            Purpose::Synthesize
        }
    }
}

fn bullets(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("- "))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect()
}

/// Cuts a text at the lines that `head` recognises; what stands before the first is dropped.
fn split_at_lines<'a>(text: &'a str, head: impl Fn(&'a str) -> Option<&'a str>) -> Vec<(&'a str, &'a str)> {
    let mut parts = Vec::new();
    let mut open: Option<(&str, usize)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        if let Some(name) = head(line.trim_end_matches(['\n', '\r'])) {
            if let Some((name, from)) = open {
                parts.push((name, text.get(from..start).unwrap_or_default().trim()));
            }
            open = Some((name, at));
        }
    }
    if let Some((name, from)) = open {
        parts.push((name, text.get(from..).unwrap_or_default().trim()));
    }
    parts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sections_inputs_results() {
        let text = "## Goal\nDo it\n## Limits\nmax_tasks: 7\n## Parameters\n### price\nbelow 900\n## Inputs\n### a b.md (text/markdown, 12 bytes)\n# T\n## Other\n### sub\nx\n### c.csv (text/csv, 3 bytes)\na,b\n## Items\n- one\n-  two\n## Agents\n- worker: does: things\n## Results\n### First\nfine\n### Second\n(failed: no)\n";
        let prompt = Prompt::parse(text);
        assert_eq!(prompt.goal(), "Do it");
        assert_eq!(prompt.max_tasks(), Some(7));
        let inputs = prompt.inputs();
        assert_eq!(inputs.len(), 3);
        assert_eq!((inputs[0].name, inputs[0].text), ("price", "below 900"));
        let inputs = &inputs[1..];
        assert_eq!(inputs[0].name, "a b.md");
        assert_eq!(inputs[0].media_type, "text/markdown");
        assert_eq!(inputs[0].text, "# T\n## Other\n### sub\nx");
        assert_eq!(inputs[1].text, "a,b");
        assert_eq!(prompt.items(), ["one", "two"]);
        assert_eq!(prompt.agents(), [("worker", "does: things")]);
        let failed: Vec<bool> = prompt.results().iter().map(Dependency::failed).collect();
        assert_eq!(failed, [false, true]);
        assert_eq!(prompt.purpose(), Purpose::Plan);
        assert_eq!(Prompt::parse("just words").goal(), "just words");
    }
}
