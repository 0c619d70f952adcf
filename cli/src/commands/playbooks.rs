//! `starling playbooks`: what there is, and what each takes.

use crate::{args::PlaybooksArgs, exit::CliError, session::Session};
use serde_json::{Value, json};
use starling_playbooks::{Parameter, Playbook};
use starling_service::library;
use std::{fmt::Write as _, process::ExitCode};

pub(super) async fn playbooks(session: &Session, args: PlaybooksArgs) -> Result<ExitCode, CliError> {
    let (_, playbooks) = library(&session.settings).map_err(CliError::Usage)?;
    if args.json {
        let all: Vec<Value> = playbooks.iter().map(as_json).collect();
        println!("{}", json!({ "playbooks": all }));
    } else {
        let all: Vec<String> = playbooks.iter().map(as_text).collect();
        print!("{}", all.join("\n"));
    }
    session.flush_telemetry().await;
    Ok(ExitCode::SUCCESS)
}

fn as_json(playbook: &Playbook) -> Value {
    let parameter = |(name, parameter): (&String, &Parameter)| {
        json!({
            "name": name,
            "type": parameter.kind.to_string(),
            "required": parameter.required,
            "default": parameter.default,
            "description": parameter.description,
        })
    };
    json!({
        "name": playbook.name(),
        "description": playbook.description(),
        "needs_goal": playbook.needs_goal(),
        "for_each": playbook.repeats_for(),
        "parameters": playbook.parameters().iter().map(parameter).collect::<Vec<_>>(),
    })
}

fn as_text(playbook: &Playbook) -> String {
    let mut out = format!("{}\n  {}\n", playbook.name(), playbook.description());
    // Writing to a String cannot fail, so the results are of no interest.
    if playbook.needs_goal() {
        out.push_str("  needs a goal\n");
    }
    for (name, parameter) in playbook.parameters() {
        let Parameter { kind, required, default, description } = parameter;
        let need = match (required, default) {
            (true, _) => "required".to_owned(),
            (false, Some(default)) => format!("default {default}"),
            (false, None) => "optional".to_owned(),
        };
        let _ = writeln!(out, "  --param {name}=...  {kind}, {need}: {description}");
    }
    let each = playbook.repeats_for();
    if !each.is_empty() {
        let _ = writeln!(out, "  a task for each of: {}", each.join(", "));
    }
    out
}
