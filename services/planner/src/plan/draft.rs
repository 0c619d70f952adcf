//! A plan that nobody carries out: to see what it would be, and what it would take.

use super::{InstructionLimit, PlanStream, PlanStreamLimits, ending, task_spec};
use starling_agents::{
    Agent, AgentCatalogue, PLAN_SCHEMA, PlanPrompt, PromptBudget, plan_messages, plan_schema, within,
};
use starling_llm::{ChatRequest, Format, Model, ModelError, Purpose, Reuse};
use starling_protocol::{Allowance, CallReport, Input, Priority, TaskSpec};
use starling_service::Window;
use std::{collections::BTreeMap, sync::Arc};
use tokio::time::Instant;

/// What is to be planned.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The wish.
    pub goal: &'a str,
    /// Texts that come with it.
    pub inputs: &'a [Input],
    /// Things to treat one by one.
    pub items: &'a [String],
    /// Named values that come with it.
    pub parameters: &'a BTreeMap<String, String>,
    /// Most tasks in the plan.
    pub max_tasks: i32,
    /// Most tokens of the instruction of a task.
    pub max_instruction_tokens: i64,
    /// What the planner's model calls may take; `None` bounds nothing.
    pub allowance: Option<Allowance>,
    /// When nobody needs it any more.
    pub deadline: Instant,
}

/// A plan, and what it took to make it.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// Its tasks, as the model wrote them: unchecked beyond their form.
    pub tasks: Vec<TaskSpec>,
    /// What the planner's model calls took.
    pub report: CallReport,
}

/// There is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DraftError {
    /// The model did not answer.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// It answered, and not with a plan.
    #[error("the model's reply is no plan: {0}")]
    NoPlan(String),
}

/// Asks for a plan as the plan loop does, once, and waits for all of it.
///
/// # Errors
/// See [`DraftError`].
pub async fn draft(
    model: &dyn Model,
    catalogue: &AgentCatalogue,
    wanted: Wanted<'_>,
    prompt: PromptBudget,
) -> Result<Draft, DraftError> {
    let planner = catalogue.planner();
    let agents: Vec<&Agent> = catalogue.workers().collect();
    let Wanted { goal, inputs, items, parameters, max_tasks, max_instruction_tokens, allowance, deadline } =
        wanted;
    let (feedback, agents) = (None, agents.as_slice());
    let asked =
        PlanPrompt { goal, max_tasks, max_instruction_tokens, inputs, items, parameters, agents, feedback };
    let schema = Arc::new(plan_schema(agents.iter().map(|agent| agent.name.as_str())));
    let request = |prompt: PromptBudget| ChatRequest {
        purpose: Purpose::Plan,
        messages: within(allowance.as_ref(), planner, prompt, |budget| {
            plan_messages(planner, &asked, budget)
        }),
        tools: Vec::new(),
        format: Format::Json { name: PLAN_SCHEMA.to_owned(), schema: schema.clone(), check: None },
        max_tokens: prompt.max_tokens(planner, allowance.as_ref()),
        temperature: planner.temperature,
        deadline,
        traceparent: None,
        allowance,
        reuse: Reuse::Allowed,
        priority: Priority::default(),
        model: planner.model.clone(),
    };
    let reply = Window::default().chat(model, planner, prompt, request).await.reply?;
    let mut text = PlanStream::new(PlanStreamLimits::default());
    let values = text.push(&reply.text).map_err(|fault| DraftError::NoPlan(fault.to_string()))?;
    let mut tasks = Vec::with_capacity(values.len());
    let encoding = model.capacity(Purpose::Plan, planner.model.as_ref()).encoding;
    let limit = InstructionLimit { tokens: max_instruction_tokens, encoding };
    for (ordinal, value) in (0_i32..).zip(&values) {
        tasks.push(task_spec(value, ordinal, catalogue, limit).map_err(DraftError::NoPlan)?);
    }
    let count = i32::try_from(tasks.len()).unwrap_or(i32::MAX);
    ending(&text, count).map_err(|failure| DraftError::NoPlan(failure.message))?;
    Ok(Draft { tasks, report: reply.report })
}
