//! `starling watch`: follows an intent that somebody published.

use crate::{
    args::WatchArgs,
    commands::{
        follow::{OnCtrlC, follow},
        result::parse_id,
        run::print,
    },
    exit::{CliError, of_outcome},
    session::Session,
    view::View,
};
use starling_bus::StartAt;
use std::process::ExitCode;

pub(super) async fn watch(session: &Session, args: WatchArgs) -> Result<ExitCode, CliError> {
    let id = parse_id(&args.id)?;
    let client = session.follower()?;
    let follower = client.follow(&id, StartAt::Beginning).await?;
    let outcome = follow(follower, View::fitting(args.json), OnCtrlC::Leave).await?;
    print(&id, &outcome, args.json);
    Ok(of_outcome(&outcome))
}
