//! One agent, and how its file is read.

use crate::{Checks, OutputSchema, REDUCER, front_matter::Fields};
use starling_llm::{ModelChoice, Purpose};
use starling_protocol::tag::{DEFAULT_POOL, is_pool_name};
use std::time::Duration;

/// The longest name of an agent, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The longest name of a model, in bytes.
const MAX_MODEL_BYTES: usize = 200;
/// The longest rubric, in bytes: it goes along with every result that is judged.
const MAX_RUBRIC_BYTES: usize = 8 * 1024;

/// A named prompt with how its model is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// Its name: letters `a-z`, digits, `-` and `_`.
    pub name: String,
    /// What it is good for, for the planner to choose by.
    pub description: String,
    /// What it can be used for.
    pub purpose: AgentPurpose,
    /// Most tokens of a reply; `None` leaves it to the endpoint.
    pub max_tokens: Option<u32>,
    /// 0 to 2; `None` leaves it to the endpoint.
    pub temperature: Option<f32>,
    /// Which model is asked, where that is not left to the purpose.
    pub model: Option<ModelChoice>,
    /// The worker pool that does its tasks; `None` is the default one.
    pub pool: Option<String>,
    /// What its replies must be; `None` is prose.
    pub output_schema: Option<OutputSchema>,
    /// What the critic scores its results by, beside the instruction.
    pub rubric: Option<String>,
    /// What its results must be before a critic is asked.
    pub checks: Checks,
    /// The share of its results that a critic scores, 0 to 1; `None` leaves it to the settings.
    pub critic_rate: Option<f64>,
    /// How long one attempt may take; `None` leaves it to the settings.
    pub timeout: Option<Duration>,
    /// Most attempts for one of its tasks, where the intent allows more.
    pub max_attempts: Option<i32>,
    /// The system prompt.
    pub prompt: String,
}

/// Most tokens of a reply of an agent that does not say so, where tokens or money are bounded: without any, nobody could
/// tell what a call takes.
const UNSAID_REPLY_TOKENS: u32 = 4096;

/// What an agent can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentPurpose {
    /// Makes plans.
    Plan,
    /// Does tasks.
    Work,
    /// Scores results.
    Judge,
    /// Makes the answer.
    Synthesize,
}

impl From<AgentPurpose> for Purpose {
    fn from(purpose: AgentPurpose) -> Self {
        match purpose {
            AgentPurpose::Plan => Purpose::Plan,
            AgentPurpose::Work => Purpose::Work,
            AgentPurpose::Judge => Purpose::Judge,
            AgentPurpose::Synthesize => Purpose::Synthesize,
        }
    }
}

/// How an agent's file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentForm {
    /// A front matter in TOML between two lines `+++`, then the prompt.
    Markdown,
    /// TOML, with the prompt as a field.
    Toml,
}

impl Agent {
    /// Reads the text of an agent's file. `beside` reads another file of the same folder.
    ///
    /// # Errors
    /// Everything that is wrong with the text.
    pub fn parse(
        form: AgentForm,
        text: &str,
        beside: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, Vec<String>> {
        let (front, prompt) = match form {
            AgentForm::Toml => (text.to_owned(), None),
            AgentForm::Markdown => {
                let (front, prompt) = split_front_matter(text).ok_or_else(|| {
                    vec![
                        "an agent begins with a front matter: TOML between two lines that say +++".to_owned(),
                    ]
                })?;
                (front, Some(prompt))
            }
        };
        let table =
            front.parse().map_err(|error: toml::de::Error| vec![error.to_string().trim_end().to_owned()])?;
        let mut fields = Fields::new(table);
        let agent = read(&mut fields, prompt, beside);
        let faults = fields.finish();
        if faults.is_empty() { Ok(agent) } else { Err(faults) }
    }

    /// Most tokens of a reply, where it must be known.
    #[must_use]
    pub fn reply_tokens(&self) -> u32 {
        self.max_tokens.unwrap_or(UNSAID_REPLY_TOKENS)
    }
}

/// Reads all fields. Where one is faulty, something harmless stands in its place.
fn read(
    fields: &mut Fields,
    prompt: Option<String>,
    beside: &dyn Fn(&str) -> Result<String, String>,
) -> Agent {
    let name = fields.required("name", &format!("1 to {MAX_NAME_BYTES} characters of a-z, 0-9, - and _"));
    if !name.is_empty() && !is_agent_name(&name) {
        let expected =
            format!("expected 1 to {MAX_NAME_BYTES} characters of a-z, 0-9, - and _, found {name:?}");
        fields.complain("name", &expected);
    }
    let description = fields.required("description", "a sentence for the planner");
    let purpose = purpose(fields);
    let model = fields.text("model").and_then(|model| {
        let is_role = |purpose: &Purpose| purpose.name() == model;
        match Purpose::ALL.into_iter().find(is_role) {
            Some(role) => Some(ModelChoice::Role(role)),
            None if model.is_empty() || model.len() > MAX_MODEL_BYTES => {
                let roles = Purpose::ALL.map(Purpose::name).join(", ");
                fields.complain(
                    "model",
                    &format!("expected one of {roles}, or the name of a model, found {model:?}"),
                );
                None
            }
            None => Some(ModelChoice::Named(model)),
        }
    });
    let pool = fields.text("pool").and_then(|pool| {
        if !is_pool_name(&pool) {
            fields
                .complain("pool", &format!("expected 1 to 64 characters of a-z, 0-9 and -, found {pool:?}"));
        }
        // The pool that everybody has.
        Some(pool).filter(|pool| pool != DEFAULT_POOL)
    });
    let agent = Agent {
        name,
        description,
        purpose: purpose.unwrap_or(AgentPurpose::Work),
        max_tokens: fields
            .integer("max_tokens", 1..=i64::from(u32::MAX))
            .and_then(|most| most.try_into().ok()),
        temperature: fields.number("temperature", 0.0..=2.0).map(|value| value as f32),
        model,
        pool,
        output_schema: output_schema(fields, beside),
        rubric: fields.text("rubric").filter(|rubric| {
            let fits = !rubric.is_empty() && rubric.len() <= MAX_RUBRIC_BYTES;
            if !fits {
                fields.complain(
                    "rubric",
                    &format!("expected a text of at most {MAX_RUBRIC_BYTES} bytes that is not empty"),
                );
            }
            fits
        }),
        checks: fields.table("checks", Checks::read).unwrap_or_default(),
        critic_rate: fields.number("critic_rate", 0.0..=1.0),
        timeout: fields.duration("timeout", Duration::from_millis(100)..=Duration::from_secs(24 * 3600)),
        max_attempts: fields.integer("max_attempts", 1..=100).and_then(|most| most.try_into().ok()),
        prompt: match prompt {
            Some(prompt) => prompt.trim().to_owned(),
            None => fields.required("prompt", "the system prompt"),
        },
    };
    if agent.prompt.is_empty() && !fields.has_fault("prompt") {
        fields.complain("prompt", "there is none after the front matter");
    }
    if let Some(purpose) = purpose {
        misplaced(&agent, purpose, fields);
    }
    agent
}

fn purpose(fields: &mut Fields) -> Option<AgentPurpose> {
    let expected = "one of plan, work, judge, synthesize";
    let text = fields.required("purpose", expected);
    let purpose = match text.as_str() {
        "plan" => AgentPurpose::Plan,
        "work" => AgentPurpose::Work,
        "judge" => AgentPurpose::Judge,
        "synthesize" => AgentPurpose::Synthesize,
        "" => return None, // told already
        other => {
            fields.complain("purpose", &format!("expected {expected}, found {other:?}"));
            return None;
        }
    };
    Some(purpose)
}

/// Fields that would do nothing for this purpose are faults: whoever wrote them expects something of them.
fn misplaced(agent: &Agent, purpose: AgentPurpose, fields: &mut Fields) {
    let is_task = matches!(purpose, AgentPurpose::Work | AgentPurpose::Synthesize);
    let is_judged = purpose == AgentPurpose::Work || agent.name == REDUCER;
    for (name, is_set, is_of_use, who) in [
        ("pool", agent.pool.is_some(), is_task, "work and synthesize"),
        ("output_schema", agent.output_schema.is_some(), is_task, "work and synthesize"),
        ("timeout", agent.timeout.is_some(), is_task, "work and synthesize"),
        ("max_attempts", agent.max_attempts.is_some(), is_task, "work and synthesize"),
        ("rubric", agent.rubric.is_some(), is_judged, "work"),
        ("checks", !agent.checks.is_empty(), is_judged, "work"),
        ("critic_rate", agent.critic_rate.is_some(), is_judged, "work"),
    ] {
        if is_set && !is_of_use {
            fields.complain(name, &format!("only agents with the purpose {who} can have it"));
        }
    }
}

fn output_schema(
    fields: &mut Fields,
    beside: &dyn Fn(&str) -> Result<String, String>,
) -> Option<OutputSchema> {
    const FIELD: &str = "output_schema";
    let schema = match fields.value(FIELD)? {
        toml::Value::String(file) => beside(&file).and_then(|text| {
            serde_json::from_str(&text).map_err(|error| format!("{file} is no JSON: {error}"))
        }),
        table @ toml::Value::Table(_) => serde_json::to_value(table).map_err(|error| error.to_string()),
        _ => Err("expected a JSON schema as a table, or the name of a file with one".to_owned()),
    };
    schema.and_then(OutputSchema::new).map_err(|fault| fields.complain(FIELD, &fault)).ok()
}

fn is_agent_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b))
}

fn split_front_matter(text: &str) -> Option<(String, String)> {
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    if lines.next()?.trim_end() != "+++" {
        return None;
    }
    let mut front = Vec::new();
    loop {
        match lines.next()? {
            line if line.trim_end() == "+++" => break,
            line => front.push(line),
        }
    }
    Some((front.join("\n"), lines.collect::<Vec<_>>().join("\n")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn nothing_beside(file: &str) -> Result<String, String> {
        Err(format!("there is no {file}"))
    }

    fn md(text: &str) -> Result<Agent, Vec<String>> {
        Agent::parse(AgentForm::Markdown, text, &nothing_beside)
    }

    #[test]
    fn a_file_becomes_an_agent() {
        let agent = md(
            "+++\r\nname = \"x-1\"\r\ndescription = \"d\"\r\npurpose = \"work\"\r\ntemperature = 0.5\r\n+++\r\nDo it.\r\n",
        )
        .unwrap();
        assert_eq!(agent.prompt, "Do it.");
        assert_eq!(agent.temperature, Some(0.5));
        assert_eq!(agent.max_tokens, None);
    }

    #[test]
    fn every_field_is_read_in_either_form() {
        let front = "name = \"scout\"\ndescription = \"d\"\npurpose = \"work\"\nmodel = \"judge\"\npool = \"research\"\n\
                     timeout = \"1m30s\"\nmax_attempts = 2\nrubric = \"Names prices.\"\ncritic_rate = 0.25\n\
                     output_schema = \"s.json\"\n";
        let checks = "[checks]\nmin_words = 3\nforbidden = [\"cheap\"]\n";
        let beside = |file: &str| match file {
            "s.json" => Ok("{\"type\": \"object\"}".to_owned()),
            other => nothing_beside(other),
        };
        let markdown = format!("+++\n{front}{checks}+++\nLook.\n");
        let toml = format!("{front}prompt = \"\"\"\nLook.\n\"\"\"\n{checks}");
        let agent = Agent::parse(AgentForm::Markdown, &markdown, &beside).unwrap();
        assert_eq!(Agent::parse(AgentForm::Toml, &toml, &beside).unwrap(), agent);
        assert_eq!(agent.model, Some(ModelChoice::Role(Purpose::Judge)));
        assert_eq!(agent.pool.as_deref(), Some("research"));
        assert_eq!(agent.timeout, Some(Duration::from_secs(90)));
        assert_eq!((agent.max_attempts, agent.critic_rate), (Some(2), Some(0.25)));
        assert_eq!(agent.rubric.as_deref(), Some("Names prices."));
        assert_eq!((agent.checks.min_words, agent.checks.forbidden.len()), (Some(3), 1));
        assert_eq!(agent.output_schema.unwrap().check("{}"), Ok(()));
        let inline = format!(
            "{}[output_schema]\ntype = \"object\"\nrequired = [\"a\"]\n",
            front.replace("output_schema = \"s.json\"\n", "prompt = \"x\"\n")
        );
        let agent = Agent::parse(AgentForm::Toml, &inline, &beside).unwrap();
        assert!(agent.output_schema.unwrap().check("{}").is_err());
    }

    #[test]
    fn every_fault_is_named() {
        let faults = md(
            "+++\nname = \"Bad Name\"\ndescription = \"\"\npurpose = \"work\"\nmax_tokens = 0\ntemperature = 3.0\n\
             pool = \"A b\"\nmodel = \"\"\ntimeout = \"soon\"\nmax_attempts = \"x\"\nrubric = \" \"\ncritic_rate = 2\n\
             output_schema = \"gone.json\"\ntools = [\"browser\"]\n[checks]\nmin_words = 9\nmax_words = 2\nsmell = true\n\
             language = \"xx\"\n+++\n",
        )
        .unwrap_err();
        for part in [
            "name: expected",
            "description: expected",
            "max_tokens: expected",
            "temperature: expected",
            "pool: expected",
            "model: expected",
            "timeout: expected",
            "max_attempts: expected",
            "rubric: expected",
            "critic_rate: expected",
            "output_schema: there is no gone.json",
            "tools: there is no such field",
            "checks.max_words: expected at least the minimum 9",
            "checks.smell: there is no such field",
            "checks.language: expected",
            "prompt: there is none",
        ] {
            assert!(faults.iter().any(|fault| fault.contains(part)), "{part}: {faults:?}");
        }
        assert_eq!(faults.len(), 16, "{faults:?}");
        assert!(md("no front matter").is_err());
        assert!(md("+++\nname = \"x\"\n").is_err(), "the front matter never ends");
    }

    #[test]
    fn what_would_do_nothing_is_a_fault() {
        let critic = "name = \"critic\"\ndescription = \"d\"\npurpose = \"judge\"\nprompt = \"p\"\npool = \"gpu\"\n\
                      rubric = \"r\"\nmodel = \"big-one\"\n[checks]\nmin_words = 1\n";
        let faults = Agent::parse(AgentForm::Toml, critic, &nothing_beside).unwrap_err();
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(
            faults[0].starts_with("pool: only agents with the purpose work and synthesize"),
            "{faults:?}"
        );
    }
}
