//! The governors of rate and concurrency against providers with a limit, in virtual time.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod concurrency;
mod endpoint;

use starling_engine::rate::{self, Answer, Pass, RateGovernor, RateLimits};
use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

const LATENCY: Duration = Duration::from_millis(300);
const REFUSAL: Duration = Duration::from_millis(20);

/// Accepts so many requests a second, with a bucket for a tenth of a second, and refuses those beyond.
struct Provider {
    tokens: f64,
    at: Duration,
}

impl Provider {
    fn accepts(&mut self, now: Duration, limit: f64) -> bool {
        self.tokens = (self.tokens + (now - self.at).as_secs_f64() * limit).min(limit / 10.0);
        self.at = now;
        let accepted = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(accepted));
        accepted
    }
}

/// What was asked in one second.
#[derive(Clone, Copy, Default)]
struct Second {
    accepted: u32,
    refused: u32,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Answered { accepted: bool, sent: u64 },
    Try,
}

/// Asks as fast as the governor lets it, with at most `slots` calls open, while the limit is what `limit` says.
fn run(seconds: usize, slots: usize, limit: impl Fn(f64) -> f64) -> Vec<Second> {
    let mut governor = RateGovernor::new(RateLimits::default());
    let mut provider = Provider { tokens: 0.0, at: Duration::ZERO };
    let mut seen = vec![Second::default(); seconds];
    let mut passes: Vec<Pass> = Vec::new();
    let mut open = 0;
    let mut events = BinaryHeap::from([Reverse((Duration::ZERO, Happening::Try))]);
    while let Some(Reverse((now, happening))) = events.pop() {
        let Some(second) = seen.get_mut(usize::try_from(now.as_secs()).unwrap()) else { break };
        match happening {
            Happening::Answered { accepted, sent } => {
                open -= 1;
                let pass = passes[usize::try_from(sent).unwrap()];
                let answer = if accepted { Answer::Accepted } else { Answer::Refused(None) };
                governor.answered(now, pass, answer);
            }
            Happening::Try if open >= slots => {
                events.push(Reverse((now + Duration::from_millis(1), Happening::Try)));
            }
            Happening::Try => match governor.pass(now) {
                Err(wait) => events.push(Reverse((now + wait, Happening::Try))),
                Ok(pass) => {
                    let accepted = provider.accepts(now, limit(now.as_secs_f64()));
                    let after = if accepted { LATENCY } else { REFUSAL };
                    *(if accepted { &mut second.accepted } else { &mut second.refused }) += 1;
                    let sent = passes.len() as u64;
                    passes.push(pass);
                    open += 1;
                    events.push(Reverse((now + after, Happening::Answered { accepted, sent })));
                    events.push(Reverse((now, Happening::Try)));
                }
            },
        }
    }
    seen
}

/// Accepted a second, and the share of refusals.
fn of(seconds: &[Second]) -> (f64, f64) {
    let (accepted, refused) =
        seconds.iter().fold((0, 0), |(a, r), second| (a + second.accepted, r + second.refused));
    (f64::from(accepted) / seconds.len() as f64, f64::from(refused) / f64::from((accepted + refused).max(1)))
}

#[test]
fn it_settles_below_a_limit_and_uses_it() {
    // At low limits the one refusal that ends a probe is a larger share.
    for (limit, most) in [(30.0, 0.01), (100.0, 0.004), (500.0, 0.004), (1200.0, 0.004)] {
        let seen = run(130, 2_000, |_| limit);
        let (rate, refused) = of(&seen[10..]);
        println!(
            "limit {limit}: {rate:.1}/s accepted, {:.3} % refused after the first 10 s",
            refused * 100.0
        );
        assert!(rate >= 0.9 * limit, "{rate} of {limit}");
        assert!(refused < most, "{refused} at {limit}");
    }
}

#[test]
fn what_it_falls_to_is_not_less_because_the_rate_was_rising_just_then() {
    for limit in [250.0, 500.0, 1200.0] {
        let seen = run(20, 2_000, |_| limit);
        let (rate, refused) = of(&seen[15..]);
        println!("limit {limit}: {rate:.1}/s, {:.3} % refused, before anything is probed", refused * 100.0);
        assert!(rate >= 0.95 * limit, "{rate} of {limit}");
    }
}

#[test]
fn it_follows_a_limit_down_and_up() {
    let seen = run(150, 2_000, |now| if (30.0..60.0).contains(&now) { 100.0 } else { 500.0 });
    let (low, refused) = of(&seen[40..60]);
    println!("cut to 100: {low:.1}/s, {:.3} % refused, 10 s later", refused * 100.0);
    assert!((90.0..=101.0).contains(&low), "{low}");
    assert!(refused < 0.01, "{refused}");
    let (high, refused) = of(&seen[120..]);
    let back = seen[60..].iter().position(|second| second.accepted >= 450).unwrap_or(usize::MAX);
    println!("raised to 500: {high:.1}/s, {:.3} % refused, found after {back} s", refused * 100.0);
    assert!(high >= 450.0 && back <= 60, "{high} after {back}");
}

#[test]
fn a_provider_that_takes_nothing_is_left_alone_for_as_long_as_it_says() {
    let mut governor = RateGovernor::new(RateLimits::default());
    let at = Duration::from_secs;
    let pass = governor.pass(at(1)).unwrap();
    governor.answered(at(1), pass, Answer::Refused(Some(at(30))));
    assert_eq!(governor.pass(at(2)), Err(at(29)));
    let at_once = (0..100).filter(|_| governor.pass(at(31)).is_ok()).count();
    assert!((1..=3).contains(&at_once), "of those who waited {at_once} come at once");
}

#[test]
fn who_asks_for_little_is_not_given_more() {
    let mut governor = RateGovernor::new(RateLimits::default());
    let mut now = Duration::ZERO;
    for _ in 0..100 {
        now += Duration::from_millis(100);
        let pass = governor.pass(now).unwrap();
        governor.answered(now, pass, Answer::Accepted);
    }
    let pass = governor.pass(now + Duration::from_millis(100)).unwrap();
    governor.answered(now, pass, Answer::Refused(None));
    let held = governor.rate();
    assert!((9.0..=11.0).contains(&held), "what was accepted: {held}");
    for _ in 0..100 {
        now += Duration::from_secs(1);
        if let Ok(pass) = governor.pass(now) {
            governor.answered(now, pass, Answer::Accepted);
        }
    }
    assert!((governor.rate() - held).abs() < 1e-9, "{held} became {}", governor.rate());
}

#[test]
fn what_one_endpoint_takes_is_shared_by_demand() {
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let part = |limit: f64, own: f64, others: &[f64]| rate::share(limit, own, others) * limit;
    assert!(near(part(100.0, 500.0, &[]), 100.0), "nobody else asks");
    assert!(near(part(100.0, 500.0, &[500.0, 70.0, 90.0]), 25.0), "all want more than there is");
    assert!(near(part(100.0, 10.0, &[500.0, 500.0]), 10.0), "who wants little has it");
    assert!(near(part(100.0, 500.0, &[10.0, 500.0]), 45.0), "and the others have the rest");
    assert!(near(part(100.0, 0.0, &[10.0]), 1.0 + 89.0 / 2.0), "what nobody wants is there for all");
    assert!(near(part(100.0, f64::NAN, &[f64::INFINITY, -5.0]), 100.0 / 3.0), "nonsense is a small wish");

    // Whatever they want, the parts of all are the whole.
    for demands in
        [vec![3.0, 1.0, 4.0, 1.0, 5.0], vec![0.0; 100], vec![1e9, 2.0, 2.0], vec![40.0, 40.0, 40.0]]
    {
        for limit in [0.5, 20.0, 100.0, 1500.0] {
            let sum: f64 = (0..demands.len())
                .map(|own| {
                    let mut others = demands.clone();
                    let own = others.remove(own);
                    rate::share(limit, own, &others)
                })
                .sum();
            assert!(near(sum, 1.0), "{sum} of {limit} for {demands:?}");
        }
    }
}

#[test]
fn who_shares_sends_its_part_and_tells_all_what_the_whole_is() {
    let mut governor = RateGovernor::new(RateLimits { burst: Duration::ZERO, ..RateLimits::default() });
    governor.take_share(0.25);
    assert!((governor.rate() - 50.0).abs() < 1e-9, "a quarter of the 200 of all");
    assert_eq!(governor.found(), None);
    // Somebody else was refused and came down to 80 requests a second of all.
    governor.heard(Duration::ZERO, 80.0);
    assert!((governor.rate() - 20.0).abs() < 1e-9);
    assert_eq!(governor.found(), Some(80.0));
    governor.heard(Duration::ZERO, 10.0);
    assert_eq!(governor.found(), Some(80.0), "what it knows for itself is not overruled");
    // Its own refusal, after 2 s at 20 requests a second, says that all may send 80 times 0.98.
    let mut now = Duration::ZERO;
    let mut last = None;
    while now < Duration::from_secs(2) {
        match governor.pass(now) {
            Ok(pass) => last = Some(pass),
            Err(wait) => now += wait,
        }
    }
    governor.answered(now, last.unwrap(), Answer::Refused(None));
    let found = governor.found().unwrap();
    assert!((70.0..=80.0).contains(&found), "{found}");
}
