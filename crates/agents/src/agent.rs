//! One agent, and how its file is read.

use serde::Deserialize;
use starling_llm::Purpose;

/// The longest name of an agent, in bytes.
const MAX_NAME_BYTES: usize = 64;

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
    /// The system prompt.
    pub prompt: String,
}

/// Most tokens of a reply of an agent that does not say so, where tokens or money are bounded: without any, nobody could
/// tell what a call takes.
const UNSAID_REPLY_TOKENS: u32 = 4096;

/// What an agent can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FrontMatter {
    name: String,
    description: String,
    purpose: AgentPurpose,
    max_tokens: Option<u32>,
    temperature: Option<f32>,
}

impl Agent {
    /// Reads an agent's file: a front matter in TOML between two lines `+++`, then the prompt.
    ///
    /// # Errors
    /// Everything that is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        let (front, prompt) = split_front_matter(text).ok_or_else(|| {
            vec!["an agent begins with a front matter: TOML between two lines that say +++".to_owned()]
        })?;
        let front: FrontMatter =
            toml::from_str(&front).map_err(|error| vec![error.to_string().trim_end().to_owned()])?;
        let agent = Agent {
            name: front.name,
            description: front.description.trim().to_owned(),
            purpose: front.purpose,
            max_tokens: front.max_tokens,
            temperature: front.temperature,
            prompt: prompt.trim().to_owned(),
        };
        let faults = agent.faults();
        if faults.is_empty() { Ok(agent) } else { Err(faults) }
    }

    /// Most tokens of a reply, where it must be known.
    #[must_use]
    pub fn reply_tokens(&self) -> u32 {
        self.max_tokens.unwrap_or(UNSAID_REPLY_TOKENS)
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !is_agent_name(&self.name) {
            faults.push(format!(
                "name: expected 1 to {MAX_NAME_BYTES} characters of a-z, 0-9, - and _, found {:?}",
                self.name
            ));
        }
        if self.description.is_empty() {
            faults.push("description: expected a sentence for the planner, found nothing".to_owned());
        }
        if self.max_tokens == Some(0) {
            faults.push("max_tokens: expected at least 1, found 0".to_owned());
        }
        if let Some(temperature) = self.temperature
            && !(0.0..=2.0).contains(&temperature)
        {
            faults.push(format!("temperature: expected 0 to 2, found {temperature}"));
        }
        if self.prompt.is_empty() {
            faults.push("there is no prompt after the front matter".to_owned());
        }
        faults
    }
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

    #[test]
    fn a_file_becomes_an_agent() {
        let agent = Agent::parse(
            "+++\r\nname = \"x-1\"\r\ndescription = \"d\"\r\npurpose = \"work\"\r\ntemperature = 0.5\r\n+++\r\nDo it.\r\n",
        )
        .unwrap();
        assert_eq!(agent.prompt, "Do it.");
        assert_eq!(agent.temperature, Some(0.5));
        assert_eq!(agent.max_tokens, None);
    }

    #[test]
    fn every_fault_is_named() {
        let faults = Agent::parse(
            "+++\nname = \"Bad Name\"\ndescription = \"\"\npurpose = \"work\"\nmax_tokens = 0\ntemperature = 3.0\n+++\n",
        )
        .unwrap_err();
        assert_eq!(faults.len(), 5, "{faults:?}");
        assert!(Agent::parse("no front matter").is_err());
        assert!(Agent::parse("+++\nname = \"x\"\n").is_err(), "the front matter never ends");
        let unknown = Agent::parse(
            "+++\nname = \"x\"\ndescription = \"d\"\npurpose = \"work\"\ntemprature = 1\n+++\np",
        )
        .unwrap_err();
        assert!(unknown[0].contains("temprature"), "{unknown:?}");
    }
}
