//! An installation of its own for each test: own topics, own services, own model.

use crate::{Logs, Proc, Proof, Proxy, SecureBroker, watchdog::Watchdog};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use starling::client::{Client, Seen, Submission};
use starling_bus::{Bus, KafkaBus, KafkaOptions, OutRecord, StartAt};
use starling_llm::mock::{MockOptions, MockServer};
use starling_protocol::{Intent, IntentId, Outcome, Topic, TopicNames};
use std::{
    path::PathBuf,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::{Semaphore, SemaphorePermit},
};

/// What this machine is asked to bear at once, in swarms of the usual size.
static MACHINE: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(*MACHINE_SIZE));
/// `STARLING_E2E_SWARMS`, else two.
static MACHINE_SIZE: LazyLock<usize> = LazyLock::new(|| {
    let said = std::env::var("STARLING_E2E_SWARMS").ok().and_then(|size| size.parse().ok());
    said.unwrap_or(2).max(1)
});

/// How long a process may take until it is ready. Many start at once, on machines of two cores.
const READY: Duration = Duration::from_secs(60);

/// Few partitions, because a broker takes its time to make them; members of a group that are thought dead
/// soon; spans and beats soon.
const SETTINGS: [&str; 16] = [
    "topics.partitions.intents=2",
    "topics.partitions.coordinator=3",
    "topics.partitions.planner=2",
    "topics.partitions.worker=16",
    "topics.partitions.critic=4",
    "topics.partitions.tool=1",
    "topics.partitions.outcomes=2",
    "topics.partitions.progress=2",
    "topics.partitions.content=1",
    "topics.partitions.dlq=1",
    "processor.slots.worker=4",
    "kafka.session_timeout=6s",
    "kafka.connect_timeout=30s",
    "fleet.interval=300ms",
    "telemetry.delay=100ms",
    "http.listen=127.0.0.1:0",
];

/// How big a swarm, and how its model behaves.
pub struct SwarmOptions {
    /// Planner processes.
    pub planners: usize,
    /// Worker processes.
    pub workers: usize,
    /// Critic processes.
    pub critics: usize,
    /// Settings, as for `--set`; they win over those that all tests have.
    pub settings: Vec<String>,
    /// OTLP endpoint, if spans are wanted.
    pub otlp: Option<String>,
    /// The model.
    pub model: MockOptions,
    /// Whether nothing else may run on this machine meanwhile.
    pub alone: bool,
    /// A broker of its own, to which planners and workers come with passwords, critics with certificates.
    pub secure: Option<SecureBroker>,
    /// Addresses of other brokers than those that the tests share.
    pub brokers: Option<String>,
    /// Where its processes connect, if not to the brokers themselves: a proxy.
    pub through: Option<String>,
    /// A folder, which is there, for what its processes print; otherwise that goes with the swarm.
    pub keep: Option<PathBuf>,
    /// How long it may run; then the program ends. `None` if somebody else sees to it.
    pub limit: Option<Duration>,
}

impl SwarmOptions {
    /// One planner, `workers` workers, one critic.
    #[must_use]
    pub fn new(model: MockOptions, workers: usize) -> Self {
        Self {
            planners: 1,
            workers,
            critics: 1,
            settings: Vec::new(),
            otlp: None,
            model,
            alone: false,
            secure: None,
            brokers: None,
            through: None,
            keep: None,
            limit: Some(Duration::from_secs(600)),
        }
    }

    /// The same with one setting more.
    #[must_use]
    pub fn set(mut self, setting: &str) -> Self {
        self.settings.push(setting.to_owned());
        self
    }

    /// One partition for everything that a planner process owns: whichever of them comes first owns it all,
    /// and those that come later take over when it goes.
    #[must_use]
    pub fn one_planner_at_a_time(self) -> Self {
        self.set("topics.partitions.intents=1")
            .set("topics.partitions.coordinator=1")
            .set("topics.partitions.planner=1")
    }
}

/// A running installation.
pub struct Swarm {
    /// Its planner processes.
    pub planners: Vec<Proc>,
    /// Its worker processes.
    pub workers: Vec<Proc>,
    /// Its critic processes.
    pub critics: Vec<Proc>,
    /// Its model.
    pub model: MockServer,
    /// The broker, as a user's program sees it.
    pub bus: Arc<dyn Bus>,
    /// Publishes and follows intents.
    pub client: Client,
    /// Reads its topics.
    pub logs: Logs,
    /// Names of its topics.
    pub names: TopicNames,
    env: Vec<(String, String)>,
    args: Vec<String>,
    folder: PathBuf,
    _dir: TempDir,
    started: usize,
    secure: Option<SecureBroker>,
    _watchdog: Option<Watchdog>,
    _place: SemaphorePermit<'static>,
}

/// The address of the broker that the tests share.
///
/// # Errors
/// There is none.
pub fn brokers() -> Result<String> {
    std::env::var("STARLING_TEST_BROKERS")
        .context("STARLING_TEST_BROKERS is not set; `make test` starts a broker and sets it")
}

impl Swarm {
    /// Creates the topics, starts the processes and waits until each is ready.
    ///
    /// # Errors
    /// Something does not start.
    pub async fn start(options: SwarmOptions) -> Result<Self> {
        let places = if options.alone { *MACHINE_SIZE } else { 1 };
        let place = MACHINE.acquire_many(u32::try_from(places)?).await?;
        let brokers = match (&options.secure, options.brokers) {
            (Some(secure), _) => secure.admin.clone(),
            (None, Some(own)) => own,
            (None, None) => brokers()?,
        };
        let through = options.through.unwrap_or_else(|| brokers.clone());
        let prefix = format!("t{:08x}", rand::random::<u32>());
        let dir = tempfile::tempdir()?;
        let model = MockServer::start(options.model)?;
        let mut env = vec![
            ("STARLING__KAFKA__BROKERS".to_owned(), through),
            ("STARLING__TOPICS__PREFIX".to_owned(), prefix.clone()),
            ("OPENAI_BASE_URL".to_owned(), model.base_url()),
            ("OPENAI_API_KEY".to_owned(), "test".to_owned()),
        ];
        if let Some(otlp) = options.otlp {
            env.push(("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), otlp));
        }
        let own = options.settings.iter().map(String::as_str);
        let args =
            SETTINGS.into_iter().chain(own).flat_map(|setting| ["--set".to_owned(), setting.to_owned()]);
        let bus: Arc<dyn Bus> = KafkaBus::new(KafkaOptions::new(brokers))?;
        let names = TopicNames::new(prefix.as_str());
        let mut swarm = Self {
            planners: Vec::new(),
            workers: Vec::new(),
            critics: Vec::new(),
            model,
            client: Client::new(Arc::clone(&bus), names.clone()),
            logs: Logs::new(Arc::clone(&bus), names.clone()),
            bus,
            names,
            env,
            args: args.collect(),
            folder: options.keep.unwrap_or_else(|| dir.path().to_owned()),
            _dir: dir,
            started: 0,
            secure: options.secure,
            _watchdog: options.limit.map(Watchdog::start),
            _place: place,
        };
        let mut create = swarm.spawn_cli(&["topics", "create"])?;
        let status = create.wait(Duration::from_secs(60)).await?;
        ensure!(status.success(), "topics create: {}", create.last_lines());
        if let Some(secure) = &swarm.secure {
            secure.grant(&prefix)?;
        }
        for _ in 0..options.planners {
            let planner = swarm.spawn("starling-planner")?;
            swarm.planners.push(planner);
        }
        for _ in 0..options.critics {
            let critic = swarm.spawn("starling-critic")?;
            swarm.critics.push(critic);
        }
        for _ in 0..options.workers {
            let worker = swarm.spawn("starling-worker")?;
            swarm.workers.push(worker);
        }
        swarm.ready().await?;
        Ok(swarm)
    }

    /// Waits until every process says that it is ready, and the fleet knows that every worker has partitions.
    ///
    /// # Errors
    /// It takes too long.
    pub async fn ready(&mut self) -> Result<()> {
        let patience = READY + Duration::from_millis(500) * u32::try_from(self.workers.len())?;
        let until = Instant::now() + patience;
        let all = self.planners.iter_mut().chain(&mut self.critics).chain(&mut self.workers);
        for process in all {
            wait_ready(process, until).await?;
        }
        self.logs.until_workers_have_partitions(self.workers.len(), patience).await
    }

    /// The broker of its own.
    ///
    /// # Panics
    /// It has none.
    #[must_use]
    #[allow(clippy::expect_used)] // a test that asks has started one
    pub fn secure(&self) -> &SecureBroker {
        self.secure.as_ref().expect("a broker of its own")
    }

    /// Processes that are started from now on have this setting, as for `--set`.
    pub fn also_set(&mut self, setting: &str) {
        self.args.extend(["--set".to_owned(), setting.to_owned()]);
    }

    /// Starts one more process of this installation. The name of the model that it asks for is its own name,
    /// so that a call tells who made it.
    ///
    /// # Errors
    /// It does not start.
    pub fn spawn(&mut self, binary: &str) -> Result<Proc> {
        self.spawn_with(binary, &[])
    }

    /// As [`Swarm::spawn`], for a process that knows the brokers only through this proxy.
    ///
    /// # Errors
    /// It does not start.
    pub fn spawn_behind(&mut self, proxy: &Proxy, binary: &str) -> Result<Proc> {
        self.spawn_with(binary, &[("STARLING__KAFKA__BROKERS".to_owned(), proxy.address().to_owned())])
    }

    /// As [`Swarm::spawn`], with more in its environment.
    ///
    /// # Errors
    /// It does not start.
    pub fn spawn_with(&mut self, binary: &str, more: &[(String, String)]) -> Result<Proc> {
        self.started += 1;
        let name = format!("{binary}-{}", self.started);
        let mut env = self.env.clone();
        env.push(("HOSTNAME".to_owned(), name.clone()));
        env.push(("STARLING__MODEL__NAME".to_owned(), name.clone()));
        if let Some(secure) = &self.secure {
            let user = binary.strip_prefix("starling-").unwrap_or("cli");
            let proof = if user == "critic" { Proof::Certificate } else { Proof::Password };
            env.extend(secure.environment(user, proof)?);
        }
        env.extend(more.iter().cloned()); // the last one counts
        Proc::start(binary, &name, &self.args, &env, &self.folder)
    }

    /// Starts one more process and waits until it is ready. One that gets no partition never is.
    ///
    /// # Errors
    /// It does not start.
    pub async fn spawn_ready(&mut self, binary: &str) -> Result<Proc> {
        let mut process = self.spawn(binary)?;
        wait_ready(&mut process, Instant::now() + READY).await?;
        Ok(process)
    }

    /// Starts the CLI of this installation.
    ///
    /// # Errors
    /// It does not start.
    pub fn spawn_cli(&mut self, args: &[&str]) -> Result<Proc> {
        self.spawn_cli_with(args, &[])
    }

    fn spawn_cli_with(&mut self, args: &[&str], more: &[(String, String)]) -> Result<Proc> {
        self.started += 1;
        let name = format!("starling-{}", self.started);
        let mut all: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        all.extend(self.args.iter().cloned());
        let env = [&self.env, more].concat();
        Proc::start("starling", &name, &all, &env, &self.folder)
    }

    /// Runs the CLI of this installation to its end; gives its exit code, and the process for its output.
    ///
    /// # Errors
    /// It does not end in time.
    pub async fn cli(&mut self, args: &[&str]) -> Result<(Option<i32>, Proc)> {
        self.cli_with(args, &[]).await
    }

    /// As [`Swarm::cli`], with more in its environment.
    ///
    /// # Errors
    /// It does not end in time.
    pub async fn cli_with(
        &mut self,
        args: &[&str],
        more: &[(String, String)],
    ) -> Result<(Option<i32>, Proc)> {
        let mut process = self.spawn_cli_with(args, more)?;
        let status = process.wait(Duration::from_secs(60)).await?;
        Ok((status.code(), process))
    }

    /// What `/metrics` of all services say, one after the other.
    ///
    /// # Errors
    /// One does not answer.
    pub async fn metrics(&self) -> Result<String> {
        let mut all = String::new();
        for process in self.planners.iter().chain(&self.workers).chain(&self.critics) {
            all +=
                &get(process, "/metrics").await.with_context(|| format!("{}: no metrics", process.name))?;
        }
        Ok(all)
    }

    /// Publishes an intent with default limits.
    ///
    /// # Errors
    /// The broker does not take it.
    pub async fn submit(&self, id: &str, goal: &str) -> Result<IntentId> {
        self.submit_within(id, goal, None).await
    }

    /// Publishes an intent that may take so long.
    ///
    /// # Errors
    /// The broker does not take it.
    pub async fn submit_within(&self, id: &str, goal: &str, timeout: Option<Duration>) -> Result<IntentId> {
        let id = IntentId::from_string(id);
        let intent =
            Intent { goal: goal.to_owned(), strategy: "llm".to_owned(), priority: 5, ..Intent::default() };
        let submission = Submission {
            id: id.clone(),
            intent,
            tenant: "test".to_owned(),
            timeout,
            traceparent: None,
            parts: Default::default(),
        };
        self.client.submit(submission).await?;
        Ok(id)
    }

    /// Publishes bytes to the input topic, as any Kafka client may; gives the id that an intent in them gets
    /// if it names none.
    ///
    /// # Errors
    /// The broker does not take them.
    pub async fn publish(&self, value: &[u8], headers: &[(&str, &str)]) -> Result<IntentId> {
        let to = self.logs.partition(&Topic::Intents, 0);
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Bytes::copy_from_slice(value.as_bytes())));
        let record = OutRecord {
            to: to.clone(),
            key: None,
            headers: headers.collect(),
            payload: Some(Bytes::copy_from_slice(value)),
        };
        let delivered = self.bus.send(record).await?;
        let offset = delivered.offset.context("the broker did not say where the record lies")?;
        Ok(IntentId::of_record(&to.topic, to.partition, offset))
    }

    /// Waits for the outcome of an intent.
    ///
    /// # Errors
    /// The log cannot be read.
    ///
    /// # Panics
    /// It does not come in time. A panic, unlike an error, shows what the processes have printed.
    pub async fn outcome(&self, id: &IntentId, within: Duration) -> Result<Outcome> {
        let wait = async {
            let mut follower = self.client.follow(id, StartAt::Beginning).await?;
            while let Some(seen) = follower.next().await? {
                if let Seen::Outcome(outcome) = seen {
                    return Ok(*outcome);
                }
            }
            bail!("the follower ended without an outcome")
        };
        let ended = tokio::time::timeout(within, wait).await;
        assert!(ended.is_ok(), "no outcome of {id} within {within:?}");
        ended?
    }
}

async fn wait_ready(process: &mut Proc, until: Instant) -> Result<()> {
    while !says_ready(process).await {
        if let Some(status) = process.ended()? {
            bail!("{} ended with {status}:\n{}", process.name, process.last_lines());
        }
        ensure!(Instant::now() < until, "{} is not ready:\n{}", process.name, process.last_lines());
        tokio::time::sleep(Duration::from_millis(50)).await; // polls what an orchestrator would poll
    }
    Ok(())
}

/// Where a service serves its metrics and health: the address is in its log, since any free port was taken.
#[must_use]
pub fn http_address(process: &Proc) -> Option<String> {
    let log = process.stderr();
    let line = log.lines().find(|line| line.contains("/readyz"))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("address=")).map(str::to_owned)
}

/// Asks `/readyz`, as an orchestrator does.
async fn says_ready(process: &Proc) -> bool {
    get(process, "/readyz").await.is_some()
}

/// The body of a good answer.
async fn get(process: &Proc, path: &str) -> Option<String> {
    let address = http_address(process)?;
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = tokio::time::timeout(Duration::from_secs(2), ask).await.ok()?.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200 ").then(|| body.to_owned())
}

/// Waits until `condition` holds.
///
/// # Panics
/// It does not hold in time. A panic, unlike an error, shows what the processes have printed.
pub async fn eventually(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + within;
    while !condition() {
        assert!(Instant::now() < until, "{what}: not within {within:?}");
        tokio::time::sleep(Duration::from_millis(10)).await; // polls a condition that has no event
    }
}

/// Waits until a condition holds that has to be asked for.
///
/// # Errors
/// It does not hold in time, or cannot be asked for.
pub async fn until<F, Asked>(what: &str, within: Duration, mut holds: F) -> Result<()>
where
    F: FnMut() -> Asked,
    Asked: Future<Output = Result<bool>>,
{
    let give_up = Instant::now() + within;
    while !holds().await? {
        ensure!(Instant::now() < give_up, "{what}: not within {within:?}");
        tokio::time::sleep(Duration::from_millis(100)).await; // polls what has no event
    }
    Ok(())
}
