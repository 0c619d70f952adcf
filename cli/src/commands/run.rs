//! `starling run`: an intent from the first word to the answer.

use crate::{
    args::RunArgs,
    commands::{
        follow::{OnCtrlC, follow},
        submit::submission,
    },
    exit::{CliError, of_outcome},
    inputs::foreseen,
    planned::settled,
    report,
    session::Session,
    swarm::Swarm,
    view::View,
};
use starling_bus::StartAt;
use starling_protocol::{IntentId, Outcome};
use starling_service::library;
use std::process::ExitCode;

pub(super) async fn run(session: &Session, args: RunArgs) -> Result<ExitCode, CliError> {
    let mut submission = submission(session, args.intent)?;
    if !session.brokers_given() {
        // A swarm elsewhere may have other playbooks; the intake of this one would say the same, later.
        let (_, playbooks) = library(&session.settings).map_err(CliError::Usage)?;
        let mut ahead = submission.intent.clone();
        ahead.inputs = foreseen(&ahead.inputs, &submission.parts);
        settled(&session.settings, playbooks, &mut ahead)?;
    }
    let swarm = if session.brokers_given() { None } else { Some(Swarm::embedded(session).await?) };
    let offline = swarm.as_ref().is_some_and(Swarm::is_offline);
    if offline && !args.json {
        eprintln!("{}\n", report::offline_notice(&session.settings.model).await);
    }
    if let Some(swarm) = &swarm {
        swarm.reach_model().await?;
    }
    let client = match &swarm {
        Some(swarm) => session.client(swarm.bus()),
        None => session.publisher().await?,
    };
    let id = submission.id.clone();
    let tenant = submission.tenant.clone();
    let span = session.spans().named("starling run", None, &id);
    submission.traceparent = Some(span.traceparent().to_string());
    let follower = client.follow(&id, StartAt::End).await?;
    client.submit(submission).await?;
    if !args.json {
        eprintln!("intent {id}");
    }
    let on_ctrl_c = OnCtrlC::Cancel { client: &client, id: &id, tenant: &tenant };
    let ended = follow(follower, View::fitting(args.json), on_ctrl_c).await;
    span.end();
    if let Some(swarm) = swarm {
        swarm.stop().await;
    }
    session.flush_telemetry().await;
    let outcome = ended?;
    print(&id, &outcome, args.json);
    Ok(of_outcome(&outcome))
}

/// Prints an outcome: the answer and JSON on stdout, the rest on stderr.
pub(super) fn print(id: &IntentId, outcome: &Outcome, json: bool) {
    if json {
        println!("{}", report::json(id, outcome));
        return;
    }
    if report::has_answer(outcome) {
        eprintln!();
        println!("{}", outcome.answer.trim_end());
    }
    eprintln!("\n{}", report::text(id, outcome));
    if outcome.offline {
        eprintln!("{}", report::OFFLINE_NOTICE);
    }
}
