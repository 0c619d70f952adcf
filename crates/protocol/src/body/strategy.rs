//! The ways to come to a plan.

use std::{fmt, str::FromStr};

/// How an intent is planned. Its name is what stands in [`crate::Intent::strategy`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PlanStrategy {
    /// `llm`: a model writes the plan.
    #[default]
    Llm,
    /// `single`: one task, whose result is the answer.
    Single,
    /// `map`: the goal for each item, then one answer out of all.
    Map,
    /// `auto`: the intake chooses one of the others by what the intent has.
    Auto,
    /// `playbook:<name>`: a plan template.
    Playbook(String),
}

/// Longest name of a playbook.
pub const MAX_PLAYBOOK_NAME_BYTES: usize = 64;

const PLAYBOOK: &str = "playbook:";

impl PlanStrategy {
    /// Whether the whole intent is one task.
    #[must_use]
    pub fn is_single(&self) -> bool {
        *self == Self::Single
    }

    /// Whether a model has to be asked for the plan.
    #[must_use]
    pub fn asks_planner(&self) -> bool {
        matches!(self, Self::Llm | Self::Auto)
    }
}

impl fmt::Display for PlanStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Llm => f.write_str("llm"),
            Self::Single => f.write_str("single"),
            Self::Map => f.write_str("map"),
            Self::Auto => f.write_str("auto"),
            Self::Playbook(name) => write!(f, "{PLAYBOOK}{name}"),
        }
    }
}

/// A text that names no strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected \"llm\", \"single\", \"map\", \"auto\" or \"playbook:<name>\" with a name of a-z 0-9 - _")]
pub struct UnknownStrategy;

impl FromStr for PlanStrategy {
    type Err = UnknownStrategy;

    fn from_str(text: &str) -> Result<Self, UnknownStrategy> {
        match text {
            "llm" => Ok(Self::Llm),
            "single" => Ok(Self::Single),
            "map" => Ok(Self::Map),
            "auto" => Ok(Self::Auto),
            _ => match text.strip_prefix(PLAYBOOK) {
                Some(name) if is_slug(name) => Ok(Self::Playbook(name.to_owned())),
                _ => Err(UnknownStrategy),
            },
        }
    }
}

/// Whether a text can name a playbook or a parameter: 1 to [`MAX_PLAYBOOK_NAME_BYTES`] of `a-z 0-9 - _`.
#[must_use]
pub fn is_slug(text: &str) -> bool {
    (1..=MAX_PLAYBOOK_NAME_BYTES).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for strategy in [
            PlanStrategy::Llm,
            PlanStrategy::Single,
            PlanStrategy::Map,
            PlanStrategy::Auto,
            PlanStrategy::Playbook("order-inquiry".into()),
        ] {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        for unknown in
            ["", "LLM", "fast", "playbook", "playbook:", "playbook:a b", "playbook:../x", "playbook:Ä"]
        {
            assert_eq!(unknown.parse::<PlanStrategy>(), Err(UnknownStrategy), "{unknown}");
        }
    }
}
