//! A coordinator that is killed in the middle of many live intents, and how long the next one takes to go on.
//!
//! Workers and critics run in this process; the coordinators are planner processes, since SIGKILL takes a whole
//! process. One has all partitions; it is killed, another one is started and gets all of them when the group has
//! noticed. What is measured begins there: the time before it is that of `kafka.session_timeout`, the same for every
//! group of every program.

use super::{
    dispatches::{Count, Dispatches},
    held::Held,
    measure::{Figures, rss_mb},
    probe::Probe,
    scene::{BenchModel, Scene},
    stage::{Stage, reader},
};
use crate::{
    args::{BusKind, SwarmArgs, TakeoverArgs},
    exit::CliError,
    session::Session,
};
use starling_bus::ReaderEvent;
use starling_llm::mock::{MockOptions, MockServer, scripts, scripts::Latencies};
use starling_protocol::{Body, Codec, Envelope, IntentId, Topic};
use starling_runtime::settings::GroupProtocol;
use std::{
    collections::HashSet,
    future::Future,
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};

/// How often each slot gets a new task, at most, before the coordinator dies.
const ROUNDS: usize = 10;
/// How long the group is not asked between two questions, and so how exactly the beginning is known.
const POLL: Duration = Duration::from_millis(20);
/// How long dispatches are read that are there already.
const LATE: Duration = Duration::from_secs(2);
/// How long any stage may take.
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) async fn run(session: &Session, args: &TakeoverArgs) -> Result<Figures, CliError> {
    let most = session.settings.coordinator.max_tasks;
    if usize::try_from(most).is_ok_and(|most| args.tasks > most) {
        return Err(CliError::Usage(format!("--tasks must not be more than coordinator.max_tasks, {most}")));
    }
    if session.settings.kafka.group_protocol != GroupProtocol::Classic {
        return Err(CliError::Usage("only groups of kafka.group_protocol=classic tell who has what".into()));
    }
    let plans = MockServer::start(MockOptions::new(scripts::fanout(args.tasks, Latencies::default())))
        .map_err(|error| CliError::Failed(format!("the model server: {error}")))?;
    let latency = Duration::from_millis(args.work_latency);
    let held = Arc::new(Held::new(Probe::layers(1, args.tasks, Duration::ZERO), latency));
    let swarm = SwarmArgs {
        workers: args.workers,
        slots: args.slots,
        bus: BusKind::Kafka,
        model_in_process: true,
        json: args.json,
    };
    let scene = Scene::of(session, &swarm, BenchModel::InProcess(held.clone()))?;
    let stage = Stage::on(session, &swarm, scene.clone(), false).await?;
    // Planner processes end with what measures; nobody else would end them.
    let measured = tokio::select! {
        measured = measure(session, args, &stage, &scene, &plans, &held) => measured,
        () = interrupted() => Err(CliError::Interrupted),
    };
    stage.strike().await;
    let mut figures = Figures::new("takeover", BusKind::Kafka.name());
    figures.workers = args.workers;
    figures.slots = args.slots;
    figures.rss_mb = rss_mb();
    figures.more = measured?;
    Ok(figures)
}

async fn measure(
    session: &Session,
    args: &TakeoverArgs,
    stage: &Stage,
    scene: &Scene,
    plans: &MockServer,
    held: &Held,
) -> Result<Vec<(&'static str, f64)>, CliError> {
    let planner = Planner::new(session, args, scene, plans)?;
    let mut victim = planner.start()?;
    let (first, _) = patiently("a coordinator has all partitions", &mut victim, owner(stage, "")).await?;
    let intents: Vec<_> = (0..args.intents).map(|n| IntentId::from_string(format!("intent-{n}"))).collect();
    let mut dispatches = Dispatches::of(stage, &intents, args.tasks).await?;
    for intent in &intents {
        stage.submit(intent).await?;
    }
    patiently("all intents are planned", &mut victim, planned(stage, args)).await?;
    drain(&mut dispatches).await?;
    // All that may be with the workers at a time is. What counts is the flow that begins now: in its middle a
    // coordinator has sent what the log does not know yet.
    let (all, waiting) = (args.intents * args.tasks, dispatches.count().known());
    let left = all.saturating_sub(waiting);
    if left < all / 4 {
        return Err(CliError::Usage(format!(
            "{all} tasks are too few, {waiting} of them are with the workers at once: give more --intents or --tasks, \
             or fewer --workers or --slots"
        )));
    }
    let enough = waiting + (left / 4).min(ROUNDS * args.workers * args.slots).max(1);
    held.release();
    patiently("tasks are dispatched", &mut victim, dispatches.until(|count| count.known() >= enough)).await?;

    victim.kill().await.map_err(|error| CliError::Failed(format!("the planner: {error}")))?;
    let killed = Instant::now();
    // What it sent to the very end is read before anything of its successor.
    drain(&mut dispatches).await?;
    dispatches.ended();
    let ended = stage.ended().await?;
    let live = args.intents.saturating_sub(ended);
    let mut successor = planner.start()?;
    let watched = async {
        // What the successor sends is read while the group is asked, so that neither waits for the other.
        let all = dispatches.until(Count::all_partitions);
        tokio::try_join!(owner(stage, &first), all)
    };
    let ((_, settled), ()) = patiently("another one goes on", &mut successor, watched).await?;
    // Repetitions come before what is new; those of a partition that went on last are waited for.
    drain(&mut dispatches).await?;
    let count = dispatches.count();
    let since =
        |at: Option<Instant>| at.map_or(0.0, |at| at.saturating_duration_since(settled).as_secs_f64());
    Ok(vec![
        ("live_intents", live as f64),
        ("tasks_each", args.tasks as f64),
        ("dispatched_before", count.before as f64),
        ("detection_s", settled.saturating_duration_since(killed).as_secs_f64()),
        ("first_dispatch_s", since(count.first)),
        ("takeover_s", since(count.last)),
        ("duplicate_dispatches", count.repeated as f64),
    ])
}

/// Waits until somebody wants this process to end.
async fn interrupted() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => drop(terminate.recv().await),
            Err(_) => std::future::pending().await, // then it cannot be waited for
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}

/// Reads what was dispatched until now.
async fn drain(dispatches: &mut Dispatches) -> Result<(), CliError> {
    match tokio::time::timeout(LATE, dispatches.until(|_| false)).await {
        Ok(read) => read,
        Err(_) => Ok(()),
    }
}

/// Waits for something that needs this process.
async fn patiently<T>(
    what: &str,
    process: &mut Child,
    something: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    tokio::select! {
        done = tokio::time::timeout(PATIENCE, something) => done
            .unwrap_or_else(|_| Err(CliError::Failed(format!("{what}: not within {} s", PATIENCE.as_secs())))),
        ended = process.wait() => {
            let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            Err(CliError::Failed(format!("{what}: the planner has ended: {how}")))
        }
    }
}

/// Waits until one member other than `not` has all partitions of the coordinators; when that was so, at the earliest.
async fn owner(stage: &Stage, not: &str) -> Result<(String, Instant), CliError> {
    let topic = stage.names.name(&Topic::Coordinator);
    let partitions = usize::try_from(stage.bus.partitions(&topic).await?).unwrap_or(usize::MAX);
    let (inspector, group) = (stage.bus.inspector(), stage.names.group("coordinator"));
    let mut before = Instant::now();
    loop {
        let asked = Instant::now();
        if let Some(described) = inspector.group(&group).await?
            && described.state == "Stable"
            && let Some(member) = described.members.into_iter().find(|m| m.partitions.len() == partitions)
            && member.id != not
        {
            // It may have been so just after the question before: a take-over is never shown shorter than it was.
            return Ok((member.id, before));
        }
        before = asked;
        tokio::time::sleep(POLL).await; // polls what has no event
    }
}

/// Waits until the progress of all intents tells of all of their tasks.
async fn planned(stage: &Stage, args: &TakeoverArgs) -> Result<(), CliError> {
    let progress = reader(stage.bus.as_ref(), &stage.names.name(&Topic::Progress)).await?;
    let (codec, mut planned) = (Codec::default(), HashSet::new());
    while planned.len() < args.intents {
        let ReaderEvent::Record(record) = progress.next().await else { continue };
        let envelope: Envelope =
            codec.decode(record.value()).map_err(|error| CliError::Failed(error.to_string()))?;
        if let Body::Progress(progress) = envelope.body
            && usize::try_from(progress.tasks.total).is_ok_and(|total| total >= args.tasks)
        {
            planned.insert(envelope.intent_id);
        }
    }
    Ok(())
}

/// How planner processes are started.
struct Planner {
    binary: PathBuf,
    args: Vec<String>,
}

impl Planner {
    fn new(
        session: &Session,
        args: &TakeoverArgs,
        scene: &Scene,
        plans: &MockServer,
    ) -> Result<Self, CliError> {
        let own = std::env::current_exe().map_err(|error| CliError::Failed(error.to_string()))?;
        let binary = own.with_file_name("starling-planner");
        if !binary.exists() {
            return Err(CliError::Usage(format!("{} is not there", binary.display())));
        }
        let flags = session.flags();
        let mut all: Vec<String> = Vec::new();
        for file in &flags.config {
            all.extend(["--config".to_owned(), file.display().to_string()]);
        }
        let coordinator = &scene.settings.coordinator;
        let own = [
            ("telemetry.log_level", "warn".to_owned()),
            ("topics.prefix", scene.settings.topics.prefix.clone()),
            ("topics.replication", "-1".to_owned()),
            ("registry.url", String::new()),
            ("http.listen", String::new()),
            ("model.base_url", plans.base_url()),
            ("model.offline", "false".to_owned()),
            ("model.cache.plan", "false".to_owned()),
            // However slow the machine is, nothing times out and everything is live at once.
            ("coordinator.default_deadline", "2h".to_owned()),
            ("coordinator.attempt_timeout", "1h".to_owned()),
            ("coordinator.max_live", coordinator.max_live.max(args.intents).to_string()),
        ];
        let given = flags.set.iter().map(|(path, value)| (path.as_str(), value.clone()));
        for (path, value) in given.chain(own) {
            all.extend(["--set".to_owned(), format!("{path}={value}")]);
        }
        if let Some(brokers) = &flags.brokers {
            all.extend(["--brokers".to_owned(), brokers.clone()]);
        }
        Ok(Self { binary, args: all })
    }

    fn start(&self) -> Result<Child, CliError> {
        let mut command = Command::new(&self.binary);
        command.args(&self.args).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        command.spawn().map_err(|error| CliError::Failed(format!("{}: {error}", self.binary.display())))
    }
}
