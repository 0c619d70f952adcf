//! `starling run --dry-run`: the plan of an intent and what it would take, without doing any of it.

use crate::{args::RunArgs, commands::submit::submission, exit::CliError, report, session::Session};
use serde_json::{Value, json};
use starling_agents::{AgentCatalogue, DEFAULT_WORKER, PromptBudget};
use starling_engine::coordinator::{CallCosts, PlanLimits, budget::Budget, validate};
use starling_llm::Model;
use starling_planner::{Draft, Wanted, call_costs, draft};
use starling_protocol::{Body, CallReport, Intent, state::Amount};
use starling_runtime::wire::estimated_tokens;
use starling_service::{load_agents, model_from};
use std::{fmt::Write as _, process::ExitCode, time::Duration};
use tokio::time::Instant;

/// A plan, and what it takes.
struct Forecast {
    draft: Draft,
    /// What the steps take that were not made.
    expected: Amount,
    /// Whether it is known what calls cost.
    priced: bool,
    budget: Budget,
    offline: bool,
}

pub(super) async fn dry_run(session: &Session, args: RunArgs) -> Result<ExitCode, CliError> {
    let submission = submission(session, args.intent)?;
    let settings = &session.settings;
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
    let model = model_from(&settings.model).map_err(|error| usage(&error))?.model;
    let catalogue = load_agents(settings).map_err(|error| usage(&error))?;
    let costs = call_costs(settings, &catalogue);
    let coordinator = &settings.coordinator;
    let limits = &submission.intent.limits;
    let budget = Budget {
        calls: limits.max_calls.or(coordinator.max_calls),
        tokens: limits.max_tokens.or(coordinator.max_tokens),
        cost_usd: limits.max_cost_usd.or(coordinator.max_cost_usd),
    };
    let single = submission.intent.strategy == "single";
    let tokens = estimated_tokens(&Body::Intent(submission.intent.clone()));
    check(&costs, &budget, &submission.intent, tokens, single)?;
    let drafted = if single {
        Draft { tasks: Vec::new(), report: CallReport::default() }
    } else {
        let max_tasks = limits.max_tasks.unwrap_or(coordinator.max_tasks);
        let allowance =
            budget.is_bounded().then(|| budget.allowance(costs.plan(submission.intent.goal.len(), tokens)));
        let patience =
            submission.timeout.unwrap_or(coordinator.plan_timeout).min(Duration::from_secs(86_400));
        let wanted = Wanted {
            goal: &submission.intent.goal,
            inputs: &submission.intent.inputs,
            items: &submission.intent.items,
            parameters: &submission.intent.parameters,
            max_tasks,
            max_instruction_tokens: settings.agents_max_instruction_tokens,
            allowance,
            deadline: Instant::now() + patience,
        };
        let drafted = plan(model.as_ref(), &catalogue, wanted, settings.agents_prompt).await?;
        let faults = validate(&drafted.tasks, &PlanLimits::new(coordinator, max_tasks));
        faults.map_err(|faults| {
            let faults: Vec<String> = faults.iter().take(5).map(ToString::to_string).collect();
            CliError::Failed(format!("the plan would be refused: {}", faults.join("; ")))
        })?;
        drafted
    };
    let expected = costs.expected(&submission.intent.goal, tokens, &drafted.tasks, DEFAULT_WORKER);
    let forecast = Forecast {
        draft: drafted,
        expected,
        priced: costs.without_price(single).is_empty(),
        budget,
        offline: model.info().offline,
    };
    if args.json {
        println!("{}", forecast.json());
    } else {
        print!("{}", forecast.text());
        if forecast.offline {
            eprintln!("{}", report::offline_notice(&settings.model).await);
        }
    }
    session.flush_telemetry().await;
    Ok(ExitCode::SUCCESS)
}

/// Refuses what the coordinator would refuse.
fn check(
    costs: &CallCosts,
    budget: &Budget,
    intent: &Intent,
    tokens: i64,
    single: bool,
) -> Result<(), CliError> {
    let unpriced = costs.without_price(single);
    if budget.cost_usd.is_some() && !unpriced.is_empty() {
        let models = unpriced.join(", ");
        return Err(CliError::Usage(format!("--max-cost needs a price in model.prices for {models}")));
    }
    match costs.shortfall(budget, intent.goal.len(), tokens, single, DEFAULT_WORKER) {
        Some(reason) => Err(CliError::Usage(reason)),
        None => Ok(()),
    }
}

async fn plan(
    model: &dyn Model,
    catalogue: &AgentCatalogue,
    wanted: Wanted<'_>,
    prompt: usize,
) -> Result<Draft, CliError> {
    model
        .reach()
        .await
        .map_err(|error| CliError::Unavailable(format!("the model is unreachable: {error}")))?;
    let drafted = draft(model, catalogue, wanted, PromptBudget::of_bytes(prompt)).await;
    drafted.map_err(|error| CliError::Failed(format!("there is no plan: {error}")))
}

impl Forecast {
    fn spent(&self) -> Amount {
        let report = &self.draft.report;
        let tokens = report.usage.prompt_tokens + report.usage.completion_tokens;
        Amount { calls: report.calls, tokens, cost_usd: report.cost_usd }
    }

    /// What is left of the budget by what it takes: `None` if there is no budget.
    fn covered(&self) -> Option<bool> {
        let left = self.budget.less(self.spent());
        self.budget.is_bounded().then(|| left.fits(self.expected) > 0)
    }

    fn cost(&self, usd: f64) -> Value {
        if self.priced { json!(usd) } else { Value::Null }
    }

    fn json(&self) -> Value {
        let spent = self.spent();
        let tasks: Vec<Value> = self
            .draft
            .tasks
            .iter()
            .map(|task| {
                json!({
                    "key": task.key, "title": task.title, "agent": task.agent, "depends_on": task.depends_on,
                    "critic": task.critic,
                })
            })
            .collect();
        json!({
            "dry_run": true,
            "offline": self.offline,
            "tasks": tasks,
            "spent": { "calls": spent.calls, "tokens": spent.tokens, "cost_usd": self.cost(spent.cost_usd) },
            "expected": {
                "calls": self.expected.calls,
                "tokens": self.expected.tokens,
                "cost_usd": self.cost(self.expected.cost_usd),
            },
            "covered": self.covered(),
        })
    }

    fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail, so the results are of no interest.
        for task in &self.draft.tasks {
            let on = if task.depends_on.is_empty() {
                String::new()
            } else {
                format!(" after {}", task.depends_on.join(", "))
            };
            let critic = if task.critic { "" } else { ", no critic" };
            let _ = writeln!(out, "{:<16} {} ({}{critic}){on}", task.key, task.title, task.agent);
        }
        if self.draft.tasks.is_empty() {
            out.push_str("one task, and no plan\n");
        }
        let cost = |usd: f64| {
            if self.priced {
                format!("${usd:.4}")
            } else {
                "cost not known: no price set (model.prices)".to_owned()
            }
        };
        let (spent, expected) = (self.spent(), self.expected);
        let _ = writeln!(
            out,
            "\nspent     {} calls, {} tokens, {}\nexpected  {} calls, up to {} tokens, {}, if each step succeeds at its \
             first try",
            spent.calls,
            spent.tokens,
            cost(spent.cost_usd),
            expected.calls,
            expected.tokens,
            if self.priced { format!("up to {}", cost(expected.cost_usd)) } else { cost(expected.cost_usd) },
        );
        match self.covered() {
            Some(true) => {
                let _ = writeln!(out, "budget    {}: covers it", self.budget);
            }
            Some(false) => {
                let _ = writeln!(
                    out,
                    "budget    {}: may not cover it; what it does not cover is left out",
                    self.budget
                );
            }
            None => {}
        }
        out
    }
}
