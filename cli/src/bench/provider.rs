//! A provider that cuts its limit and raises it again, and is down for a while: how a busy swarm follows.

use super::{
    measure::{Figures, Percentiles, rss_mb},
    scene::{BenchModel, Scene, limits},
    stage::Stage,
};
use crate::{args::ProviderArgs, exit::CliError, session::Session};
use starling_llm::mock::{MockOptions, MockStats, scripts, scripts::Latencies};
use starling_protocol::IntentId;
use std::{
    collections::HashMap,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::interval;

/// Tasks of an intent.
const TASKS: usize = 100;
/// Seconds in which a swarm may find out what an endpoint allows.
const SETTLING: usize = 10;
/// Above this share of refusals in a second, the swarm has not followed yet.
const FEW: f64 = 0.05;
/// From this share of what is allowed on, it has.
const MOST: f64 = 0.9;
/// What an endpoint says that is down.
const DOWN: u16 = 503;

/// What the provider does, one after the other.
#[derive(Clone, Copy, Debug)]
enum Weather {
    Allows(u32),
    IsDown,
}

/// How long each of it lasts, in seconds.
fn weather(args: &ProviderArgs) -> [(Weather, usize); 5] {
    let (rate, cut) = (Weather::Allows(args.rate), Weather::Allows(args.cut));
    [(rate, 30), (cut, 30), (rate, 70), (Weather::IsDown, args.down), (rate, 40)]
}

pub(super) async fn run(session: &Session, args: &ProviderArgs) -> Result<Figures, CliError> {
    let latency = Duration::from_millis(args.model_latency);
    let mut options = MockOptions::new(scripts::fanout(TASKS, Latencies::all(latency)));
    options.limits = Some(limits(args.rate));
    let scene = Scene::of(session, &args.swarm, BenchModel::Http(options))?;
    let stage = Stage::on(session, &args.swarm, scene.clone(), true).await?;
    let phases = weather(args);
    let seconds = tokio::spawn(watch(scene.clone(), phases));
    let mut work = Work { stage: &stage, live: HashMap::new(), begun: 0, times: Vec::new() };
    while !seconds.is_finished() {
        while work.live.len() < args.live {
            work.begin().await?;
        }
        work.end_one().await?;
    }
    while !work.live.is_empty() {
        work.end_one().await?;
    }
    let Work { times, begun, .. } = work;
    let seconds = seconds.await.map_err(|error| CliError::Failed(error.to_string()))?;
    let mut figures = Figures::new("provider", args.swarm.bus.name());
    figures.workers = args.swarm.workers;
    figures.slots = args.swarm.slots;
    figures.intent = Percentiles::of(times);
    figures.rss_mb = rss_mb();
    figures.more = vec![("intents_all_succeeded", begun as f64)];
    figures.more.extend(found(args, &seconds));
    stage.strike().await;
    Ok(figures)
}

/// Intents under way.
struct Work<'a> {
    stage: &'a Stage,
    live: HashMap<IntentId, Instant>,
    begun: usize,
    times: Vec<Duration>,
}

impl Work<'_> {
    async fn begin(&mut self) -> Result<(), CliError> {
        let id = IntentId::from_string(format!("intent-{}", self.begun));
        self.begun += 1;
        self.live.insert(id.clone(), Instant::now());
        self.stage.submit(&id).await
    }

    /// Waits for one to end; every one has to succeed.
    async fn end_one(&mut self) -> Result<(), CliError> {
        let (id, _, at) = self.stage.success().await?;
        if let Some(since) = self.live.remove(&id) {
            self.times.push(at - since);
        }
        Ok(())
    }
}

/// What came to the provider within a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Second {
    let_in: u64,
    refused: u64,
}

impl Second {
    fn between(before: MockStats, now: MockStats) -> Self {
        Self { let_in: now.calls - before.calls, refused: now.refused - before.refused }
    }

    fn asked(self) -> u64 {
        self.let_in + self.refused
    }

    fn refused_share(self) -> f64 {
        self.refused as f64 / self.asked().max(1) as f64
    }
}

/// Makes the weather, and counts what comes.
async fn watch(scene: Arc<Scene>, phases: [(Weather, usize); 5]) -> Vec<Second> {
    let mut seconds = Vec::new();
    let Some(server) = scene.server() else { return seconds };
    let mut ticks = interval(Duration::from_secs(1));
    ticks.tick().await;
    let mut before = server.stats();
    for (weather, length) in phases {
        match weather {
            Weather::Allows(rate) => {
                server.down(None);
                server.limit(Some(limits(rate)));
            }
            Weather::IsDown => server.down(Some(DOWN)),
        }
        for _ in 0..length {
            ticks.tick().await;
            let now = server.stats();
            seconds.push(Second::between(before, now));
            before = now;
        }
    }
    // Whoever waits for a place has it now: what is left is not measured.
    server.limit(None);
    seconds
}

/// What the seconds say. A figure that was not reached is the whole time that there was for it.
fn found(args: &ProviderArgs, seconds: &[Second]) -> Vec<(&'static str, f64)> {
    let mut starts = [0; 6];
    for (at, (_, length)) in weather(args).iter().enumerate() {
        starts[at + 1] = starts[at] + length;
    }
    let phase = |at: usize| seconds.get(starts[at]..starts[at + 1]).unwrap_or_default();
    let [normal, cut, raised, down, back] = [phase(0), phase(1), phase(2), phase(3), phase(4)];
    let rate = f64::from(args.rate.max(1));
    vec![
        ("settled_rate_used", let_in(normal, SETTLING..normal.len()) / rate),
        ("settled_refused_share", refused_share(normal, SETTLING..normal.len())),
        ("cut_followed_after_s", quiet_from(cut) as f64),
        ("cut_rate_used", let_in(cut, SETTLING..cut.len()) / f64::from(args.cut.max(1))),
        ("cut_refused_share_then", refused_share(cut, SETTLING..cut.len())),
        ("raise_followed_after_s", busy_from(raised, rate) as f64),
        ("raised_refused_share", refused_share(raised, 0..raised.len())),
        ("calls_while_down", down.iter().map(|second| second.asked()).sum::<u64>() as f64),
        ("busy_again_after_s", busy_from(back, rate) as f64),
        ("busiest_second_after_return", back.iter().map(|second| second.asked()).max().unwrap_or(0) as f64),
        ("refused_share_after_return", refused_share(back, 0..back.len())),
    ]
}

/// Calls a second that were let in.
fn let_in(seconds: &[Second], part: Range<usize>) -> f64 {
    let part = seconds.get(part).unwrap_or_default();
    part.iter().map(|second| second.let_in).sum::<u64>() as f64 / part.len().max(1) as f64
}

fn refused_share(seconds: &[Second], part: Range<usize>) -> f64 {
    let sum = seconds.get(part).unwrap_or_default().iter().fold(Second::default(), |sum, second| Second {
        let_in: sum.let_in + second.let_in,
        refused: sum.refused + second.refused,
    });
    sum.refused_share()
}

/// From which second on none has many refusals.
fn quiet_from(seconds: &[Second]) -> usize {
    seconds.iter().rposition(|second| second.refused_share() > FEW).map_or(0, |last| last + 1)
}

/// After how many seconds most of what is allowed is used.
fn busy_from(seconds: &[Second], rate: f64) -> usize {
    let is_busy = |second: &Second| second.let_in as f64 >= MOST * rate;
    seconds.iter().position(is_busy).map_or(seconds.len(), |first| first + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(of: &[(u64, u64)]) -> Vec<Second> {
        of.iter().map(|&(let_in, refused)| Second { let_in, refused }).collect()
    }

    #[test]
    fn a_cut_is_followed_when_no_later_second_has_many_refusals() {
        assert_eq!(quiet_from(&seconds(&[(100, 300), (100, 4), (90, 0)])), 1);
        assert_eq!(quiet_from(&seconds(&[(100, 0), (100, 30), (90, 0)])), 2);
        assert_eq!(quiet_from(&seconds(&[(100, 0), (100, 2)])), 0);
    }

    #[test]
    fn a_raise_is_followed_when_most_of_it_is_used() {
        assert_eq!(busy_from(&seconds(&[(100, 0), (440, 0), (455, 3)]), 500.0), 3);
        assert_eq!(busy_from(&seconds(&[(100, 0), (440, 0)]), 500.0), 2, "never");
    }
}
