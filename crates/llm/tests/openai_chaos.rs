//! Everything bad that an endpoint sends, and what the client makes of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use futures::{StreamExt, future::join_all};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use starling_llm::mock::chaos::{Expected, Form, Kind};
use starling_llm::mock::{Latency, MockOptions, MockServer, NoRehearsal, Rehearsal};
use starling_llm::{
    ChatRequest, Message, Model, ModelError, ModelErrorKind, OpenAiModel, Purpose, Speaker, StreamEvent,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use support::{KEY, json_request, mock, options, request};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const TEXT: &str = "Grüß dich 🦜, the answer is 42 < 43.";
const JSON: &str =
    r#"{"score": 0.5, "feedback": "größer 🦜\n\"quoted\", it's", "list": [1, [2, 3], {}], "ok": true}"#;

const FORMS: [Form; 4] = [
    Form { streams: false, json: false },
    Form { streams: false, json: true },
    Form { streams: true, json: false },
    Form { streams: true, json: true },
];

/// A client that gives up after one try on the network, and takes no more than a megabyte.
fn client(server: &MockServer) -> OpenAiModel {
    let mut options = options(&server.base_url());
    options.max_attempts = 1;
    options.max_response_bytes = 1 << 20;
    OpenAiModel::new(options).unwrap()
}

fn question(form: Form) -> ChatRequest {
    if form.json { json_request("verdict") } else { request(Purpose::Work) }
}

async fn ask(model: &OpenAiModel, form: Form) -> Result<String, ModelError> {
    if !form.streams {
        return model.chat(question(form)).await.map(|reply| reply.text);
    }
    let mut stream = model.stream(question(form)).await?;
    let mut said = String::new();
    while let Some(event) = stream.next().await {
        match event? {
            StreamEvent::Text(text) => said.push_str(&text),
            StreamEvent::Calls(deeds) => panic!("nobody offered tools: {deeds:?}"),
            StreamEvent::Done(_) => return Ok(said),
        }
    }
    panic!("a stream has an end");
}

fn answer(form: Form) -> &'static str {
    if form.json { JSON } else { TEXT }
}

/// Whether it means the same as the answer.
fn is_the_answer(said: &str, form: Form) -> bool {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    if form.json { parsed(said).is_some_and(|said| Some(said) == parsed(JSON)) } else { said == TEXT }
}

#[tokio::test]
async fn every_bad_reply_ends_as_its_kind_says_in_every_form_and_tells_no_secret() {
    for kind in Kind::ALL {
        let server = mock(|call| {
            let form = Form { streams: call.streams, json: call.wants_json() };
            kind.act(call, answer(form), Duration::ZERO)
        });
        let model = client(&server);
        for form in FORMS {
            let said = ask(&model, form).await;
            match (kind.expected(form), &said) {
                (Expected::Answer, Ok(text)) => {
                    assert!(is_the_answer(text, form), "{kind:?} {form:?}: {text}");
                }
                (Expected::Lookalike, Ok(text)) => {
                    assert!(
                        !text.trim().is_empty() && !is_the_answer(text, form),
                        "{kind:?} {form:?}: {text}"
                    );
                }
                (Expected::AskAgain(expected), Err(error)) => {
                    assert_eq!(error.kind, expected, "{kind:?} {form:?}: {error}");
                    assert!(error.kind.is_retryable(), "{kind:?} {form:?}");
                }
                (Expected::GiveUp(expected), Err(error)) => {
                    assert_eq!(error.kind, expected, "{kind:?} {form:?}: {error}");
                    assert!(!error.kind.is_retryable(), "{kind:?} {form:?}");
                }
                (expected, said) => panic!("{kind:?} {form:?}: {said:?} instead of {expected:?}"),
            }
            if let Err(error) = said {
                let told = format!("{error} {error:?} {:?}", error.to_failure());
                assert!(!told.contains(&KEY[..8]), "{kind:?} {form:?}: {told}");
                assert!(told.len() < 4_000, "{kind:?} {form:?}: an error of {} bytes", told.len());
            }
        }
    }
}

#[tokio::test]
async fn a_reply_of_fifty_megabytes_is_never_held() {
    let server = mock(|call| Kind::HugeBody.act(call, TEXT, Duration::ZERO));
    let model = client(&server);
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    for form in FORMS {
        let error = ask(&model, form).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::BadReply);
        assert!(error.message.contains("longer than 1048576 bytes"), "{error}");
    }
    // What other tests of this program need at the same time is in it.
    let taken = ALLOCATOR.peak_usage().saturating_sub(before);
    assert!(taken < 24 << 20, "{taken} bytes for replies of which a megabyte is let in");
}

#[test]
fn the_table_of_bad_replies_that_users_read_is_true() {
    let words = |expected| match expected {
        Expected::Answer => "read",
        Expected::Lookalike => "looks right",
        Expected::AskAgain(_) => "another try",
        Expected::GiveUp(_) => "fails",
    };
    let page = include_str!("../../../docs/rehearsal.md");
    for kind in Kind::ALL {
        let forms = FORMS.map(|form| words(kind.expected(form))).join(" | ");
        let row = format!("| `{}` | {} | {forms} |\n", kind.name(), kind.about());
        assert!(page.contains(&row), "docs/rehearsal.md lacks: {row}");
    }
}

fn rehearse(rehearsal: Rehearsal) -> MockServer {
    MockServer::start(MockOptions::new(rehearsal.script().unwrap())).unwrap()
}

fn about(n: usize) -> ChatRequest {
    let mut request = request(Purpose::Work);
    let text = format!("## Goal\nx\n## Task\nTask {n}\n## Instruction\nSay what you know of {n}.\n");
    request.messages = vec![Message { speaker: Speaker::User, text }];
    request
}

#[tokio::test]
async fn what_goes_wrong_in_a_rehearsal_depends_on_its_seed_and_not_on_the_order_of_calls() {
    let run = async |seed, backwards| {
        let server = rehearse(Rehearsal { slow_by: Duration::ZERO, ..Rehearsal::chaos(seed) });
        let model = client(&server);
        let mut calls: Vec<_> = (0..300).map(|n| model.chat(about(n))).collect();
        if backwards {
            calls.reverse();
        }
        let mut ends: Vec<_> = join_all(calls)
            .await
            .into_iter()
            .map(|end| end.map(|reply| reply.text).map_err(|e| e.kind))
            .collect();
        if backwards {
            ends.reverse();
        }
        (server.marks(), ends)
    };
    let (marks, ends) = run(1, false).await;
    assert_eq!((marks.clone(), ends), run(1, true).await);
    assert_ne!(marks, run(2, false).await.0);
    let sum: u64 = marks.values().sum();
    assert!((60..=120).contains(&sum), "30 of 100 go wrong: {marks:?}");
    for mark in ["status_5xx", "cut", "slow"] {
        assert!(marks.contains_key(mark), "{mark}: {marks:?}");
    }
    assert!(marks.len() > 10, "of many kinds: {marks:?}");
}

#[tokio::test]
async fn another_try_has_another_chance() {
    let server = rehearse(Rehearsal { status_5xx: 0.5, ..Rehearsal::new(5) });
    let mut patient = options(&server.base_url());
    patient.max_attempts = 20;
    let model = OpenAiModel::new(patient).unwrap();
    for n in 0..20 {
        assert!(model.chat(about(n)).await.unwrap().text.contains("not an LLM"));
    }
    assert!(server.marks()["status_5xx"] > 0);
}

#[tokio::test]
async fn replies_are_cut_or_trickle_whole_or_streamed() {
    let good = rehearse(Rehearsal::new(0));
    for form in FORMS {
        let answer = ask(&client(&good), form).await.unwrap();
        let mut cut = 0;
        for seed in 0..20 {
            let server = rehearse(Rehearsal { cut: 1.0, ..Rehearsal::new(seed) });
            match ask(&client(&server), form).await {
                // Cut behind the answer, where only counts are lost.
                Ok(said) => assert!(form.streams && said == answer, "{form:?}: {said}"),
                Err(error) => {
                    assert_eq!(error.kind, ModelErrorKind::Server, "{form:?}: {error}");
                    cut += 1;
                }
            }
        }
        assert!(cut > 5, "{form:?}: {cut}");
    }
    let slow_by = Duration::from_millis(200);
    let server = rehearse(Rehearsal { slow: 1.0, slow_by, ..Rehearsal::new(0) });
    for form in FORMS {
        let start = Instant::now();
        ask(&client(&server), form).await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(180), "{form:?}: {:?}", start.elapsed());
    }
    let latency = Latency::Uniform(Duration::from_millis(50), Duration::from_millis(60));
    let server = rehearse(Rehearsal { latency, ..Rehearsal::new(0) });
    let start = Instant::now();
    ask(&client(&server), FORMS[0]).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(50));
}

#[test]
fn shares_that_make_no_rehearsal_are_refused() {
    let script = |rehearsal: Rehearsal| rehearsal.script().err();
    assert_eq!(script(Rehearsal { cut: -0.1, ..Rehearsal::new(0) }), Some(NoRehearsal::Share(-0.1)));
    assert_eq!(
        script(Rehearsal { cut: 0.75, slow: 0.5, ..Rehearsal::new(0) }),
        Some(NoRehearsal::TooMuch(1.25))
    );
    let tenth = Rehearsal { status_5xx: 0.7, cut: 0.1, slow: 0.1, malformed: 0.1, ..Rehearsal::new(0) };
    assert_eq!(script(tenth), None);
}

#[tokio::test]
async fn a_rehearsal_says_that_it_is_one_and_knows_its_models() {
    let script = Rehearsal::new(0).script().unwrap();
    let models = Some(vec!["small".to_owned(), "large".to_owned()]);
    let server = MockServer::start(MockOptions { models, ..MockOptions::new(script) }).unwrap();
    let model = OpenAiModel::new(options(&server.base_url())).unwrap();
    assert_eq!(model.models().await.unwrap(), Some(vec!["small".to_owned(), "large".to_owned()]));
    assert_eq!(model.chat(about(1)).await.unwrap().report.model, "small (mock)");
    let mut other = options(&server.base_url());
    other.models.default = "huge".to_owned();
    let other = OpenAiModel::new(other).unwrap();
    assert_eq!(other.chat(about(1)).await.unwrap_err().kind, ModelErrorKind::UnknownModel);
    assert_eq!(server.stats().calls, 1, "an unknown model is asked nothing");

    let any = rehearse(Rehearsal::new(0));
    let model = OpenAiModel::new(options(&any.base_url())).unwrap();
    assert_eq!(model.models().await.unwrap(), None);
}

#[tokio::test]
async fn a_rehearsal_answers_what_was_asked_and_not_what_is_said_about_its_last_reply() {
    let server = rehearse(Rehearsal::new(0));
    let model = client(&server);
    let mut plan = json_request("plan");
    plan.messages.push(Message {
        speaker: Speaker::User,
        text: "## Goal\nFind names for a café\n## Limits\nmax_tasks: 3\n## Agents\n- worker: does tasks\n"
            .to_owned(),
    });
    plan.messages.push(Message::assistant("{"));
    plan.messages.push(Message { speaker: Speaker::User, text: "That was no JSON.".to_owned() });
    let reply: Value = serde_json::from_str(&model.chat(plan).await.unwrap().text).unwrap();
    assert!(reply["tasks"][0]["title"].is_string(), "{reply}");
    let mut empty = request(Purpose::Work);
    empty.messages = vec![Message { speaker: Speaker::User, text: String::new() }];
    assert_eq!(model.chat(empty).await.unwrap().text, "Nothing was asked.");
    let other: Value = serde_json::from_str(&model.chat(json_request("other")).await.unwrap().text).unwrap();
    assert_eq!(other, json!({"score": null}), "somebody else's schema is kept to");
}

#[tokio::test]
async fn the_stats_tell_what_is_open_and_what_was_done() {
    let server = rehearse(Rehearsal {
        malformed: 0.5,
        kinds: vec![Kind::Html],
        latency: Latency::Fixed(Duration::from_secs(3600)),
        ..Rehearsal::new(3)
    });
    let model = client(&server);
    let calls: Vec<_> = (0..20)
        .map(|n| {
            let model = model.clone();
            tokio::spawn(async move { model.chat(about(n)).await })
        })
        .collect();
    support::eventually("all are open", || server.stats().open == 20).await;
    let control = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let url = server.base_url().replace("/v1", "/_mock/stats");
    let told: Value = control.get(url).send().await.unwrap().json().await.unwrap();
    assert_eq!((&told["calls"], &told["open_by_purpose"]["work"]), (&json!(20), &json!(20)));
    let open = told["open_calls"].as_array().unwrap();
    assert_eq!(open.len(), 20);
    assert!(open.iter().all(|call| call["purpose"] == "work" && call["open_ms"].is_u64()));
    let marks: BTreeMap<String, u64> = serde_json::from_value(told["marks"].clone()).unwrap();
    assert_eq!(marks.keys().collect::<Vec<_>>(), ["html"]);
    assert!((1..20).contains(&marks["html"]));
    calls.iter().for_each(|call| call.abort());
}
