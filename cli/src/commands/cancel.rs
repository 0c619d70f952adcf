//! `starling cancel`: asks the coordinator to end an intent.

use crate::{args::CancelArgs, commands::result::parse_id, exit::CliError, session::Session};
use std::process::ExitCode;

pub(super) async fn cancel(session: &Session, args: CancelArgs) -> Result<ExitCode, CliError> {
    let id = parse_id(&args.id)?;
    let client = session.publisher().await?;
    client.cancel(&id, &args.tenant, &args.reason).await?;
    println!("cancellation of {id} is published; `starling watch {id}` shows how it ends");
    Ok(ExitCode::SUCCESS)
}
