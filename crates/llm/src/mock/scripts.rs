//! Ready scripts: a model that plans, works, judges and sums up as regularly as a clock.

use super::{MockAction, MockCall, Script};
use crate::Purpose;
use crate::prompt::Prompt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long a reply takes, by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Make a plan.
    pub plan: Duration,
    /// Do a task.
    pub work: Duration,
    /// Score a result.
    pub judge: Duration,
    /// Make the answer.
    pub synthesize: Duration,
}

impl Latencies {
    /// The same for everything.
    #[must_use]
    pub fn all(latency: Duration) -> Latencies {
        Latencies { plan: latency, work: latency, judge: latency, synthesize: latency }
    }

    fn of(self, purpose: Purpose) -> Duration {
        match purpose {
            Purpose::Plan => self.plan,
            Purpose::Work => self.work,
            Purpose::Judge => self.judge,
            Purpose::Synthesize => self.synthesize,
        }
    }
}

/// Plans so many independent tasks; every task succeeds with a score of 0.9.
#[must_use]
pub fn fanout(tasks: usize, latencies: Latencies) -> Script {
    layered(1, tasks, latencies)
}

/// Plans layers of so many tasks, each task depending on all of the layer before.
#[must_use]
pub fn layered(layers: usize, width: usize, latencies: Latencies) -> Script {
    Arc::new(move |call| {
        let text = match call.purpose {
            Purpose::Plan => plan_reply(call, layers, width),
            Purpose::Work => work_reply(call),
            Purpose::Judge => verdict(0.9, "fine"),
            Purpose::Synthesize => "All tasks are done.".to_owned(),
        };
        MockAction::reply_after(latencies.of(call.purpose), text)
    })
}

/// What a well-behaved task says: `ok` and its title.
#[must_use]
pub fn work_reply(call: &MockCall) -> String {
    format!("ok: {}", call.section("Task").unwrap_or_default())
}

/// The JSON of a verdict.
#[must_use]
pub fn verdict(score: f64, feedback: &str) -> String {
    json!({"score": score, "feedback": feedback}).to_string()
}

/// The JSON of a layered plan, for the agent that the prompt offers.
#[must_use]
pub fn plan_reply(call: &MockCall, layers: usize, width: usize) -> String {
    let prompt = Prompt::parse(&call.prompt);
    let agents = prompt.agents();
    let agent = agents
        .iter()
        .map(|(name, _)| *name)
        .find(|name| *name == "worker")
        .or_else(|| agents.first().map(|(name, _)| *name))
        .unwrap_or("worker");
    let tasks = plan_tasks(agent, layers, width);
    json!({"tasks": tasks}).to_string()
}

/// The tasks of a layered plan, as JSON: keys are `l<layer>t<task>`.
#[must_use]
pub fn plan_tasks(agent: &str, layers: usize, width: usize) -> Vec<Value> {
    let key = |layer: usize, task: usize| format!("l{layer}t{task}");
    let mut tasks = Vec::with_capacity(layers.saturating_mul(width));
    for layer in 0..layers {
        for task in 0..width {
            let before: Vec<String> = match layer.checked_sub(1) {
                Some(before) => (0..width).map(|task| key(before, task)).collect(),
                None => vec![],
            };
            tasks.push(json!({
                "key": key(layer, task),
                "title": format!("Task {task} of layer {layer}"),
                "instruction": format!("Say ok for task {task} of layer {layer}."),
                "agent": agent,
                "depends_on": before,
                "critic": true,
            }));
        }
    }
    tasks
}
