//! Tasks about inputs that lie in parts.

use super::{Stage, give, result, stage, stored, task};
use starling_llm::{Capacity, ChatRequest, Encoding, ModelErrorKind};
use starling_protocol::{
    Body, Content, Input, Intent, PartRange, RecordRef, Role, Tag, Task, TaskKind, TaskTerms,
};
use starling_service::testing::{Answer, ScriptedModel};
use starling_worker::PARTS_TOO_LONG;

fn part(text: &str) -> Content {
    Content { text: text.to_owned(), ..Content::default() }
}

async fn input(stage: &Stage, name: &str, parts: Vec<Content>) -> Input {
    let mut chunks = Vec::new();
    for content in parts {
        chunks.push(stored(stage, Body::Content(content)).await);
    }
    Input { name: name.to_owned(), media_type: "text/plain".to_owned(), chunks, ..Input::default() }
}

async fn intent(stage: &Stage, inputs: Vec<Input>) -> RecordRef {
    let intent = Intent { goal: "g".to_owned(), inputs, ..Intent::default() };
    stored(stage, Body::Intent(intent)).await
}

fn about(intent_ref: &RecordRef, from: i32, to: i32) -> Task {
    let parts = Some(PartRange { from, to, tokens: 0 });
    Task {
        intent_ref: Some(intent_ref.clone()),
        terms: TaskTerms { parts, ..TaskTerms::default() },
        ..task()
    }
}

fn text(request: &ChatRequest) -> &str {
    &request.messages[1].text
}

#[tokio::test]
async fn a_task_reads_exactly_its_parts() {
    let model = ScriptedModel::saying("the output");
    let stage = stage(model.clone()).await;
    let again = Content { overlap: "two.".to_owned(), ..part("three. ") };
    let row = Content { heading: "name,price\n".to_owned(), ..part("b,2\n") };
    let inputs = vec![
        input(&stage, "long.txt", vec![part("one. "), part("two. "), again]).await,
        Input {
            name: "short.txt".into(),
            media_type: "text/plain".into(),
            content: "all".into(),
            ..Input::default()
        },
        input(&stage, "t.csv", vec![part("name,price\na,1\n"), row]).await,
    ];
    let intent = intent(&stage, inputs).await;
    for (from, to, expected) in [
        (0, 1, "### long.txt, part 1 of 3 (text/plain, 5 bytes)\none. \n"),
        // What is there anyway is not told again.
        (1, 3, "### long.txt, parts 2 to 3 of 3 (text/plain, 12 bytes)\ntwo. three. \n"),
        (
            2,
            3,
            "### long.txt, part 3 of 3 (text/plain, 55 bytes)\n(The end of the part before:)\ntwo.\n(This part:)\nthree. \n",
        ),
        (3, 4, "### short.txt (text/plain, 3 bytes)\nall\n"),
        (5, 6, "### t.csv, part 2 of 2 (text/plain, 15 bytes)\nname,price\nb,2\n"),
        (
            2,
            5,
            "### long.txt, part 3 of 3 (text/plain, 55 bytes)\n(The end of the part before:)\ntwo.\n(This part:)\nthree. \n\
             ### short.txt (text/plain, 3 bytes)\nall\n### t.csv, part 1 of 2 (text/plain, 15 bytes)\nname,price\na,1\n",
        ),
    ] {
        give(&stage, about(&intent, from, to)).await;
        result(&stage.critic).await;
        let asked = model.asked();
        let shown = text(asked.last().unwrap()).split_once("## Inputs\n").unwrap().1;
        assert_eq!(shown, expected, "{from} to {to}");
    }
    stage.node.shutdown.cancel();
}

#[tokio::test]
async fn parts_are_read_whole_or_the_task_fails_and_says_what_helps() {
    let model = ScriptedModel::new(|request| match text(request).len() {
        0..10_000 => Answer::Say("fine".to_owned()),
        _ => Answer::Fail(ModelErrorKind::ContextTooLong),
    });
    let stage = stage(model.clone()).await;
    let long =
        input(&stage, "long.txt", vec![part(&"word ".repeat(10_000)), part(&"word ".repeat(15_000))]).await;
    let at = intent(&stage, vec![long]).await;
    for (from, to, code, calls, asked) in
        [(0, 1, "context_too_long", 1, 1), (1, 2, "context_too_long", 1, 2), (0, 2, PARTS_TOO_LONG, 0, 2)]
    {
        give(&stage, about(&at, from, to)).await;
        let failed = result(&stage.coordinator).await;
        let failure = failed.failure.unwrap();
        assert_eq!((failure.code.as_str(), failed.report.calls), (code, calls));
        assert!(failure.message.contains("--chunk-tokens"), "{}", failure.message);
        assert_eq!(model.asked().len(), asked, "it is not asked again with less");
    }
    // Where the window is known, nobody is asked in vain, and the reply has what is left of it.
    let short = input(&stage, "short.txt", vec![part(&"word ".repeat(1_000)), part("end")]).await;
    let at = intent(&stage, vec![short]).await;
    for (window, fits) in [(1_500, false), (4_000, true)] {
        model.has(Capacity { encoding: Encoding::Estimate, window: Some(window) });
        give(&stage, about(&at, 0, 1)).await;
        let done = if fits { result(&stage.critic).await } else { result(&stage.coordinator).await };
        assert_eq!(
            done.failure.map(|failure| failure.code).as_deref(),
            Some(PARTS_TOO_LONG).filter(|_| !fits)
        );
        assert_eq!(done.report.calls, i64::from(fits));
    }
    let asked = model.asked().pop().unwrap();
    let tokens = Encoding::Estimate.count_messages(&asked.messages);
    assert!(asked.max_tokens.is_none_or(|most| i64::from(most) + tokens <= 4_000), "{:?}", asked.max_tokens);
    stage.node.shutdown.cancel();
}

#[tokio::test]
async fn a_part_that_is_not_there_is_a_failure_of_the_task_that_needs_it() {
    let model = ScriptedModel::saying("the output");
    let stage = stage(model.clone()).await;
    let mut broken = input(&stage, "long.txt", vec![part("one"), part("two"), part("three")]).await;
    broken.chunks[1].offset = 1_000;
    broken.chunks[2] = stored(&stage, Body::Intent(Intent::default())).await;
    let at = intent(&stage, vec![broken]).await;
    give(&stage, about(&at, 0, 1)).await;
    assert_eq!(result(&stage.critic).await.failure, None, "the others go on");
    for (from, to) in [(1, 2), (2, 3), (3, 4), (2, 2), (-1, 0)] {
        give(&stage, about(&at, from, to)).await;
        let failure = result(&stage.coordinator).await.failure.unwrap();
        assert_eq!((failure.code.as_str(), failure.retryable), ("record_gone", false), "{from} to {to}");
    }
    assert_eq!(model.asked().len(), 1);
    stage.node.shutdown.cancel();
}

#[tokio::test]
async fn who_reads_no_parts_sees_as_much_as_there_is_room_for() {
    let model = ScriptedModel::saying("the output");
    let stage = stage(model.clone()).await;
    let many = (0..40).map(|n| part(&format!("{n}: {}\n", "word ".repeat(1_000)))).collect();
    let long = input(&stage, "long.txt", many).await;
    let few = input(&stage, "few.txt", vec![part("first "), part("second")]).await;
    let at = intent(&stage, vec![long, few]).await;

    give(&stage, Task { intent_ref: Some(at.clone()), ..task() }).await;
    result(&stage.critic).await;
    let asked = model.asked();
    let shown = text(asked.last().unwrap());
    assert!(shown.contains("### long.txt, the first 20 of 40 parts ("), "{}", &shown[..300]);
    assert!(shown.contains("### few.txt (text/plain, 12 bytes)\nfirst second\n"));
    assert!(shown.contains("bytes left out)"), "it says that something is missing");

    let coordinator = Tag::role(Role::Coordinator).with_lane("i");
    let synthesis =
        Task { kind: TaskKind::Synthesis, agent: "synthesizer".into(), next_tag: coordinator, ..task() };
    give(&stage, Task { intent_ref: Some(at), ..synthesis }).await;
    result(&stage.coordinator).await;
    let asked = model.asked();
    let shown = text(asked.last().unwrap());
    assert!(shown.contains("### long.txt, 40 parts that the tasks have read ("), "{shown}");
    assert!(!shown.contains("word"), "what the tasks have read is in their results");
    stage.node.shutdown.cancel();
}
