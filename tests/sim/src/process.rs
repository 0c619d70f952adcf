//! One process of the swarm: the services as they are, on a runtime of their own whose clock stands still unless it is
//! moved. It can die between any two steps, stand still, and come back.

use crate::{
    bus::SimBus,
    dice::Dice,
    model::{Calls, SimModel},
    network::{Life, Network},
};
use starling_agents::AgentCatalogue;
use starling_protocol::{Codec, Timestamp};
use starling_runtime::{Clock, Node, NodeParts, Random, Settings, telemetry::Spans};
use starling_service::Parts;
use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// The wall clock at the start of every run.
pub(crate) const BEGIN: i64 = 1_700_000_000_000;
/// How long a process has to say good-bye.
const FLUSH: Duration = Duration::from_secs(2);

/// The services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Intake, plan loop and coordinator.
    Planner,
    /// Does tasks.
    Worker,
    /// Scores results.
    Critic,
}

/// A process, whether it runs or not.
pub(crate) struct Process {
    /// What it runs.
    pub(crate) service: Service,
    /// Names it in the history.
    pub(crate) name: String,
    /// How far its wall clock is from the right time, in milliseconds.
    pub(crate) skew: Arc<AtomicI64>,
    running: Option<Running>,
    /// When it is to be started again.
    pub(crate) start_at: Option<i64>,
}

struct Running {
    life: Life,
    runtime: Runtime,
    stop: CancellationToken,
    ended: Arc<Mutex<Option<Result<(), String>>>>,
    /// Time that it has not lived through.
    behind: i64,
    /// Stands still until then.
    paused_until: Option<i64>,
}

/// What a process is made of, the same for all of a run.
#[derive(Clone)]
pub(crate) struct Ground {
    /// The network.
    pub(crate) network: Arc<Network>,
    /// What models are asked.
    pub(crate) calls: Arc<Calls>,
    /// The settings.
    pub(crate) settings: Arc<Settings>,
    /// The seed.
    pub(crate) seed: u64,
}

impl Process {
    /// One that is to be started at the beginning.
    #[must_use]
    pub(crate) fn new(service: Service, number: usize) -> Self {
        let name = format!("{service:?}-{number}").to_lowercase();
        Self { service, name, skew: Arc::default(), running: None, start_at: Some(0) }
    }

    /// Its present life.
    #[must_use]
    pub(crate) fn life(&self) -> Option<Life> {
        self.running.as_ref().map(|running| running.life)
    }

    /// Whether it stands still.
    #[must_use]
    pub(crate) fn is_paused(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.paused_until.is_some())
    }

    /// Begins a life at `now`.
    pub(crate) fn start(&mut self, ground: &Ground, life: Life, now: i64) {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O needs nothing that could be missing");
        let stop = CancellationToken::new();
        let ended = Arc::new(Mutex::new(None));
        let (service, ground, skew) = (self.service, ground.clone(), self.skew.clone());
        let (token, end) = (stop.clone(), ended.clone());
        let name: Arc<str> = format!("{}/{life}", self.name).into();
        runtime.block_on(async move {
            let born = Instant::now();
            let clock = Clock::of(move || {
                let lived = i64::try_from(born.elapsed().as_millis()).unwrap_or(i64::MAX);
                Timestamp(BEGIN + now + lived + skew.load(Ordering::Relaxed))
            });
            tokio::spawn(async move {
                let result = live(ground, service, life, name, clock, token).await;
                *end.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            });
        });
        self.start_at = None;
        self.running = Some(Running { life, runtime, stop, ended, behind: 0, paused_until: None });
    }

    /// Lives on for `millis`; if it stands still, time passes without it.
    pub(crate) fn tick(&mut self, millis: i64) {
        let Some(running) = &mut self.running else { return };
        if running.paused_until.is_some() {
            running.behind += millis;
            return;
        }
        let step = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        running.runtime.block_on(async move { tokio::time::sleep(step).await });
    }

    /// Dies: everything in it is dropped where it is. Says which life that was.
    pub(crate) fn kill(&mut self) -> Option<Life> {
        let running = self.running.take()?;
        drop(running.runtime);
        Some(running.life)
    }

    /// Is told to stop.
    pub(crate) fn terminate(&self) {
        if let Some(running) = &self.running {
            running.stop.cancel();
        }
    }

    /// How its services ended, if they did.
    #[must_use]
    pub(crate) fn ended(&self) -> Option<Result<(), String>> {
        self.running.as_ref()?.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stands still until then.
    pub(crate) fn pause(&mut self, until: i64) {
        if let Some(running) = &mut self.running {
            running.paused_until = Some(until.max(running.paused_until.unwrap_or(0)));
        }
    }

    /// Goes on if it is time: its clock jumps.
    pub(crate) fn resume_if_due(&mut self, now: i64) -> bool {
        let Some(running) = &mut self.running else { return false };
        if running.paused_until.is_none_or(|until| now < until) {
            return false;
        }
        running.paused_until = None;
        let behind = Duration::from_millis(u64::try_from(std::mem::take(&mut running.behind)).unwrap_or(0));
        running.runtime.block_on(async move { tokio::time::advance(behind).await });
        true
    }
}

async fn live(
    ground: Ground,
    service: Service,
    life: Life,
    name: Arc<str>,
    clock: Clock,
    shutdown: CancellationToken,
) -> Result<(), String> {
    let Ground { network, calls, settings, seed } = ground;
    let bus = SimBus::new(network.clone(), life, seed);
    let dice = Mutex::new(Dice::of(seed, &format!("random {life}")));
    let random = Random::of(move || dice.lock().unwrap_or_else(PoisonError::into_inner).bits());
    let parts =
        NodeParts { spans: Spans::off(), clock, random, codec: Codec::default(), process: name, shutdown };
    let node = Node::connect(settings, bus, parts).await.map_err(|error| error.to_string())?;
    let parts = Parts {
        model: SimModel::new(network, calls, life, seed),
        agents: catalogue().into(),
        playbooks: Arc::default(),
    };
    let served = match service {
        Service::Planner => starling_planner::serve(node.clone(), parts).await.map_err(|e| e.to_string()),
        Service::Worker => starling_worker::serve(node.clone(), parts).await.map_err(|e| e.to_string()),
        Service::Critic => starling_critic::serve(node.clone(), parts).await.map_err(|e| e.to_string()),
    };
    node.leave().await;
    node.bus.flush(FLUSH).await;
    served
}

fn catalogue() -> Arc<AgentCatalogue> {
    static CATALOGUE: OnceLock<Arc<AgentCatalogue>> = OnceLock::new();
    let load =
        || Arc::new(AgentCatalogue::load(None).expect("the built-in agents are good: tests read them"));
    CATALOGUE.get_or_init(load).clone()
}
