//! Pictures of a plan: who waits for whom.

use starling_playbooks::Plan;
use starling_protocol::{PlanStrategy, TaskSpec};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A tree that begins with the answer; under each task is what it builds on. What was shown is shown once.
pub(super) fn tree(strategy: &PlanStrategy, plan: &Plan) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail, so the results are of no interest.
    let goal = plan.goal.lines().next().unwrap_or_default();
    let _ = writeln!(out, "{goal}\nstrategy {strategy}, {} tasks\n", plan.tasks.len());
    if strategy.is_single() {
        let _ = writeln!(out, "answer");
    } else {
        let _ = writeln!(out, "answer (synthesizer)");
    }
    let waited_for: BTreeSet<&str> =
        plan.tasks.iter().flat_map(|task| &task.depends_on).map(String::as_str).collect();
    let last: Vec<&TaskSpec> =
        plan.tasks.iter().filter(|task| !waited_for.contains(task.key.as_str())).collect();
    let mut tree = Tree { plan, out, shown: BTreeSet::new() };
    tree.branches(&last, "");
    tree.out
}

struct Tree<'p> {
    plan: &'p Plan,
    out: String,
    shown: BTreeSet<&'p str>,
}

impl<'p> Tree<'p> {
    /// Plans are validated, so this is as deep as one is.
    fn branches(&mut self, tasks: &[&'p TaskSpec], indent: &str) {
        for (at, task) in tasks.iter().enumerate() {
            let is_last = at + 1 == tasks.len();
            let (branch, below) = if is_last { ("└── ", "    ") } else { ("├── ", "│   ") };
            let before: Vec<&TaskSpec> =
                self.plan.tasks.iter().filter(|other| task.depends_on.contains(&other.key)).collect();
            let is_new = self.shown.insert(&task.key);
            let again = if is_new || before.is_empty() { "" } else { " (shown above)" };
            let _ = writeln!(self.out, "{indent}{branch}{}{again}", label(task));
            if is_new {
                self.branches(&before, &format!("{indent}{below}"));
            }
        }
    }
}

fn label(task: &TaskSpec) -> String {
    let mut marks = vec![task.agent.clone()];
    if !task.critic {
        marks.push("no critic".to_owned());
    }
    if let Some(range) = &task.terms.items {
        marks.push(format!("items {} to {}", range.from + 1, range.to));
    }
    if let Some(ms) = task.terms.timeout_ms {
        marks.push(format!("{ms} ms"));
    }
    if task.terms.fallback.is_some() {
        marks.push("fallback".to_owned());
    }
    let title = if task.title == task.key { String::new() } else { format!(": {}", task.title) };
    format!("{}{title} ({})", task.key, marks.join(", "))
}

/// A graph for Graphviz.
pub(super) fn dot(plan: &Plan) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut out = String::from("digraph plan {\n    rankdir=LR;\n    node [shape=box];\n");
    for (at, task) in plan.tasks.iter().enumerate() {
        let said = quoted(&format!("{}\n({})", task.title, task.agent)).replace('\n', "\\n");
        let _ = writeln!(out, "    t{at} [label={said}];");
    }
    out.push_str("    answer [shape=oval];\n");
    for (from, to) in edges(plan) {
        let _ = writeln!(out, "    {from} -> {to};");
    }
    out.push_str("}\n");
    out
}

/// A flow chart for Mermaid.
pub(super) fn mermaid(plan: &Plan) -> String {
    let mut out = String::from("flowchart LR\n");
    for (at, task) in plan.tasks.iter().enumerate() {
        let title: String = task.title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let title =
            title.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(out, "    t{at}[\"{title}<br>({})\"]", task.agent);
    }
    out.push_str("    answer([answer])\n");
    for (from, to) in edges(plan) {
        let _ = writeln!(out, "    {from} --> {to}");
    }
    out
}

/// Names of nodes: what each task builds on, and what the answer waits for last.
fn edges(plan: &Plan) -> Vec<(String, String)> {
    let place = |key: &String| plan.tasks.iter().position(|task| task.key == *key);
    let mut edges = Vec::new();
    let mut waited_for = BTreeSet::new();
    for (at, task) in plan.tasks.iter().enumerate() {
        for on in task.depends_on.iter().filter_map(place) {
            waited_for.insert(on);
            edges.push((format!("t{on}"), format!("t{at}")));
        }
    }
    let last = (0..plan.tasks.len()).filter(|at| !waited_for.contains(at));
    edges.extend(last.map(|at| (format!("t{at}"), "answer".to_owned())));
    edges
}
