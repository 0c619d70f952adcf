//! Agents: what a user edits, and the prompts that are made with them.
//!
//! An agent is a file in `agents/`: a front matter in TOML, then the system prompt, or TOML alone. [`AgentCatalogue`] holds
//! all of them. The functions [`plan_messages`], [`work_messages`], [`judge_messages`] and
//! [`synthesis_messages`] make a conversation out of an agent and what it is asked for.
//!
//! # The form of a prompt
//! The system message is the agent's prompt. The user message consists of sections, each begun by a line
//! `## <Name>`; parts of a section begin with a line `### <title>`. What users and models wrote cannot fake
//! such a line: in embedded text a backslash is put before it, as Markdown escapes it (see
//! [`escape`](prompt::escape)).

mod agent;
mod catalogue;
mod checks;
mod front_matter;
mod output_schema;
pub mod prompt;
mod schema;

pub use agent::{Agent, AgentForm, AgentPurpose};
pub use catalogue::{
    AgentCatalogue, CRITIC, CatalogueError, DEFAULT_WORKER, Fault, PLANNER, REDUCER, SYNTHESIZER,
};
pub use checks::{Checks, Language};
pub use output_schema::OutputSchema;
pub use prompt::{
    EarlierAttempt, JudgePrompt, PlanPrompt, PromptBudget, SynthesisPrompt, TaskOutput, WorkPrompt,
    judge_messages, plan_messages, synthesis_messages, within, work_messages,
};
pub use schema::{PLAN_SCHEMA, VERDICT_SCHEMA, plan_schema, verdict_schema};
