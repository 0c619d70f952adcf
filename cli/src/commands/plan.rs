//! `starling plan`: the plan of an intent as a picture or as data, and as a playbook to keep.

mod picture;

use crate::{
    args::{PlanArgs, PlanFormat},
    exit::CliError,
    planned::{Planned, planned},
    report,
    session::Session,
};
use serde_json::json;
use starling_playbooks::as_playbook;
use starling_protocol::body::is_slug;
use std::{path::PathBuf, process::ExitCode};

pub(super) async fn plan(session: &Session, args: PlanArgs) -> Result<ExitCode, CliError> {
    if let Some(name) = args.save.as_deref().filter(|name| !is_slug(name)) {
        return Err(CliError::Usage(format!("--save {name}: expected 1 to 64 characters of a-z 0-9 - _")));
    }
    let planned = planned(session, args.intent).await?;
    match args.format {
        PlanFormat::Tree => print!("{}", picture::tree(&planned.strategy, &planned.plan)),
        PlanFormat::Dot => print!("{}", picture::dot(&planned.plan)),
        PlanFormat::Mermaid => print!("{}", picture::mermaid(&planned.plan)),
        PlanFormat::Json => println!("{}", json(&planned)),
    }
    if let Some(name) = &args.save {
        let path = save(session, name, &planned)?;
        eprintln!("saved as {}", path.display());
    }
    if planned.offline && planned.report.offline {
        eprintln!("{}", report::offline_notice(&session.settings.model).await);
    }
    session.flush_telemetry().await;
    Ok(ExitCode::SUCCESS)
}

fn json(planned: &Planned) -> serde_json::Value {
    json!({
        "strategy": planned.strategy.to_string(),
        "goal": planned.plan.goal,
        "offline": planned.offline,
        "tasks": planned.plan.tasks,
        "answer": planned.plan.answer,
        "report": planned.report,
    })
}

/// Writes the plan as a playbook into the folder of playbooks. A file that is there is left alone.
fn save(session: &Session, name: &str, planned: &Planned) -> Result<PathBuf, CliError> {
    let folder = session.settings.playbooks_dir.clone().unwrap_or_else(|| PathBuf::from("playbooks"));
    let path = folder.join(format!("{name}.toml"));
    let cannot = |what: &dyn std::fmt::Display| CliError::Usage(format!("{}: {what}", path.display()));
    let description = format!("A plan for: {}", planned.plan.goal.lines().next().unwrap_or_default());
    let is_worker = |agent: &str| planned.catalogue.is_worker(agent);
    let text = as_playbook(name, &description, &planned.plan, is_worker).map_err(|error| cannot(&error))?;
    std::fs::create_dir_all(&folder).map_err(|error| cannot(&error))?;
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(&path);
    let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| cannot(&error))?;
    Ok(path)
}
