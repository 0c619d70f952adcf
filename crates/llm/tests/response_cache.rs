//! Replies that are given again: when, to whom, for how long, and what they cost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use async_trait::async_trait;
use futures::future::join_all;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use starling_llm::mock::{MockAction, MockServer};
use starling_llm::{
    CacheBounds, CacheFolderError, CacheOptions, CachedModel, ChatReply, ChatRequest, Deeds, DiskOptions,
    Model, ModelError, ModelErrorKind as Kind, ModelInfo, OpenAiModel, Price, Purpose, Purposes, Reuse,
    Source, StreamEvent, TextStream,
};
use starling_protocol::{CallReport, Usage};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::{eventually, mock, options, request};
use tokio::time::{Instant, advance, sleep};

const MINUTE: Duration = Duration::from_secs(60);

fn cache_options() -> CacheOptions {
    CacheOptions {
        purposes: Purposes::ALL,
        ttl: MINUTE,
        memory: CacheBounds { bytes: 1 << 20, entries: 1000 },
        disk: None,
    }
}

fn on_disk(folder: &Path) -> CacheOptions {
    let bounds = CacheBounds { bytes: 1 << 20, entries: 1000 };
    CacheOptions { disk: Some(DiskOptions { folder: folder.to_owned(), bounds }), ..cache_options() }
}

/// An endpoint behind a cache, with a price and without second tries.
fn cached(server: &MockServer) -> CachedModel {
    let mut options = options(&server.base_url());
    options.max_attempts = 1;
    options.prices.insert("small".into(), Price { input: 1.0, cached_input: 1.0, output: 1.0 });
    CachedModel::new(Arc::new(OpenAiModel::new(options).unwrap()), cache_options()).unwrap()
}

fn question(text: &str) -> ChatRequest {
    let mut request = request(Purpose::Work);
    request.messages[1].text = text.to_owned();
    request.deadline = Instant::now() + 100 * MINUTE;
    request
}

/// Says the number of the call and what it was asked, after a second, in three pieces.
#[derive(Clone, Default)]
struct Echo {
    calls: Arc<AtomicU64>,
    name: &'static str,
}

impl Echo {
    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn begin(&self, request: &ChatRequest) -> (Vec<String>, CallReport) {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let pieces = vec![number.to_string(), ": ".to_owned(), request.messages[1].text.clone()];
        let usage = Usage { prompt_tokens: 100, completion_tokens: 10, cached_tokens: 20 };
        (pieces, CallReport { model: "echo".into(), calls: 1, usage, cost_usd: 0.5, ..CallReport::default() })
    }
}

#[async_trait]
impl Model for Echo {
    fn info(&self) -> ModelInfo {
        ModelInfo { model: format!("echo{}", self.name), offline: false, endpoint: "echo".into() }
    }

    async fn chat(&self, request: ChatRequest) -> Result<ChatReply, ModelError> {
        let (pieces, report) = self.begin(&request);
        sleep(Duration::from_secs(1)).await;
        Ok(ChatReply { text: pieces.concat(), deeds: Deeds::default(), report })
    }

    async fn stream(&self, request: ChatRequest) -> Result<TextStream, ModelError> {
        let (pieces, report) = self.begin(&request);
        let pieces = stream::iter(pieces).then(|piece| async {
            sleep(Duration::from_millis(300)).await;
            Ok(StreamEvent::Text(piece))
        });
        let end = stream::once(async { Ok(StreamEvent::Done(report)) });
        Ok(pieces.chain(end).boxed())
    }
}

fn echo(options: CacheOptions) -> (Echo, CachedModel) {
    let echo = Echo::default();
    (echo.clone(), CachedModel::new(Arc::new(echo), options).unwrap())
}

async fn say(model: &CachedModel, text: &str) -> String {
    model.chat(question(text)).await.unwrap().text
}

async fn read(mut events: BoxStream<'_, Result<StreamEvent, ModelError>>) -> (Vec<String>, CallReport) {
    let mut pieces = Vec::new();
    loop {
        match events.next().await.unwrap().unwrap() {
            StreamEvent::Text(piece) => pieces.push(piece),
            StreamEvent::Calls(deeds) => panic!("nobody offered tools: {deeds:?}"),
            StreamEvent::Done(report) => {
                assert!(events.next().await.is_none(), "nothing follows");
                return (pieces, report);
            }
        }
    }
}

#[tokio::test]
async fn a_hundred_equal_questions_at_once_are_one_request() {
    let server = mock(|call| MockAction::hold_then_reply(format!("reply {}", call.number)));
    let model = cached(&server);
    let all = join_all((0..100).map(|_| model.chat(question("the same"))));
    let (replies, ()) = tokio::join!(all, async {
        eventually("a call is open", || server.stats().open == 1).await;
        server.release_for_good();
    });
    let replies: Vec<ChatReply> = replies.into_iter().map(Result::unwrap).collect();
    assert!(replies.iter().all(|reply| reply.text == "reply 1"));
    assert_eq!(server.stats().calls, 1);
    // One paid, and the others know what they were spared.
    let (paid, free): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.report.calls == 1);
    assert_eq!((paid.len(), free.len()), (1, 99));
    let paid = &paid[0].report;
    assert!(paid.cost_usd > 0.0 && paid.usage.prompt_tokens > 0 && paid.cached_calls == 0, "{paid:?}");
    for ChatReply { report, .. } in free {
        assert_eq!((report.calls, report.unpriced_calls, report.cost_usd), (0, 0, 0.0));
        assert_eq!((report.usage, report.model.as_str(), report.offline), (Usage::default(), "small", false));
        assert_eq!((report.cached_calls, report.cached_prompt_tokens), (1, paid.usage.prompt_tokens));
    }
    // Another question, and the same one later.
    assert_eq!(say(&model, "another").await, "reply 2");
    assert_eq!(say(&model, "the same").await, "reply 1");
    let counts = model.figures().counts.into_iter().find(|(purpose, _)| *purpose == Purpose::Work).unwrap().1;
    assert_eq!((counts.misses, counts.flight, counts.memory, counts.disk), (2, 99, 1, 0));
    assert_eq!((counts.hits(Source::Flight), model.figures().memory.0), (99, 2));
}

#[tokio::test]
async fn when_the_call_fails_one_who_waits_makes_the_next_and_the_failure_is_not_kept() {
    let server = mock(|call| match call.number {
        1 | 2 => MockAction::Hold { then: Box::new(MockAction::error(500, "broken")) },
        number => MockAction::hold_then_reply(format!("reply {number}")),
    });
    let model = cached(&server);
    let all = join_all((0..10).map(|_| model.chat(question("the same"))));
    let (replies, ()) = tokio::join!(all, async {
        for call in 1..=3 {
            eventually("a call is open", || server.stats().calls == call && server.stats().open == 1).await;
            server.release();
        }
    });
    let failed: Vec<&ModelError> = replies.iter().filter_map(|reply| reply.as_ref().err()).collect();
    assert_eq!((failed.len(), failed[0].kind, failed[0].report.calls), (2, Kind::Server, 1));
    assert_eq!(replies.iter().flatten().filter(|reply| reply.text == "reply 3").count(), 8);
    assert_eq!((server.stats().calls, server.stats().max_open), (3, 1), "one at a time");
}

#[tokio::test]
async fn when_nobody_wants_the_call_any_more_one_who_waits_makes_the_next() {
    let server = mock(|call| match call.number {
        1 => MockAction::hold_then_reply("nobody hears this"),
        number => MockAction::reply(format!("reply {number}")),
    });
    let model = Arc::new(cached(&server));
    let asker = model.clone();
    let first = tokio::spawn(async move { asker.chat(question("the same")).await });
    eventually("the first call is open", || server.stats().open == 1).await;
    let all = join_all((0..10).map(|_| model.chat(question("the same"))));
    let (replies, ()) = tokio::join!(all, async { first.abort() });
    assert!(replies.into_iter().all(|reply| reply.unwrap().text == "reply 2"));
    eventually("the first call is closed", || server.stats().closed_by_client == 1).await;
    assert_eq!(server.stats().calls, 2);
}

#[tokio::test]
async fn a_failure_that_everybody_would_meet_is_told_to_all_who_wait_and_is_not_kept() {
    let server = mock(|_| MockAction::Hold { then: Box::new(MockAction::error(401, "wrong key")) });
    let model = cached(&server);
    let all = join_all((0..10).map(|_| model.chat(question("the same"))));
    let (replies, ()) = tokio::join!(all, async {
        eventually("a call is open", || server.stats().open == 1).await;
        server.release_for_good();
    });
    let errors: Vec<ModelError> = replies.into_iter().map(Result::unwrap_err).collect();
    assert!(errors.iter().all(|error| error.kind == Kind::Unauthorized));
    assert_eq!((errors.iter().map(|error| error.report.calls).sum::<i64>(), server.stats().calls), (1, 1));
    model.chat(question("the same")).await.unwrap_err();
    assert_eq!(server.stats().calls, 2);
}

#[tokio::test(start_paused = true)]
async fn each_who_waits_keeps_its_own_deadline() {
    let (echo, model) = echo(cache_options());
    let mut hurried = question("the same");
    hurried.deadline = Instant::now() + Duration::from_millis(400);
    let begun = Instant::now();
    let (patient, hurried) = tokio::join!(model.chat(question("the same")), async {
        let error = model.chat(hurried).await.unwrap_err();
        (error, begun.elapsed())
    });
    assert_eq!(patient.unwrap().text, "1: the same");
    let (error, took) = hurried;
    let nothing = CallReport { model: "echo".into(), ..CallReport::default() };
    assert_eq!((error.kind, error.report), (Kind::Deadline, nothing));
    assert_eq!((took, echo.calls()), (Duration::from_millis(400), 1));
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_given_again_until_it_is_too_old() {
    let (echo, model) = echo(cache_options());
    assert_eq!(say(&model, "x").await, "1: x");
    advance(MINUTE - Duration::from_millis(1)).await;
    assert_eq!(say(&model, "x").await, "1: x");
    advance(Duration::from_millis(1)).await;
    assert_eq!(say(&model, "x").await, "2: x");
    assert_eq!(say(&model, "x").await, "2: x");
    assert_eq!(echo.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn no_more_is_kept_than_the_bounds_allow_and_what_was_not_used_for_longest_goes() {
    let memory = CacheBounds { bytes: 1 << 20, entries: 2 };
    let (_, model) = echo(CacheOptions { memory, ..cache_options() });
    for text in ["a", "b", "a", "c"] {
        say(&model, text).await;
    }
    assert_eq!(say(&model, "a").await, "1: a");
    assert_eq!(say(&model, "b").await, "4: b", "c took its place");
    assert_eq!(model.figures().memory.0, 2);

    let memory = CacheBounds { bytes: 4000, entries: 100 };
    let (echo, model) = self::echo(CacheOptions { memory, ..cache_options() });
    let long = |letter: &str| letter.repeat(1000);
    for letter in ["a", "b", "c", "d", "e"] {
        say(&model, &long(letter)).await;
        assert!(model.figures().memory.1 <= 4000);
    }
    assert_eq!(say(&model, &long("a")).await, format!("6: {}", long("a")));
    let too_long = "z".repeat(5000);
    for number in [7, 8] {
        assert!(say(&model, &too_long).await.starts_with(&number.to_string()), "it is never kept");
    }
    assert_eq!(say(&model, &long("a")).await, format!("6: {}", long("a")), "and drives nothing out");
    assert_eq!(echo.calls(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_kept_once_it_is_complete_and_what_is_kept_comes_as_a_stream() {
    let (echo, model) = echo(cache_options());
    let (pieces, report) = read(model.stream(question("x")).await.unwrap()).await;
    assert_eq!((pieces.len(), report.calls, report.cached_calls), (3, 1, 0), "it comes as it came");
    let (pieces, report) = read(model.stream(question("x")).await.unwrap()).await;
    assert_eq!((pieces, report.calls, report.cached_calls), (vec!["1: x".to_owned()], 0, 1));
    assert_eq!((report.cached_prompt_tokens, report.cost_usd), (100, 0.0));
    // However it was asked for.
    assert_eq!(say(&model, "x").await, "1: x");
    assert_eq!(say(&model, "y").await, "2: y");
    assert_eq!(read(model.stream(question("y")).await.unwrap()).await.0, ["2: y"]);
    assert_eq!(echo.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_in_the_middle_is_not_kept_and_one_who_waits_asks_anew() {
    let (echo, model) = echo(cache_options());
    let mut first = model.stream(question("x")).await.unwrap();
    assert_eq!(first.next().await.unwrap().unwrap(), StreamEvent::Text("1".into()));
    let mut second = model.stream(question("x")).boxed();
    assert!((&mut second).now_or_never().is_none(), "it waits for the first");
    drop(first);
    let second = read(second.await.unwrap()).await;
    assert_eq!((second.0.concat(), second.1.calls), ("2: x".to_owned(), 1));
    // Not even with all of its text, if nobody saw its end.
    let mut third = model.stream(question("y")).await.unwrap();
    for _ in 0..3 {
        third.next().await.unwrap().unwrap();
    }
    drop(third);
    assert_eq!(say(&model, "y").await, "4: y");
    assert_eq!(echo.calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_later_attempt_is_not_answered_with_what_was_rejected_and_its_reply_takes_the_place() {
    let (echo, model) = echo(cache_options());
    let attempt = |number| ChatRequest { reuse: Reuse::for_attempt(number), ..question("x") };
    for (number, said) in [(1, "1: x"), (1, "1: x"), (2, "2: x"), (3, "3: x"), (1, "3: x")] {
        assert_eq!(model.chat(attempt(number)).await.unwrap().text, said, "attempt {number}");
    }
    // Those at once share one call all the same: its reply is new to all of them.
    let replies = join_all((0..10).map(|_| model.chat(attempt(2)))).await;
    assert!(replies.into_iter().all(|reply| reply.unwrap().text == "4: x"));
    assert_eq!(echo.calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_was_of_no_use_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let (_, model) = echo(on_disk(folder.path()));
    assert_eq!(say(&model, "x").await, "1: x");
    model.forget(&question("x")).await;
    model.forget(&question("never asked")).await;
    assert_eq!(say(&model, "x").await, "2: x");
    assert_eq!(say(&model, "x").await, "2: x");
}

#[tokio::test(start_paused = true)]
async fn purposes_whose_replies_are_not_kept_are_asked_each_time() {
    let purposes = [Purpose::Judge].into_iter().collect();
    let (echo, model) = echo(CacheOptions { purposes, ..cache_options() });
    for purpose in Purpose::ALL {
        for _ in 0..2 {
            model.chat(ChatRequest { purpose, ..question("x") }).await.unwrap();
            read(model.stream(ChatRequest { purpose, ..question("y") }).await.unwrap()).await;
        }
    }
    assert_eq!(echo.calls(), 3 * 4 + 2);
    let both = join_all([model.chat(question("z")), model.chat(question("z"))]).await;
    assert!(both.iter().flatten().all(|reply| reply.report.calls == 1), "nor do they wait for each other");
}

/// The files of replies in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let shelves = fs::read_dir(folder).unwrap().map(|shelf| shelf.unwrap().path());
    let mut files: Vec<PathBuf> = shelves
        .filter(|path| path.is_dir())
        .flat_map(|shelf| fs::read_dir(shelf).unwrap().map(|file| file.unwrap().path()))
        .collect();
    files.sort();
    files
}

#[tokio::test(start_paused = true)]
async fn what_is_on_disk_survives_the_process_until_it_is_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("made/if/missing");
    let (_, model) = echo(on_disk(&inner));
    assert_eq!(say(&model, "x").await, "1: x");
    drop(model);
    let (next, model) = echo(on_disk(&inner));
    let reply = model.chat(question("x")).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.report.cached_calls, next.calls()), ("1: x", 1, 0));
    assert_eq!((reply.report.model.as_str(), reply.report.cached_prompt_tokens), ("echo", 100));
    let figures = model.figures();
    assert_eq!((figures.counts[1].1.disk, figures.memory.0, figures.disk.unwrap().0), (1, 1, 1));
    // What was read is at hand, and lives no longer than it would have.
    assert_eq!((say(&model, "x").await, model.figures().counts[1].1.memory), ("1: x".to_owned(), 1));
    advance(MINUTE + MINUTE).await;
    assert_eq!(say(&model, "x").await, "1: x", "the first of this process");
    assert_eq!(next.calls(), 1);
    // Who gives another word has another cache, also in the same folder.
    let other = Echo { name: " of another name", ..Echo::default() };
    let model = CachedModel::new(Arc::new(other.clone()), on_disk(&inner)).unwrap();
    say(&model, "x").await;
    assert_eq!(other.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn whatever_becomes_of_a_file_it_is_a_miss_and_no_error() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 7] = [
        ("it is gone", |file| fs::remove_file(file).unwrap()),
        ("it is empty", |file| fs::write(file, "").unwrap()),
        ("it is short", |file| fs::write(file, &fs::read(file).unwrap()[..90]).unwrap()),
        ("a bit is another", |file| {
            let mut bytes = fs::read(file).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(file, bytes).unwrap();
        }),
        ("it is another reply", |file| {
            let other = files(file.parent().unwrap().parent().unwrap());
            fs::copy(other.iter().find(|other| *other != file).unwrap(), file).map(drop).unwrap();
        }),
        ("it is no file", |file| {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        }),
        ("it is enormous", |file| fs::File::create(file).unwrap().set_len(1 << 32).unwrap()),
    ];
    for (what, damage) in damages {
        let folder = tempfile::tempdir().unwrap();
        let (_, model) = echo(on_disk(folder.path()));
        say(&model, "x").await;
        let file = files(folder.path()).pop().unwrap();
        say(&model, "another").await;
        damage(&file);
        let (echo, model) = echo(on_disk(folder.path()));
        for _ in 0..2 {
            assert_eq!(say(&model, "x").await, "1: x", "{what}");
            assert_eq!(echo.calls(), 1, "{what}");
        }
        if what != "it is no file" {
            let (echo, model) = self::echo(on_disk(folder.path()));
            say(&model, "x").await;
            assert_eq!(echo.calls(), 0, "{what}, and is whole again");
        }
    }
    // A folder that cannot be one is told at the start.
    let file = tempfile::NamedTempFile::new().unwrap();
    let error: CacheFolderError =
        CachedModel::new(Arc::new(Echo::default()), on_disk(file.path())).err().unwrap();
    assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
    // One that goes later is no error.
    let folder = tempfile::tempdir().unwrap();
    let (_, model) = echo(on_disk(folder.path()));
    folder.close().unwrap();
    assert_eq!(say(&model, "x").await, "1: x");
    assert_eq!(say(&model, "x").await, "1: x");
}

#[tokio::test(start_paused = true)]
async fn what_is_on_disk_is_bounded_also_for_several_processes_together() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = CacheBounds { bytes: 20_000, entries: 12 };
    let options = CacheOptions {
        disk: Some(DiskOptions { folder: folder.path().to_owned(), bounds }),
        memory: CacheBounds { bytes: 0, entries: 1 },
        ..cache_options()
    };
    let ((_, one), (_, two)) = (echo(options.clone()), echo(options.clone()));
    for number in 0..40 {
        say(&one, &format!("one {number}")).await;
        say(&two, &format!("two {number}")).await;
    }
    let count = files(folder.path()).len();
    assert!((10..=12 + 2 * 3).contains(&count), "{count}");
    // Whoever comes next tidies up, and leaves what is somebody else's.
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let (_, three) = echo(options.clone());
    assert!(files(folder.path()).len() <= 12);
    assert!(folder.path().join("notes.txt").exists());
    let large = "x".repeat(9000);
    for number in 0..4 {
        say(&three, &format!("{large}{number}")).await;
    }
    let bytes: u64 = files(folder.path()).iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes <= 20_000, "{bytes}");
    let (echo, four) = echo(options);
    say(&four, &format!("{large}3")).await;
    assert_eq!(echo.calls(), 0, "the last is there");
}

#[tokio::test]
async fn a_batch_with_65_in_a_hundred_repeated_questions_takes_65_in_a_hundred_fewer_calls() {
    let server = mock(|call| MockAction::reply(format!("{} is number {}", call.prompt, call.number)));
    let model = cached(&server);
    // 35 questions, each asked up to three times, some at once and some later.
    let batch: Vec<String> = (0..100).map(|number| format!("question {}", number % 35)).collect();
    let mut replies = Vec::new();
    for part in batch.chunks(50) {
        replies.extend(join_all(part.iter().map(|text| model.chat(question(text)))).await);
    }
    let replies: Vec<ChatReply> = replies.into_iter().map(Result::unwrap).collect();
    assert_eq!(server.stats().calls, 35);
    for (text, reply) in batch.iter().zip(&replies) {
        let first = batch.iter().position(|other| other == text).unwrap();
        assert_eq!(reply.text, replies[first].text);
        assert!(reply.text.starts_with(&format!("{text} is ")), "{}", reply.text);
    }
    let sum = |figure: fn(&CallReport) -> i64| replies.iter().map(|reply| figure(&reply.report)).sum::<i64>();
    assert_eq!((sum(|report| report.calls), sum(|report| report.cached_calls)), (35, 65));
    let usage = Usage { prompt_tokens: sum(|report| report.usage.prompt_tokens), ..Usage::default() };
    let reuse = usage.context_reuse(sum(|report| report.cached_prompt_tokens));
    assert!((0.6..=0.7).contains(&reuse), "{reuse}");
}
