//! The plan of the strategy `map`: the goal, for each item.

use crate::{Fault, Plan, Playbook, Wish};
use std::sync::LazyLock;

const MAP: &str = r#"
name = "map"
description = "The goal for each item."

[[tasks]]
key = "item"
for_each = "item in items"
title = "{{ item }}"
instruction = "Do what Goal says for {{ item }}, and for nothing else: others do the same for the other items."
"#;

static PLAYBOOK: LazyLock<Result<Playbook, Vec<Fault>>> = LazyLock::new(|| Playbook::parse(MAP, |_| true));

/// One task for each item; where there are more items than tasks are allowed, one for each of as many even groups.
///
/// # Errors
/// The intent has no items, or no goal.
pub fn map(wish: &Wish<'_>) -> Result<Plan, Vec<Fault>> {
    let wish = Wish { parameters: &std::collections::BTreeMap::new(), ..*wish };
    PLAYBOOK.as_ref().map_err(Clone::clone)?.expand(&wish)
}
