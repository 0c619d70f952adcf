//! The planner service: intake, plan loop and coordinator, each a loop of its own.

mod coordination;
mod costs;
mod intake;
mod pace;
mod plan;
mod service;

pub use coordination::CoordinationError;
pub use costs::{call_costs, model_of};
pub use intake::{INTENT_TOO_LARGE, INVALID_INTENT, IntakeHandler, UNACCEPTABLE_INTENT};
pub use plan::{
    Draft, DraftError, INVALID_PLAN, InstructionLimit, PlanHandler, PlanOptions, PlanStream,
    PlanStreamLimits, PlanTextFault, UNKNOWN_STRATEGY, Wanted, draft, task_spec,
};
pub use service::{PlannerError, serve};
