//! `starling batch`: an intent for each row of a file.

use crate::{
    batch::{Batch, BatchArgs, Forecast, GoalTemplate, Input, Outside, Summary, Wish},
    bench::cpu_time,
    client::Client,
    exit::CliError,
    report,
    session::Session,
    swarm::Swarm,
};
use futures::future::{self, BoxFuture, FutureExt as _};
use starling_protocol::{Limits, ids::digest};
use std::{path::PathBuf, process::ExitCode};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

pub(super) async fn batch(session: &Session, args: BatchArgs) -> Result<ExitCode, CliError> {
    if args.rehearsal.rehearse {
        return rehearse(session, args).await;
    }
    let job = Job::of(session, &args)?;
    let swarm = if session.brokers_given() { None } else { Some(Swarm::embedded(session).await?) };
    if let Some(swarm) = &swarm {
        if swarm.is_offline() && !args.json {
            eprintln!("{}\n", report::offline_notice(&session.settings.model).await);
        }
        swarm.reach_model().await?;
    }
    let client = match &swarm {
        Some(swarm) => session.client(swarm.bus()),
        None => session.publisher().await?,
    };
    if !args.json {
        eprintln!("batch {}", job.name);
    }
    let broken = match &swarm {
        Some(swarm) => swarm.broken().boxed(),
        None => future::pending().boxed(),
    };
    let out = args.out.clone().unwrap_or_default();
    let ended = run(session, &args, job, &client, out, broken).await;
    if let Some(swarm) = swarm {
        swarm.stop().await;
    }
    session.flush_telemetry().await;
    let summary = ended?;
    if args.json {
        print_json(&summary)?;
    } else {
        eprint!("{}", summary.text());
        if summary.offline {
            eprintln!("{}", report::OFFLINE_NOTICE);
        }
    }
    Ok(summary.exit_code())
}

/// Runs it against the mock endpoint, and throws the output away.
async fn rehearse(session: &Session, args: BatchArgs) -> Result<ExitCode, CliError> {
    if session.brokers_given() {
        return Err(CliError::Usage("--rehearse runs in this process: leave --brokers out".to_owned()));
    }
    let job = Job::of(session, &args)?;
    let (server, settings) = args.rehearsal.set_up(&session.settings)?;
    let swarm = Swarm::in_memory(session, &settings).await?;
    swarm.ready().await?;
    let client = session.client(swarm.bus());
    let folder = std::env::temp_dir().join(format!("starling-rehearsal-{:08x}", rand::random::<u32>()));
    std::fs::create_dir(&folder)
        .map_err(|error| CliError::Failed(format!("{}: {error}", folder.display())))?;
    let before = cpu_time();
    let ended = run(session, &args, job, &client, folder.join("out.jsonl"), swarm.broken().boxed()).await;
    let cpu = before.zip(cpu_time()).map(|(before, after)| after.saturating_sub(before));
    let _ = std::fs::remove_dir_all(&folder); // what is left of it lies among temporary files
    swarm.stop().await;
    session.flush_telemetry().await;
    let forecast: Forecast = args.rehearsal.forecast(ended?, &server.stats(), cpu);
    if args.json {
        print_json(&forecast)?;
    } else {
        eprint!("{}", forecast.text());
    }
    Ok(forecast.rows.exit_code())
}

/// What is to be done, as far as the command line says it.
struct Job {
    input: Input,
    goal: Option<GoalTemplate>,
    name: String,
}

impl Job {
    fn of(session: &Session, args: &BatchArgs) -> Result<Self, CliError> {
        let input = Input::new(&args.input, args.format, session.settings.batch.max_row)?;
        let goal = args.goal.as_deref().map(GoalTemplate::parse).transpose();
        let goal = goal.map_err(|fault| CliError::Usage(format!("--goal: {fault}")))?;
        let name = args.name.clone().unwrap_or_else(|| default_name(args, &input));
        Ok(Self { input, goal, name })
    }
}

async fn run(
    session: &Session,
    args: &BatchArgs,
    Job { input, goal, name }: Job,
    client: &Client,
    out: PathBuf,
    broken: BoxFuture<'static, CliError>,
) -> Result<Summary, CliError> {
    let settings = &session.settings.batch;
    let batch = Batch {
        client,
        input,
        out,
        name,
        wish: Wish {
            goal,
            strategy: args.strategy().clone(),
            items: args.items.clone(),
            tenant: args.tenant.clone(),
            priority: args.priority,
            limits: Limits {
                max_tasks: args.max_tasks,
                max_attempts: args.max_attempts,
                max_calls: args.max_calls,
                max_tokens: args.max_tokens,
                max_cost_usd: args.max_cost,
                ..Limits::default()
            },
            timeout: args.timeout.unwrap_or(session.settings.coordinator.default_deadline),
            deadline: args.deadline,
        },
        concurrency: args.concurrency.map_or(settings.concurrency, |rows| rows as usize),
        in_order: args.in_order,
        retry_failed: args.retry_failed,
        limit: args.limit,
        budget: args.budget,
        remembered: session.settings.coordinator.dedup_horizon,
        settings: settings.clone(),
        quiet: args.json,
    };
    batch.run(Outside { interrupts: interrupts()?, broken }).await
}

fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    println!("{}", serde_json::to_string(value).map_err(|error| CliError::Failed(error.to_string()))?);
    Ok(())
}

/// The same for the same wish and the same file: started again, it is the same batch.
fn default_name(args: &BatchArgs, input: &Input) -> String {
    let file = input.name();
    let (strategy, goal) = (args.strategy().to_string(), args.goal.as_deref().unwrap_or_default());
    let wish = digest(&[&strategy, goal, &file]);
    format!("{file}-{}", wish.get(..12).unwrap_or(&wish))
}

/// Ctrl-C and SIGTERM, as they come.
fn interrupts() -> Result<mpsc::Receiver<()>, CliError> {
    let cannot = |error: std::io::Error| CliError::Failed(error.to_string());
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let (told, interrupts) = mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if told.send(()).await.is_err() {
                return;
            }
        }
    });
    Ok(interrupts)
}
