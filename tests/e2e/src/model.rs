//! The model of a test: a mock endpoint with a plan and a script, which remembers every call.

use serde_json::json;
use starling_llm::{
    Purpose,
    mock::{
        MockAction, MockCall, MockOptions,
        scripts::{verdict, work_reply},
    },
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

/// A model call as it came in.
#[derive(Clone, Debug)]
pub struct Called {
    /// When.
    pub at: Instant,
    /// What for.
    pub purpose: Purpose,
    /// The goal of the intent.
    pub goal: String,
    /// The title of the task, for calls that are about one.
    pub title: String,
    /// The last user message.
    pub prompt: String,
    /// The name of the model that was asked for.
    pub model: String,
}

/// All calls so far. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Calls(Arc<Mutex<Vec<Called>>>);

impl Calls {
    fn record(&self, call: &MockCall) {
        let model = call.body.get("model").and_then(|name| name.as_str()).unwrap_or_default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Called {
            at: Instant::now(),
            purpose: call.purpose,
            goal: call.section("Goal").unwrap_or_default().to_owned(),
            title: call.section("Task").unwrap_or_default().to_owned(),
            prompt: call.prompt.clone(),
            model: model.to_owned(),
        });
    }

    /// The calls for a purpose, in their order.
    #[must_use]
    pub fn of(&self, purpose: Purpose) -> Vec<Called> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().filter(|call| call.purpose == purpose).cloned().collect()
    }

    /// The calls for a purpose about the task of that title.
    #[must_use]
    pub fn about(&self, purpose: Purpose, title: &str) -> Vec<Called> {
        let mut calls = self.of(purpose);
        calls.retain(|call| call.title == title);
        calls
    }

    /// All calls, in their order.
    #[must_use]
    pub fn all(&self) -> Vec<Called> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many calls asked for what another one had asked before.
    #[must_use]
    pub fn repeated(&self, purpose: Purpose) -> usize {
        let mut seen: HashMap<String, usize> = HashMap::new();
        for call in self.of(purpose) {
            *seen.entry(call.prompt).or_default() += 1;
        }
        seen.values().map(|count| count - 1).sum()
    }
}

/// A plan as a model writes it.
#[derive(Clone, Debug, Default)]
pub struct Plan(Vec<serde_json::Value>);

impl Plan {
    /// A plan without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// So many tasks that depend on nothing: `t0`, `t1` and so on.
    #[must_use]
    pub fn independent(tasks: usize) -> Self {
        (0..tasks).fold(Self::new(), |plan, n| plan.task(&format!("t{n}"), &[]))
    }

    /// With one task more; its title is its key.
    #[must_use]
    pub fn task(mut self, key: &str, depends_on: &[&str]) -> Self {
        self.0.push(json!({
            "key": key,
            "title": key,
            "instruction": format!("Do {key}."),
            "agent": "worker",
            "depends_on": depends_on,
            "critic": true,
        }));
        self
    }

    /// As the planner's reply.
    #[must_use]
    pub fn text(&self) -> String {
        json!({ "tasks": self.0 }).to_string()
    }

    /// As the planner's reply in pieces, one task each; the first piece opens and the last one closes it.
    #[must_use]
    pub fn pieces(&self) -> Vec<String> {
        let last = self.0.len().saturating_sub(1);
        let piece = |(n, task): (usize, &serde_json::Value)| {
            format!(
                "{}{task}{}",
                if n == 0 { "{\"tasks\":[" } else { "," },
                if n == last { "]}" } else { "" }
            )
        };
        self.0.iter().enumerate().map(piece).collect()
    }
}

type Answer = dyn Fn(&MockCall) -> Option<MockAction> + Send + Sync;

/// A model that plans one plan, does every task, finds everything good and sums up; a test changes what it
/// is about.
#[derive(Clone)]
pub struct Scripted {
    plan: Plan,
    /// The calls so far.
    pub calls: Calls,
    holding: Arc<AtomicBool>,
    special: Option<Arc<Answer>>,
}

impl Scripted {
    /// A model with that plan.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self { plan, calls: Calls::default(), holding: Arc::new(AtomicBool::new(true)), special: None }
    }

    /// Asks `special` first; where it has nothing to say, the call is answered as usual.
    #[must_use]
    pub fn but(mut self, special: impl Fn(&MockCall) -> Option<MockAction> + Send + Sync + 'static) -> Self {
        self.special = Some(Arc::new(special));
        self
    }

    /// Holds the calls that `which` names until [`Scripted::stop_holding`] and a release of the server.
    #[must_use]
    pub fn holding(self, which: impl Fn(&MockCall) -> bool + Send + Sync + 'static) -> Self {
        let holding = Arc::clone(&self.holding);
        let before = self.special.clone();
        let plan = self.plan.clone();
        self.but(move |call| {
            let usual = before.as_ref().and_then(|special| special(call));
            if holding.load(Ordering::SeqCst) && which(call) {
                return Some(MockAction::Hold {
                    then: Box::new(usual.unwrap_or_else(|| ordinary(&plan, call))),
                });
            }
            usual
        })
    }

    /// Calls that come from now on are held again.
    pub fn hold(&self) {
        self.holding.store(true, Ordering::SeqCst);
    }

    /// Calls that come from now on are not held.
    pub fn stop_holding(&self) {
        self.holding.store(false, Ordering::SeqCst);
    }

    /// For the server.
    #[must_use]
    pub fn options(&self) -> MockOptions {
        let Self { plan, calls, special, .. } = self.clone();
        MockOptions::new(Arc::new(move |call| {
            calls.record(call);
            special.as_ref().and_then(|special| special(call)).unwrap_or_else(|| ordinary(&plan, call))
        }))
    }
}

fn ordinary(plan: &Plan, call: &MockCall) -> MockAction {
    MockAction::reply(match call.purpose {
        Purpose::Plan => plan.text(),
        Purpose::Work => work_reply(call),
        Purpose::Judge => verdict(0.9, "fine"),
        Purpose::Synthesize => "The answer.".to_owned(),
    })
}
