//! Judges a swarm from outside: by what was published, what the topics hold, and what the model counted. It asks no
//! service.

use crate::row::Figures;
use anyhow::{Context as _, Result, bail, ensure};
use starling_e2e::{Called, Logs, Scripted, Swarm};
use starling_llm::Purpose;
use starling_protocol::{Body, Envelope, IntentId, Outcome, OutcomeStatus, TaskKind, Topic};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// How long brokers may take to answer the judge.
const ANSWER: Duration = Duration::from_secs(60);

/// How long the last commits may take until everything is accounted for.
const AUDIT: Duration = Duration::from_secs(20);

/// What a model call is about: a goal, and the title of a task if it is about one. Each goal belongs to one intent.
type About = (String, String);

/// Keeps the books of one row.
pub(crate) struct Judge {
    model: Scripted,
    published: BTreeSet<IntentId>,
    /// Those of them that nobody can take for an intent.
    rejected: BTreeSet<IntentId>,
    /// Model calls that may be repeated.
    allowed: usize,
    dead_letters: usize,
    /// Whether `starling audit` is to find nothing.
    audited: bool,
}

/// What there is in the end.
pub(crate) struct Found {
    pub(crate) figures: Figures,
    pub(crate) outcomes: BTreeMap<IntentId, Outcome>,
}

impl Judge {
    pub(crate) fn new(model: &Scripted) -> Self {
        Self {
            model: model.clone(),
            published: BTreeSet::new(),
            rejected: BTreeSet::new(),
            allowed: 0,
            dead_letters: 0,
            audited: true,
        }
    }

    /// Publishes an intent with that goal.
    pub(crate) async fn publish(&mut self, swarm: &Swarm, goal: &str) -> Result<IntentId> {
        let id = swarm.submit(id_of(goal).as_str(), goal).await?;
        self.published.insert(id.clone());
        Ok(id)
    }

    /// What was published under this id is to be rejected.
    pub(crate) fn reject(&mut self, id: IntentId) {
        self.published.insert(id.clone());
        self.rejected.insert(id);
    }

    /// So many model calls more may be repeated.
    pub(crate) fn allow(&mut self, calls: usize) {
        self.allowed += calls;
    }

    /// So many records more are to be dead letters.
    pub(crate) fn bury(&mut self, records: usize) {
        self.dead_letters += records;
    }

    /// The row does what `starling audit` has to object to: takes records out of topics, forges them, or leaves an
    /// intent among the dead letters without an outcome.
    pub(crate) fn audit_has_to_object(&mut self) {
        self.audited = false;
    }

    /// Processes were killed, or have lost their partitions, just now: their calls may be repeated that their group has not
    /// committed, and for those that were answered already the critic's, too.
    pub(crate) async fn died(&mut self, logs: &Logs, names: &[&str]) -> Result<usize> {
        let calls: BTreeSet<(Kind, About)> = self
            .model
            .calls
            .all()
            .iter()
            .filter(|call| names.contains(&call.model.as_str()))
            .map(about_call)
            .collect();
        let mut allowed = 0;
        if calls.is_empty() {
            return Ok(allowed);
        }
        for (purpose, topic, role) in [
            (Kind::Plan, Topic::Planner, "planner"),
            (Kind::Work, Topic::Worker(None), "worker"),
            (Kind::Judge, Topic::Critic, "critic"),
        ] {
            if !calls.iter().any(|(of, _)| *of == purpose) {
                continue;
            }
            // First of all: others may have done it again and committed as soon as the group has noticed.
            let uncommitted = abouts(logs, &logs.uncommitted(&topic, role).await?)?;
            let answered = match purpose {
                Kind::Work => abouts(logs, &logs.topic(&Topic::Critic).await?)?,
                _ => BTreeSet::new(),
            };
            for about in uncommitted {
                if calls.contains(&(purpose, about.clone())) {
                    allowed += 1 + usize::from(answered.contains(&about));
                    if purpose == Kind::Plan {
                        allowed += 2 * planned(logs, &about.0).await?; // the calls of the abandoned run
                    }
                }
            }
        }
        self.allowed += allowed;
        Ok(allowed)
    }

    /// Every process may lose its partitions about now: whatever is not committed may be done twice, and what its
    /// coordinators have not marked done may be dispatched twice.
    pub(crate) async fn all_lost(&mut self, logs: &Logs) -> Result<usize> {
        let give_up = Instant::now() + ANSWER;
        let allowed = loop {
            // Brokers that have just come back do not know all leaders yet.
            match may_be_lost(logs).await {
                Ok(allowed) => break allowed,
                Err(error) if Instant::now() >= give_up => return Err(error),
                Err(_) => sleep(Duration::from_millis(200)).await,
            }
        };
        self.allowed += allowed;
        Ok(allowed)
    }

    /// A coordinator was killed or fenced just now: what it has dispatched but not marked done is dispatched again,
    /// and then worked on and judged again.
    pub(crate) async fn coordinator_died(&mut self, logs: &Logs) -> Result<usize> {
        let allowed = undone(logs).await?;
        self.allowed += allowed;
        Ok(allowed)
    }

    /// Waits until every intent has its outcome and every group has read everything.
    pub(crate) async fn settle(&self, swarm: &Swarm, within: Duration) -> Result<()> {
        self.settle_but(swarm, &[], within).await
    }

    async fn settle_but(&self, swarm: &Swarm, unread: &[Topic], within: Duration) -> Result<()> {
        let unread: Vec<String> = unread.iter().map(|topic| swarm.names.name(topic)).collect();
        let until = Instant::now() + within;
        loop {
            let outcomes = swarm.logs.outcomes().await.unwrap_or_default(); // the brokers may be away for a moment
            let missing: Vec<_> = self.published.iter().filter(|id| !outcomes.contains_key(id)).collect();
            let lags = swarm.logs.lags().await;
            let is_read = |lags: &BTreeMap<String, i64>| lags.keys().all(|topic| unread.contains(topic));
            if missing.is_empty() && lags.as_ref().is_ok_and(is_read) {
                return Ok(());
            }
            ensure!(
                Instant::now() < until,
                "after {within:?} {} of {} intents have no outcome, such as {:?}; not read or not committed: {lags:?}",
                missing.len(),
                self.published.len(),
                missing.first()
            );
            sleep(Duration::from_millis(200)).await; // polls topics and groups
        }
    }

    /// The verdict, once everything has settled: no intent is lost, none has two different outcomes, nothing is dead
    /// that should live, and no more calls are repeated than is allowed.
    pub(crate) async fn conclude(&self, swarm: &Swarm, within: Duration) -> Result<Found> {
        self.look(swarm, &[], within).await
    }

    /// As [`Judge::conclude`], where some inboxes cannot be read to their ends.
    pub(crate) async fn look(&self, swarm: &Swarm, unread: &[Topic], within: Duration) -> Result<Found> {
        self.settle_but(swarm, unread, within).await?;
        let mut outcomes = BTreeMap::new();
        for (id, records) in swarm.logs.outcomes().await? {
            ensure!(self.published.contains(&id), "an outcome of {id}, which nobody has published");
            ensure!(records.len() == 1, "{id} has {} different outcomes", records.len());
            let record = records.first().context("an outcome")?;
            let envelope: Envelope = swarm.logs.codec().decode(record)?;
            let Body::Outcome(outcome) = envelope.body else { bail!("{id}: no outcome") };
            let is_rejected = outcome.status == OutcomeStatus::Rejected;
            ensure!(is_rejected == self.rejected.contains(&id), "{id}: {:?}", outcome.status);
            outcomes.insert(id, outcome);
        }
        let figures = Figures {
            intents: self.published.len(),
            outcomes: outcomes.len(),
            calls: usize::try_from(swarm.model.stats().calls)?,
            repeated: repeated(&self.model.calls.all()),
            allowed: self.allowed,
            dead_letters: swarm.logs.topic(&Topic::Dlq).await?.len(),
        };
        ensure!(
            figures.repeated <= figures.allowed,
            "{} calls were repeated, {} may be: {:?}",
            figures.repeated,
            figures.allowed,
            examples(&self.model.calls.all())
        );
        ensure!(
            figures.dead_letters == self.dead_letters,
            "{} dead letters, {} were to be expected",
            figures.dead_letters,
            self.dead_letters
        );
        // A second opinion: it follows every record of every intent through all topics.
        let audit = swarm.all_audited(AUDIT).await;
        match audit {
            Err(error) if self.audited => return Err(error.context("starling audit")),
            Ok(_) if !self.audited => bail!("starling audit finds nothing"),
            Ok(_) | Err(_) => {}
        }
        Ok(Found { figures, outcomes })
    }
}

impl Found {
    /// All intents but those that are to be rejected have succeeded, with nothing left out.
    pub(crate) fn all_succeeded(self) -> Result<Figures> {
        self.all_succeeded_but(&[])
    }

    /// All intents but those that are to be rejected have succeeded, with nothing left out but what is named so among `degraded`.
    pub(crate) fn all_succeeded_but(self, known: &[&str]) -> Result<Figures> {
        for (id, outcome) in &self.outcomes {
            let whole = outcome.degraded.iter().all(|note| known.contains(&note.as_str()));
            ensure!(
                matches!(outcome.status, OutcomeStatus::Succeeded | OutcomeStatus::Rejected) && whole,
                "{id}: {:?}, {}, degraded {:?}",
                outcome.status,
                outcome.reason,
                outcome.degraded
            );
        }
        Ok(self.figures)
    }
}

/// The id of the intent with that goal.
pub(crate) fn id_of(goal: &str) -> IntentId {
    IntentId::from_string(goal.replace([' ', ','], "-"))
}

/// What a call is for, as far as the books go: a synthesis is work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Plan,
    Work,
    Judge,
}

fn about_call(call: &Called) -> (Kind, About) {
    let purpose = match call.purpose {
        Purpose::Plan => Kind::Plan,
        Purpose::Work | Purpose::Synthesize => Kind::Work,
        Purpose::Judge => Kind::Judge,
    };
    (purpose, (call.goal.clone(), call.title.clone()))
}

/// What records of an inbox are about.
fn abouts(logs: &Logs, records: &[starling_bus::InRecord]) -> Result<BTreeSet<About>> {
    let mut abouts = BTreeSet::new();
    for record in records {
        let Ok(envelope) = logs.codec().decode::<Envelope>(record.value()) else { continue }; // poison
        match envelope.body {
            Body::PlanRequest(request) => {
                abouts.insert((request.goal, String::new()));
            }
            Body::Task(task) => {
                let title = if task.kind == TaskKind::Synthesis { String::new() } else { task.title };
                abouts.insert((task.goal, title));
            }
            Body::TaskResult(result) => {
                abouts.insert((result.goal, result.title));
            }
            _ => {}
        }
    }
    Ok(abouts)
}

/// Calls that may be repeated if every process loses its partitions.
async fn may_be_lost(logs: &Logs) -> Result<usize> {
    let mut allowed = 2 * logs.uncommitted(&Topic::Worker(None), "worker").await?.len()
        + logs.uncommitted(&Topic::Critic, "critic").await?.len();
    for (goal, _) in abouts(logs, &logs.uncommitted(&Topic::Planner, "planner").await?)? {
        allowed += 1 + 2 * planned(logs, &goal).await?;
    }
    Ok(allowed + undone(logs).await?)
}

/// Calls that follow from what coordinators have not marked done: of a worker and of its critic, or of a planner.
async fn undone(logs: &Logs) -> Result<usize> {
    let tasks = logs.undone_effects(&Topic::Worker(None)).await?;
    Ok(2 * tasks + logs.undone_effects(&Topic::Planner).await?)
}

/// Tasks that planners have told of for the intent with that goal.
async fn planned(logs: &Logs, goal: &str) -> Result<usize> {
    let fragments = logs.envelopes(&Topic::Coordinator, &id_of(goal)).await?;
    let tasks = fragments.iter().map(|envelope| match &envelope.body {
        Body::PlanFragment(fragment) => fragment.tasks.len(),
        _ => 0,
    });
    Ok(tasks.sum())
}

/// How many calls asked for what another one had asked before.
fn repeated(calls: &[Called]) -> usize {
    let mut seen: HashMap<(&Purpose, &str), usize> = HashMap::new();
    for call in calls {
        *seen.entry((&call.purpose, &call.prompt)).or_default() += 1;
    }
    seen.values().map(|count| count - 1).sum()
}

/// Some calls that were repeated, for a message.
fn examples(calls: &[Called]) -> Vec<String> {
    let mut seen: HashMap<(&Purpose, &str), &Called> = HashMap::new();
    let mut examples = Vec::new();
    for call in calls {
        if let Some(first) = seen.insert((&call.purpose, &call.prompt), call)
            && examples.len() < 5
        {
            let (purpose, goal, title) = (call.purpose, &call.goal, &call.title);
            examples.push(format!("{purpose:?} {goal}/{title} by {} and {}", first.model, call.model));
        }
    }
    examples
}
