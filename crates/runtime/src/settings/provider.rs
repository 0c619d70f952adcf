//! An endpoint: `[model]` itself, and each section of `[providers]`.

use super::reader::Reader;
use secrecy::SecretString;
use starling_llm::{Encoding, ReplayReasoning};
use std::collections::BTreeMap;

/// Where a model is, and how it is asked.
#[derive(Clone, Debug, Default)]
pub struct ProviderSettings {
    /// Its section.
    pub section: String,
    /// Address; `None` is OpenAI's.
    pub base_url: Option<String>,
    /// The key.
    pub api_key: Option<SecretString>,
    /// The model. Empty: to be chosen, which [`Self::newest`] allows.
    pub name: String,
    /// Whether the newest model that the endpoint lists is taken, where none is named.
    pub newest: bool,
    /// The one for plans, if another.
    pub plan: Option<String>,
    /// The one for tasks, if another.
    pub work: Option<String>,
    /// The one for verdicts, if another.
    pub judge: Option<String>,
    /// The one for answers, if another.
    pub synthesize: Option<String>,
    /// What it is asked for (`plan`, `work`, `judge`, `synthesize`); empty: for all.
    pub roles: Vec<String>,
    /// How JSON is asked for at first.
    pub json: JsonAsked,
    /// Whether what a model thought is sent again with the turns that follow.
    pub replay_reasoning: ReplayReasoning,
    /// How its models count tokens; `None`: as their names say.
    pub encoding: Option<Encoding>,
    /// Tokens that a prompt and its reply may have together; `None` if that is not known.
    pub window: Option<i64>,
    /// Fields that are left out of a request.
    pub omit: Vec<String>,
    /// Fields that are put into each request, and win.
    pub extra_body: serde_json::Map<String, serde_json::Value>,
    /// Headers that go with each request.
    pub extra_headers: BTreeMap<String, SecretString>,
}

impl ProviderSettings {
    /// The models for plans, tasks, verdicts and answers, as far as they are named.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        let own = [&self.plan, &self.work, &self.judge, &self.synthesize];
        let named = own.into_iter().map(|own| own.as_deref().unwrap_or(&self.name));
        named.filter(|name| !name.is_empty())
    }

    /// Whether somebody has to ask the endpoint which model it is to be.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.newest && self.name.trim().is_empty()
    }
}

/// How JSON is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonAsked {
    /// By its schema.
    #[default]
    Schema,
    /// As any JSON; the schema is in the prompt.
    Object,
    /// In the prompt alone.
    Prompt,
}

/// The words for what a model is asked for.
const ROLES: [&str; 4] = ["plan", "work", "judge", "synthesize"];

/// Reads the section at `path`. Whether it is `asked` decides whether it has to be complete.
pub(super) fn read(r: &mut Reader, path: &str, asked: bool) -> ProviderSettings {
    let at = |name: &str| format!("{path}.{name}");
    r.text(&at("preset")); // it was taken in already
    let key_variable = r.text(&at("api_key_env"));
    let provider = ProviderSettings {
        section: path.to_owned(),
        base_url: r.http(&at("base_url")),
        api_key: r.secret_or_file(&at("api_key")).map(SecretString::from),
        name: r.text(&at("name")),
        newest: r.choice(&at("newest"), &[("true", true), ("false", false)]),
        plan: r.optional(&at("plan")),
        work: r.optional(&at("work")),
        judge: r.optional(&at("judge")),
        synthesize: r.optional(&at("synthesize")),
        roles: r.list(&at("roles"), "some of plan, work, judge, synthesize", |role| ROLES.contains(&role)),
        json: r.choice(
            &at("json"),
            &[("schema", JsonAsked::Schema), ("object", JsonAsked::Object), ("prompt", JsonAsked::Prompt)],
        ),
        replay_reasoning: r.choice(
            &at("replay_reasoning"),
            &[
                ("never", ReplayReasoning::Never),
                ("with_calls", ReplayReasoning::WithCalls),
                ("always", ReplayReasoning::Always),
            ],
        ),
        encoding: encoding(r, &at("encoding")),
        window: Some(r.integer(&at("window"), 0..=1_000_000_000)).filter(|window: &i64| *window > 0),
        omit: r.list(&at("omit"), "names of fields", |name| !name.is_empty()),
        extra_body: r.object(&at("extra_body")),
        extra_headers: r
            .texts(&at("extra_headers"))
            .into_iter()
            .map(|(name, value)| (name, SecretString::from(value)))
            .collect(),
    };
    if asked && provider.name.trim().is_empty() && !provider.newest && !r.is_faulty(&at("name")) {
        r.complain(&at("name"), "the name of a model", "nothing", "the settings");
    }
    if asked && provider.api_key.is_none() && !key_variable.is_empty() {
        let expected = format!("a key, or one in the environment variable {key_variable}");
        r.complain(&at("api_key"), &expected, "nothing", "the settings");
    }
    provider
}

fn encoding(r: &mut Reader, path: &str) -> Option<Encoding> {
    let named = Encoding::NAMED.map(|(name, encoding)| (name, Some(encoding)));
    let choices: Vec<(&str, Option<Encoding>)> = [("auto", None)].into_iter().chain(named).collect();
    r.choice(path, &choices)
}
