//! Conversations in which a model calls tools.

use crate::support::{json_request, mock, options, request};
use futures::StreamExt as _;
use serde_json::{Value, json};
use starling_llm::mock::{Abilities, MockAction, MockCall, MockServer, Tools};
use starling_llm::{
    ChatReply, ChatRequest, Deeds, Encoding, Message, Model, ModelErrorKind as Kind, OpenAiModel, Purpose,
    ReplayReasoning, StreamEvent, Tool, ToolCall,
};
use std::sync::{Arc, Mutex};

fn tool(name: &str) -> Tool {
    let parameters = json!({"type": "object", "properties": {"q": {"type": "string"}}});
    Tool { name: name.to_owned(), description: format!("Does {name}."), parameters: Arc::new(parameters) }
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

fn question() -> ChatRequest {
    ChatRequest { tools: vec![tool("find"), tool("read")], ..request(Purpose::Work) }
}

/// Asks both ways; a stream is put together as a reader would.
async fn ask(model: &OpenAiModel, request: ChatRequest, streams: bool) -> ChatReply {
    if !streams {
        return model.chat(request).await.unwrap();
    }
    let mut events = model.stream(request).await.unwrap();
    let (mut text, mut deeds) = (String::new(), Deeds::default());
    loop {
        match events.next().await.unwrap().unwrap() {
            StreamEvent::Text(piece) => {
                assert!(deeds.calls.is_empty(), "calls come after all text");
                text.push_str(&piece);
            }
            StreamEvent::Calls(all) => deeds = all,
            StreamEvent::Done(report) => return ChatReply { text, deeds, report },
        }
    }
}

fn recording(
    script: impl Fn(&MockCall) -> MockAction + Send + Sync + 'static,
) -> (MockServer, Arc<Mutex<Vec<Value>>>) {
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let log = bodies.clone();
    let server = mock(move |call| {
        log.lock().unwrap().push(call.body.clone());
        script(call)
    });
    (server, bodies)
}

#[tokio::test]
async fn calls_come_whole_and_in_pieces_and_their_results_go_back_to_them() {
    let calls = vec![call("call_A7", "find", r#"{"q": "grüße"}"#), call("call_B8", "read", r#"{"q":"b"}"#)];
    let said = Deeds { calls: calls.clone(), reasoning: Some("I should look.".to_owned()) };
    for (text, streams) in [("", false), ("", true), ("Let me see.", false), ("Let me see.", true)] {
        let deeds = said.clone();
        let (server, bodies) = recording(move |call| match call.number {
            1 => MockAction::Calls { text: text.to_owned(), deeds: deeds.clone() },
            _ => MockAction::reply("found"),
        });
        let model = OpenAiModel::new(options(&server.base_url())).unwrap();
        let mut request = question();
        let reply = ask(&model, request.clone(), streams).await;
        assert_eq!((reply.text.as_str(), &reply.deeds), (text, &said), "streams: {streams}");
        assert!(reply.report.usage.completion_tokens > 0);

        request.messages.push(reply.into_turn());
        request.messages.push(Message::tool("call_A7", "here"));
        request.messages.push(Message::tool("call_B8", ""));
        let reply = ask(&model, request, streams).await;
        assert_eq!((reply.text.as_str(), reply.calls().len()), ("found", 0));

        let bodies = bodies.lock().unwrap();
        let offered = &bodies[0]["tools"];
        assert_eq!(offered[1]["function"]["name"], "read");
        assert_eq!(offered[0]["function"]["parameters"]["properties"]["q"]["type"], "string");
        let content = if text.is_empty() { Value::Null } else { json!(text) };
        let function = |call: &ToolCall| json!({"name": call.name, "arguments": call.arguments});
        let sent = json!([
            {"role": "assistant", "content": content, "tool_calls": [
                {"id": "call_A7", "type": "function", "function": function(&calls[0])},
                {"id": "call_B8", "type": "function", "function": function(&calls[1])},
            ]},
            {"role": "tool", "tool_call_id": "call_A7", "content": "here"},
            {"role": "tool", "tool_call_id": "call_B8", "content": ""},
        ]);
        assert_eq!(Value::from(bodies[1]["messages"].as_array().unwrap()[2..].to_vec()), sent);
    }
}

#[tokio::test]
async fn thoughts_go_back_only_to_who_wants_them() {
    let turn = |calls: Vec<ToolCall>, reasoning: Option<&str>| {
        let deeds = Deeds { calls, reasoning: reasoning.map(str::to_owned) };
        Message { speaker: starling_llm::Speaker::Assistant(deeds), text: "t".to_owned() }
    };
    let calls = || vec![call("1", "find", "{}")];
    let turns =
        [turn(calls(), Some("hm")), turn(calls(), None), turn(vec![], Some("so")), turn(vec![], None)];
    let gone = Value::Null;
    for (replay, expected) in [
        (ReplayReasoning::Never, [&gone, &gone, &gone, &gone]),
        (ReplayReasoning::WithCalls, [&json!("hm"), &json!(""), &gone, &gone]),
        (ReplayReasoning::Always, [&json!("hm"), &gone, &json!("so"), &gone]),
    ] {
        let (server, bodies) = recording(|_| MockAction::reply("ok"));
        let mut options = options(&server.base_url());
        options.replay_reasoning = replay;
        let mut request = question();
        request.messages.extend(turns.iter().cloned());
        OpenAiModel::new(options).unwrap().chat(request).await.unwrap();
        let bodies = bodies.lock().unwrap();
        let sent =
            bodies[0]["messages"].as_array().unwrap()[2..].iter().map(|turn| &turn["reasoning_content"]);
        assert_eq!(sent.collect::<Vec<_>>(), expected, "{replay:?}");
    }
}

#[tokio::test]
async fn calls_that_cannot_be_used_are_mended_or_asked_for_once_more() {
    let said = |calls: Vec<ToolCall>| MockAction::Calls {
        text: String::new(),
        deeds: Deeds { calls, reasoning: None },
    };
    for (first, wrong) in [
        (call("1", "delete", "{}"), "There is no tool \\\"delete\\\"; there are: find, read."),
        (call("1", "find", "{\"q\": \"never"), "The arguments of the call of find are no JSON object"),
    ] {
        for streams in [false, true] {
            let first = first.clone();
            let (server, bodies) = recording(move |c| match c.number {
                1 => said(vec![first.clone()]),
                _ => said(vec![call("2", "find", "{'q': 1,}")]),
            });
            let model = OpenAiModel::new(options(&server.base_url())).unwrap();
            let reply = ask(&model, question(), streams).await;
            assert_eq!(reply.calls(), [call("2", "find", "{\"q\": 1}")]);
            assert_eq!(reply.report.calls, 2);
            let told = bodies.lock().unwrap()[1]["messages"].to_string();
            assert!(told.contains(wrong), "{told}");
        }
    }
    // To the end of all patience; and never to who has offered no tools.
    let (server, _) = recording(move |_| said(vec![call("1", "delete", "{}")]));
    let model = OpenAiModel::new(options(&server.base_url())).unwrap();
    let error = model.chat(question()).await.unwrap_err();
    assert_eq!((error.kind, error.report.calls), (Kind::BadReply, 2), "{error}");
    let error = model.chat(request(Purpose::Work)).await.unwrap_err();
    assert!(error.kind == Kind::BadReply && error.message.contains("empty"), "{error}");
}

#[tokio::test]
async fn an_endpoint_with_tools_calls_one_and_answers_once_it_has_the_result() {
    let abilities = Abilities { tools: Tools::Called, ..Abilities::default() };
    let server = mock({
        let script = abilities.play(Arc::new(|_| MockAction::reply("an answer")));
        move |call| script(call)
    });
    let model = OpenAiModel::new(options(&server.base_url())).unwrap();
    for streams in [false, true] {
        let mut request = question();
        let reply = ask(&model, request.clone(), streams).await;
        assert_eq!(reply.calls(), [call("call-1", "find", "{}")]);
        let before = Encoding::Estimate.count_request(&request);
        request.messages.push(reply.into_turn());
        request.messages.push(Message::tool("call-1", "a result"));
        assert!(Encoding::Estimate.count_request(&request) > before, "calls and results are counted");
        assert!(!ask(&model, request, streams).await.text.is_empty());
    }
    // JSON is wanted in the end, and not in place of a call.
    let request = ChatRequest { tools: vec![tool("find")], ..json_request("verdict") };
    assert_eq!(model.chat(request).await.unwrap().calls().len(), 1);
}
