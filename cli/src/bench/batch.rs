//! A file of rows, worked through by a swarm: time, memory, and whether each row is in the output once.

use super::{
    measure::{Figures, cpu_time, peak_rss_mb, rss_mb},
    probe::Probe,
    scene::{BenchModel, Scene, on_kafka},
};
use crate::{
    args::{BenchBatchArgs, BusKind},
    batch::{Batch, GoalTemplate, Input, Outside, Wish},
    client::Client,
    exit::CliError,
    session::Session,
    swarm::{Shape, Swarm, embedded, memory_bus},
};
use starling_bus::Bus;
use starling_llm::mock::{MockOptions, scripts, scripts::Latencies};
use starling_protocol::{Limits, PlanStrategy, TopicNames};
use starling_runtime::{
    process::{Traffic, kafka_options},
    topics::topic_specs,
};
use std::{
    collections::HashSet,
    fmt::Write as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

pub(super) async fn run(session: &Session, args: &BenchBatchArgs) -> Result<Figures, CliError> {
    let model = if args.swarm.model_in_process {
        BenchModel::InProcess(Arc::new(Probe::layers(1, args.tasks, Duration::ZERO)))
    } else {
        BenchModel::Http(MockOptions::new(scripts::fanout(args.tasks, Latencies::all(Duration::ZERO))))
    };
    let scene = Scene::of(session, &args.swarm, model)?;
    let settings = match args.swarm.bus {
        BusKind::Memory => Arc::new(embedded(&scene.settings)),
        BusKind::Kafka => scene.settings.clone(),
    };
    let topics = topic_specs(&settings.topics);
    let (bus, litter) = match args.swarm.bus {
        BusKind::Memory => {
            let bus = memory_bus(&settings);
            bus.create_topics(&topics).await?;
            (bus as Arc<dyn Bus>, None)
        }
        BusKind::Kafka => {
            let (bus, litter) = on_kafka(kafka_options(&settings, Traffic::FanOut), &topics).await?;
            (bus, Some(litter))
        }
    };
    let shape = Shape { planner: true, workers: args.swarm.workers, model: scene.model.clone() };
    let swarm = Swarm::start(settings.clone(), bus.clone(), session.spans().clone(), shape).await?;
    swarm.ready().await?;
    let folder = Folder::new(args.rows)?;
    let client = Client::new(bus, TopicNames::new(settings.topics.prefix.as_str()));
    let (_interrupt, interrupts) = mpsc::channel(1);
    let cpu = cpu_time();
    let start = Instant::now();
    let batch = Batch {
        client: &client,
        input: Input::new(&folder.0.join("rows.csv"), None, settings.batch.max_row)?,
        out: folder.0.join("out.jsonl"),
        name: "bench".to_owned(),
        wish: Wish {
            goal: Some(GoalTemplate::parse("Describe {{name}}").map_err(CliError::Failed)?),
            strategy: PlanStrategy::Llm,
            items: None,
            tenant: "bench".to_owned(),
            priority: 0,
            limits: Limits::default(),
            timeout: settings.coordinator.default_deadline,
            deadline: None,
        },
        concurrency: args.concurrency,
        in_order: args.in_order,
        retry_failed: false,
        limit: None,
        budget: None,
        remembered: Duration::ZERO,
        settings: settings.batch.clone(),
        quiet: args.swarm.json,
    };
    let summary = batch.run(Outside { interrupts, broken: Box::pin(swarm.broken()) }).await?;
    let wall = start.elapsed();
    let mut figures = Figures::new("batch", args.swarm.bus.name());
    figures.workers = args.swarm.workers;
    figures.slots = args.swarm.slots;
    let subtasks = (args.rows * args.tasks) as f64;
    figures.subtasks_per_s = Some((subtasks / wall.as_secs_f64()).round());
    figures.cpu_s_per_1000 =
        cpu.zip(cpu_time()).map(|(before, after)| (after - before).as_secs_f64() * 1000.0 / subtasks);
    figures.rss_mb = rss_mb();
    figures.more = vec![
        ("rows_once", rows_once(&folder.0.join("out.jsonl"), args.rows)?),
        ("succeeded", summary.succeeded as f64),
        ("wall_s", wall.as_secs_f64()),
        ("rows_per_s", args.rows as f64 / wall.as_secs_f64()),
        ("peak_rss_mb", peak_rss_mb().unwrap_or(f64::NAN)),
    ];
    drop(client);
    swarm.stop().await;
    if let Some(litter) = litter {
        litter.clear().await;
    }
    Ok(figures)
}

/// A folder with an input; it is removed when this is dropped.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(rows: usize) -> Result<Self, CliError> {
        let path = std::env::temp_dir().join(format!("starling-bench-{:08x}", rand::random::<u32>()));
        let mut table = "id,name\n".to_owned();
        for row in 0..rows {
            let _ = writeln!(table, "r{row},thing {row}"); // writing to a String cannot fail
        }
        let made = std::fs::create_dir(&path).and_then(|()| std::fs::write(path.join("rows.csv"), table));
        made.map_err(|error| CliError::Failed(format!("{}: {error}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // what is left of it lies among temporary files
    }
}

/// How many rows are in the output; every one of them once, or that is an error.
fn rows_once(out: &Path, rows: usize) -> Result<f64, CliError> {
    let text = std::fs::read_to_string(out).map_err(|error| CliError::Failed(error.to_string()))?;
    let keys: Result<HashSet<String>, _> =
        text.lines().map(|line| Ok::<_, serde_json::Error>(serde_json::from_str::<Key>(line)?.key)).collect();
    let keys = keys.map_err(|error| CliError::Failed(error.to_string()))?;
    let lines = text.lines().count();
    if keys.len() != rows || lines != rows {
        return Err(CliError::Failed(format!(
            "{rows} rows have become {lines} lines of {} rows",
            keys.len()
        )));
    }
    Ok(rows as f64)
}

#[derive(serde::Deserialize)]
struct Key {
    key: String,
}
