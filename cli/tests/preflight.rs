//! `starling doctor --call-model` against endpoints that take, ignore and refuse parts of the protocol, and what `run` and
//! `doctor` say of an Ollama that nobody has set. No test here looks at its usual port.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use starling::{
    doctor::{Finding, Options, Status, examine},
    session::{Log, Session},
};
use starling_bus::{MemoryBus, MemoryOptions};
use starling_llm::mock::{Abilities, Formats, MockOptions, MockServer, Rehearsal, Streams, Tools};
use starling_runtime::process::CommonFlags;
use std::{
    net::TcpListener,
    process::{Output, Stdio},
    time::Duration,
};
use tokio::{process::Command, time::timeout};

const KEY: &str = "sk-preflight-secret-key";
/// Longer than any command may take.
const PATIENCE: Duration = Duration::from_secs(90);

fn endpoint(models: Option<&[&str]>, abilities: Abilities) -> MockServer {
    let script = abilities.play(Rehearsal::new(0).script().unwrap());
    let models = models.map(|models| models.iter().map(|name| (*name).to_owned()).collect());
    MockServer::start(MockOptions { models, ..MockOptions::new(script) }).unwrap()
}

/// The findings of this name, with these settings and nothing else that matters.
async fn findings(name: &str, call_model: bool, settings: &[(&str, &str)]) -> Vec<Finding> {
    let common = [("fleet.interval", "50ms"), ("model.ollama.nearby", "off"), ("http.listen", "")];
    let set = common.iter().chain(settings).map(|(path, value)| ((*path).to_owned(), (*value).to_owned()));
    let flags = CommonFlags { set: set.collect(), ..CommonFlags::default() };
    let session = Session::open(&flags, Log::Silent).unwrap();
    let bus = MemoryBus::new(MemoryOptions::default());
    let report = examine(&session, Ok(bus.as_ref()), Options { call_model }).await;
    report.checks.into_iter().filter(|finding| finding.name == name).collect()
}

/// What came of each trial.
fn results(finding: &Finding) -> Vec<(&'static str, &'static str)> {
    finding.details.iter().map(|detail| (detail.what, detail.result)).collect()
}

#[tokio::test]
async fn each_model_is_tried_out_and_each_trial_says_what_it_means() {
    let good =
        endpoint(Some(&["small", "large"]), Abilities { tools: Tools::Called, ..Abilities::default() });
    let url = good.base_url();
    let base: [(&str, &str); 3] =
        [("model.base_url", &url), ("model.name", "small"), ("model.plan", "large")];
    let uncalled = findings("preflight", false, &base).await;
    assert!(uncalled.is_empty(), "calls are made only for who asks for them: {uncalled:#?}");

    let [large, small] = findings("preflight", true, &base).await.try_into().unwrap();
    let all = ["json schema", "stream", "stream counts", "tools"].map(|what| (what, "works"));
    assert_eq!(results(&large)[1..], all, "{large:#?}");
    assert_eq!(results(&small), all, "a made-up name is asked for once: {small:#?}");
    assert_eq!((large.status, small.status), (Status::Ok, Status::Ok), "{large:#?}{small:#?}");
    assert!(large.found.contains(&format!("{url}, model large: all works; took 5 calls, ")), "{large:#?}");
    assert_eq!(findings("model", true, &base).await[0].status, Status::Ok);
}

#[tokio::test]
async fn what_an_endpoint_does_not_do_is_a_warning_or_a_fault_with_what_to_do() {
    let formats = |formats| Abilities { formats, ..Abilities::default() };
    let streams = |streams| Abilities { streams, ..Abilities::default() };
    for (abilities, status, result, advice) in [
        (formats(Formats::NoSchema), Status::Warning, ("json schema", "refused"), "model.json = \"object\""),
        (formats(Formats::Refused), Status::Warning, ("json object", "refused"), "model.json = \"prompt\""),
        (formats(Formats::Ignored), Status::Warning, ("json schema", "ignored"), "model.json = \"object\""),
        (streams(Streams::Ignored), Status::Warning, ("stream", "ignored"), ""),
        (streams(Streams::OnePiece), Status::Warning, ("stream", "ignored"), ""),
        (streams(Streams::Refused), Status::Fault, ("stream", "refused"), "--strategy single"),
        (Abilities { tools: Tools::Refused, ..Abilities::default() }, Status::Ok, ("tools", "refused"), ""),
    ] {
        let server = endpoint(Some(&["small"]), abilities);
        let set = [("model.base_url", server.base_url()), ("model.name", "small".to_owned())];
        let set: Vec<(&str, &str)> = set.iter().map(|(path, value)| (*path, value.as_str())).collect();
        let [finding] = findings("preflight", true, &set).await.try_into().unwrap();
        assert_eq!(finding.status, status, "{abilities:?} {finding:#?}");
        assert!(results(&finding).contains(&result), "{abilities:?} {finding:#?}");
        assert!(finding.advice.contains(advice), "{abilities:?} {finding:#?}");
        assert!(finding.details.iter().all(|detail| !detail.found.is_empty() && !detail.means.is_empty()));
    }
}

#[tokio::test]
async fn an_endpoint_that_answers_to_any_name_is_a_warning_and_a_key_is_never_told() {
    let server = endpoint(None, Abilities::default());
    let set = [("model.base_url", server.base_url()), ("model.api_key", KEY.to_owned())];
    let set: Vec<(&str, &str)> = set.iter().map(|(path, value)| (*path, value.as_str())).collect();
    let [finding] = findings("preflight", true, &set).await.try_into().unwrap();
    assert_eq!((finding.status, results(&finding)[0]), (Status::Warning, ("unknown name", "ignored")));
    assert!(finding.details[0].means.contains("would not be noticed"), "{finding:#?}");
    assert!(!serde_json::to_string(&finding).unwrap().contains(KEY), "{finding:#?}");
}

#[tokio::test]
async fn a_model_that_does_not_answer_is_not_tried_out() {
    let server = endpoint(Some(&["small"]), Abilities::default());
    let url = server.base_url();
    let set = [("model.base_url", url.as_str()), ("model.name", "other")];
    assert!(findings("preflight", true, &set).await.is_empty());
    let [finding] = findings("model", true, &set).await.try_into().unwrap();
    assert_eq!(finding.status, Status::Fault, "{finding:#?}");
    assert!(finding.found.contains("model other does not answer"), "{finding:#?}");
}

#[tokio::test]
async fn a_model_that_the_settings_leave_open_is_chosen_or_missed() {
    let server = endpoint(Some(&["llama3.2"]), Abilities::default());
    let url = server.base_url();
    let [finding] = findings("model", false, &[("model.preset", "ollama"), ("model.base_url", &url)])
        .await
        .try_into()
        .unwrap();
    assert_eq!((finding.status, finding.found), (Status::Ok, format!("{url} lists llama3.2")));
    let gone = nobody();
    let [finding] = findings("model", false, &[("model.preset", "ollama"), ("model.base_url", &gone)])
        .await
        .try_into()
        .unwrap();
    assert_eq!(finding.status, Status::Fault, "{finding:#?}");
    assert!(finding.found.contains("no model can be chosen"), "{finding:#?}");

    let near = [("model.ollama.nearby", "tell"), ("model.ollama.base_url", url.as_str())];
    let [finding] = findings("model", true, &near).await.try_into().unwrap();
    assert_eq!(finding.status, Status::Warning, "{finding:#?}");
    assert!(
        finding.found.contains("an Ollama answers") && finding.found.contains("llama3.2"),
        "{finding:#?}"
    );
    assert!(finding.advice.contains("--set model.preset=ollama"), "{finding:#?}");
}

/// An address at which nobody answers.
fn nobody() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("http://127.0.0.1:{port}/v1")
}

/// The program, in an environment without settings.
async fn starling(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_starling"));
    command.env_clear().args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    timeout(PATIENCE, command.kill_on_drop(true).output()).await.expect("it ends").unwrap()
}

#[tokio::test]
async fn a_run_tells_of_an_ollama_and_uses_it_only_when_it_is_told_to() {
    let server = endpoint(Some(&["llama3.2"]), Abilities::default());
    let address = format!("model.ollama.base_url={}", server.base_url());
    let goal = "Three names for a café";
    let run = async |more: &[&str]| {
        let output = starling(&[&["run", goal, "--set", &address], more].concat()).await;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code(), out.into_owned(), err.into_owned())
    };
    let (code, _, said) = run(&[]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("OFFLINE MODEL") && said.contains("An Ollama answers at"), "{said}");
    assert!(said.contains("--set model.preset=ollama"), "{said}");
    assert_eq!(server.stats().calls, 0, "nobody is asked who was not chosen");

    let (_, _, said) = run(&["--set", "model.ollama.nearby=off"]).await;
    assert!(said.contains("OFFLINE MODEL") && !said.contains("Ollama"), "{said}");

    let (code, out, said) = run(&["--json"]).await;
    let outcome: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &outcome["offline"], said.as_str()), (Some(0), &Value::Bool(true), ""));

    let (code, out, said) = run(&["--json", "--set", "model.ollama.nearby=use"]).await;
    let outcome: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &outcome["model"]), (Some(0), &"llama3.2 (mock)".into()), "{outcome} {said}");

    let preset = format!("model.base_url={}", server.base_url());
    let (code, _, said) = run(&["--set", "model.preset=ollama", "--set", &preset]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("model llama3.2, the newest of ") && !said.contains("OFFLINE"), "{said}");

    let gone = format!("model.base_url={}", nobody());
    let (code, out, said) = run(&["--set", "model.preset=ollama", "--set", &gone]).await;
    assert_eq!((code, out.as_str()), (Some(69), ""), "{said}");
    assert!(said.contains("no model can be chosen for [model]"), "{said}");
}
