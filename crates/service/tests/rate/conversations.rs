//! Long conversations with tools, through the real client.

use futures::StreamExt as _;
use serde_json::{Value, json};
use starling_engine::conversation::SummaryLimits;
use starling_llm::{
    ChatReply, ChatRequest, Deeds, Encoding, Message, Model, OpenAiModel, OpenAiOptions, StreamEvent, Tool,
    ToolCall,
    mock::{MockAction, MockCall, MockOptions, MockServer},
};
use starling_runtime::settings::{Settings, Sources};
use starling_service::{ConversationLimits, Conversations};
use std::sync::{Arc, Mutex};

/// What the endpoint was asked, in order.
type Asked = Arc<Mutex<Vec<Value>>>;

/// An endpoint whose worker calls a tool for as long as it is offered one, and whose other models sum up.
fn endpoint(summary: impl Fn(&MockCall) -> MockAction + Send + Sync + 'static) -> (MockServer, Asked) {
    let asked = Asked::default();
    let log = asked.clone();
    let script = move |call: &MockCall| {
        log.lock().unwrap().push(call.body.clone());
        if call.model != "worker" {
            return summary(call);
        }
        let id = format!("call_{}", call.number);
        let call = ToolCall { id, name: "look".to_owned(), arguments: format!("{{\"n\":{}}}", call.number) };
        MockAction::Calls { text: String::new(), deeds: Deeds { calls: vec![call], reasoning: None } }
    };
    (MockServer::start(MockOptions::new(Arc::new(script))).unwrap(), asked)
}

fn conversations(
    server: &MockServer,
    limits: ConversationLimits,
    change: impl FnOnce(&mut OpenAiOptions),
) -> Conversations {
    let mut options = OpenAiOptions::new(server.base_url(), "worker");
    options.models.critic = Some("critic".to_owned());
    options.max_attempts = 1;
    change(&mut options);
    let model: Arc<dyn Model> = Arc::new(OpenAiModel::new(options).unwrap());
    Conversations::new(model, limits)
}

fn limits() -> ConversationLimits {
    ConversationLimits::of(&Settings::load(&Sources::default()).unwrap())
}

fn question() -> ChatRequest {
    let parameters = Arc::new(json!({"type": "object"}));
    let tool = Tool { name: "look".to_owned(), description: "Looks.".to_owned(), parameters };
    let messages = vec![Message::system("You are careful."), Message::user("## Goal\nFind it")];
    ChatRequest { messages, tools: vec![tool], ..super::request(0, 10, 60 * super::SECOND) }
}

/// One round: asks, and gives each call the result that `result` makes.
async fn round(talk: &Conversations, conversation: &mut ChatRequest, result: &str) -> ChatReply {
    let reply = talk.chat(conversation).await.unwrap();
    conversation.messages.push(reply.clone().into_turn());
    for call in reply.calls() {
        conversation.messages.push(Message::tool(&call.id, format!("{result} of {}", call.id)));
    }
    reply
}

/// Every result follows its call, and every call has its result.
fn is_whole(messages: &Value) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for message in messages.as_array().unwrap() {
        match message["role"].as_str().unwrap() {
            "assistant" => {
                let calls = message["tool_calls"].as_array();
                open.extend(calls.into_iter().flatten().map(|call| call["id"].as_str().unwrap()));
            }
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap();
                match open.iter().position(|call| *call == id) {
                    Some(place) => drop(open.remove(place)),
                    None => return false,
                }
            }
            _ if !open.is_empty() => return false,
            _ => {}
        }
    }
    open.is_empty()
}

#[tokio::test]
async fn early_rounds_become_a_summary_of_a_cheaper_model_which_the_report_has() {
    let (server, asked) = endpoint(|call| MockAction::reply(format!("notes {}", call.number)));
    let talk = conversations(&server, limits(), |_| {});
    let mut conversation = question();
    for _ in 0..3 {
        assert_eq!(round(&talk, &mut conversation, "result").await.report.calls, 1);
    }
    // Questions 1 to 3 were rounds; the fourth is for the summary.
    let reply = round(&talk, &mut conversation, "result").await;
    assert_eq!(reply.report.calls, 2);
    {
        let asked = asked.lock().unwrap();
        let (summary, question) = (&asked[3], &asked[4]);
        assert_eq!((&summary["model"], summary.get("tools")), (&json!("critic"), None));
        assert_eq!(summary["max_tokens"], json!(limits().summary_tokens));
        let material = summary["messages"][1]["content"].as_str().unwrap();
        assert!(material.contains("### look {\"n\":1}\nresult of call_1\n"), "{material}");
        assert!(material.contains("result of call_2") && !material.contains("call_3"), "{material}");
        let sent = question["messages"].as_array().unwrap();
        assert_eq!(sent.len(), 4, "orders, what is wanted, and the last round: {sent:?}");
        let wanted = sent[1]["content"].as_str().unwrap();
        assert!(
            wanted.starts_with("## Goal\nFind it\n\n## ") && wanted.ends_with("so far\nnotes 4"),
            "{wanted}"
        );
        assert_eq!(sent[3], json!({"role": "tool", "tool_call_id": "call_3", "content": "result of call_3"}));
        assert!(is_whole(&question["messages"]));
        let tokens = |body: &Value| body["messages"].to_string().len();
        assert!(tokens(question) < tokens(&asked[2]));
    }
    for calls in [1, 2] {
        let reply = round(&talk, &mut conversation, "result").await;
        assert_eq!(reply.report.calls, calls, "a summary as soon as there are three rounds again");
    }
    let asked = asked.lock().unwrap();
    let material = asked[6]["messages"][1]["content"].as_str().unwrap();
    assert!(material.contains("### Summary of earlier calls\nnotes 4\n"), "{material}");
    assert!(material.contains("call_3") && material.contains("call_5"), "{material}");
    let wanted = asked[7]["messages"][1]["content"].as_str().unwrap();
    assert!(wanted.ends_with("so far\nnotes 7") && !wanted.contains("notes 4"), "{wanted}");
}

#[tokio::test]
async fn long_rounds_are_summed_up_by_the_model_that_is_named_and_without_one_the_conversation_goes_on() {
    for fails in [false, true] {
        let (server, asked) = endpoint(move |_| match fails {
            true => MockAction::error(500, "not now"),
            false => MockAction::reply("notes"),
        });
        let limits = ConversationLimits { summarizer: Some("cheap".to_owned()), ..limits() };
        let talk = conversations(&server, limits, |_| {});
        let mut conversation = question();
        for _ in 0..2 {
            assert_eq!(round(&talk, &mut conversation, &"long ".repeat(7_000)).await.report.calls, 1);
        }
        let before = conversation.messages.len();
        let mut events = talk.stream(&mut conversation).await.unwrap();
        let mut report = None;
        while let Some(event) = events.next().await {
            if let StreamEvent::Done(done) = event.unwrap() {
                report = Some(done);
            }
        }
        assert_eq!(report.unwrap().calls, 2, "a summary that failed was a call all the same");
        let asked = asked.lock().unwrap();
        assert_eq!(asked[2]["model"], "cheap");
        let sent = asked[3]["messages"].as_array().unwrap().len();
        assert_eq!((sent, conversation.messages.len()), if fails { (before, before) } else { (4, 4) });
    }
}

#[tokio::test]
async fn what_does_not_fit_is_left_out_of_the_question_and_stays_in_the_conversation() {
    let never = SummaryLimits { rounds: 1_000, chars: usize::MAX };
    for (turns, window) in [(6, None), (1_000, Some(3_000))] {
        let (server, asked) = endpoint(|_| MockAction::reply("never"));
        let limits = ConversationLimits { turns, summary: never, ..limits() };
        let talk = conversations(&server, limits, |options| {
            options.encoding = Some(Encoding::Cl100kBase);
            options.window = window;
        });
        let mut conversation = question();
        conversation.max_tokens = Some(1_000);
        let rounds = 12;
        for _ in 0..rounds {
            round(&talk, &mut conversation, &"some words ".repeat(200)).await;
        }
        assert_eq!(conversation.messages.len(), 2 + 2 * rounds);
        let asked = asked.lock().unwrap();
        for (round, body) in asked.iter().enumerate() {
            let messages = body["messages"].as_array().unwrap();
            assert!(is_whole(&body["messages"]), "{messages:?}");
            let (wanted, left_out) =
                (messages[1]["content"].as_str().unwrap(), 2 + 2 * round - messages.len());
            assert!(wanted.starts_with("## Goal\nFind it"));
            assert_eq!(wanted.contains(&format!("{left_out} earlier messages")), left_out > 0, "{wanted}");
            let Some(window) = window else {
                assert_eq!(messages.len(), 2 + turns.min(2 * round));
                continue;
            };
            let count =
                |message: &Value| Encoding::Cl100kBase.count(message["content"].as_str().unwrap_or_default());
            let tokens: i64 = messages.iter().map(count).sum();
            assert!(tokens <= window - 1_000, "{tokens} tokens");
            assert!(left_out == 0 || tokens > (window - 1_000) * 6 / 10, "no more than has to be: {tokens}");
        }
        assert!(asked[11]["messages"].as_array().unwrap().len() < 2 + 2 * 11);
    }
}
