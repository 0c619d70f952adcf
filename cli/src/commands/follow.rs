//! Shows an intent until it ends.

use crate::{
    client::{Client, Follower, Seen},
    exit::CliError,
    view::View,
};
use starling_protocol::{IntentId, Outcome};
use std::time::{Duration, Instant};

/// How long a cancelled intent may take to end after Ctrl-C.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Time between two pictures of the view.
const FRAME: Duration = Duration::from_millis(100);

/// What Ctrl-C means to whoever looks on.
pub(super) enum OnCtrlC<'a> {
    /// To look no longer.
    Leave,
    /// That the intent is not wanted any more.
    Cancel { client: &'a Client, id: &'a IntentId, tenant: &'a str },
}

/// Shows an intent until it ends.
///
/// # Errors
/// Its topics cannot be read; or [`CliError::Interrupted`], in the end.
pub(super) async fn follow(
    mut follower: Follower,
    mut view: View,
    on_ctrl_c: OnCtrlC<'_>,
) -> Result<Outcome, CliError> {
    let start = Instant::now();
    let mut interrupted: Option<Instant> = None;
    let mut frames = tokio::time::interval(FRAME);
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
            pressed = tokio::signal::ctrl_c() => match on_ctrl_c {
                OnCtrlC::Cancel { client, id, tenant } if pressed.is_ok() && interrupted.is_none() => {
                    interrupted = Some(Instant::now());
                    eprintln!("cancelling {id} (Ctrl-C again leaves at once)");
                    client.cancel(id, tenant, "interrupted by the user").await?;
                }
                OnCtrlC::Cancel { .. } | OnCtrlC::Leave => return Err(CliError::Interrupted),
            },
        }
    }
}
