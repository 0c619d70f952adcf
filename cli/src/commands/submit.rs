//! `starling submit`, and how an intent is made of arguments.

use crate::inputs::{Material, Sources};
use crate::{args::IntentArgs, client::Submission, exit::CliError, session::Session};
use starling_protocol::{Intent, IntentId, Limits, PlanStrategy};
use std::{collections::BTreeMap, process::ExitCode, time::Duration};

pub(super) async fn submit(session: &Session, args: IntentArgs) -> Result<ExitCode, CliError> {
    let mut submission = submission(session, args)?;
    let client = session.publisher().await?;
    let span = session.spans().named("starling submit", None, &submission.id);
    submission.traceparent = Some(span.traceparent().to_string());
    let id = submission.id.clone();
    client.submit(submission).await?;
    span.end();
    session.flush_telemetry().await;
    println!("{id}");
    Ok(ExitCode::SUCCESS)
}

/// Reads the files and checks what can be checked here.
pub(crate) fn submission(session: &Session, args: IntentArgs) -> Result<Submission, CliError> {
    let id = match &args.id {
        Some(id) => IntentId::parse(id).map_err(CliError::Usage)?,
        None => IntentId::from_string(format!("{:032x}", rand::random::<u128>())),
    };
    let material = Material::read(&Sources::of(&args), &session.settings)?;
    for note in &material.notes {
        eprintln!("{note}");
    }
    let strategy = args.strategy().clone();
    let goal = args.goal.unwrap_or_default();
    if goal.trim().is_empty() && !matches!(strategy, PlanStrategy::Playbook(_)) {
        return Err(CliError::Usage("the goal is empty: say what you want".to_owned()));
    }
    let parameters = parameters(args.parameters)?;
    if args.min_score.is_some_and(|score| !(0.0..=1.0).contains(&score)) {
        return Err(CliError::Usage("--min-score is a number from 0 to 1".to_owned()));
    }
    if args.degrade_after.is_some_and(|seconds| !(0.0..=604_800.0).contains(&seconds)) {
        return Err(CliError::Usage("--degrade-after is a number of seconds from 0 to 604800".to_owned()));
    }
    if args.max_cost.is_some_and(|cost| !(cost.is_finite() && cost > 0.0)) {
        return Err(CliError::Usage("--max-cost is a number of US dollars above 0".to_owned()));
    }
    let intent = Intent {
        goal,
        strategy: strategy.to_string(),
        priority: args.priority,
        limits: Limits {
            max_tasks: args.max_tasks,
            max_attempts: args.max_attempts,
            min_score: args.min_score,
            max_calls: args.max_calls,
            max_tokens: args.max_tokens,
            max_cost_usd: args.max_cost,
            degrade_after_ms: args.degrade_after.map(|seconds| (seconds * 1e3) as i64),
        },
        inputs: material.inputs,
        items: args.items.into_iter().chain(material.items).collect(),
        parameters,
    };
    let timeout = args.timeout.map(Duration::from_secs);
    Ok(Submission { id, intent, tenant: args.tenant, timeout, traceparent: None, parts: material.parts })
}

fn parameters(given: Vec<(String, String)>) -> Result<BTreeMap<String, String>, CliError> {
    let mut parameters = BTreeMap::new();
    for (name, value) in given {
        if parameters.insert(name.clone(), value).is_some() {
            return Err(CliError::Usage(format!(
                "--param {name} is given twice; a list is one value: --param '{name}=[\"a\",\"b\"]'"
            )));
        }
    }
    Ok(parameters)
}
