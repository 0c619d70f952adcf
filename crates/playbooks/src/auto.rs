//! The strategy `auto`: which of the others an intent gets.

use crate::{Playbooks, Wish};
use starling_protocol::PlanStrategy;

/// Longest goal that can be simple, in bytes.
pub const MAX_SIMPLE_GOAL_BYTES: usize = 120;

/// The strategy for an intent, by what it has. The first that fits, in this order:
///
/// 1. a playbook whose `auto` condition holds and which has all that it needs, the first by name;
/// 2. `map` where there are items;
/// 3. `single` where the goal is short and one sentence, and nothing comes with it;
/// 4. `llm`.
#[must_use]
pub fn choose(wish: &Wish<'_>, playbooks: &Playbooks) -> PlanStrategy {
    if let Some(playbook) = playbooks.iter().find(|playbook| playbook.is_for(wish)) {
        PlanStrategy::Playbook(playbook.name().to_owned())
    } else if !wish.items.is_empty() {
        PlanStrategy::Map
    } else if wish.inputs.is_empty() && is_simple(wish.goal) {
        PlanStrategy::Single
    } else {
        PlanStrategy::Llm
    }
}

/// Whether a goal is one short sentence that lists nothing.
fn is_simple(goal: &str) -> bool {
    let goal = goal.trim().trim_end_matches(['.', '?', '!']);
    goal.len() <= MAX_SIMPLE_GOAL_BYTES && !goal.contains(['\n', ',', ';', ':', '.', '?', '!'])
}
