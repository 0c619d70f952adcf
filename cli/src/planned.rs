//! A plan that is made in this process and not carried out: for `starling plan` and `starling run --dry-run`.

use crate::inputs::{foreseen, outlined};
use crate::{args::IntentArgs, client::Submission, commands::submission, exit::CliError, session::Session};
use starling_agents::{AgentCatalogue, DEFAULT_WORKER, PromptBudget};
use starling_engine::coordinator::{CallCosts, PlanLimits, budget::Budget, validate};
use starling_llm::Model;
use starling_planner::{Draft, Strategies, Wanted, call_costs, draft};
use starling_playbooks::{Plan, Playbooks};
use starling_protocol::{Body, CallReport, Intent, IntentFault, PlanStrategy, TaskSpec, state::Amount};
use starling_runtime::{Settings, wire::estimated_tokens};
use starling_service::{library, model_from};
use std::{fmt::Display, sync::Arc, time::Duration};
use tokio::time::Instant;

/// A plan, and what is known of what it takes.
pub(crate) struct Planned {
    /// How it was made: never `auto`.
    pub(crate) strategy: PlanStrategy,
    /// Goal, tasks and how the answer is made. For `single` the one task, whose result is the answer.
    pub(crate) plan: Plan,
    /// What it took to make it.
    pub(crate) report: CallReport,
    /// What the steps take at most that were not made.
    pub(crate) expected: Amount,
    /// Whether it is known what calls cost.
    pub(crate) priced: bool,
    pub(crate) budget: Budget,
    /// Whether the offline model would do the work.
    pub(crate) offline: bool,
    pub(crate) catalogue: AgentCatalogue,
}

/// Settles how an intent is planned, as the intake of a swarm with these settings does, and says by what.
///
/// # Errors
/// A usage fault that names everything that is wrong.
pub(crate) fn settled(
    settings: &Settings,
    playbooks: Playbooks,
    intent: &mut Intent,
) -> Result<Strategies, CliError> {
    let strategies = Strategies::new(Arc::new(playbooks), &settings.coordinator, settings.agents_prompt);
    let told = |IntentFault { path, message }: &IntentFault| {
        // People gave flags, not fields.
        let flag = match path.as_str() {
            "items" => "--item".to_owned(),
            "inputs" => "--file".to_owned(),
            "limits.max_tasks" => "--max-tasks".to_owned(),
            path => {
                path.strip_prefix("parameters.").map_or(path.to_owned(), |name| format!("--param {name}"))
            }
        };
        if flag.is_empty() { message.clone() } else { format!("{flag}: {message}") }
    };
    strategies
        .settle(intent)
        .map_err(|faults| CliError::Usage(faults.iter().map(told).collect::<Vec<_>>().join("\n")))?;
    Ok(strategies)
}

/// Makes the plan of an intent. A model is asked for it only where the strategy wants one.
pub(crate) async fn planned(session: &Session, args: IntentArgs) -> Result<Planned, CliError> {
    let Submission { mut intent, timeout, parts, .. } = submission(session, args)?;
    let told = outlined(&intent.inputs, &parts);
    intent.inputs = foreseen(&intent.inputs, &parts);
    let settings = &session.settings;
    let usage = |error: &dyn Display| CliError::Usage(error.to_string());
    let model = model_from(&settings.model).map_err(|error| usage(&error))?.model;
    let (catalogue, playbooks) = library(settings).map_err(CliError::Usage)?;
    let strategies = settled(settings, playbooks, &mut intent)?;
    let strategy: PlanStrategy = intent.strategy.parse().map_err(|error| usage(&error))?;
    let costs = call_costs(settings, &catalogue);
    let coordinator = &settings.coordinator;
    let limits = &intent.limits;
    let budget = Budget {
        calls: limits.max_calls.or(coordinator.max_calls),
        tokens: limits.max_tokens.or(coordinator.max_tokens),
        cost_usd: limits.max_cost_usd.or(coordinator.max_cost_usd),
    };
    let tokens = estimated_tokens(&Body::Intent(intent.clone()));
    check(&costs, &budget, &intent, tokens, &strategy)?;
    let max_tasks = limits.max_tasks.unwrap_or(coordinator.max_tasks);
    let (plan, report) = match without_model(&strategy, &strategies, &intent)? {
        Some(plan) => (plan, CallReport::default()),
        None => {
            let allowance =
                budget.is_bounded().then(|| budget.allowance(costs.plan(intent.goal.len(), tokens)));
            let patience = timeout.unwrap_or(coordinator.plan_timeout).min(Duration::from_secs(86_400));
            let wanted = Wanted {
                goal: &intent.goal,
                inputs: &told,
                items: &intent.items,
                parameters: &intent.parameters,
                max_tasks,
                max_instruction_tokens: settings.agents_max_instruction_tokens,
                allowance,
                deadline: Instant::now() + patience,
            };
            let Draft { tasks, report } =
                asked(model.as_ref(), &catalogue, wanted, settings.agents_prompt).await?;
            (Plan { goal: intent.goal.clone(), tasks, answer: None }, report)
        }
    };
    validate(&plan.tasks, &PlanLimits::new(coordinator, max_tasks)).map_err(|faults| {
        let faults: Vec<String> = faults.iter().take(5).map(ToString::to_string).collect();
        CliError::Failed(format!("the plan would be refused: {}", faults.join("; ")))
    })?;
    let steps = if strategy.is_single() { &[][..] } else { &plan.tasks[..] };
    let expected = costs.expected(&intent.goal, tokens, steps, DEFAULT_WORKER);
    let priced = costs.without_price(&strategy).is_empty();
    let offline = model.info().offline;
    Ok(Planned { strategy, plan, report, expected, priced, budget, offline, catalogue })
}

/// The plan, where no model is asked for it.
fn without_model(
    strategy: &PlanStrategy,
    strategies: &Strategies,
    intent: &Intent,
) -> Result<Option<Plan>, CliError> {
    if strategy.is_single() {
        let goal = intent.goal.clone();
        let task = TaskSpec {
            key: "answer".to_owned(),
            title: goal.chars().take(60).collect(),
            instruction: goal.clone(),
            agent: DEFAULT_WORKER.to_owned(),
            ..TaskSpec::default()
        };
        return Ok(Some(Plan { goal, tasks: vec![task], answer: None }));
    }
    strategies.plan(strategy, intent).transpose().map_err(|faults| {
        CliError::Usage(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })
}

/// Refuses what the coordinator would refuse.
fn check(
    costs: &CallCosts,
    budget: &Budget,
    intent: &Intent,
    tokens: i64,
    strategy: &PlanStrategy,
) -> Result<(), CliError> {
    let unpriced = costs.without_price(strategy);
    if budget.cost_usd.is_some() && !unpriced.is_empty() {
        let models = unpriced.join(", ");
        return Err(CliError::Usage(format!("--max-cost needs a price in model.prices for {models}")));
    }
    match costs.shortfall(budget, intent.goal.len(), tokens, strategy, DEFAULT_WORKER) {
        Some(reason) => Err(CliError::Usage(reason)),
        None => Ok(()),
    }
}

async fn asked(
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
