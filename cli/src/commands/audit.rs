//! `starling audit`: accounts for every record of an intent, or of all intents of a time.

use crate::{args::AuditArgs, audit::Auditor, commands::result::parse_id, exit::CliError, session::Session};
use serde::Serialize;
use starling_audit::{Terms, tree_of};
use starling_runtime::{Clock, process::Traffic};
use std::process::ExitCode;

pub(super) async fn audit(session: &Session, args: AuditArgs) -> Result<ExitCode, CliError> {
    let mut settings = (*session.settings).clone();
    if let Some(at_once) = args.at_once {
        settings.audit.at_once = usize::try_from(at_once).unwrap_or(usize::MAX);
    }
    let overdue_ms = i64::try_from(settings.audit.overdue.as_millis()).unwrap_or(i64::MAX);
    let terms = Terms { now: Clock::system().now(), ended: args.ended, overdue_ms };
    let auditor = Auditor::new(session.kafka(Traffic::OneByOne)?, session.schemas()?, &settings);
    let fine = match &args.intent {
        Some(id) => {
            let account = auditor.intent(&parse_id(id)?, terms).await?;
            print(args.json, &account, || tree_of(&account))?;
            account.is_fine()
        }
        None => {
            let report = auditor.range(args.since, args.until, terms).await?;
            print(args.json, &report, || report.text())?;
            report.is_fine()
        }
    };
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(json: bool, found: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), CliError> {
    if json {
        let json = serde_json::to_string(found).map_err(|error| CliError::Failed(error.to_string()))?;
        println!("{json}");
    } else {
        print!("{}", text());
    }
    Ok(())
}
