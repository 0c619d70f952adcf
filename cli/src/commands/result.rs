//! `starling result`: the outcome of an intent that has ended.

use crate::{
    args::ResultArgs,
    client::Seen,
    commands::run::print,
    exit::{CliError, of_outcome},
    session::Session,
};
use starling_bus::StartAt;
use starling_protocol::IntentId;
use std::process::ExitCode;

pub(super) async fn result(session: &Session, args: ResultArgs) -> Result<ExitCode, CliError> {
    let id = parse_id(&args.id)?;
    let client = session.follower()?;
    let mut follower = client.follow(&id, StartAt::Beginning).await?;
    let mut known = false;
    while let Some(seen) = follower.next().await? {
        match seen {
            Seen::Progress(_) => known = true,
            Seen::Outcome(outcome) => {
                print(&id, &outcome, args.json);
                return Ok(of_outcome(&outcome));
            }
            Seen::Present => {
                return Err(CliError::Failed(if known {
                    format!("{id} has not ended; `starling watch {id}` waits for it")
                } else {
                    format!("nothing is known of {id}: it was never accepted, or its records have expired")
                }));
            }
        }
    }
    Err(CliError::Failed("the log ended without an outcome".to_owned()))
}

pub(super) fn parse_id(id: &str) -> Result<IntentId, CliError> {
    IntentId::parse(id).map_err(CliError::Usage)
}
