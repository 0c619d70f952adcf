//! JSON schemas of the replies that are read by a program. Strict in the sense of OpenAI's structured
//! outputs: every property required, none beyond them, no keyword that endpoints refuse.

use serde_json::{Value, json};

/// Name of the plan's schema.
pub const PLAN_SCHEMA: &str = "plan";
/// Name of the verdict's schema.
pub const VERDICT_SCHEMA: &str = "verdict";

/// What a plan looks like, when `agents` can be named in it.
#[must_use]
pub fn plan_schema<'a>(agents: impl IntoIterator<Item = &'a str>) -> Value {
    let agents: Vec<&str> = agents.into_iter().collect();
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["tasks"],
        "properties": {
            "tasks": {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["key", "title", "instruction", "agent", "depends_on", "critic"],
                    "properties": {
                        "key": { "type": "string", "description": "Short name, unique within the plan" },
                        "title": { "type": "string", "description": "A few words for people" },
                        "instruction": { "type": "string", "description": "All that the agent must know" },
                        "agent": { "type": "string", "enum": agents },
                        "depends_on": {
                            "type": "array",
                            "items": { "type": "string" },
                            "description": "Keys of the tasks whose results this one needs"
                        },
                        "critic": { "type": "boolean", "description": "Whether the result is scored" }
                    }
                }
            }
        }
    })
}

/// What a verdict looks like.
#[must_use]
pub fn verdict_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["score", "feedback"],
        "properties": {
            "score": { "type": "number", "description": "From 0 (useless) to 1 (nothing to improve)" },
            "feedback": { "type": "string", "description": "What to do better; empty if nothing" }
        }
    })
}
