//! Streamed replies of an OpenAI-compatible endpoint, good and bad.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use futures::StreamExt;
use starling_llm::mock::MockAction;
use starling_llm::{
    ChatRequest, Model, ModelError, ModelErrorKind as Kind, OpenAiModel, Purpose, StreamEvent,
};
use starling_protocol::CallReport;
use std::time::Duration;
use support::{SSE_HEAD, eventually, json_request, mock, model, options, raw_server, request};
use tokio::time::Instant;

/// The texts and the end of a stream.
async fn read(model: &OpenAiModel, request: ChatRequest) -> (Vec<String>, Result<CallReport, ModelError>) {
    let mut stream = match model.stream(request).await {
        Ok(stream) => stream,
        Err(error) => return (vec![], Err(error)),
    };
    let mut texts = vec![];
    let mut end = None;
    while let Some(event) = stream.next().await {
        assert!(end.is_none(), "nothing follows the end");
        match event {
            Ok(StreamEvent::Text(text)) => texts.push(text),
            Ok(StreamEvent::Calls(deeds)) => panic!("nobody offered tools: {deeds:?}"),
            Ok(StreamEvent::Done(report)) => end = Some(Ok(report)),
            Err(error) => end = Some(Err(error)),
        }
    }
    (texts, end.expect("a stream has an end"))
}

fn chunk(content: &str) -> String {
    let chunk = serde_json::json!({"model": "m-7", "choices": [{"index": 0, "delta": {"content": content}}]});
    format!("data: {chunk}\n\n")
}

const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

async fn raw(parts: &[&str]) -> (Vec<String>, Result<CallReport, ModelError>) {
    let mut writes = vec![SSE_HEAD.to_vec()];
    writes.extend(parts.iter().map(|part| part.as_bytes().to_vec()));
    read(&model(&raw_server(writes).await), request(Purpose::Plan)).await
}

#[tokio::test]
async fn text_comes_before_the_reply_is_complete() {
    let server = mock(|call| {
        if call.number == 1 {
            assert_eq!(call.body.pointer("/stream_options/include_usage").unwrap(), true);
        }
        let piece = |text: &str| (Duration::from_millis(100), text.to_owned());
        MockAction::Stream { chunks: vec![piece("one "), piece("two "), piece("three")] }
    });
    let model = model(&server.base_url());
    let start = Instant::now();
    let mut stream = model.stream(request(Purpose::Plan)).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), StreamEvent::Text("one ".to_owned()));
    assert!(start.elapsed() < Duration::from_millis(250));
    let rest: Vec<_> = stream.map(Result::unwrap).collect().await;
    let StreamEvent::Done(report) = rest.last().unwrap() else { panic!("no end: {rest:?}") };
    assert_eq!(report.calls, 1);
    assert!(report.usage.completion_tokens > 0 && report.latency_ms >= 290);
    assert_eq!(server.stats().closed_by_client, 0);
}

#[tokio::test]
async fn streams_of_every_dialect_are_read() {
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":5}}}\n\n";
    let usage_with_delta = "data: {\"id\":\"other\",\"choices\":[{\"index\":0,\"delta\":{}}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"prompt_cache_hit_tokens\":5}}\n\n";
    let hello = chunk("grüß ") + &chunk("dich 🦜");
    let crlf = format!("{hello}{STOP}{usage}{DONE}").replace('\n', "\r\n");
    let comments = format!(": hi\n\n: keep-alive\n\n{hello}: x\n\n{STOP}{DONE}");
    for (parts, prompt_tokens) in [
        (vec![hello.as_str(), STOP, usage, DONE], 7),
        (vec![hello.as_str(), STOP, usage_with_delta, DONE], 7),
        (vec![hello.as_str(), usage, DONE], 7),
        (vec![crlf.as_str()], 7),
        // No counts: estimated from "You are terse." and "Say hello.", 24 characters.
        (vec![comments.as_str()], 6),
        (vec![hello.as_str(), STOP], 6),
        (vec![hello.as_str(), DONE.trim_end()], 6),
    ] {
        let (texts, end) = raw(&parts).await;
        assert_eq!(texts.concat(), "grüß dich 🦜", "{parts:?}");
        let report = end.unwrap();
        assert_eq!(report.usage.prompt_tokens, prompt_tokens, "{parts:?}");
        assert_eq!(report.usage.completion_tokens, 3, "{parts:?}");
        assert_eq!(report.usage.cached_tokens, if prompt_tokens == 7 { 5 } else { 0 }, "{parts:?}");
        assert_eq!(report.model, "m-7");
    }
}

#[tokio::test]
async fn characters_split_between_packets_are_whole() {
    let bytes = format!("{}{STOP}{DONE}", chunk("ü🦜")).replace('\n', "\r\n").into_bytes();
    let mut writes = vec![SSE_HEAD.to_vec()];
    writes.extend(bytes.chunks(1).map(<[u8]>::to_vec));
    let (texts, end) = read(&model(&raw_server(writes).await), request(Purpose::Work)).await;
    assert_eq!(texts.concat(), "ü🦜");
    end.unwrap();
}

#[tokio::test]
async fn broken_streams_are_errors() {
    let hello = chunk("half a ");
    for (tail, kind, words) in [
        ("", Kind::Server, "cut"),
        ("data: {\"choi", Kind::BadReply, "no chat completion"),
        ("event: error\ndata: {\"message\":\"overloaded\"}\n\n", Kind::Server, "overloaded"),
        ("data: {\"error\":{\"message\":\"slow down\",\"code\":429}}\n\n", Kind::RateLimited, "slow down"),
        (
            "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"content_filter\"}]}\n\n",
            Kind::Filtered,
            "filter",
        ),
    ] {
        let (texts, end) = raw(&[&hello, tail]).await;
        let error = end.unwrap_err();
        assert_eq!(texts.concat(), "half a ", "{tail}");
        assert_eq!(error.kind, kind, "{tail}: {error}");
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.report.calls, 1, "no second attempt once text has come");
        assert_eq!(error.report.usage.completion_tokens, 2, "spent all the same");
    }
    let (_, end) = raw(&[STOP, DONE]).await;
    let error = end.unwrap_err();
    assert_eq!((error.kind, error.report.calls), (Kind::BadReply, 2), "asked once more");
}

#[tokio::test]
async fn a_stream_that_breaks_before_the_first_text_is_tried_again() {
    let server = mock(|call| match call.number {
        1 => MockAction::CutStream { chunks: vec![] },
        2 => MockAction::error(503, "loading"),
        3 => MockAction::RawBody {
            content_type: "text/event-stream".to_owned(),
            body: b"event: error\ndata: {\"message\":\"overloaded\"}\n\n".to_vec(),
        },
        _ => MockAction::reply("at last"),
    });
    let (texts, end) = read(&model(&server.base_url()), request(Purpose::Work)).await;
    assert_eq!((texts.concat().as_str(), end.unwrap().calls), ("at last", 4));
}

#[tokio::test]
async fn a_silent_stream_is_given_up() {
    let server = mock(|call| match call.number {
        1 => MockAction::hold_then_reply("late"),
        _ => MockAction::reply("quick"),
    });
    let mut impatient = options(&server.base_url());
    impatient.first_token_timeout = Duration::from_millis(50);
    let (texts, end) = read(&OpenAiModel::new(impatient).unwrap(), request(Purpose::Work)).await;
    assert_eq!((texts.concat().as_str(), end.unwrap().calls), ("quick", 2));

    let forever = (Duration::from_secs(3600), "…".to_owned());
    let server = mock(move |_| MockAction::Stream {
        chunks: vec![(Duration::ZERO, "begin".to_owned()), forever.clone()],
    });
    let mut hurried = request(Purpose::Work);
    hurried.deadline = Instant::now() + Duration::from_millis(150);
    let (texts, end) = read(&model(&server.base_url()), hurried).await;
    assert_eq!((texts.concat().as_str(), end.unwrap_err().kind), ("begin", Kind::Deadline));
    eventually("the call is closed", || server.stats().closed_by_client == 1).await;
}

#[tokio::test]
async fn a_stream_may_pause_for_so_long_and_thoughts_are_no_pause() {
    let ms = Duration::from_millis;
    let thought = || (ms(60), "x".to_owned());
    let mut chunks = vec![(ms(0), "<think>".to_owned())];
    chunks.extend(std::iter::repeat_with(thought).take(5));
    chunks.push((ms(0), "</think>answer".to_owned()));
    let mut gap = chunks.clone();
    gap.push((Duration::from_secs(3600), "…".to_owned()));
    for (chunks, complete) in [(chunks, true), (gap, false)] {
        let server = mock(move |_| MockAction::Stream { chunks: chunks.clone() });
        let mut options = options(&server.base_url());
        options.first_token_timeout = ms(200);
        options.token_timeout = ms(200);
        let (texts, end) = read(&OpenAiModel::new(options).unwrap(), request(Purpose::Work)).await;
        assert_eq!(texts.concat(), "answer");
        match end {
            Ok(report) => assert!(complete && report.calls == 1),
            Err(error) => assert!(!complete && error.message.contains("nothing more came"), "{error}"),
        }
    }
}

#[tokio::test]
async fn refused_stream_options_are_left_out() {
    let server = mock(|call| {
        if call.body.get("stream_options").is_some() {
            return MockAction::error(400, "Unrecognized request argument: stream_options");
        }
        MockAction::reply("fine")
    });
    let model = model(&server.base_url());
    let (texts, end) = read(&model, request(Purpose::Work)).await;
    assert_eq!((texts.concat().as_str(), end.unwrap().calls), ("fine", 2));
    assert_eq!(read(&model, request(Purpose::Work)).await.1.unwrap().calls, 1);
}

#[tokio::test]
async fn a_server_that_cannot_stream_is_read_all_the_same() {
    let server = mock(|_| MockAction::RawBody {
        content_type: "application/json".to_owned(),
        body: b"{\"choices\":[{\"message\":{\"content\":\"all\\nat once\"},\n\"finish_reason\":\"stop\"}]}"
            .to_vec(),
    });
    let (texts, end) = read(&model(&server.base_url()), request(Purpose::Work)).await;
    assert_eq!(texts.concat(), "all\nat once");
    end.unwrap();
}

#[tokio::test]
async fn streamed_json_is_the_value_alone() {
    let cases = [
        (
            "<think>so {\"x\"…</think>Here:\n```json\n{\"tasks\":[{\"key\":\"}\"}]}\n```\nDone {}.",
            Ok("{\"tasks\":[{\"key\":\"}\"}]}"),
        ),
        ("I would rather not.", Err("no JSON")),
        ("{\"tasks\":[{\"key\":", Err("does not end")),
    ];
    for (text, expected) in cases {
        let server = mock(move |_| MockAction::Stream {
            chunks: text.chars().map(|c| (Duration::ZERO, c.to_string())).collect(),
        });
        let (texts, end) = read(&model(&server.base_url()), json_request("plan")).await;
        match expected {
            Ok(json) => {
                assert_eq!(texts.concat(), json);
                assert!(texts.len() > 5, "in pieces");
                end.unwrap();
            }
            Err(words) => {
                let error = end.unwrap_err();
                assert_eq!(error.kind, Kind::BadReply);
                assert!(error.message.contains(words), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn dropping_the_stream_closes_the_call() {
    let server = mock(|_| MockAction::Stream {
        chunks: vec![(Duration::ZERO, "begin".to_owned()), (Duration::from_secs(3600), "never".to_owned())],
    });
    let model = model(&server.base_url());
    let stream = model.stream(request(Purpose::Work)).await.unwrap();
    assert_eq!(server.stats().open, 1);
    drop(stream);
    let took = eventually("the call is closed", || server.stats().open == 0).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(server.stats().closed_by_client, 1);
}
