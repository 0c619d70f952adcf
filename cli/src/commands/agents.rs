//! `starling agents`: who there is, and whether a folder of agents will do.

use crate::{args::AgentsArgs, exit::CliError, session::Session};
use serde_json::json;
use starling_agents::{Agent, AgentCatalogue};
use starling_llm::Purpose;
use starling_planner::model_of;
use starling_protocol::tag::DEFAULT_POOL;
use starling_runtime::Settings;
use starling_service::load_agents;
use std::process::ExitCode;

/// The longest description in the table, in characters.
const DESCRIPTION_CHARS: usize = 70;

pub(super) fn agents(session: &Session, args: &AgentsArgs) -> Result<ExitCode, CliError> {
    let mut settings = Settings::clone(&session.settings);
    if let Some(dir) = &args.check {
        settings.agents_dir = Some(dir.clone());
    }
    let catalogue = load_agents(&settings).map_err(|error| CliError::Usage(error.to_string()))?;
    if args.json {
        println!("{:#}", as_json(&settings, &catalogue));
    } else {
        print!("{}", table(&settings, &catalogue));
    }
    Ok(ExitCode::SUCCESS)
}

/// The model that is asked first.
fn asked<'s>(settings: &'s Settings, agent: &'s Agent) -> &'s str {
    let model = &settings.model;
    if model.is_offline() { "offline" } else { model_of(model, &model.provider, agent) }
}

fn as_json(settings: &Settings, catalogue: &AgentCatalogue) -> serde_json::Value {
    let agents = catalogue.all().map(|agent| {
        json!({
            "name": agent.name,
            "purpose": Purpose::from(agent.purpose).name(),
            "pool": agent.pool.as_deref().unwrap_or(DEFAULT_POOL),
            "model": asked(settings, agent),
            "description": agent.description,
        })
    });
    json!({ "agents": agents.collect::<Vec<_>>() })
}

fn table(settings: &Settings, catalogue: &AgentCatalogue) -> String {
    let head = ["name", "purpose", "pool", "model", "description"].map(str::to_owned);
    let rows = catalogue.all().map(|agent| {
        let mut description: String = agent.description.chars().take(DESCRIPTION_CHARS).collect();
        if description.len() < agent.description.len() {
            description.push('…');
        }
        let model = Some(asked(settings, agent)).filter(|model| !model.is_empty());
        [
            agent.name.clone(),
            Purpose::from(agent.purpose).name().to_owned(),
            agent.pool.clone().unwrap_or_else(|| DEFAULT_POOL.to_owned()),
            // It is chosen when a service starts.
            model.unwrap_or("the newest").to_owned(),
            description,
        ]
    });
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
