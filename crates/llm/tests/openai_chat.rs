//! Whole replies of an OpenAI-compatible endpoint, good and bad.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "openai_chat/conversations.rs"]
mod conversations;
mod support;

use futures::{StreamExt as _, future::BoxFuture};
use serde_json::json;
use starling_llm::mock::{MockAction, scripts};
use starling_llm::{
    Ask, ChatRequest, Encoding, FailedAttempts, Format, Hedge, HedgedModel, JsonCheck, JsonForm, Leave,
    Limiter, Link, Model, ModelChain, ModelChoice, ModelErrorKind as Kind, NotSent, OpenAiModel,
    OpenAiOptions, Price, Purpose, Purposes, Speaker, StreamEvent,
};
use starling_protocol::{Allowance, Usage};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{KEY, eventually, forgetful_server, json_request, mock, model, options, raw_server, request};
use tokio::time::Instant;

#[tokio::test]
async fn a_reply_is_counted_priced_and_asked_for_as_set() {
    let seen = Arc::new(Mutex::new(vec![]));
    let log = Arc::clone(&seen);
    let server = mock(move |call| {
        let auth = call.header("authorization").unwrap_or_default().to_owned();
        let trace = call.header("traceparent").unwrap_or_default().to_owned();
        log.lock().unwrap().push((auth, trace, call.body.clone()));
        MockAction::Reply {
            text: "hello".to_owned(),
            usage: Some(Usage { prompt_tokens: 1000, completion_tokens: 100, cached_tokens: 400 }),
            delay: None,
        }
    });
    let mut options = options(&server.base_url());
    options.models.critic = Some("sharp".to_owned());
    options.prices.insert("sharp".to_owned(), Price { input: 1.0, cached_input: 0.25, output: 10.0 });
    options.extra_body.insert("seed".to_owned(), json!(7));
    let model = OpenAiModel::new(options).unwrap();
    let reply = model.chat(request(Purpose::Judge)).await.unwrap();
    assert_eq!(reply.text, "hello");
    assert_eq!(reply.report.model, "sharp");
    assert_eq!(reply.report.calls, 1);
    assert_eq!(reply.report.usage.prompt_tokens, 1000);
    assert_eq!(reply.report.usage.cached_tokens, 400);
    assert!((reply.report.cost_usd - 0.0017).abs() < 1e-9, "{}", reply.report.cost_usd);
    assert_eq!(reply.report.unpriced_calls, 0);
    let reply = model.chat(request(Purpose::Work)).await.unwrap();
    assert_eq!((reply.report.model.as_str(), reply.report.cost_usd), ("small", 0.0));
    assert_eq!(reply.report.unpriced_calls, 1, "it is not known what it cost");

    let seen = seen.lock().unwrap();
    let (auth, trace, body) = &seen[0];
    assert_eq!(auth, &format!("Bearer {KEY}"));
    assert!(trace.starts_with("00-"));
    assert_eq!(body["seed"], 7);
    assert_eq!(body["temperature"], json!(0.2));
    assert_eq!(body["max_tokens"], 50);
    assert_eq!(body["messages"][0]["role"], "system");
    assert!(body.get("stream").is_none());
}

#[tokio::test]
async fn too_many_requests_are_repeated_after_the_time_that_the_server_asks_for() {
    let server = mock(|call| match call.number {
        1 => MockAction::Status {
            code: 429,
            headers: vec![("retry-after".to_owned(), "0.3".to_owned())],
            body: "{}".to_owned(),
        },
        2 => MockAction::error(503, "loading"),
        _ => MockAction::reply("ok"),
    });
    let start = Instant::now();
    let model = model(&server.base_url());
    let reply = model.chat(request(Purpose::Work)).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(reply.report.calls, 3);
    assert!(reply.report.latency_ms >= 300);
    // The reply hides them; whoever watches the endpoint sees them.
    let mut failed = model.failed_attempts();
    failed.retain(|failed| failed.count > 0);
    let of = |kind| FailedAttempts { model: reply.report.model.clone(), kind, count: 1 };
    assert_eq!(failed, [of(Kind::RateLimited), of(Kind::Server)]);
}

#[tokio::test]
async fn attempts_and_deadline_are_limits() {
    let server = mock(|_| MockAction::error(500, "broken"));
    let error = model(&server.base_url()).chat(request(Purpose::Work)).await.unwrap_err();
    assert_eq!((error.kind, error.report.calls), (Kind::Server, 4));

    // A wait beyond the deadline is not begun.
    let server = mock(|_| MockAction::Status {
        code: 429,
        headers: vec![("retry-after".to_owned(), "3600".to_owned())],
        body: String::new(),
    });
    let start = Instant::now();
    let error = model(&server.base_url()).chat(request(Purpose::Work)).await.unwrap_err();
    assert_eq!((error.kind, error.report.calls), (Kind::RateLimited, 1));
    assert!(start.elapsed() < Duration::from_secs(5));

    // A server that does not answer.
    let server = mock(|_| MockAction::hold_then_reply("late"));
    let mut hurried = request(Purpose::Work);
    hurried.deadline = Instant::now() + Duration::from_millis(150);
    let error = model(&server.base_url()).chat(hurried).await.unwrap_err();
    assert_eq!((error.kind, error.report.calls), (Kind::Deadline, 1));
    let mut impatient = options(&server.base_url());
    impatient.call_timeout = Duration::from_millis(50);
    impatient.max_attempts = 2;
    let model = OpenAiModel::new(impatient).unwrap();
    let error = model.chat(request(Purpose::Work)).await.unwrap_err();
    assert_eq!((error.kind, error.report.calls), (Kind::Server, 2));
    eventually("given up calls are closed", || server.stats().closed_by_client == 3).await;
}

#[tokio::test]
async fn calls_beyond_the_limit_wait_until_the_deadline() {
    let server = mock(|_| MockAction::hold_then_reply("ok"));
    let mut narrow = options(&server.base_url());
    narrow.max_in_flight = 1;
    let model = OpenAiModel::new(narrow).unwrap();
    let first = {
        let model = model.clone();
        tokio::spawn(async move { model.chat(request(Purpose::Work)).await })
    };
    eventually("the first call is open", || server.stats().open == 1).await;
    let mut second = request(Purpose::Work);
    second.deadline = Instant::now() + Duration::from_millis(50);
    let error = model.chat(second).await.unwrap_err();
    assert_eq!((error.kind, error.report.calls), (Kind::Deadline, 0));
    server.release();
    assert_eq!(first.await.unwrap().unwrap().text, "ok");
    assert_eq!(server.stats().max_open, 1);
    server.release_for_good();
    assert_eq!(model.chat(request(Purpose::Work)).await.unwrap().text, "ok");
}

#[tokio::test]
async fn json_is_asked_for_in_the_form_that_the_endpoint_takes_and_that_is_remembered() {
    let server = mock(|call| match call.body.pointer("/response_format/type").and_then(|t| t.as_str()) {
        Some("json_schema") => MockAction::error(400, "response_format json_schema is not supported"),
        Some("json_object") => MockAction::error(422, "Unknown field: response_format"),
        _ => {
            let system = call.body.pointer("/messages/0/content").unwrap().as_str().unwrap();
            assert!(system.starts_with("You are terse.") && system.contains("\"required\":[\"score\"]"));
            MockAction::reply("Sure:\n```json\n{\"score\": 0.5}\n```")
        }
    });
    let model = model(&server.base_url());
    let reply = model.chat(json_request("verdict")).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.report.calls), ("{\"score\": 0.5}", 3));
    let reply = model.chat(json_request("verdict")).await.unwrap();
    assert_eq!(reply.report.calls, 1, "remembered");
}

#[tokio::test]
async fn a_schema_is_sent_where_it_is_understood() {
    let server = mock(|call| {
        assert_eq!(call.body.pointer("/response_format/json_schema/name").unwrap(), "verdict");
        assert_eq!(call.purpose, Purpose::Judge);
        MockAction::reply("<think>{hm}</think>{\"score\":1}")
    });
    let reply = model(&server.base_url()).chat(json_request("verdict")).await.unwrap();
    assert_eq!(reply.text, "{\"score\":1}");
}

#[tokio::test]
async fn bad_replies_are_typed() {
    let body = |text: &str| MockAction::RawBody {
        content_type: "application/json".to_owned(),
        body: text.as_bytes().to_vec(),
    };
    let cut = r#"{"choices":[{"message":{"content":"{\"score\":"},"finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":6}}"#;
    let table = [
        (body(r#"{"choices":[]}"#), Kind::BadReply, "no choices"),
        (MockAction::reply("{\"score\":7}"), Kind::BadReply, "not what was asked for: 7 is no score"),
        (body(r#"{"choices":[{"message":{"content":""}}]}"#), Kind::BadReply, "empty"),
        (body("<html>"), Kind::BadReply, "no chat completion"),
        (body(cut), Kind::BadReply, "cut off at max_tokens"),
        (body(&"[".repeat(100_000)), Kind::BadReply, "no chat completion"),
        (MockAction::reply("[".repeat(100_000)), Kind::BadReply, "no JSON"),
        (MockAction::reply("{\"a\":".repeat(100_000)), Kind::BadReply, "nested deeper"),
        (MockAction::error(400, "maximum context length is 10"), Kind::ContextTooLong, "too long"),
        (MockAction::error(404, "model small not found"), Kind::UnknownModel, "asked for small"),
        (MockAction::error(404, "page not found"), Kind::BadRequest, "/v1"),
        (MockAction::error(400, "messages missing"), Kind::BadRequest, "messages missing"),
    ];
    for (action, kind, words) in table {
        let server = mock(move |_| action.clone());
        let model = model(&server.base_url());
        let error = model.chat(checked("verdict")).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.to_string().contains(words), "{words}: {error}");
        let calls = if kind == Kind::BadReply { 2 } else { 1 };
        assert_eq!(error.report.calls, calls, "{error}");
        if words.contains("cut off") {
            assert_eq!(error.report.usage.completion_tokens, 12, "spent all the same");
        }
    }
}

fn checked(name: &str) -> ChatRequest {
    let mut request = json_request(name);
    let Format::Json { check, .. } = &mut request.format else { unreachable!() };
    let no_seven = |json: &str| if json.contains('7') { Err("7 is no score.".to_owned()) } else { Ok(()) };
    *check = Some(JsonCheck::new(no_seven));
    request
}

#[tokio::test]
async fn a_model_is_told_once_what_was_wrong_with_its_reply() {
    let seen = Arc::new(Mutex::new(vec![]));
    let log = Arc::clone(&seen);
    let server = mock(move |call| {
        log.lock().unwrap().push(call.body["messages"].clone());
        match call.number {
            1 => MockAction::reply("I give it a {score: high}!"),
            3 => MockAction::reply("{\"score\": 7}"),
            5 => MockAction::reply(""),
            _ => MockAction::reply("{\"score\": 1}"),
        }
    });
    let model = model(&server.base_url());
    for _ in 0..3 {
        let reply = model.chat(checked("verdict")).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.report.calls), ("{\"score\": 1}", 2));
    }
    let seen = seen.lock().unwrap();
    let turns = |at: usize| seen[at].as_array().unwrap().clone();
    assert_eq!(turns(1)[..2], turns(0)[..], "the question is the same");
    assert_eq!(turns(1)[2]["role"], "assistant");
    assert_eq!(turns(1)[2]["content"], "I give it a {score: high}!");
    assert!(turns(1)[3]["content"].as_str().unwrap().contains("malformed"), "{:?}", turns(1));
    assert!(turns(3)[3]["content"].as_str().unwrap().contains("7 is no score."), "{:?}", turns(3));
    assert_eq!(turns(5), turns(4), "there is nothing to tell of a reply that is empty");
}

#[tokio::test]
async fn where_a_model_does_not_answer_the_next_one_is_asked() {
    let broken = mock(|call| match call.streams {
        true => MockAction::error(401, "who are you?"),
        false => MockAction::error(500, "broken"),
    });
    let sound = mock(|_| MockAction::reply("sound"));
    let link = |base_url: &str, purposes: Purposes| {
        let mut options = options(base_url);
        options.prices.insert("small".to_owned(), Price { input: 1e6, cached_input: 1e6, output: 0.0 });
        options.max_attempts = 2;
        Link { model: Arc::new(OpenAiModel::new(options).unwrap()), purposes }
    };
    let judges: Purposes = [Purpose::Judge, Purpose::Plan].into_iter().collect();
    let first = link(&broken.base_url(), Purposes::ALL);
    let chain = ModelChain::new(first, vec![link(&sound.base_url(), judges)]);
    let reply = chain.chat(request(Purpose::Judge)).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.report.calls), ("sound", 3), "two tries, and the next one");
    assert!((reply.report.cost_usd - 3.0).abs() < 1e-9, "what is paid: {:?}", reply.report);
    let mut texts = chain.stream(request(Purpose::Plan)).await.unwrap();
    let mut events = vec![];
    while let Some(event) = texts.next().await {
        events.push(event.unwrap());
    }
    assert_eq!(events[0], StreamEvent::Text("sound".to_owned()));
    assert!(matches!(&events[1], StreamEvent::Done(report) if report.calls == 2), "{events:?}");
    // For others nobody stands in.
    let error = chain.chat(request(Purpose::Work)).await.unwrap_err();
    assert_eq!((error.kind, error.report.calls), (Kind::Server, 2));
    assert_eq!(chain.info().endpoint, broken.base_url());
    assert_eq!(sound.stats().calls, 2);
    // When time is over, it is over for all.
    let slow = mock(|_| MockAction::hold_then_reply("late"));
    let both =
        ModelChain::new(link(&slow.base_url(), Purposes::ALL), vec![link(&sound.base_url(), Purposes::ALL)]);
    let mut hurried = request(Purpose::Work);
    hurried.deadline = Instant::now() + Duration::from_millis(100);
    assert_eq!(both.chat(hurried).await.unwrap_err().kind, Kind::Deadline);
    assert_eq!(sound.stats().calls, 2);
}

#[tokio::test]
async fn an_agents_own_model_is_asked_and_those_that_stand_in_have_theirs() {
    let asked = Arc::new(Mutex::new(vec![]));
    let (of_first, of_second) = (Arc::clone(&asked), Arc::clone(&asked));
    let name = |call: &starling_llm::mock::MockCall| call.body["model"].as_str().unwrap().to_owned();
    let broken = mock(move |call| {
        of_first.lock().unwrap().push(name(call));
        MockAction::error(401, "who are you?")
    });
    let sound = mock(move |call| {
        of_second.lock().unwrap().push(format!("then {}", name(call)));
        MockAction::reply("sound")
    });
    let link = |base_url: &str, judge: &str| {
        let mut options = options(base_url);
        options.models.critic = Some(judge.to_owned());
        Link { model: Arc::new(OpenAiModel::new(options).unwrap()), purposes: Purposes::ALL }
    };
    let chain =
        ModelChain::new(link(&broken.base_url(), "judge-1"), vec![link(&sound.base_url(), "judge-2")]);
    for (choice, expected) in [
        (None, ["small", "then small"]),
        (Some(ModelChoice::Role(Purpose::Judge)), ["judge-1", "then judge-2"]),
        (Some(ModelChoice::Named("own".into())), ["own", "then small"]),
    ] {
        let mut question = request(Purpose::Work);
        question.model = choice;
        chain.chat(question).await.unwrap();
        assert_eq!(std::mem::take(&mut *asked.lock().unwrap()), expected);
    }
}

#[tokio::test]
async fn a_slow_question_is_asked_a_second_time_and_the_first_answer_counts() {
    let server = mock(|call| match call.prompt.as_str() {
        // Whoever asks again gets an answer at once.
        "slow" if call.number % 2 == 1 => MockAction::hold_then_reply("late"),
        _ => MockAction::reply("quick"),
    });
    let inner = Arc::new(model(&server.base_url()));
    let hedged = HedgedModel::new(inner, Hedge { share: 0.05, quantile: 0.95 });
    for _ in 0..20 {
        assert_eq!(hedged.chat(request(Purpose::Work)).await.unwrap().report.calls, 1);
    }
    let slow = || {
        let mut request = request(Purpose::Work);
        request.messages.last_mut().unwrap().text = "slow".to_owned();
        request
    };
    for _ in 0..2 {
        let reply = hedged.chat(slow()).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.report.calls, reply.report.unpriced_calls), ("quick", 2, 2));
    }
    eventually("the slower ones are closed", || server.stats().closed_by_client == 2).await;
    // The share is used up: this one waits for its answer.
    let mut hurried = slow();
    hurried.deadline = Instant::now() + Duration::from_millis(200);
    assert_eq!(hedged.chat(hurried).await.unwrap_err().kind, Kind::Deadline);
    // And one whose allowance is bounded is never asked twice.
    let mut bounded = slow();
    bounded.allowance = Some(starling_protocol::Allowance { calls: 9, ..Default::default() });
    bounded.deadline = Instant::now() + Duration::from_millis(200);
    let _ = hedged.chat(bounded).await;
    assert_eq!(server.stats().calls, 20 + 4 + 2);
}

#[tokio::test]
async fn what_an_endpoint_does_not_take_can_be_left_out_from_the_first_request_on() {
    let server = mock(|call| {
        assert!(call.body.get("temperature").is_none() && call.body.get("max_tokens").is_none());
        assert_eq!(call.body["response_format"], json!({"type": "json_object"}));
        assert_eq!(call.body["reasoning"], json!({"effort": "low"}));
        MockAction::reply("{}")
    });
    let mut options = options(&server.base_url());
    options.omit = vec!["temperature".to_owned(), "max_tokens".to_owned()];
    options.json = JsonForm::Object;
    options.extra_body.insert("reasoning".to_owned(), json!({"effort": "low"}));
    let model = OpenAiModel::new(options).unwrap();
    assert_eq!(model.chat(json_request("verdict")).await.unwrap().report.calls, 1);
}

#[tokio::test]
async fn a_reply_without_bounds_is_refused() {
    let server = mock(|_| MockAction::reply("x".repeat(20_000)));
    let mut small = options(&server.base_url());
    small.max_response_bytes = 10_000;
    let model = OpenAiModel::new(small).unwrap();
    let error = model.chat(request(Purpose::Work)).await.unwrap_err();
    assert_eq!(error.kind, Kind::BadReply);
    assert!(error.message.contains("10000 bytes"), "{error}");
}

#[tokio::test]
async fn no_error_tells_a_secret() {
    let echo = format!("Incorrect API key provided: {KEY}, password hunter2");
    let server = mock(move |call| {
        assert!(call.header("x-extra").is_some());
        MockAction::error(401, &echo)
    });
    let base = server.base_url().replace("http://", "http://me:hunter2@");
    let mut options = options(&base);
    options.extra_headers.insert("x-extra".to_owned(), "header-secret".into());
    let shown = format!("{options:?}");
    let model = OpenAiModel::new(options).unwrap();
    let error = model.chat(request(Purpose::Work)).await.unwrap_err();
    assert_eq!((error.kind, error.report.calls), (Kind::Unauthorized, 1));
    let told = format!("{error} {error:?} {:?} {shown} {:?}", error.to_failure(), model.info());
    for secret in [KEY, "hunter2", "header-secret"] {
        assert!(!told.contains(secret), "{told}");
    }
    assert!(error.to_string().contains("OPENAI_API_KEY"));
}

#[tokio::test]
async fn basic_authentication_comes_from_the_url() {
    let server = mock(|call| {
        assert_eq!(call.header("authorization"), Some("Basic bWU6aHVudGVyMg=="));
        MockAction::reply("in")
    });
    let mut options = options(&server.base_url().replace("http://", "http://me:hunter2@"));
    options.api_key = None;
    let model = OpenAiModel::new(options).unwrap();
    assert_eq!(model.chat(request(Purpose::Work)).await.unwrap().text, "in");
}

#[tokio::test]
async fn nobody_there_is_told_with_the_endpoint_and_what_to_do() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let error = model(&base).chat(request(Purpose::Work)).await.unwrap_err();
    assert_eq!((error.kind, error.report.calls), (Kind::Unreachable, 4));
    let text = error.to_string();
    assert!(text.contains(&base) && text.contains("is the server running"), "{text}");

    let broken = raw_server(vec![b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_vec()]).await;
    let error = model(&broken).chat(request(Purpose::Work)).await.unwrap_err();
    assert_eq!((error.kind, error.report.calls), (Kind::Server, 4), "{error}");
}

#[tokio::test]
async fn a_kept_connection_that_has_ended_costs_no_wait() {
    let base = forgetful_server("{\"choices\":[{\"message\":{\"content\":\"hi\"}}]}").await;
    let mut options = options(&base);
    options.max_attempts = 1;
    let model = OpenAiModel::new(options).unwrap();
    for calls in [1, 2] {
        let reply = model.chat(request(Purpose::Work)).await.unwrap();
        assert_eq!(reply.report.calls, calls);
    }
}

#[test]
fn a_client_for_https_needs_no_preparation() {
    // Without root certificates on the machine it is an error that says so, never a panic.
    if let Err(error) = OpenAiModel::new(options("https://api.openai.com/v1")) {
        assert!(error.to_string().contains("ca-certificates"), "{error}");
    }
}

#[tokio::test]
async fn dropping_the_question_closes_the_call() {
    let server = mock(|_| MockAction::hold_then_reply("never read"));
    let model = model(&server.base_url());
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let model = model.clone();
            tokio::spawn(async move { model.chat(request(Purpose::Work)).await })
        })
        .collect();
    eventually("all are open", || server.stats().open == 20).await;
    for call in calls {
        call.abort();
    }
    let took = eventually("all are closed", || server.stats().open == 0).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(server.stats().closed_by_client, 20);
}

#[tokio::test]
async fn the_mock_plays_a_swarm_and_counts() {
    let server = starling_llm::mock::MockServer::start(starling_llm::mock::MockOptions::new(
        scripts::layered(2, 3, scripts::Latencies::default()),
    ))
    .unwrap();
    let model = model(&server.base_url());
    let ask = async |purpose, prompt: &str| {
        let mut question: ChatRequest = request(purpose);
        question.messages.retain(|m| m.speaker == Speaker::System);
        question.messages.push(starling_llm::Message { speaker: Speaker::User, text: prompt.to_owned() });
        model.chat(question).await.unwrap().text
    };
    let plan = ask(Purpose::Plan, "## Goal\nx\n## Limits\nmax_tasks: 9\n## Agents\n- helper: helps\n").await;
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["tasks"].as_array().unwrap().len(), 6);
    assert_eq!(plan["tasks"][5]["depends_on"], json!(["l0t0", "l0t1", "l0t2"]));
    assert_eq!(plan["tasks"][0]["agent"], "helper");
    assert_eq!(ask(Purpose::Work, "## Goal\nx\n## Task\nT1\n").await, "ok: T1");
    assert_eq!(ask(Purpose::Work, "## Goal\nx\n## Task\nT1\n").await, "ok: T1");
    assert!(ask(Purpose::Judge, "## Task\nT1\n## Result\nfine").await.contains("0.9"));
    ask(Purpose::Synthesize, "## Goal\nx\n## Results\n### a\nb\n").await;
    let stats = server.stats();
    assert_eq!((stats.calls, stats.repeated, stats.open), (5, 1, 0));
    assert_eq!((stats.by_purpose.plan, stats.by_purpose.work), (1, 2));
    assert_eq!((stats.by_purpose.judge, stats.by_purpose.synthesize), (1, 1));

    let control = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let url = server.base_url().replace("/v1", "/_mock/stats");
    let over_http: starling_llm::mock::MockStats =
        control.get(url).send().await.unwrap().json().await.unwrap();
    assert_eq!(over_http, stats);
}

#[tokio::test]
async fn nothing_is_sent_beyond_the_allowance_and_what_was_spent_is_told() {
    let server = mock(|_| MockAction::error(500, "not now"));
    let mut options = options(&server.base_url());
    options.prices.insert("small".to_owned(), Price { input: 0.0, cached_input: 0.0, output: 1_000_000.0 }); // a token a dollar
    let model = OpenAiModel::new(options).unwrap();
    let allowed = |calls, tokens, cost_usd| ChatRequest {
        allowance: Some(Allowance { calls, tokens, cost_usd }),
        ..request(Purpose::Work)
    };
    // The prompt is estimated to have 6 tokens, and the reply has 50 at most. A failure takes none.
    for (allowance, calls) in [
        (allowed(0, None, None), 0),
        (allowed(1, None, None), 1),
        (allowed(2, None, None), 2),
        (allowed(9, Some(55), None), 0),
        (allowed(1, Some(56), None), 1),
        (allowed(9, None, Some(49.0)), 0),
        (allowed(1, None, Some(50.0)), 1),
    ] {
        let before = server.stats().calls;
        let error = model.chat(allowance.clone()).await.unwrap_err();
        assert_eq!((error.kind, error.report.calls), (Kind::OverAllowance, calls), "{error}");
        assert_eq!(server.stats().calls - before, u64::try_from(calls).unwrap(), "{error}");
        assert!(error.to_failure().retryable && error.to_failure().code == "over_allowance");
        assert_eq!(error.message.contains("not now"), calls > 0, "{error}");
        let streamed = model.stream(allowance).await.err().unwrap();
        assert_eq!((streamed.kind, streamed.report.calls), (Kind::OverAllowance, calls), "{streamed}");
    }
    let ample = model.chat(allowed(9, Some(9_000), Some(900.0))).await.unwrap_err();
    assert_eq!((ample.kind, ample.report.calls), (Kind::Server, 4), "{ample}");

    let mut request = request(Purpose::Judge);
    request.allowance = Some(Allowance { calls: 9, tokens: None, cost_usd: Some(900.0) });
    let mut options = support::options(&server.base_url());
    options.models.critic = Some("priceless".to_owned());
    let error = OpenAiModel::new(options).unwrap().chat(request).await.unwrap_err();
    assert_eq!((error.kind, error.report.calls), (Kind::Unpriced, 0), "{error}");
    assert!(error.message.contains("model.prices has no price for priceless"), "{error}");
}

#[tokio::test]
async fn what_a_step_may_take_is_counted_as_the_model_counts() {
    let server = mock(|_| MockAction::error(500, "not now"));
    let text = "お誕生日おめでとう".repeat(50);
    for (name, encoding) in [
        ("gpt-4o-mini", None),
        ("openai/gpt-4-turbo", None),
        ("of-my-own", Some(Encoding::O200kBase)),
        ("gpt-4o", Some(Encoding::Estimate)),
        ("of-my-own", None),
    ] {
        let mut options = options(&server.base_url());
        options.models.default = name.to_owned();
        options.encoding = encoding;
        let model = OpenAiModel::new(options).unwrap();
        let counts = encoding.unwrap_or(Encoding::of_model(name));
        assert_eq!(model.capacity(Purpose::Work, None).encoding, counts);
        let other = ModelChoice::Named("gpt-4".to_owned());
        let others = encoding.unwrap_or(Encoding::Cl100kBase);
        assert_eq!(model.capacity(Purpose::Work, Some(&other)).encoding, others);
        let mut request = request(Purpose::Work);
        request.messages[1].text.clone_from(&text);
        let most = counts.count_messages(&request.messages) + 50;
        for (tokens, calls) in [(most - 1, 0), (most, 1)] {
            let allowance = Allowance { calls: 1, tokens: Some(tokens), cost_usd: None };
            let error =
                model.chat(ChatRequest { allowance: Some(allowance), ..request.clone() }).await.unwrap_err();
            assert_eq!((error.kind, error.report.calls), (Kind::OverAllowance, calls), "{name}: {error}");
        }
    }
}

/// What a limiter was asked.
#[derive(Debug)]
struct Counting {
    counts: bool,
    asked: Mutex<Vec<i64>>,
}

impl Limiter for Counting {
    fn counts_tokens(&self, _model: &str) -> bool {
        self.counts
    }

    fn admit(&self, ask: Ask) -> BoxFuture<'static, Result<Box<dyn Leave>, NotSent>> {
        self.asked.lock().unwrap().push(ask.tokens);
        Box::pin(async { Err(NotSent::Down) })
    }
}

#[tokio::test]
async fn a_limiter_that_needs_the_number_of_tokens_is_told_the_models_own() {
    let text = "=".repeat(4_000);
    for (counts, least, most) in [(true, 50, 200), (false, 1_000, 1_100)] {
        let limiter = Arc::new(Counting { counts, asked: Mutex::default() });
        let options = OpenAiOptions::new("http://127.0.0.1:9/v1", "gpt-4o");
        let model = OpenAiModel::limited_by(limiter.clone(), options).unwrap();
        let mut request = request(Purpose::Work);
        request.messages[1].text.clone_from(&text);
        model.chat(request).await.unwrap_err();
        let asked = limiter.asked.lock().unwrap()[0];
        assert!((least..=most).contains(&asked), "{asked} tokens");
    }
}
