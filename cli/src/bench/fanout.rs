//! Intents with many independent tasks: how many criticised subtasks the swarm does in a second.

use super::{
    bare::{Bare, Sizes},
    measure::{Figures, Percentiles, cpu_time, rss_mb},
    probe::Probe,
    scene::{BenchModel, Scene, limits},
    stage::Stage,
};
use crate::{args::FanoutArgs, exit::CliError, session::Session};
use starling_llm::mock::{MockOptions, MockStats, scripts, scripts::Latencies};
use starling_protocol::{IntentId, TaskCounts, Topic, Usage};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;

pub(super) async fn run(session: &Session, args: &FanoutArgs) -> Result<Figures, CliError> {
    let latency = Duration::from_millis(args.model_latency);
    let model = if args.swarm.model_in_process {
        BenchModel::InProcess(Arc::new(Probe::layers(1, args.tasks, latency)))
    } else {
        let mut options = MockOptions::new(scripts::fanout(args.tasks, latencies(args)));
        options.prompt_cache = true;
        options.limits = args.provider_rate.map(limits);
        BenchModel::Http(options)
    };
    let scene = Scene::of(session, &args.swarm, model)?;
    let stage = Stage::on(session, &args.swarm, scene.clone(), true).await?;
    // One intent beforehand opens connections and fills caches.
    measure(&stage, &scene, "warm", 1, 1).await?;
    let cpu = cpu_time();
    let start = Instant::now();
    let before = scene.served();
    let settled = args.provider_rate.map(|_| tokio::spawn(after_settling(scene.clone())));
    let middle = tokio::spawn(middle(scene.clone(), args.intents * args.tasks));
    let Measured { times, busy, usage, tasks } =
        measure(&stage, &scene, "intent", args.intents, args.live.unwrap_or(args.intents)).await?;
    let wall = start.elapsed();
    let requests = requests(args, &scene, before, settled, busy, start).await?;
    let subtasks = (args.intents * args.tasks) as f64;
    let rate = subtasks / wall.as_secs_f64();
    let mut figures = Figures::new("fanout", args.swarm.bus.name());
    figures.workers = args.swarm.workers;
    figures.slots = args.swarm.slots;
    figures.subtasks_per_s = Some(rate.round());
    figures.intent = Percentiles::of(times);
    figures.cpu_s_per_1000 =
        cpu.zip(cpu_time()).map(|(before, after)| (after - before).as_secs_f64() * 1000.0 / subtasks);
    figures.rss_mb = rss_mb();
    figures.more = requests;
    figures.more.extend(of_workers(args, middle).await);
    let success = f64::from(tasks.succeeded) / f64::from(tasks.total.max(1));
    figures.more.extend([("success", success), ("context_reuse", usage.context_reuse(0))]);
    let sizes = if args.no_bare || args.provider_rate.is_some() { None } else { Some(sizes(&stage).await?) };
    stage.strike().await;
    if let Some(sizes) = sizes {
        let bare = bare(args, &scene, sizes).await?;
        figures.more.extend([("bare_subtasks_per_s", bare.round()), ("ratio_to_bare", rate / bare)]);
    }
    Ok(figures)
}

fn latencies(args: &FanoutArgs) -> Latencies {
    let all = latencies_of(args.model_latency);
    if args.only_work { Latencies { work: all.work, ..Latencies::default() } } else { all }
}

/// Every call takes so many milliseconds.
pub(super) fn latencies_of(ms: u64) -> Latencies {
    Latencies::all(Duration::from_millis(ms))
}

/// How long the calls would have taken one after the other.
fn serial(args: &FanoutArgs, before: MockStats, now: MockStats) -> Duration {
    let Latencies { plan, work, judge, synthesize } = latencies(args);
    let (before, now) = (before.by_purpose, now.by_purpose);
    plan.mul_f64((now.plan - before.plan) as f64)
        + work.mul_f64((now.work - before.work) as f64)
        + judge.mul_f64((now.judge - before.judge) as f64)
        + synthesize.mul_f64((now.synthesize - before.synthesize) as f64)
}

/// Share of the work after which all workers should be busy, and before which they should not yet run out of it.
const MIDDLE: (f64, f64) = (0.15, 0.85);
/// Time between two looks at what the model server has counted.
const LOOK: Duration = Duration::from_millis(5);

/// Calls of workers a second in the middle of so many, when neither plans are awaited nor work runs out. `None` without a
/// model server.
async fn middle(scene: Arc<Scene>, tasks: usize) -> Option<f64> {
    let reached = |share: f64| {
        let (scene, before) = (scene.clone(), scene.served());
        async move {
            let goal = (share * tasks as f64) as u64;
            let before = before?.by_purpose.work;
            loop {
                let done = scene.served()?.by_purpose.work - before;
                if done >= goal {
                    return Some((done, Instant::now()));
                }
                tokio::time::sleep(LOOK).await;
            }
        }
    };
    let (from, to) = (reached(MIDDLE.0), reached(MIDDLE.1));
    let ((first, from), (last, to)) = (from.await?, to.await?);
    // All at once is no rate.
    (last > first).then(|| (last - first) as f64 / (to - from).as_secs_f64().max(1e-9))
}

/// What the workers made of their number.
async fn of_workers(args: &FanoutArgs, middle: JoinHandle<Option<f64>>) -> Vec<(&'static str, f64)> {
    // What is measured is there, or will never be.
    middle.abort();
    let Ok(Some(rate)) = middle.await else { return Vec::new() };
    let mut figures = vec![("worker_requests_per_s", rate.round())];
    if args.model_latency > 0 {
        let most = (args.swarm.workers * args.swarm.slots) as f64 * 1000.0 / args.model_latency as f64;
        figures.push(("of_workers_by_latency", rate / most));
    }
    figures
}

/// How long a swarm may take to find out what an endpoint allows.
const SETTLING: Duration = Duration::from_secs(10);

/// What the model server has counted, and when that was.
type Counted = (Option<MockStats>, Instant);

/// When the swarm should know its limit.
async fn after_settling(scene: Arc<Scene>) -> Counted {
    tokio::time::sleep(SETTLING).await;
    (scene.served(), Instant::now())
}

/// What the model server saw of it: requests a second, and, where it has a limit, how much of that was used and which share
/// was refused once the swarm had settled.
async fn requests(
    args: &FanoutArgs,
    scene: &Scene,
    before: Option<MockStats>,
    settled: Option<JoinHandle<Counted>>,
    busy: Counted,
    start: Instant,
) -> Result<Vec<(&'static str, f64)>, CliError> {
    let (Some(before), Some(now)) = (before, scene.served()) else { return Ok(Vec::new()) };
    let wall = start.elapsed().as_secs_f64();
    let mut figures = vec![("requests_per_s", ((now.calls - before.calls) as f64 / wall).round())];
    if args.model_latency > 0 {
        figures.push(("times_faster_than_serial", serial(args, before, now).as_secs_f64() / wall));
    }
    let (Some(allowed), Some(settled)) = (args.provider_rate, settled) else { return Ok(figures) };
    let (Some(until), ended) = busy else { return Ok(figures) };
    if !settled.is_finished() || ended.duration_since(start) <= SETTLING {
        return Err(CliError::Failed(format!(
            "nearly all was done within {SETTLING:?}, before the swarm could settle: more intents"
        )));
    }
    let Ok((Some(settled), since)) = settled.await else { return Ok(figures) };
    let (calls, refused) = (until.calls - settled.calls, until.refused - settled.refused);
    let took = ended.duration_since(since).as_secs_f64();
    figures.extend([
        ("refused_share_once_settled", refused as f64 / (calls + refused).max(1) as f64),
        ("allowed_rate_used", calls as f64 / took / f64::from(allowed)),
        ("refused_in_all", (now.refused - before.refused) as f64),
    ]);
    Ok(figures)
}

/// Tasks a second of the bare pipeline.
async fn bare(args: &FanoutArgs, scene: &Scene, sizes: Sizes) -> Result<f64, CliError> {
    let mut bare = Bare::set(args, scene, sizes).await?;
    bare.run(args.tasks).await?;
    let tasks = args.intents * args.tasks;
    let wall = bare.run(tasks).await?;
    bare.strike().await;
    Ok(tasks as f64 / wall.as_secs_f64())
}

/// How large the records were that the swarm wrote. Its verdicts share a topic with much else, so they are taken to be
/// like its results, which they resemble.
async fn sizes(stage: &Stage) -> Result<Sizes, CliError> {
    let (task, result) = (stage.size(&Topic::Worker(None)).await?, stage.size(&Topic::Critic).await?);
    Ok(Sizes { task, result, verdict: result })
}

/// What came of a number of intents.
struct Measured {
    /// How long each took.
    times: Vec<Duration>,
    /// When a tenth of them was left, so that there was still enough to do for all workers.
    busy: Counted,
    /// Tokens of all.
    usage: Usage,
    tasks: TaskCounts,
}

/// Submits them, so many at once, and waits for all; every one has to succeed.
async fn measure(
    stage: &Stage,
    scene: &Scene,
    name: &str,
    intents: usize,
    live: usize,
) -> Result<Measured, CliError> {
    let mut submitted = HashMap::new();
    let mut to_come = (0..intents).map(|n| IntentId::from_string(format!("{name}-{n}")));
    let mut times = Vec::with_capacity(intents);
    let mut busy = (None, Instant::now());
    let (mut usage, mut tasks) = (Usage::default(), TaskCounts::default());
    loop {
        let room = live.max(1).saturating_sub(submitted.len());
        for id in to_come.by_ref().take(room) {
            submitted.insert(id.clone(), Instant::now());
            stage.submit(&id).await?;
        }
        if submitted.is_empty() {
            break;
        }
        let (id, outcome, at) = stage.success().await?;
        if let Some(since) = submitted.remove(&id) {
            times.push(at - since);
            usage.add(outcome.usage);
            tasks.total += outcome.tasks.total;
            tasks.succeeded += outcome.tasks.succeeded;
            if times.len() == intents - intents / 10 {
                busy = (scene.served(), Instant::now());
            }
        }
    }
    Ok(Measured { times, busy, usage, tasks })
}
