//! From an agent and what it is asked for to a conversation. Pure: the same question gives the same bytes.

mod budget;
mod compose;
mod section;
mod summary;

pub use budget::{PromptBudget, within};
pub use compose::{
    EarlierAttempt, JudgePrompt, PlanPrompt, SynthesisPrompt, TaskOutput, WorkPrompt, judge_messages,
    plan_messages, synthesis_messages, work_messages,
};
pub use section::escape;
pub use summary::{SummaryPrompt, ToolUse, summary_messages};
