//! `starling run`: an intent from the first word to the answer.

use crate::{
    args::RunArgs,
    client::{Client, Follower, Seen},
    commands::submit::submission,
    exit::{CliError, of_outcome},
    report,
    session::Session,
    swarm::Swarm,
    view::View,
};
use starling_bus::StartAt;
use starling_protocol::{IntentId, Outcome};
use starling_runtime::process::Traffic;
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

/// How long a cancelled intent may take to end after Ctrl-C.
const LAST_WORDS: Duration = Duration::from_secs(5);

pub(super) async fn run(session: &Session, args: RunArgs) -> Result<ExitCode, CliError> {
    let mut submission = submission(args.intent)?;
    let swarm = if session.brokers_given() { None } else { Some(Swarm::embedded(session).await?) };
    let offline = swarm.as_ref().is_some_and(Swarm::is_offline);
    if offline && !args.json {
        eprintln!("{}\n", report::OFFLINE_NOTICE);
    }
    if let Some(swarm) = &swarm {
        swarm.reach_model().await?;
    }
    let bus = match &swarm {
        Some(swarm) => swarm.bus(),
        None => session.kafka(Traffic::OneByOne)?,
    };
    let client = session.client(bus);
    let id = submission.id.clone();
    let tenant = submission.tenant.clone();
    let span = session.spans().named("starling run", None, &id);
    submission.traceparent = Some(span.traceparent().to_string());
    let follower = client.follow(&id, StartAt::End).await?;
    client.submit(submission).await?;
    if !args.json {
        eprintln!("intent {id}");
    }
    let ended = follow(&client, follower, View::fitting(args.json), &id, &tenant).await;
    span.end();
    if let Some(swarm) = swarm {
        swarm.stop().await;
    }
    session.flush_telemetry().await;
    let outcome = ended?;
    print(&id, &outcome, args.json);
    Ok(of_outcome(outcome.status))
}

/// Shows an intent until it ends. Ctrl-C cancels it first, and then is an error.
pub(super) async fn follow(
    client: &Client,
    mut follower: Follower,
    mut view: View,
    id: &IntentId,
    tenant: &str,
) -> Result<Outcome, CliError> {
    let start = Instant::now();
    let mut interrupted: Option<Instant> = None;
    let mut frames = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            seen = follower.next() => match seen? {
                Some(Seen::Progress(progress)) => view.progress(&progress, start.elapsed()),
                Some(Seen::Outcome(outcome)) => {
                    view.finish(Some(&outcome), start.elapsed());
                    return if interrupted.is_some() { Err(CliError::Interrupted) } else { Ok(*outcome) };
                }
                Some(Seen::Present) => {}
                None => return Err(CliError::Failed("the log ended without an outcome".to_owned())),
            },
            _ = frames.tick() => {
                view.tick(start.elapsed());
                if interrupted.is_some_and(|at| at.elapsed() > LAST_WORDS) {
                    view.finish(None, start.elapsed());
                    return Err(CliError::Interrupted);
                }
            }
            pressed = tokio::signal::ctrl_c() => {
                if pressed.is_err() || interrupted.is_some() {
                    return Err(CliError::Interrupted);
                }
                interrupted = Some(Instant::now());
                eprintln!("cancelling {id} (Ctrl-C again leaves at once)");
                client.cancel(id, tenant, "interrupted by the user").await?;
            }
        }
    }
}

/// Prints an outcome: the answer and JSON on stdout, the rest on stderr.
pub(super) fn print(id: &IntentId, outcome: &Outcome, json: bool) {
    if json {
        println!("{}", report::json(id, outcome));
        return;
    }
    if report::has_answer(outcome) {
        eprintln!();
        println!("{}", outcome.answer.trim_end());
    }
    eprintln!("\n{}", report::text(id, outcome));
    if outcome.offline {
        eprintln!("{}", report::OFFLINE_NOTICE);
    }
}
