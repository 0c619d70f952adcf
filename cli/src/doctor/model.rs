//! Does the model answer, does it take the key, does it know the names?

use super::{
    finding::{Finding, Remark, Status},
    preflight::{self, Tried},
};
use futures::future::join_all;
use starling_llm::{
    ChatRequest, Format, Message, Model, ModelError, ModelErrorKind, PreflightOptions, Purpose, Purposes,
    Reuse, Speaker,
};
use starling_protocol::{CallReport, Priority};
use starling_runtime::settings::{ModelSettings, ProviderSettings};
use starling_service::{choose_models, model_from, ollama_nearby};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

pub(super) const NAME: &str = "model";

/// How long a call of one token may take.
const CALL: Duration = Duration::from_secs(12);

/// How long one trial of an endpoint may take, and all of an endpoint together.
const TRIAL: Duration = Duration::from_secs(30);
const ALL_TRIALS: Duration = Duration::from_secs(120);

/// Most tokens of a reply in a trial.
const TRIAL_TOKENS: u32 = 256;

/// What an endpoint told.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) endpoint: String,
    /// Where its settings are.
    pub(super) section: String,
    /// The models that the settings name.
    pub(super) wanted: Vec<String>,
    /// Those that the endpoint lists, if it does.
    pub(super) listed: Result<Option<Vec<String>>, (ModelErrorKind, String)>,
    /// What came of asking for a token, if they were asked.
    pub(super) called: BTreeMap<String, Result<CallReport, (ModelErrorKind, String)>>,
    /// Those that have answered, tried out.
    pub(super) tried: Vec<Tried>,
}

/// The finding about all models, then one for each that was called.
pub(super) async fn check(settings: &ModelSettings, call: bool) -> Vec<Finding> {
    let mut settings = settings.clone();
    let left_out = match choose_models(&mut settings).await {
        Ok(choices) => choices.left_out,
        Err(error) => {
            let advice = format!("start the server, or correct {}.base_url", error.section);
            return vec![Finding::of(NAME, Remark::fault(error.to_string(), advice))];
        }
    };
    if settings.is_offline() {
        return vec![Finding::of(NAME, offline(&settings).await)];
    }
    let mut told = join_all(settings.providers().map(|provider| tell(&settings, provider, call))).await;
    let of_models = told.iter().flatten();
    let preflights: Vec<Finding> = of_models
        .flat_map(|told| {
            told.tried.iter().map(|tried| preflight::judge(&told.endpoint, &told.section, tried))
        })
        .collect();
    told.extend(left_out.into_iter().map(|error| {
        Err(Remark::warning(error.to_string(), "nobody stands in as long as that is so: start the server"))
    }));
    std::iter::once(judge(&told)).chain(preflights).collect()
}

/// What there is to say about the offline model: that it is none, and what else there is.
async fn offline(settings: &ModelSettings) -> Remark {
    let found = "the offline model answers, which is a program and no LLM";
    match ollama_nearby(settings).await {
        Some(ollama) => Remark::warning(
            format!(
                "{found}; an Ollama answers at {} and has {}",
                ollama.chosen.endpoint, ollama.chosen.model
            ),
            format!("{} has it used", ollama.flags()),
        ),
        None => Remark::warning(found, "set OPENAI_API_KEY, and OPENAI_BASE_URL for a server of your own"),
    }
}

async fn tell(settings: &ModelSettings, provider: &ProviderSettings, call: bool) -> Result<Told, Remark> {
    let settings = ModelSettings { provider: provider.clone(), fallbacks: Vec::new(), ..settings.clone() };
    let model = match model_from(&settings).map(|asked| asked.model) {
        Ok(model) => model,
        Err(error) => {
            let advice = format!("correct the settings of [{}]", provider.section);
            return Err(Remark::fault(error.to_string(), advice));
        }
    };
    let uses = uses(provider);
    let told = |error: ModelError| (error.kind, error.message);
    let listed = model.models().await.map_err(told);
    let unreachable = matches!(listed, Err((ModelErrorKind::Unreachable, _)));
    let called: BTreeMap<_, _> = if call && !unreachable {
        let calls = uses.iter().map(|(name, uses)| {
            let model = model.as_ref();
            async move { (name.clone(), ask(model, one_of(*uses)).await.map_err(told)) }
        });
        join_all(calls).await.into_iter().collect()
    } else {
        BTreeMap::new()
    };
    let tried = try_out(model.as_ref(), &uses, &called).await;
    let wanted = uses.into_keys().collect();
    let endpoint = model.info().endpoint;
    Ok(Told { endpoint, section: provider.section.clone(), wanted, listed, called, tried })
}

/// Tries out the models that have answered, one after the other: small servers have one at a time in memory.
async fn try_out(
    model: &dyn Model,
    uses: &BTreeMap<String, Purposes>,
    called: &BTreeMap<String, Result<CallReport, (ModelErrorKind, String)>>,
) -> Vec<Tried> {
    let deadline = Instant::now() + ALL_TRIALS;
    let mut tried: Vec<Tried> = Vec::new();
    for (name, uses) in uses {
        let Some(Ok(plain)) = called.get(name) else { continue };
        let options = PreflightOptions {
            purpose: one_of(*uses),
            unknown_name: tried.is_empty(),
            trial_timeout: TRIAL,
            deadline,
            max_tokens: TRIAL_TOKENS,
        };
        if let Some(preflight) = model.preflight(options).await {
            let report = preflight.report.after(plain);
            tried.push(Tried { model: name.clone(), uses: *uses, trials: preflight.trials, report });
        }
    }
    tried
}

/// Each model that is asked for something, with what that is.
fn uses(provider: &ProviderSettings) -> BTreeMap<String, Purposes> {
    let asked = |purpose: Purpose| {
        provider.roles.is_empty() || provider.roles.iter().any(|role| role == purpose.name())
    };
    let named = [
        (&provider.plan, Purpose::Plan),
        (&provider.work, Purpose::Work),
        (&provider.judge, Purpose::Judge),
        (&provider.synthesize, Purpose::Synthesize),
    ];
    let mut uses: BTreeMap<String, Purposes> = BTreeMap::new();
    for (name, purpose) in named.into_iter().filter(|(_, purpose)| asked(*purpose)) {
        let name = name.clone().unwrap_or_else(|| provider.name.clone());
        let so_far = uses.entry(name).or_default();
        *so_far = so_far.or([purpose].into_iter().collect());
    }
    uses
}

/// Something that the model is used for; a model is there because it is used.
fn one_of(uses: Purposes) -> Purpose {
    Purpose::ALL.into_iter().find(|purpose| uses.contains(*purpose)).unwrap_or(Purpose::Work)
}

async fn ask(model: &dyn Model, purpose: Purpose) -> Result<CallReport, ModelError> {
    let request = ChatRequest {
        purpose,
        messages: vec![Message { speaker: Speaker::User, text: "Say yes.".to_owned() }],
        tools: Vec::new(),
        format: Format::Text,
        max_tokens: Some(1),
        temperature: None,
        deadline: Instant::now() + CALL,
        traceparent: None,
        allowance: None,
        reuse: Reuse::Refused,
        priority: Priority::default(),
        model: None,
    };
    match model.chat(request).await {
        Ok(reply) => Ok(reply.report),
        // A reply that is cut off after its only token is a reply.
        Err(ModelError { kind: ModelErrorKind::BadReply, report, .. }) => Ok(report),
        Err(error) => Err(error),
    }
}

/// One finding about all endpoints that the settings name, in the order in which they are asked.
pub(super) fn judge(told: &[Result<Told, Remark>]) -> Finding {
    let mut found = Vec::new();
    let mut remarks = Vec::new();
    for told in told {
        match told {
            Ok(told) => {
                let (fine, of_this) = look(told);
                found.push(fine);
                remarks.extend(of_this);
            }
            Err(remark) => remarks.push(remark.clone()),
        }
    }
    Finding::from_remarks(NAME, found.join("; "), remarks)
}

/// What an endpoint does, and what is wrong with that.
fn look(told: &Told) -> (String, Vec<Remark>) {
    let mut remarks = Vec::new();
    let Told { endpoint, section, wanted, listed, called, .. } = told;
    let answered = |name: &String| called.get(name).is_some_and(Result::is_ok);
    let ask = "starling doctor --call-model asks for one token";
    // The well-known variables are for the first endpoint.
    let or = |variable: &str| if section == "model" { format!(" ({variable})") } else { String::new() };
    match listed {
        Err((kind, message)) if !wanted.iter().any(answered) => {
            let (status, advice) = match kind {
                ModelErrorKind::Unreachable => (
                    Status::Fault,
                    format!("start the server, or correct {section}.base_url{}", or("OPENAI_BASE_URL")),
                ),
                ModelErrorKind::Unauthorized => (
                    Status::Fault,
                    format!("set {section}.api_key_file{} to a key of this endpoint", or("OPENAI_API_KEY")),
                ),
                _ => (Status::Warning, ask.to_owned()),
            };
            remarks.push(Remark { status, found: format!("{endpoint}: {message}"), advice });
        }
        Ok(None) if called.is_empty() => {
            let found = format!(
                "{endpoint} answers, but lists no models: whether it takes the key and knows {} is not known",
                wanted.join(", ")
            );
            remarks.push(Remark::warning(found, ask));
        }
        Ok(Some(listed)) => {
            let unlisted: Vec<&str> = wanted
                .iter()
                .filter(|name| !listed.contains(name) && !called.contains_key(*name))
                .map(String::as_str)
                .collect();
            if !unlisted.is_empty() {
                let found = format!("{endpoint} does not list {}", unlisted.join(", "));
                remarks.push(Remark::warning(
                    found,
                    format!("correct {section}.name, or see whether it answers all the same: {ask}"),
                ));
            }
        }
        Ok(None) | Err(_) => {}
    }
    for (name, result) in called {
        if let Err((kind, message)) = result {
            let passing = matches!(kind, ModelErrorKind::RateLimited | ModelErrorKind::Deadline);
            let status = if passing { Status::Warning } else { Status::Fault };
            let found = format!("{endpoint}: model {name} does not answer: {message}");
            let advice = format!("correct {section}.name, the key or the endpoint");
            remarks.push(Remark { status, found, advice });
        }
    }
    let how = match (listed, called.is_empty()) {
        (_, false) => "answers",
        (Ok(Some(_)), true) => "lists",
        _ => "is asked for",
    };
    (format!("{endpoint} {how} {}", wanted.join(", ")), remarks)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;
    use starling_runtime::settings::Nearby;

    #[test]
    fn endpoints_are_judged_by_what_they_tell() {
        use ModelErrorKind as Kind;
        let error = |kind| Err((kind, "why".to_owned()));
        let list = |names: &[&str]| Ok(Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()));
        for (listed, called, status, found) in [
            (list(&["m", "n"]), None, Status::Ok, "http://e lists m"),
            (list(&["n"]), None, Status::Warning, "does not list m"),
            (list(&["n"]), Some(Ok(())), Status::Ok, "http://e answers m"),
            (list(&["m"]), Some(error(Kind::UnknownModel)), Status::Fault, "model m does not answer: why"),
            (list(&["m"]), Some(error(Kind::RateLimited)), Status::Warning, "model m does not answer: why"),
            (Ok(None), None, Status::Warning, "is not known"),
            (Ok(None), Some(Ok(())), Status::Ok, "http://e answers m"),
            (error(Kind::Unreachable).map(|()| None), None, Status::Fault, "http://e: why"),
            (error(Kind::Unauthorized).map(|()| None), None, Status::Fault, "http://e: why"),
            (error(Kind::Server).map(|()| None), None, Status::Warning, "http://e: why"),
            (error(Kind::Server).map(|()| None), Some(Ok(())), Status::Ok, "http://e answers m"),
        ] {
            let called = called.map(|result: Result<(), _>| result.map(|()| CallReport::default()));
            let called = called.map(|result| ("m".to_owned(), result)).into_iter().collect();
            let (endpoint, section) = ("http://e".to_owned(), "model".to_owned());
            let tried = Vec::new();
            let told = Told { endpoint, section, wanted: vec!["m".into()], listed, called, tried };
            let finding = judge(&[Ok(told.clone())]);
            assert_eq!(finding.status, status, "{told:?} {finding:?}");
            assert!(finding.found.contains(found), "{told:?} {finding:?}");
            assert_eq!(finding.advice.is_empty(), status == Status::Ok, "{finding:?}");
        }
    }

    #[test]
    fn a_model_is_asked_for_what_it_is_used_for() {
        let provider = |roles: &[&str], judge: Option<&str>| ProviderSettings {
            name: "m".to_owned(),
            judge: judge.map(str::to_owned),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            ..ProviderSettings::default()
        };
        let set = |purposes: &[Purpose]| purposes.iter().copied().collect::<Purposes>();
        use Purpose::{Judge, Plan, Synthesize, Work};
        for (provider, expected) in [
            (provider(&[], None), vec![("m", Purposes::ALL)]),
            (provider(&[], Some("j")), vec![("j", set(&[Judge])), ("m", set(&[Plan, Work, Synthesize]))]),
            (provider(&["work", "judge"], Some("j")), vec![("j", set(&[Judge])), ("m", set(&[Work]))]),
            (provider(&["judge"], Some("j")), vec![("j", set(&[Judge]))]),
        ] {
            let expected = expected.into_iter().map(|(name, uses)| (name.to_owned(), uses)).collect();
            assert_eq!(uses(&provider), expected, "{provider:?}");
        }
    }

    #[tokio::test]
    async fn the_offline_model_is_named_as_what_it_is() {
        let settings = starling_runtime::Settings::defaults().map(|settings| settings.model);
        let Ok(mut settings) = settings else { return };
        settings.provider.api_key = None;
        settings.ollama.nearby = Nearby::Off;
        let findings = check(&settings, true).await;
        let [finding] = findings.as_slice() else { panic!("{findings:?}") };
        assert_eq!(finding.status, Status::Warning);
        assert!(finding.found.contains("no LLM"), "{finding:?}");
    }
}
