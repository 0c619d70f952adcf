//! `starling dlq`: what became of records that nobody could handle.

use crate::{
    dlq::{
        DeadLetters, DlqCommand, FilterArgs, How, ListArgs, Replay, Row, Selection, SettleArgs, ShowArgs,
        Sum, Told, What, clean, json, text,
    },
    exit::CliError,
    installation::inboxes,
    session::Session,
};
use serde_json::{Value, json as object};
use starling_protocol::TopicNames;
use starling_runtime::{Clock, process::Traffic};
use std::{
    collections::BTreeMap,
    io::{IsTerminal as _, Write as _, stderr, stdin},
    process::ExitCode,
};

pub(super) async fn dlq(session: &Session, command: DlqCommand) -> Result<ExitCode, CliError> {
    let names = TopicNames::new(session.settings.topics.prefix.as_str());
    let bus = session.kafka(Traffic::OneByOne)?;
    let most = session.settings.dlq.settled;
    let letters = DeadLetters::new(bus.clone(), session.schemas()?, names.clone(), most);
    match command {
        DlqCommand::List(args) => list(&letters, &names, args).await,
        DlqCommand::Show(args) => show(&letters, &names, args).await,
        DlqCommand::Replay(args) => {
            let replay = Replay::new(
                bus,
                session.schemas()?,
                inboxes(&session.settings.topics),
                session.settings.coordinator.dedup_horizon,
                Clock::system().now(),
            );
            settle(session, &letters, &names, args, What::Replay(replay)).await
        }
        DlqCommand::Drop(args) => settle(session, &letters, &names, args, What::Drop).await,
    }
}

async fn list(letters: &DeadLetters, names: &TopicNames, args: ListArgs) -> Result<ExitCode, CliError> {
    let selection = Selection::new(names, args.filter, Vec::new())?;
    let survey = letters.survey(&selection).await?;
    let mut found = letters.letters(&survey, &selection);
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let (mut rows, mut older) = (BTreeMap::new(), 0_u64);
    while let Some((letter, settled)) = found.next().await? {
        if settled.is_some() && !args.settled {
            continue;
        }
        let row = Row::of(&letter, settled);
        rows.insert((row.time, row.id), row);
        if rows.len() > limit {
            rows.pop_first();
            older += 1;
        }
    }
    let foreign = found.foreign;
    if args.json {
        let rows: Vec<Value> = rows.values().map(Row::json).collect();
        println!("{}", object!({ "letters": rows, "older": older, "foreign": foreign }));
        return Ok(ExitCode::SUCCESS);
    }
    if rows.is_empty() {
        println!("no dead letters");
    } else {
        println!("{}", Row::HEAD);
        rows.values().for_each(|row| println!("{}", row.lines()));
    }
    if older > 0 {
        println!("and {older} older ones: --limit shows more");
    }
    if foreign > 0 {
        println!("and {foreign} records that are no dead letters of Starling's");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(letters: &DeadLetters, names: &TopicNames, args: ShowArgs) -> Result<ExitCode, CliError> {
    let selection = Selection::new(names, FilterArgs::default(), args.letters)?;
    let survey = letters.survey(&selection).await?;
    let mut found = letters.letters(&survey, &selection);
    // One after the other: large letters need not be in memory together.
    let (before, between, after) = if args.json { ("{\"letters\":[", ",", "]}\n") } else { ("", "\n", "") };
    print!("{before}");
    let mut first = true;
    while let Some((letter, settled)) = found.next().await? {
        let shown = if args.json { json(&letter, settled).to_string() } else { text(&letter, settled) };
        let between = if std::mem::take(&mut first) { "" } else { between };
        print!("{between}{shown}");
    }
    print!("{after}");
    found.all_found()?;
    Ok(ExitCode::SUCCESS)
}

async fn settle(
    session: &Session,
    letters: &DeadLetters,
    names: &TopicNames,
    args: SettleArgs,
    what: What,
) -> Result<ExitCode, CliError> {
    let (verb, done) = match what {
        What::Replay(_) => ("replay", "replayed"),
        What::Drop => ("drop", "dropped"),
    };
    let selection = Selection::new(names, args.filter, args.letters)?;
    if selection.is_everything() && !args.all {
        return Err(CliError::Usage(format!(
            "say what to {verb}: PARTITION:OFFSET, a filter such as --reason or --topic, or --all"
        )));
    }
    let survey = letters.survey(&selection).await?;
    if !args.dry_run && !args.yes {
        let Sum { settled, before, .. } = letters.count(&survey, &selection, args.again).await?;
        if settled == 0 {
            println!("nothing to {verb}; {before} were settled before (--again takes them too)");
            return Ok(ExitCode::SUCCESS);
        }
        if !confirmed(&format!("{verb} {settled} dead letters?")).await? {
            return Err(CliError::Interrupted);
        }
    }
    let how = How { again: args.again, dry_run: args.dry_run };
    let sum =
        letters.settle(&survey, &selection, what, how, &session.settings.dlq, |told| print(&told)).await?;
    let Sum { settled, before, failed } = sum;
    let would = if args.dry_run { "would be " } else { "" };
    println!("{settled} {would}{done}, {before} settled before, {failed} failed");
    if failed > 0 {
        return Err(CliError::Failed(format!("{failed} dead letters could not be {done}; the others were")));
    }
    Ok(ExitCode::SUCCESS)
}

fn print(told: &Told) {
    match told {
        Told::Replayed(id, to, Some(offset)) => println!("replayed {id} -> {to}@{offset}"),
        Told::Replayed(id, to, None) => println!("replayed {id} -> {to}"),
        Told::WouldReplay(id, to) => println!("would replay {id} -> {to}"),
        Told::Dropped(id) => println!("dropped {id}"),
        Told::WouldDrop(id) => println!("would drop {id}"),
        Told::Before(id, settled) => println!("passed over {id}: {} before", settled.name()),
        Told::Failed(id, why) => eprintln!("failed {id}: {}", clean(why)),
    }
}

/// Asks on the terminal. Where there is none, nobody can say yes.
async fn confirmed(question: &str) -> Result<bool, CliError> {
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return Err(CliError::Usage(format!(
            "{question} There is no terminal to ask on: say --yes, or --dry-run"
        )));
    }
    eprint!("{question} [y/N] ");
    let _ = stderr().flush(); // the answer may come all the same
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        stdin().read_line(&mut line).map(|_| line)
    });
    let line = read.await.map_err(|error| CliError::Failed(error.to_string()))?;
    let line = line.map_err(|error| CliError::Failed(error.to_string()))?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
