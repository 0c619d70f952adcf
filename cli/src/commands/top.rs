//! `starling top`: the swarm on one screen, or once as text.

use crate::{args::TopArgs, exit::CliError, session::Session, top};
use starling_runtime::process::Traffic;
use std::{io::IsTerminal as _, process::ExitCode};

/// Whether it draws on the terminal.
pub(super) fn draws(args: TopArgs) -> bool {
    !args.once && std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}

pub(super) async fn top(session: &Session, args: TopArgs) -> Result<ExitCode, CliError> {
    let bus = session.kafka(Traffic::OneByOne)?;
    let schemas = session.schemas()?;
    if draws(args) {
        top::live(bus, &schemas, &session.settings).await?;
    } else {
        print!("{}", top::once(bus, &schemas, &session.settings).await?);
    }
    Ok(ExitCode::SUCCESS)
}
