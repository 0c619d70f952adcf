//! How calls wait for their turn, in virtual time, and what a provider with limits sees of them, in real time.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "rate/conversations.rs"]
mod conversations;

use futures::{FutureExt as _, future::join_all};
use starling_engine::{
    breaker::{BreakerLimits, BreakerState},
    rate::{ConcurrencyLimits, RateLimits},
    retries::RetryLimits,
};
use starling_llm::{
    Answer, Ask, ChatRequest, Format, Hints, Leave, Limiter as _, Message, Model as _, ModelErrorKind,
    NotSent, OpenAiModel, OpenAiOptions, Purpose, Quota, Reuse, Speaker,
    mock::{MockAction, MockLimits, MockOptions, MockSaturation, MockServer},
};
use starling_protocol::{Priority, Usage};
use starling_runtime::settings::{BulkheadSettings, RateSettings, Settings, Sources};
use starling_service::{EndpointLimits, RateLimiter, model_from};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::{Instant, advance, sleep};

const SECOND: Duration = Duration::from_secs(1);

fn limiter(start: f64, longest: usize) -> Arc<RateLimiter> {
    let limits = RateLimits { start, min: 0.1, burst: Duration::ZERO, ..RateLimits::default() };
    let rate = RateSettings { limits, tokens_per_minute: None };
    RateLimiter::new(EndpointLimits { rate, max_waiting: longest, ..limits_as_set() })
}

fn limits_as_set() -> EndpointLimits {
    EndpointLimits {
        rate: as_set(),
        breaker: BreakerLimits::default(),
        retries: RetryLimits::default(),
        concurrency: ConcurrencyLimits::fixed(1000),
        bulkheads: BulkheadSettings::default(),
        max_in_flight: 1000,
        max_waiting: 1000,
    }
}

fn ask(within: Duration) -> Ask {
    let deadline = Instant::now() + within;
    Ask {
        model: "m".into(),
        purpose: Purpose::Work,
        tokens: 10,
        deadline,
        priority: Priority::default(),
        failed: 0,
        retry: false,
        patient: true,
    }
}

async fn admit(limiter: &RateLimiter, within: Duration) -> Box<dyn Leave> {
    let admitted = limiter.admit(ask(within)).await;
    admitted.unwrap_or_else(|not_sent| panic!("{not_sent}"))
}

#[tokio::test(start_paused = true)]
async fn whose_deadline_comes_first_goes_first() {
    let limiter = limiter(1.0, 10);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut leaves = vec![admit(&limiter, 60 * SECOND).await];
    let waiting = [60, 50, 40, 3].map(|within: u32| {
        let (limiter, order) = (limiter.clone(), order.clone());
        tokio::spawn(async move {
            let leave = admit(&limiter, within * SECOND).await;
            order.lock().unwrap().push(within);
            leave
        })
    });
    for leave in join_all(waiting).await {
        leaves.push(leave.unwrap());
    }
    assert_eq!(*order.lock().unwrap(), [3, 40, 50, 60]);
    assert_eq!(limiter.figures()[0].waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn who_is_more_urgent_goes_ahead_of_those_whose_deadlines_are_not_long_before() {
    let limiter = limiter(1.0, 10);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut leaves = vec![admit(&limiter, 60 * SECOND).await];
    let hours = |hours: u32| hours * 3600 * SECOND;
    let waiting = [
        ("batch", 0, hours(2)),
        ("old batch", 0, 50 * SECOND),
        ("urgent", 5, hours(1)),
        ("later", 5, hours(2)),
    ]
    .map(|(name, level, within)| {
        let (limiter, order) = (limiter.clone(), order.clone());
        tokio::spawn(async move {
            let ask = Ask { priority: Priority::of_level(level), ..ask(within) };
            let leave = limiter.admit(ask).await.unwrap();
            order.lock().unwrap().push(name);
            leave
        })
    });
    for leave in join_all(waiting).await {
        leaves.push(leave.unwrap());
    }
    // A level is ten minutes: what waits for long has its turn in the end.
    assert_eq!(*order.lock().unwrap(), ["old batch", "urgent", "later", "batch"]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done_in_time_is_not_sent() {
    let limiter = limiter(0.2, 2);
    let mut first = admit(&limiter, 60 * SECOND).await;
    // The next turn comes after 5 s.
    let refused = limiter.admit(ask(2 * SECOND)).await.err().unwrap();
    assert_eq!(refused, NotSent::NoTurn { rate: 0, places: 1000 });
    // The fastest call of those that ended lately took 10 s.
    advance(8 * SECOND).await;
    first.answered(Answer::Accepted, Hints::default());
    first.used(Usage { prompt_tokens: 5, completion_tokens: 5, cached_tokens: 0 });
    drop(first);
    let began = Instant::now();
    let refused = limiter.admit(ask(9 * SECOND)).await.err().unwrap();
    assert!(matches!(refused, NotSent::TooLate { .. }), "{refused:?}");
    assert_eq!(began.elapsed(), Duration::ZERO, "at once");
    // After a while nobody knows any more.
    sleep(70 * SECOND).await;
    drop(admit(&limiter, 9 * SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn the_line_has_an_end_and_who_goes_leaves_a_place() {
    let limiter = limiter(0.1, 2);
    let _first = admit(&limiter, 60 * SECOND).await;
    let mut waiting = [0, 1].map(|_| Box::pin(limiter.admit(ask(60 * SECOND))));
    for waiter in &mut waiting {
        assert!(waiter.now_or_never().is_none());
    }
    assert_eq!(limiter.admit(ask(60 * SECOND)).await.err().unwrap(), NotSent::Full(2));
    let [first, second] = waiting;
    drop(first);
    assert_eq!(limiter.figures()[0].waiting, 1);
    // The one behind stands first now, and its turn comes.
    assert!(second.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_while_the_endpoint_says_that_nothing_is_left() {
    let limiter = limiter(1000.0, 10);
    let mut leave = admit(&limiter, 60 * SECOND).await;
    let spent = Quota { limit: Some(100), remaining: Some(0), reset: Some(100 * SECOND) };
    leave.answered(Answer::Accepted, Hints { requests: spent, ..Hints::default() });
    let began = Instant::now();
    drop(admit(&limiter, 60 * SECOND).await);
    // One of a hundred is there again after a hundredth of the time; the jitter is a tenth at most.
    assert!((SECOND..SECOND.mul_f64(1.11)).contains(&began.elapsed()), "{:?}", began.elapsed());

    let mut leave = admit(&limiter, 60 * SECOND).await;
    let tokens = Quota { limit: Some(600), remaining: Some(0), reset: Some(60 * SECOND) };
    leave.answered(Answer::Accepted, Hints { tokens, ..Hints::default() });
    let began = Instant::now();
    drop(admit(&limiter, 60 * SECOND).await);
    // 10 tokens, at 10 a second.
    assert!((SECOND..SECOND.mul_f64(1.11)).contains(&began.elapsed()), "{:?}", began.elapsed());
}

fn server(limits: MockLimits) -> MockServer {
    let mut options = MockOptions::new(Arc::new(|_| MockAction::reply_after(SECOND / 20, "fine")));
    options.limits = Some(limits);
    MockServer::start(options).unwrap()
}

fn request(number: usize, max_tokens: u32, within: Duration) -> ChatRequest {
    ChatRequest {
        purpose: Purpose::Work,
        messages: vec![Message { speaker: Speaker::User, text: format!("question {number}") }],
        tools: Vec::new(),
        format: Format::Text,
        max_tokens: Some(max_tokens),
        temperature: None,
        deadline: Instant::now() + within,
        traceparent: None,
        allowance: None,
        reuse: Reuse::Allowed,
        priority: Priority::default(),
        model: None,
    }
}

fn model(server: &MockServer, rate: RateSettings) -> OpenAiModel {
    let limiter = RateLimiter::new(EndpointLimits { rate, ..limits_as_set() });
    OpenAiModel::limited_by(limiter, OpenAiOptions::new(server.base_url(), "m")).unwrap()
}

fn as_set() -> RateSettings {
    RateSettings { limits: RateLimits::default(), tokens_per_minute: None }
}

#[tokio::test]
async fn nobody_fails_because_a_provider_says_too_many() {
    let server = server(MockLimits { requests_per_s: 100.0, burst: 10.0, tokens_per_minute: None });
    let model = model(&server, as_set());
    let calls = (0..600).map(|number| {
        let model = model.clone();
        async move { model.chat(request(number, 10, 60 * SECOND)).await }
    });
    let began = Instant::now();
    let replies = join_all(calls).await;
    let failed: Vec<_> = replies.iter().filter_map(|reply| reply.as_ref().err()).collect();
    assert!(failed.is_empty(), "{} failed, such as {:?}", failed.len(), failed.first());
    let stats = server.stats();
    println!(
        "{} of {} refused in {:.1} s",
        stats.refused,
        stats.calls + stats.refused,
        began.elapsed().as_secs_f64()
    );
    assert_eq!(stats.calls, 600);
    assert!(stats.refused < 120, "{} were refused", stats.refused);
}

#[tokio::test]
async fn a_limit_of_tokens_is_heard_and_kept() {
    let limit = 60_000.0;
    let server = server(MockLimits { requests_per_s: 1e6, burst: 1e6, tokens_per_minute: Some(limit) });
    let model = model(&server, as_set());
    // Somebody has asked before; so the limit is known.
    model.chat(request(0, 10, 60 * SECOND)).await.unwrap();
    let calls = (1..=62).map(|number| model.chat(request(number, 1000, 60 * SECOND)));
    let began = Instant::now();
    let replies = join_all(calls).await;
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    let stats = server.stats();
    println!("{} refused, in {:.1} s", stats.refused, began.elapsed().as_secs_f64());
    assert!(began.elapsed() > SECOND, "62 thousand of 60 thousand take some time");
    assert!(stats.refused <= 6, "{} were refused", stats.refused);
}

#[tokio::test]
async fn who_is_refused_to_the_end_is_told_so() {
    let server = server(MockLimits { requests_per_s: 1e-3, burst: 0.0, tokens_per_minute: None });
    let began = Instant::now();
    let error = model(&server, as_set()).chat(request(0, 10, 2 * SECOND)).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::RateLimited, "{error}");
    assert!(began.elapsed() < 3 * SECOND, "the wait that was asked for is longer than there is time");
}

fn ask_for(purpose: Purpose, model: &str, within: Duration) -> Ask {
    Ask { model: model.into(), purpose, ..ask(within) }
}

/// Four places, which critics take all of; more critics wait, in `judge`, and a planner whose time comes later, in `plan`.
async fn critics_do_not_starve_a_planner(limiter: Arc<RateLimiter>, judge: &str, plan: &str) {
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(limiter.admit(ask_for(Purpose::Judge, judge, 60 * SECOND)).await.unwrap());
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let wait = |ask: Ask| {
        let (limiter, order, purpose) = (limiter.clone(), order.clone(), ask.purpose);
        tokio::spawn(async move {
            let leave = limiter.admit(ask).await.unwrap();
            order.lock().unwrap().push(purpose);
            sleep(SECOND).await;
            drop(leave);
        })
    };
    let mut waiting: Vec<_> = (0..6).map(|_| wait(ask_for(Purpose::Judge, judge, 60 * SECOND))).collect();
    waiting.extend((0..2).map(|_| wait(ask_for(Purpose::Plan, plan, 90 * SECOND))));
    sleep(SECOND).await;
    let waits = |limiter: &RateLimiter| limiter.figures().iter().map(|of| of.waiting).sum::<usize>();
    assert_eq!((order.lock().unwrap().len(), waits(&limiter)), (0, 8));
    drop(open.pop());
    drop(open);
    for call in waiting {
        call.await.unwrap();
    }
    use Purpose::{Judge, Plan};
    let order = order.lock().unwrap().clone();
    let at = order.iter().position(|purpose| *purpose == Plan).unwrap();
    assert!(at < 4, "one of the next four places is a planner's: {order:?}");
    assert_eq!(order.iter().filter(|purpose| **purpose == Judge).count(), 6);
    assert!(limiter.figures().iter().all(|of| of.open == [0; 4]), "{:?}", limiter.figures());
}

#[tokio::test(start_paused = true)]
async fn no_purpose_keeps_the_places_of_another_one() {
    let bulkheads = BulkheadSettings { plan: 0.25, judge: 0.5, ..BulkheadSettings::default() };
    let limits = EndpointLimits { bulkheads, ..limits_as_set() };
    let of_a_model = EndpointLimits { concurrency: ConcurrencyLimits::fixed(4), ..limits };
    critics_do_not_starve_a_planner(RateLimiter::new(of_a_model), "m", "m").await;
    let of_all = EndpointLimits { max_in_flight: 4, ..limits };
    critics_do_not_starve_a_planner(RateLimiter::new(of_all), "m", "m").await;
    critics_do_not_starve_a_planner(RateLimiter::new(of_all), "of critics", "of planners").await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_not_kept_by_calls_that_hang_while_fewer_are_tried() {
    let concurrency = ConcurrencyLimits { start: 16, ..ConcurrencyLimits::default() };
    let rate = RateSettings::unlimited();
    let limiter = RateLimiter::new(EndpointLimits { rate, concurrency, ..limits_as_set() });
    let calls: Vec<_> = (0..40)
        .map(|number| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let mut leave = admit(&limiter, 600 * SECOND).await;
                // The first 16 are answered, and all others hang.
                sleep(if number < 16 { SECOND } else { 600 * SECOND }).await;
                leave.used(Usage { prompt_tokens: 5, completion_tokens: 5, cached_tokens: 0 });
            })
        })
        .collect();
    let open = || limiter.figures()[0].open.iter().sum::<usize>();
    sleep(2 * SECOND).await;
    assert!(open() < 16, "{} are open to see how long calls take then", open());
    sleep(30 * SECOND).await;
    assert_eq!((open(), limiter.figures()[0].waiting), (16, 8));
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn an_endpoint_that_is_full_and_does_not_say_so_is_given_fewer_calls() {
    let mut options = MockOptions::new(Arc::new(|_| MockAction::reply("fine")));
    options.saturation = Some(MockSaturation { places: 8, service: SECOND / 20 });
    let server = MockServer::start(options).unwrap();
    let (rate, concurrency) = (RateSettings::unlimited(), ConcurrencyLimits::default());
    let limiter = RateLimiter::new(EndpointLimits { rate, concurrency, ..limits_as_set() });
    let options = OpenAiOptions::new(server.base_url(), "m");
    let model = OpenAiModel::limited_by(limiter.clone(), options).unwrap();
    let began = Instant::now();
    let calls = 1000;
    let replies = join_all((0..calls).map(|number| model.chat(request(number, 10, 60 * SECOND))));
    let limits = async {
        let mut limits = Vec::new();
        loop {
            // Looked at from outside now and then, as a scrape of the metrics does it.
            sleep(SECOND / 10).await;
            let figures = &limiter.figures()[0];
            if figures.waiting == 0 {
                return limits;
            }
            limits.push(figures.limit);
        }
    };
    let (replies, limits) = tokio::join!(replies, limits);
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    let took = began.elapsed().as_secs_f64();
    println!(
        "{calls} calls in {took:.2} s; {} were open at most; limits {limits:?}",
        server.stats().max_open
    );
    assert_eq!(server.stats().max_open, 64, "it began with more");
    assert!(limits.last().is_some_and(|last| (8..=20).contains(last)), "{limits:?}");
    let best = calls as f64 / 8.0 / 20.0;
    assert!(took < best / 0.6, "{took} s, and {best} s at best");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_fails_is_left_alone_and_calls_wait() {
    let limiter = limiter(1000.0, 100);
    for _ in 0..10 {
        admit(&limiter, 60 * SECOND).await.answered(Answer::Failed, Hints::default());
    }
    assert_eq!(limiter.breaker(), BreakerState::Open);
    let began = Instant::now();
    assert_eq!(limiter.admit(ask(SECOND)).await.err(), Some(NotSent::Down));
    let waiting = [0, 1, 2].map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let leave = admit(&limiter, 120 * SECOND).await;
            (leave, Instant::now())
        })
    });
    let others: Vec<_> = waiting.into_iter().collect();
    // One of them tries it; the others wait for what it meets.
    sleep(20 * SECOND).await;
    let (tried, still_waiting): (Vec<_>, Vec<_>) = others.into_iter().partition(|call| call.is_finished());
    assert_eq!((tried.len(), limiter.figures()[0].waiting), (1, 2));
    for call in tried {
        let (mut leave, at) = call.await.unwrap();
        assert!((15 * SECOND..17 * SECOND).contains(&(at - began)), "{:?}", at - began);
        leave.answered(Answer::Accepted, Hints::default());
    }
    for call in still_waiting {
        let (_leave, at) = call.await.unwrap();
        assert!((at - began) < 22 * SECOND, "as soon as it is known that the endpoint answers");
    }
    assert_eq!(limiter.breaker(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn only_a_share_of_the_calls_is_sent_again_and_the_rest_of_them_wait() {
    let retries = RetryLimits { share: 0.1, per_second: 0.1, burst: 2 };
    let limiter =
        RateLimiter::new(EndpointLimits { rate: RateSettings::unlimited(), retries, ..limits_as_set() });
    let again = |within| Ask { retry: true, failed: 1, ..ask(within) };
    let begun = Instant::now();
    let mut leaves = Vec::new();
    for _ in 0..2 {
        leaves.push(limiter.admit(again(SECOND)).await.unwrap_or_else(|not_sent| panic!("{not_sent}")));
    }
    assert!(begun.elapsed() < SECOND / 10, "as many at once as are allowed: {:?}", begun.elapsed());
    let refused = limiter.admit(again(SECOND)).await.err();
    assert_eq!(refused, Some(NotSent::NoRetry));
    // First tries are not held up, and make room for one more.
    for _ in 0..10 {
        leaves.push(admit(&limiter, SECOND).await);
    }
    assert!(limiter.admit(again(SECOND)).await.is_ok());
    let begun = Instant::now();
    assert!(limiter.admit(again(60 * SECOND)).await.is_ok(), "who has time waits");
    assert!(begun.elapsed() > 5 * SECOND, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_outage_of_an_endpoint_costs_time_and_no_call() {
    // The first 25 requests fail, 10 of which open the circuit.
    let failing = Arc::new(std::sync::atomic::AtomicU32::new(25));
    let script = failing.clone();
    let options = MockOptions::new(Arc::new(move |_| {
        use std::sync::atomic::Ordering::SeqCst;
        let fails = script.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if fails { MockAction::error(503, "down") } else { MockAction::reply("fine") }
    }));
    let server = MockServer::start(options).unwrap();
    let breaker = BreakerLimits { failures: 10, open: SECOND / 5, probes: 1 };
    let limiter = RateLimiter::new(EndpointLimits { breaker, ..limits_as_set() });
    let mut options = OpenAiOptions::new(server.base_url(), "m");
    options.max_attempts = 11; // the failures that open the circuit may all meet one call, whose deadline comes first
    options.backoff = starling_llm::Backoff { base: SECOND / 100, cap: SECOND / 50 };
    let model = OpenAiModel::limited_by(limiter.clone(), options).unwrap();
    let replies = join_all((0..50).map(|number| model.chat(request(number, 10, 60 * SECOND)))).await;
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    assert_eq!(limiter.breaker(), BreakerState::Closed);
    assert_eq!(server.stats().calls, 75, "50 answers and 25 failures");
}

#[tokio::test]
async fn questions_that_make_an_endpoint_fail_do_not_keep_it_closed_for_others() {
    let options = MockOptions::new(Arc::new(|call| {
        let number: usize = call.prompt.rsplit(' ').next().unwrap().parse().unwrap();
        if number < 12 { MockAction::error(500, "it crashed") } else { MockAction::reply("fine") }
    }));
    let server = MockServer::start(options).unwrap();
    let breaker = BreakerLimits { open: SECOND / 5, ..BreakerLimits::default() };
    let limiter = RateLimiter::new(EndpointLimits { breaker, ..limits_as_set() });
    let mut options = OpenAiOptions::new(server.base_url(), "m");
    options.backoff = starling_llm::Backoff { base: SECOND / 100, cap: SECOND / 50 };
    let model = OpenAiModel::limited_by(limiter.clone(), options).unwrap();
    let ask = |number: usize, within: Duration| {
        let model = model.clone();
        tokio::spawn(async move { model.chat(request(number, 10, within)).await })
    };
    let poison: Vec<_> = (0..12).map(|number| ask(number, 20 * SECOND)).collect();
    while limiter.breaker() == BreakerState::Closed {
        sleep(SECOND / 100).await; // it has no event outside
    }
    let began = Instant::now();
    let others: Vec<_> = (12..40).map(|number| ask(number, 60 * SECOND)).collect();
    for other in others {
        assert!(other.await.unwrap().is_ok());
    }
    // Their deadlines are later; still one of them tries the endpoint next.
    assert!(began.elapsed() < 10 * SECOND, "{:?}", began.elapsed());
    for question in poison {
        let error = question.await.unwrap().unwrap_err();
        assert!(matches!(error.kind, ModelErrorKind::Server | ModelErrorKind::Deadline), "{error}");
    }
}

#[tokio::test]
async fn an_endpoint_that_fails_for_all_is_not_waited_for_where_another_one_answers() {
    let down = MockServer::start(MockOptions::new(Arc::new(|_| MockAction::error(503, "down")))).unwrap();
    let up = MockServer::start(MockOptions::new(Arc::new(|_| MockAction::reply("fine")))).unwrap();
    let overrides = [
        ("model.base_url", down.base_url()),
        ("model.name", "m".to_owned()),
        ("model.tries", "1".to_owned()),
        ("model.breaker.failures", "3".to_owned()),
        ("model.breaker.open", "1h".to_owned()),
        ("model.fallback", "other".to_owned()),
        ("providers.other.base_url", up.base_url()),
        ("providers.other.name", "m".to_owned()),
    ];
    let overrides = overrides.map(|(path, value)| (path.to_owned(), value)).to_vec();
    let settings = Settings::load(&Sources { overrides, ..Sources::default() }).unwrap();
    let asked = model_from(&settings.model).unwrap();
    for number in 0..20 {
        let reply = asked.model.chat(request(number, 10, 60 * SECOND)).await.unwrap();
        assert_eq!(reply.text, "fine");
    }
    assert_eq!(down.stats().calls, 3, "then it is left alone");
    let breakers: Vec<_> = asked.limiters.iter().map(|(_, limiter)| limiter.breaker()).collect();
    assert_eq!(breakers, [BreakerState::Open, BreakerState::Closed]);
}
