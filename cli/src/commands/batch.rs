//! `starling batch`: an intent for each row of a file.

use crate::{
    batch::{Batch, BatchArgs, GoalTemplate, Input, Outside, Wish},
    exit::CliError,
    report,
    session::Session,
    swarm::Swarm,
};
use futures::future::{self, FutureExt as _};
use starling_protocol::{Limits, ids::digest};
use std::process::ExitCode;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

pub(super) async fn batch(session: &Session, args: BatchArgs) -> Result<ExitCode, CliError> {
    let settings = &session.settings.batch;
    let input = Input::new(&args.input, args.format, settings.max_row)?;
    let goal = args.goal.as_deref().map(GoalTemplate::parse).transpose();
    let goal = goal.map_err(|fault| CliError::Usage(format!("--goal: {fault}")))?;
    let name = args.name.clone().unwrap_or_else(|| default_name(&args, &input));
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
        eprintln!("batch {name}");
    }
    let broken = match &swarm {
        Some(swarm) => swarm.broken().boxed(),
        None => future::pending().boxed(),
    };
    let strategy = args.strategy().clone();
    let batch = Batch {
        client: &client,
        input,
        out: args.out,
        name,
        wish: Wish {
            goal,
            strategy,
            items: args.items,
            tenant: args.tenant,
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
    let ended = batch.run(Outside { interrupts: interrupts()?, broken }).await;
    if let Some(swarm) = swarm {
        swarm.stop().await;
    }
    session.flush_telemetry().await;
    let summary = ended?;
    if args.json {
        println!("{}", serde_json::to_string(&summary).map_err(|error| CliError::Failed(error.to_string()))?);
    } else {
        eprint!("{}", summary.text());
        if summary.offline {
            eprintln!("{}", report::OFFLINE_NOTICE);
        }
    }
    Ok(summary.exit_code())
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
