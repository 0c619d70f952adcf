//! How many calls may be open at an endpoint that does not say when it has too many.

use super::endpoint::{Kind, Question, Run, Seen, run};
use starling_engine::rate::{ConcurrencyGovernor, ConcurrencyLimits, Ended, OpenCall};
use std::time::Duration;

fn starting_at(start: u32) -> ConcurrencyLimits {
    ConcurrencyLimits { start, ..ConcurrencyLimits::default() }
}

/// 2 s, less or more.
fn about_two_seconds(_: u64, random: f64) -> Question {
    (0, 100, 1.4 + 1.2 * random)
}

/// Four roles, with replies between 20 and 4000 tokens, a hundredth of a second each.
fn of_all_lengths(number: u64, random: f64) -> Question {
    let role = usize::try_from(number % 4).unwrap();
    let tokens = match role {
        0 => 20.0 * (1.0 + random),
        1 => 10.0 + 2000.0 * random.powi(3),
        2 => 300.0,
        _ => (100.0 / (1.0 - random)).min(4000.0),
    };
    (role, tokens as i64, 0.3 + tokens * 0.01)
}

fn show(what: &str, seen: &Seen, from: f64, to: f64) {
    let (work, p99, limits) = (seen.work(from, to), seen.p99(from, to), seen.limits(from, to));
    println!("{what}: {work:.1} busy, p99 {p99:.2} times that alone, limit {limits:?}, {from} to {to} s");
}

#[test]
fn an_endpoint_that_is_full_at_fifty_is_used_and_not_flooded() {
    for start in [4, 64, 500] {
        for question in [&|_, _| (0, 100, 2.0), &about_two_seconds] as [&dyn Fn(u64, f64) -> Question; 2] {
            let seen = run(&Run { limits: starting_at(start), question, ..Run::default() });
            show(&format!("from {start}"), &seen, 120.0, 600.0);
            assert!(seen.work(120.0, 600.0) >= 0.95 * 50.0);
            assert!(seen.p99(120.0, 600.0) <= 2.0 + 1e-6);
            let (low, high) = seen.limits(120.0, 600.0);
            assert!(low >= 50 && high <= 100, "{low} to {high}");
        }
    }
}

#[test]
fn a_small_endpoint_is_found_from_far_above() {
    let endpoint = &|_| (Kind::Queue(8), 1.0);
    let seen = run(&Run { endpoint, question: &about_two_seconds, ..Run::default() });
    show("8 places", &seen, 120.0, 600.0);
    assert!(seen.work(120.0, 600.0) >= 0.9 * 8.0);
    let (low, high) = seen.limits(120.0, 600.0);
    assert!(low >= 8 && high <= 16, "{low} to {high}");
}

#[test]
fn replies_of_all_lengths_do_not_fool_it() {
    let seen = run(&Run { seconds: 2000, question: &of_all_lengths, ..Run::default() });
    show("full", &seen, 200.0, 2000.0);
    assert!(seen.work(200.0, 2000.0) >= 0.9 * 50.0);
    assert!(seen.p99(200.0, 2000.0) <= 2.0);
    assert!(seen.limits(200.0, 2000.0).1 <= 100);

    // The same where there is room for all.
    let (endpoint, demand) = (&|_| (Kind::Queue(1000), 1.0), &|_| 64);
    let seen = run(&Run { seconds: 2000, endpoint, demand, question: &of_all_lengths, ..Run::default() });
    show("not full", &seen, 0.0, 2000.0);
    assert!(seen.limits(0.0, 2000.0).0 >= 64);
    assert!(seen.work(0.0, 2000.0) >= 0.97 * 64.0);

    // The questions of one role become those of another one, ten times as long.
    let lengths = |number, _| if number < 3000 { (0, 20, 0.5) } else { (1, 400, 5.0) };
    let seen = run(&Run { endpoint, demand, question: &lengths, ..Run::default() });
    assert!(seen.limits(0.0, 600.0).0 >= 64);
}

#[test]
fn an_endpoint_that_becomes_slower_or_faster_for_everybody_keeps_its_limit() {
    let slower = |at: f64| match at {
        ..200.0 => 1.0,
        200.0..400.0 => 2.0,
        _ => 1.0 / 3.0,
    };
    let question = &about_two_seconds;
    let endpoint = &|at| (Kind::Queue(50), slower(at));
    let seen = run(&Run { endpoint, question, ..Run::default() });
    for (from, to) in [(100.0, 200.0), (210.0, 400.0), (420.0, 600.0)] {
        show("full", &seen, from, to);
        assert!(seen.work(from, to) >= 0.9 * 50.0);
        assert!(seen.p99(from, to) <= 2.0);
    }
    let endpoint = &|at| (Kind::Queue(1000), slower(at));
    let seen = run(&Run { endpoint, question, demand: &|_| 64, ..Run::default() });
    show("not full", &seen, 0.0, 600.0);
    assert!(seen.limits(0.0, 600.0).0 >= 64);
    assert!(seen.work(0.0, 600.0) >= 0.93 * 64.0);
}

#[test]
fn it_follows_an_endpoint_that_has_fewer_places_and_more_again() {
    let places = |at: f64| match at {
        ..200.0 => 50,
        200.0..500.0 => 10,
        _ => 100,
    };
    let endpoint = &|at| (Kind::Queue(places(at)), 1.0);
    let seen = run(&Run { seconds: 800, endpoint, question: &about_two_seconds, ..Run::default() });
    for (from, to, places) in [(100.0, 200.0, 50.0), (400.0, 500.0, 10.0), (560.0, 800.0, 100.0)] {
        show(&format!("{places} places"), &seen, from, to);
        assert!(seen.work(from, to) >= 0.9 * places);
        assert!(seen.p99(from, to) <= 2.0);
    }
}

#[test]
fn an_endpoint_that_slows_down_by_degrees_is_asked_as_long_as_that_brings_something() {
    // Half as many bring two thirds as much where all is shared by 20; twice as many bring a fifth more.
    let endpoint = &|_| (Kind::Sharing(0.1), 1.0);
    let seen = run(&Run { seconds: 1200, endpoint, question: &about_two_seconds, ..Run::default() });
    show("each call is a tenth slower with each other one", &seen, 400.0, 1200.0);
    let (low, high) = seen.limits(400.0, 1200.0);
    assert!(low >= 10 && high <= 48, "{low} to {high}");
    assert!(seen.work(400.0, 1200.0) >= 0.6 * 10.0);
}

#[test]
fn who_asks_little_keeps_the_limit() {
    let demand = &|at: f64| (12.0 + 8.0 * (at / 7.0).sin()) as u32;
    // Even where the endpoint becomes slow for others' sake.
    let endpoint = &|at| (Kind::Queue(50), if at < 200.0 { 1.0 } else { 3.0 });
    let seen = run(&Run { seconds: 1000, endpoint, demand, question: &of_all_lengths, ..Run::default() });
    assert_eq!(seen.limits(0.0, 1000.0), (64, 64));

    // And who may not ask more: 10 requests a second, 20 at once.
    let seen = run(&Run { rate: 10.0, question: &about_two_seconds, ..Run::default() });
    show("10 a second", &seen, 0.0, 600.0);
    assert_eq!(seen.limits(0.0, 600.0), (64, 64));
    assert!(seen.rate(10.0, 600.0) >= 9.5);
}

#[test]
fn several_who_ask_one_endpoint_do_not_drive_each_other_up() {
    for (question, seconds) in
        [(&about_two_seconds as &dyn Fn(u64, f64) -> Question, 1200), (&of_all_lengths, 3000)]
    {
        let seen = run(&Run { limits: starting_at(16), processes: 10, seconds, question, ..Run::default() });
        let end = seconds as f64;
        show("10 processes", &seen, end / 2.0, end);
        assert!(seen.work(end / 2.0, end) >= 0.95 * 50.0);
        assert!(seen.limits(end / 2.0, end).1 <= 150, "of which 160 were at the beginning");
    }
}

#[test]
fn bounds_are_kept_and_a_fixed_number_stays() {
    let limits = ConcurrencyLimits { start: 40, min: 30, max: 60, ..ConcurrencyLimits::default() };
    let seen = run(&Run { limits, ..Run::default() });
    assert!(seen.limits(100.0, 600.0).1 == 60, "more is not allowed");
    let few = &|_| (Kind::Queue(2), 1.0);
    let (low, high) = run(&Run { limits, endpoint: few, ..Run::default() }).limits(0.0, 600.0);
    assert!(low == 30 && high <= 60, "{low} to {high}");
    let seen = run(&Run { limits: ConcurrencyLimits::fixed(7), ..Run::default() });
    assert_eq!(seen.limits(0.0, 600.0), (7, 7));
    assert!(seen.work(10.0, 600.0) >= 6.9, "without looks");
}

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(1000 + seconds)
}

/// As many as may be open.
fn fill(governor: &mut ConcurrencyGovernor, now: Duration) -> Vec<OpenCall> {
    governor.tick(now);
    let mut calls = Vec::new();
    while governor.has_room() {
        calls.push(governor.begin(now, 0));
    }
    calls
}

fn replied() -> Ended {
    Ended::Replied { tokens: 10, took: Duration::from_secs(1) }
}

#[test]
fn a_look_that_comes_to_nothing_is_given_up() {
    let mut governor = ConcurrencyGovernor::new(starting_at(16));
    // That there is room is not known after the first calls, so it looks how it is with half as many.
    for call in fill(&mut governor, at(0)) {
        governor.ended(at(1), call, replied());
    }
    let hanging = fill(&mut governor, at(1)).len();
    assert_eq!((hanging, governor.allowed(), governor.limit()), (4, 4, 16));
    // Nothing is answered any more.
    assert!(governor.tick(at(2)).is_some_and(|left| left <= Duration::from_secs(16)));
    assert_eq!(governor.tick(at(30)), None);
    assert_eq!(fill(&mut governor, at(30)).len(), 12);
}

#[test]
fn calls_that_get_no_reply_for_long_lower_it_and_errors_at_once_do_not() {
    let mut governor = ConcurrencyGovernor::new(ConcurrencyLimits { max: 32, ..starting_at(16) });
    let mut now = 0;
    let mut rounds = |governor: &mut ConcurrencyGovernor, count: u32, lasting: u64, ended: Ended| {
        for _ in 0..count {
            let calls = fill(governor, at(now));
            now += lasting;
            calls.into_iter().for_each(|call| governor.ended(at(now), call, ended));
        }
        governor.limit()
    };
    assert_eq!(rounds(&mut governor, 10, 1, replied()), 32);
    assert_eq!(rounds(&mut governor, 10, 0, Ended::Unanswered), 32);
    assert!(rounds(&mut governor, 10, 60, Ended::Unanswered) <= 4);
    assert_eq!(rounds(&mut governor, 100, 1, replied()), 32, "and it comes back");
}
