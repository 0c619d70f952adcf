//! How plans come out of the plan loop.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use starling_agents::AgentCatalogue;
use starling_bus::{Bus as _, MemoryBus, PartitionId, SendFault};
use starling_llm::{ChatRequest, Model, ModelErrorKind};
use starling_planner::{INVALID_PLAN, PlanHandler, PlanOptions};
use starling_playbooks::Playbooks;
use starling_protocol::{
    Body, Cancel, Content, Input, Intent, PlanFragment, PlanRequest, RecordRef, Role, Tag, Topic,
    topic::partition_of,
};
use starling_runtime::{Node, Outbox, telemetry::Spans};
use starling_service::testing::{
    Answer, Ear, ScriptedModel, envelope, keeping, memory_node_and_bus, publish, saying_in_turn, serve,
};
use std::{sync::Arc, time::Duration};
use tokio::sync::mpsc;

async fn plan_loop(model: Arc<dyn Model>) -> (Node, Ear) {
    let (node, ear, _) = plan_loop_and_bus(model).await;
    (node, ear)
}

async fn plan_loop_and_bus(model: Arc<dyn Model>) -> (Node, Ear, Arc<MemoryBus>) {
    let (node, bus) = memory_node_and_bus(&[]).await;
    let catalogue = Arc::new(AgentCatalogue::load(None).unwrap());
    let handler = PlanHandler::new(
        model,
        catalogue,
        Arc::new(Playbooks::load(None, |_| true).unwrap()),
        Spans::off(),
        node.clock.clone(),
        node.random.clone(),
        PlanOptions::default(),
    );
    serve(&node, Topic::Planner, Arc::new(handler));
    let ear = Ear::on(&node, &Topic::Coordinator).await;
    (node, ear, bus)
}

fn request(max_tasks: i32, strategy: &str, intent_ref: Option<RecordRef>) -> Body {
    Body::PlanRequest(PlanRequest {
        plan_attempt: 1,
        goal: "g".into(),
        strategy: strategy.into(),
        max_tasks,
        intent_ref,
        feedback: None,
        allowance: None,
    })
}

async fn ask(node: &Node, intent: &str, body: Body) {
    publish(node, envelope(intent, Tag::role(Role::Planner), body)).await;
}

async fn fragment(ear: &Ear) -> PlanFragment {
    match ear.next().await.envelope.body {
        Body::PlanFragment(fragment) => fragment,
        other => panic!("expected a fragment, found {other:?}"),
    }
}

fn keys(fragment: &PlanFragment) -> Vec<&str> {
    fragment.tasks.iter().map(|task| task.key.as_str()).collect()
}

fn failure(fragment: &PlanFragment) -> (&str, &str, bool) {
    let failure = fragment.end.as_ref().unwrap().failure.as_ref().expect("a failure");
    (&failure.code, &failure.message, failure.retryable)
}

const FIRST: &str = r#"{"tasks":[{"key":"a","title":"A","instruction":"do a","agent":"worker","depends_on":[],"critic":true}"#;

#[tokio::test]
async fn tasks_are_sent_while_the_model_still_speaks() {
    let (say, pieces) = mpsc::unbounded_channel();
    let mut pieces = Some(pieces);
    let (node, ear) = plan_loop(ScriptedModel::new(move |_| Answer::Stream(pieces.take().unwrap()))).await;
    ask(&node, "i", request(100, "llm", None)).await;

    say.send(FIRST.to_owned()).unwrap();
    let first = fragment(&ear).await;
    assert_eq!((keys(&first), first.seq, first.end.is_none()), (vec!["a"], 0, true));

    say.send(r#",{"key":"b","instruction":"do b","depends_on":["a"]}"#.to_owned()).unwrap();
    let second = fragment(&ear).await;
    assert_eq!((keys(&second), second.seq, second.tasks[0].ordinal), (vec!["b"], 1, 1));
    assert_eq!(second.run, first.run);

    say.send("]}".to_owned()).unwrap();
    drop(say);
    let last = fragment(&ear).await;
    let end = last.end.as_ref().unwrap();
    assert_eq!((last.seq, &end.failure, end.report.calls), (2, &None, 1));
    node.shutdown.cancel();
}

#[tokio::test]
async fn fragments_keep_their_order_though_one_has_to_be_sent_again() {
    let (say, pieces) = mpsc::unbounded_channel();
    let mut pieces = Some(pieces);
    let model = ScriptedModel::new(move |_| Answer::Stream(pieces.take().unwrap()));
    let (node, ear, bus) = plan_loop_and_bus(model).await;
    let inbox = node.router.name(&Topic::Coordinator).unwrap();
    let at = PartitionId::new(&*inbox, partition_of("i", bus.partitions(&inbox).await.unwrap()));
    bus.faults().on_send(&at, SendFault::NotSent);
    ask(&node, "i", request(100, "llm", None)).await;
    say.send(FIRST.to_owned()).unwrap();
    let resent = || node.metrics.encode().lines().any(|line| line.starts_with("starling_resent_total{"));
    while !resent() {
        tokio::task::yield_now().await; // until the first fragment has failed once
    }
    say.send("]}".to_owned()).unwrap();
    drop(say);
    let (first, last) = (fragment(&ear).await, fragment(&ear).await);
    assert_eq!((first.seq, keys(&first)), (0, vec!["a"]));
    assert_eq!((last.seq, last.end.is_some()), (1, true));
    node.shutdown.cancel();
}

#[tokio::test]
async fn a_plan_that_is_there_at_once_is_one_fragment() {
    let (node, ear) = plan_loop(ScriptedModel::saying(&format!("```json\n{FIRST}]}}\n```"))).await;
    ask(&node, "i", request(100, "llm", None)).await;
    let only = fragment(&ear).await;
    assert_eq!(keys(&only), ["a"]);
    assert_eq!(only.end.unwrap().failure, None);
    node.shutdown.cancel();
}

#[tokio::test]
async fn broken_plans_end_in_failures_that_say_why() {
    let many: Vec<String> = (0..4).map(|n| format!(r#"{{"key":"{n}","instruction":"x"}}"#)).collect();
    for (reply, expected) in [
        (r#"{"tasks":[{"key":"a"}]}"#.to_owned(), "task 1: instruction"),
        (FIRST.to_owned(), "ends in the middle"),
        ("I would rather not.".to_owned(), "I would rather not."),
        (r#"{"tasks":[]}"#.to_owned(), "no tasks"),
        (format!(r#"{{"tasks":[{}]}}"#, many.join(",")), "more than 3 tasks"),
        (
            format!(r#"{{"tasks":[{{"instruction":"{}"}}]}}"#, "word ".repeat(161)),
            "at most 200 tokens, found 201",
        ),
    ] {
        let (node, ear) = plan_loop(ScriptedModel::saying(&reply)).await;
        ask(&node, "i", request(3, "llm", None)).await;
        let last = fragment(&ear).await;
        let (code, message, retryable) = failure(&last);
        assert_eq!((code, retryable), (INVALID_PLAN, true), "{reply}");
        assert!(message.contains(expected), "{message}");
        assert_eq!(last.end.as_ref().unwrap().report.calls, 1, "the call is counted");
        node.shutdown.cancel();
    }
}

#[tokio::test]
async fn a_model_error_ends_the_run_with_its_code() {
    let (node, ear) = plan_loop(ScriptedModel::new(|_| Answer::Fail(ModelErrorKind::Unauthorized))).await;
    ask(&node, "i", request(3, "llm", None)).await;
    let last = fragment(&ear).await;
    assert_eq!((failure(&last).0, failure(&last).2), ("unauthorized", false));
    node.shutdown.cancel();
}

#[tokio::test]
async fn the_strategy_single_asks_no_model() {
    let model = ScriptedModel::saying("unused");
    let (node, ear) = plan_loop(model.clone()).await;
    ask(&node, "i", request(3, "single", None)).await;
    let only = fragment(&ear).await;
    assert_eq!((only.tasks.len(), only.end.unwrap().report.calls), (1, 0));
    assert!(model.asked().is_empty());
    node.shutdown.cancel();
}

#[tokio::test]
async fn inputs_are_read_from_the_intents_record_and_a_gone_one_is_a_failure() {
    let model = ScriptedModel::saying(&format!("{FIRST}]}}"));
    let (node, ear) = plan_loop(model.clone()).await;
    let input = Input {
        name: "a.csv".into(),
        media_type: "text/csv".into(),
        content: "x,y\n".into(),
        chunks: Vec::new(),
    };
    let intent = Intent { goal: "g".into(), inputs: vec![input], ..Intent::default() };
    publish(&node, envelope("i", Tag::role(Role::Coordinator), Body::Intent(intent))).await;
    let at = ear.next().await.at;

    ask(&node, "i", request(3, "llm", Some(at.clone()))).await;
    assert!(fragment(&ear).await.end.unwrap().failure.is_none());
    assert!(model.asked()[0].messages[1].text.contains("### a.csv (text/csv, 4 bytes)\nx,y\n"));

    ask(&node, "j", request(3, "llm", Some(RecordRef { offset: 99, ..at }))).await;
    assert_eq!(failure(&fragment(&ear).await).0, "record_gone");
    node.shutdown.cancel();
}

#[tokio::test]
async fn of_a_stored_input_the_planner_sees_what_it_is_and_how_it_begins() {
    let model = ScriptedModel::saying(&format!("{FIRST}]}}"));
    let (node, ear) = plan_loop(model.clone()).await;
    let mut chunks = Vec::new();
    for text in ["The beginning. ".repeat(1_000), "The end.".to_owned()] {
        let content = Content { text, ..Content::default() };
        publish(&node, envelope("i", Tag::role(Role::Coordinator), Body::Content(content))).await;
        chunks.push(RecordRef { tokens: 1_000, ..ear.next().await.at });
    }
    let name = "long.txt".to_owned();
    let input = Input { name, media_type: "text/plain".into(), chunks, ..Input::default() };
    let intent = Intent { goal: "g".into(), inputs: vec![input], ..Intent::default() };
    publish(&node, envelope("i", Tag::role(Role::Coordinator), Body::Intent(intent.clone()))).await;
    let at = ear.next().await.at;
    assert!(at.tokens >= 2_000, "who reserves for it knows how much there is to be read: {}", at.tokens);
    ask(&node, "i", request(3, "llm", Some(at))).await;
    assert!(fragment(&ear).await.end.unwrap().failure.is_none());
    let asked = model.asked()[0].messages[1].text.clone();
    assert!(
        asked.contains(
            "### long.txt, the beginning of 2 parts of 2000 tokens (text/plain, 4096 bytes)\nThe b"
        )
    );
    assert!(!asked.contains("The end."));

    let mut gone = intent;
    gone.inputs[0].chunks[0].offset = 1_000;
    publish(&node, envelope("j", Tag::role(Role::Coordinator), Body::Intent(gone))).await;
    let at = ear.next().await.at;
    ask(&node, "j", request(3, "llm", Some(at))).await;
    assert_eq!(failure(&fragment(&ear).await).0, "record_gone");
    node.shutdown.cancel();
}

#[tokio::test]
async fn inputs_that_are_too_long_for_the_model_are_shortened_once_and_later_ones_from_the_start() {
    const MOST: usize = 30_000;
    let length = |request: &ChatRequest| request.messages.iter().map(|m| m.text.len()).sum::<usize>();
    let model = ScriptedModel::new(move |request| match length(request) {
        0..MOST => Answer::Say(format!("{FIRST}]}}")),
        _ => Answer::Fail(ModelErrorKind::ContextTooLong),
    });
    let (node, ear) = plan_loop(model.clone()).await;
    let content = "many words ".repeat(5_000);
    let input = Input { name: "a.txt".into(), media_type: "text/plain".into(), content, chunks: Vec::new() };
    let intent = Intent { goal: "g".into(), inputs: vec![input], ..Intent::default() };
    publish(&node, envelope("i", Tag::role(Role::Coordinator), Body::Intent(intent))).await;
    let at = ear.next().await.at;
    for (calls, asked) in [(2, 2), (1, 3)] {
        ask(&node, "i", request(3, "llm", Some(at.clone()))).await;
        let end = fragment(&ear).await.end.unwrap();
        assert_eq!((end.failure, end.report.calls), (None, calls), "the first question was a call as well");
        assert_eq!(model.asked().len(), asked);
    }
    let lengths: Vec<usize> = model.asked().iter().map(length).collect();
    assert!(lengths[0] > 50_000 && lengths[1] > MOST / 2 && lengths[1] == lengths[2], "{lengths:?}");
    assert!(model.asked()[1].messages[1].text.contains("left out)"), "it says that something is missing");
    node.shutdown.cancel();
}

#[tokio::test]
async fn a_repeated_request_in_flight_is_dropped_and_a_cancelled_one_stops() {
    let model = ScriptedModel::new(|_| Answer::Hang);
    let (node, ear) = plan_loop(model.clone()).await;
    ask(&node, "i", request(3, "llm", None)).await;
    ask(&node, "i", request(3, "llm", None)).await;
    ask(&node, "other", request(3, "llm", None)).await;
    let asked_twice = async {
        while model.asked().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), asked_twice).await.unwrap();
    assert!(ear.hears_nothing_for(Duration::from_millis(100)).await);
    assert_eq!(model.asked().len(), 2, "one call for each intent");

    let cancel = envelope("i", Tag::role(Role::Coordinator), Body::Cancel(Cancel { reason: "x".into() }));
    let outbox = Outbox::new(node.courier.clone(), "".into());
    outbox.emit_to(Topic::Control, cancel).await.unwrap();
    let superseded = async {
        while !node.metrics.encode().contains("kind=\"cancelled\"} 1") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), superseded).await.unwrap();
    node.shutdown.cancel();
}

#[tokio::test]
async fn a_plan_that_cannot_be_used_is_given_to_nobody_else_and_a_kept_one_costs_no_call() {
    let (bad, good) = (r#"{"tasks":[{"key":"a"}]}"#, format!("{FIRST}]}}"));
    let model = saying_in_turn(&[bad, bad, &good]);
    let kept = keeping(model.clone());
    let (node, ear) = plan_loop(kept.clone()).await;
    let plan = |intent: &'static str, attempt: i32| {
        let (node, ear) = (&node, &ear);
        async move {
            let Body::PlanRequest(first) = request(100, "llm", None) else { unreachable!() };
            ask(node, intent, Body::PlanRequest(PlanRequest { plan_attempt: attempt, ..first })).await;
            let end = fragment(ear).await.end.unwrap();
            (end.failure.is_none(), end.report.calls, end.report.cached_calls)
        }
    };
    assert_eq!(plan("a", 1).await, (false, 1, 0));
    // One that another version has kept, to which it was good enough.
    kept.chat(model.asked()[0].clone()).await.unwrap();
    assert_eq!(plan("b", 1).await, (false, 0, 1), "it was no call");
    assert_eq!(plan("c", 1).await, (true, 1, 0));
    assert_eq!(plan("d", 1).await, (true, 0, 1));
    assert_eq!(plan("e", 2).await, (true, 1, 0), "whoever was refused wants another one");
    assert_eq!(model.asked().len(), 4);
    node.shutdown.cancel();
}

#[tokio::test]
async fn what_no_model_plans_takes_no_call_and_is_the_same_every_time() {
    let model = ScriptedModel::saying("never asked");
    let (node, ear, _) = plan_loop_and_bus(model.clone()).await;
    let intent = Intent {
        goal: "g".into(),
        items: vec!["owl".into(), "lark".into()],
        parameters: [("options".to_owned(), "owl,lark".to_owned())].into(),
        ..Intent::default()
    };
    publish(&node, envelope("stored", Tag::role(Role::Coordinator), Body::Intent(intent))).await;
    let at = Some(ear.next().await.at);
    for (strategy, max_tasks, expected) in [
        ("map", 100, &["item-1", "item-2"][..]),
        ("map", 1, &["item-1"]),
        ("playbook:compare", 100, &["option-1", "option-2", "table"]),
        ("single", 100, &["all"]),
    ] {
        for _ in 0..2 {
            ask(&node, strategy, request(max_tasks, strategy, at.clone())).await;
            let fragment = fragment(&ear).await;
            assert_eq!(keys(&fragment), expected, "{strategy}");
            let end = fragment.end.unwrap();
            assert_eq!((end.failure, end.report.calls), (None, 0));
            assert_eq!(end.answer.is_some(), strategy == "playbook:compare");
        }
    }
    for (strategy, code, said) in [
        ("playbook:none", "invalid_playbook", "there is no playbook \"none\""),
        ("playbook:order-inquiry", "invalid_playbook", "parameters.message: missing"),
        ("dream", "unknown_strategy", "no strategy \"dream\""),
    ] {
        ask(&node, strategy, request(100, strategy, at.clone())).await;
        let fragment = fragment(&ear).await;
        let (found, message, retryable) = failure(&fragment);
        assert!(found == code && message.contains(said) && !retryable, "{found}: {message}");
    }
    assert!(model.asked().is_empty());
    node.shutdown.cancel();
}
