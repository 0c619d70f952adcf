//! `starling cancel`: asks the coordinator to end an intent, and says what came of it.

use crate::{
    args::CancelArgs,
    client::{Follower, Seen},
    commands::result::parse_id,
    exit::CliError,
    session::Session,
};
use starling_bus::StartAt;
use starling_protocol::{IntentId, OutcomeStatus};
use std::{process::ExitCode, time::Duration};
use tokio::time::{Instant, timeout_at};

/// How long an outcome may take that follows from what was answered: it is written beside the answer.
const BESIDE: Duration = Duration::from_secs(2);

/// What came of it.
enum Answer {
    /// The intent ended so.
    Ended(OutcomeStatus),
    /// Nobody knows the intent; it is cancelled should it come.
    Remembered,
    /// Nobody has said anything.
    Silence,
}

pub(super) async fn cancel(session: &Session, args: CancelArgs) -> Result<ExitCode, CliError> {
    let id = parse_id(&args.id)?;
    let client = session.publisher().await?;
    let mut follower = client.follow(&id, StartAt::Beginning).await?;
    if let Some(status) = ended_before(&mut follower).await? {
        return had_ended(&id, status);
    }
    client.cancel(&id, &args.tenant, &args.reason).await?;
    match answer(&mut follower, Duration::from_secs(args.wait)).await? {
        Answer::Ended(OutcomeStatus::Cancelled) => println!("{id} is cancelled"),
        Answer::Ended(status) => return had_ended(&id, status),
        Answer::Remembered => println!("nothing is known of {id} yet; should it come, it is cancelled"),
        Answer::Silence => {
            return Err(CliError::Unavailable(format!(
                "the cancellation of {id} is published, and no coordinator has answered within {} s: it counts as soon \
                 as one runs; `starling watch {id}` shows how it ends",
                args.wait
            )));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Nothing is left to be cancelled. That is what was wanted only if somebody has cancelled it before.
fn had_ended(id: &IntentId, status: OutcomeStatus) -> Result<ExitCode, CliError> {
    if status == OutcomeStatus::Cancelled {
        println!("{id} is cancelled already");
        return Ok(ExitCode::SUCCESS);
    }
    Err(CliError::Failed(format!("{id} has ended already, nothing was cancelled: {}", status.name())))
}

/// Reads what is there, up to the present.
async fn ended_before(follower: &mut Follower) -> Result<Option<OutcomeStatus>, CliError> {
    loop {
        match follower.next().await? {
            Some(Seen::Progress(_)) => {}
            Some(Seen::Outcome(outcome)) => return Ok(Some(outcome.status)),
            Some(Seen::Present) | None => return Ok(None),
        }
    }
}

async fn answer(follower: &mut Follower, patience: Duration) -> Result<Answer, CliError> {
    let (mut until, mut remembered) = (Instant::now() + patience, false);
    while let Ok(seen) = timeout_at(until, follower.next()).await {
        match seen? {
            Some(Seen::Outcome(outcome)) => return Ok(Answer::Ended(outcome.status)),
            Some(Seen::Progress(progress)) => {
                match OutcomeStatus::ALL.into_iter().find(|status| status.name() == progress.phase) {
                    Some(OutcomeStatus::Cancelled) => {
                        remembered = true;
                        until = until.min(Instant::now() + BESIDE);
                    }
                    // Its outcome was deleted long ago, but the coordinator remembers.
                    Some(status) => return Ok(Answer::Ended(status)),
                    None => {}
                }
            }
            Some(Seen::Present) => {}
            None => break,
        }
    }
    Ok(if remembered { Answer::Remembered } else { Answer::Silence })
}
