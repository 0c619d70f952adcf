//! `starling doctor`: looks at everything that the swarm needs.

use crate::{
    args::DoctorArgs,
    doctor::{Finding, Options, Status, examine},
    exit::CliError,
    session::Session,
};
use console::style;
use starling_runtime::process::{Traffic, bus_from};
use std::process::ExitCode;

pub(super) async fn doctor(session: &Session, args: DoctorArgs) -> Result<ExitCode, CliError> {
    let bus = bus_from(&session.settings, Traffic::OneByOne);
    let there = bus.as_deref().map_err(Clone::clone);
    let report = examine(session, there, Options { call_model: args.call_model }).await;
    if args.json {
        let text = serde_json::to_string(&report).map_err(|error| CliError::Failed(error.to_string()))?;
        println!("{text}");
    } else {
        for finding in &report.checks {
            println!("{}", coloured(finding));
            finding.details.iter().for_each(|detail| println!("{}", detail.line()));
        }
        println!("{}", report.summary());
    }
    Ok(report.exit())
}

/// The line of a finding; its status in colour where stdout is a terminal.
fn coloured(finding: &Finding) -> String {
    let line = finding.line();
    let name = finding.status.name();
    let rest = line.strip_prefix(name).unwrap_or(&line);
    let name = match finding.status {
        Status::Ok => style(name).green(),
        Status::Warning => style(name).yellow(),
        Status::Fault => style(name).red().bold(),
    };
    format!("{name}{rest}")
}
