//! How an intent is planned, settled where it comes in: `auto` becomes one of the others, and what a playbook cannot be
//! used for is rejected with everything that is wrong.

use starling_engine::coordinator::{CoordinatorSettings, PlanFault, PlanLimits, validate, validate_answer};
use starling_playbooks::{Fault, Plan, Playbooks, TextPart, Wish, choose};
use starling_protocol::{Intent, IntentFault, PlanStrategy};
use std::sync::Arc;

/// What is needed to settle how an intent is planned.
#[derive(Clone, Debug)]
pub struct Strategies {
    playbooks: Arc<Playbooks>,
    limits: PlanLimits,
    /// Room for parts of inputs in a prompt, in bytes.
    part_bytes: usize,
}

impl Strategies {
    /// With these playbooks, the bounds of plans that the coordinator has, and the room of a prompt in bytes.
    #[must_use]
    pub fn new(playbooks: Arc<Playbooks>, coordinator: &CoordinatorSettings, prompt: usize) -> Self {
        let limits = PlanLimits::new(coordinator, coordinator.max_tasks);
        Self { playbooks, limits, part_bytes: prompt }
    }

    /// Settles how `intent` is planned, and gives it the goal of its playbook where it has none. An intent that says `auto`
    /// says afterwards what was chosen.
    ///
    /// # Errors
    /// Everything that it lacks or has wrong for its playbook.
    pub fn settle(&self, intent: &mut Intent) -> Result<(), Vec<IntentFault>> {
        let Ok(mut strategy) = intent.strategy.parse::<PlanStrategy>() else { return Ok(()) }; // refused elsewhere
        if strategy == PlanStrategy::Auto {
            strategy = self.with_wish(intent, |wish| choose(wish, &self.playbooks));
        }
        if let Some(plan) = self.plan(&strategy, intent) {
            let plan = plan.map_err(|faults| faults.into_iter().map(intent_fault).collect::<Vec<_>>())?;
            let limits = self.limits_of(intent);
            let of_answer = plan.answer.as_ref().map_or(Ok(()), |answer| validate_answer(answer, &limits));
            validate(&plan.tasks, &limits).and(of_answer).map_err(|faults| {
                let fault =
                    |found: &PlanFault| IntentFault { path: String::new(), message: found.to_string() };
                faults.iter().map(fault).collect::<Vec<_>>()
            })?;
            intent.goal = plan.goal;
        }
        intent.strategy = strategy.to_string();
        Ok(())
    }

    /// The plan of an intent by a strategy that needs no model for it; nothing for the others.
    ///
    /// # Errors
    /// What the intent lacks or has wrong for it.
    #[must_use]
    pub fn plan(&self, strategy: &PlanStrategy, intent: &Intent) -> Option<Result<Plan, Vec<Fault>>> {
        self.with_wish(intent, |wish| self.playbooks.plan(strategy, wish))
    }

    fn limits_of(&self, intent: &Intent) -> PlanLimits {
        let most = intent.limits.max_tasks.and_then(|most| usize::try_from(most).ok());
        PlanLimits { max_tasks: most.unwrap_or(self.limits.max_tasks), ..self.limits }
    }

    fn with_wish<R>(&self, intent: &Intent, ask: impl FnOnce(&Wish<'_>) -> R) -> R {
        let names: Vec<&str> = intent.inputs.iter().map(|input| input.name.as_str()).collect();
        ask(&Wish {
            goal: &intent.goal,
            parameters: &intent.parameters,
            items: &intent.items,
            inputs: &names,
            parts: &TextPart::of(&intent.inputs),
            part_bytes: self.part_bytes,
            max_tasks: self.limits_of(intent).max_tasks,
        })
    }
}

fn intent_fault(Fault { path, message }: Fault) -> IntentFault {
    IntentFault { path, message }
}
