//! What stands in a playbook's file, before anything of it is checked.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlaybookFile {
    pub(crate) name: String,
    pub(crate) description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auto: Option<String>,
    /// For all tasks and the answer, where they say nothing themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) parameters: BTreeMap<String, ParameterFile>,
    #[serde(default)]
    pub(crate) tasks: Vec<TaskFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<AnswerFile>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParameterFile {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) required: bool,
    pub(crate) default: Option<toml::Value>,
    #[serde(default)]
    pub(crate) description: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskFile {
    pub(crate) key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    pub(crate) instruction: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) critic: Option<bool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) depends_on: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) when: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) for_each: Option<ForEachFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) each: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fallback: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) with_results: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) items: Option<PartFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inputs: Option<PartFile>,
}

/// `"item in items"`, or two of these, which are combined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum ForEachFile {
    One(String),
    Several(Vec<String>),
}

/// What a task reads of the items or inputs: `"all"`, `"none"`, or positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum PartFile {
    Word(String),
    Range { from: i32, to: i32 },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instruction: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fallback: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) with_results: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) items: Option<PartFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inputs: Option<PartFile>,
}
