//! `starling watch`: follows an intent that somebody published.

use crate::{
    args::WatchArgs,
    client::Seen,
    commands::{result::parse_id, run::print},
    exit::{CliError, of_outcome},
    session::Session,
    view::View,
};
use starling_bus::StartAt;
use starling_runtime::process::Traffic;
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

pub(super) async fn watch(session: &Session, args: WatchArgs) -> Result<ExitCode, CliError> {
    let id = parse_id(&args.id)?;
    let client = session.client(session.kafka(Traffic::OneByOne)?);
    let mut follower = client.follow(&id, StartAt::Beginning).await?;
    let mut view = View::fitting(args.json);
    let start = Instant::now();
    let mut frames = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            seen = follower.next() => match seen? {
                Some(Seen::Progress(progress)) => view.progress(&progress, start.elapsed()),
                Some(Seen::Outcome(outcome)) => {
                    view.finish(Some(&outcome), start.elapsed());
                    print(&id, &outcome, args.json);
                    return Ok(of_outcome(outcome.status));
                }
                Some(Seen::Present) => {}
                None => return Err(CliError::Failed("the log ended without an outcome".to_owned())),
            },
            _ = frames.tick() => view.tick(start.elapsed()),
            _ = tokio::signal::ctrl_c() => return Err(CliError::Interrupted),
        }
    }
}
