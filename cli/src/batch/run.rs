//! One run of a batch: what happens when.

use super::{
    budget::{Budget, Spent},
    flight::{Flight, UnderWay},
    gate::{Gate, Passage, Stop},
    identity::{BatchTag, Instance, RowId},
    input::{Input, InputError, RawRow},
    line::{Line, RowName},
    order::{Order, Window},
    outcomes::Outcomes,
    output::{Output, Past},
    progress::{Position, Progress},
    settled::{Due, Settled},
    summary::Summary,
    wish::Wish,
};
use crate::{
    client::{Client, Submission},
    exit::CliError,
};
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use starling_protocol::{Outcome, Timestamp};
use starling_runtime::{Clock, settings::BatchSettings};
use std::{path::PathBuf, time::Duration};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

/// How often lines are given to the system, and clocks looked at.
const TICK: Duration = Duration::from_millis(100);
/// How long before the time of the first run its outcomes are looked for: clocks differ.
const CLOCKS: Duration = Duration::from_secs(60);
/// Wait before an intent is published again that the broker did not take.
const AGAIN: Duration = Duration::from_secs(1);

/// A batch, as it is to be run.
pub struct Batch<'a> {
    /// Publishes intents and reads outcomes.
    pub client: &'a Client,
    /// The rows.
    pub input: Input,
    /// The file of outcomes.
    pub out: PathBuf,
    /// Its name.
    pub name: String,
    /// What is wanted of each row.
    pub wish: Wish,
    /// Rows under way at once.
    pub concurrency: usize,
    /// Whether lines are written in the order of their rows.
    pub in_order: bool,
    /// Whether rows run again that have not succeeded.
    pub retry_failed: bool,
    /// Most rows that are submitted.
    pub limit: Option<u64>,
    /// Most that all rows may cost, in US dollars.
    pub budget: Option<f64>,
    /// For how long the swarm recognises an intent that it did before.
    pub remembered: Duration,
    /// Bounds.
    pub settings: BatchSettings,
    /// Whether nothing is shown.
    pub quiet: bool,
}

/// What ends a batch from outside.
pub struct Outside {
    /// Somebody wants it to end: once in order, twice at once.
    pub interrupts: mpsc::Receiver<()>,
    /// The swarm is broken.
    pub broken: BoxFuture<'static, CliError>,
}

impl Batch<'_> {
    /// Runs it until all rows have ended, or it is stopped.
    ///
    /// # Errors
    /// Input or output are of no use, or another process has the output; the broker is unreachable for too long.
    pub async fn run(self, outside: Outside) -> Result<Summary, CliError> {
        let tag = BatchTag::of(&self.name);
        let reader = self.input.open()?;
        self.wish
            .fits(reader.columns())
            .map_err(|fault| CliError::Usage(format!("{}: {fault}", self.input.name())))?;
        let clock = Clock::system();
        let (output, Past { settled, spent }) =
            Output::open(&self.out, &tag, clock.now(), self.settings.fsync)?;
        // Where nobody knows when it began, an intent of it may be as old as those that are recognised.
        let back = if output.is_new() { self.remembered } else { CLOCKS };
        let since =
            Timestamp(output.began().0.saturating_sub(i64::try_from(back.as_millis()).unwrap_or(i64::MAX)));
        let outcomes = Outcomes::since(self.client, tag.clone(), since, self.retry_failed).await?;
        let mut run = Run {
            submissions: FuturesUnordered::new(),
            summary: Summary { name: self.name.clone(), ..Summary::default() },
            progress: Progress::new(self.quiet, self.input.size(), self.settings.report),
            gate: self.gate(spent),
            order: Order::new(
                self.in_order
                    .then_some(Window { rows: self.settings.reorder, bytes: self.settings.reorder_bytes }),
            ),
            flight: Flight::default(),
            read: 0,
            batch: &self,
            tag,
            clock,
            settled,
            output,
            outcomes,
        };
        let begun = Instant::now();
        let ended = run.drive(reader.in_background(), outside).await;
        run.output.sync()?;
        run.progress.finish();
        ended?;
        run.summary.left_under_way = run.flight.len();
        run.summary.stopped = run.gate.stopped();
        run.summary.seconds = begun.elapsed().as_secs_f64();
        Ok(run.summary)
    }

    fn gate(&self, spent: Spent) -> Gate {
        let most_of_a_row = self.wish.limits.max_cost_usd;
        let budget = self.budget.map(|limit| Budget::new(limit, most_of_a_row, spent));
        Gate::new(self.concurrency, self.limit, budget)
    }
}

/// A submission that is under way.
type Sending<'a> = BoxFuture<'a, (Instance, Result<(), CliError>)>;

struct Run<'a> {
    batch: &'a Batch<'a>,
    tag: BatchTag,
    clock: Clock,
    settled: Settled,
    output: Output,
    outcomes: Outcomes,
    order: Order,
    gate: Gate,
    flight: Flight,
    submissions: FuturesUnordered<Sending<'a>>,
    summary: Summary,
    progress: Progress,
    /// Bytes of the input.
    read: u64,
}

impl Run<'_> {
    async fn drive(
        &mut self,
        mut rows: mpsc::Receiver<Result<RawRow, InputError>>,
        Outside { mut interrupts, mut broken }: Outside,
    ) -> Result<(), CliError> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut no_more_rows = false;
        let mut leave_at: Option<Instant> = None;
        loop {
            let passage = self.gate.passage(self.flight.len(), self.order.has_room());
            if (no_more_rows || passage == Passage::Closed) && self.flight.is_empty() {
                return Ok(());
            }
            let (flight, settled) = (&self.flight, &self.settled);
            tokio::select! {
                biased;
                Some(()) = interrupts.recv() => {
                    if leave_at.is_some() {
                        return Ok(());
                    }
                    self.gate.stop(Stop::Interrupted);
                    leave_at = Some(Instant::now() + self.batch.settings.drain);
                    if !self.batch.quiet {
                        eprintln!(
                            "waiting up to {} s for {} rows under way (Ctrl-C again leaves at once)",
                            self.batch.settings.drain.as_secs(),
                            self.flight.len()
                        );
                    }
                }
                error = &mut broken => return Err(error),
                _ = ticks.tick() => {
                    self.on_tick()?;
                    if leave_at.is_some_and(|at| at <= Instant::now()) {
                        return Ok(());
                    }
                }
                Some((instance, sent)) = self.submissions.next() => self.on_sent(instance, sent)?,
                outcome = self.outcomes.next(|instance| flight.contains(instance), settled) => {
                    let (instance, outcome) = outcome?;
                    self.on_outcome(instance, outcome)?;
                }
                row = rows.recv(), if !no_more_rows && passage == Passage::Open => match row {
                    Some(row) => self.on_row(row?).await?,
                    None => no_more_rows = true,
                },
            }
        }
    }

    /// A row was read.
    async fn on_row(&mut self, row: RawRow) -> Result<(), CliError> {
        let RawRow { number, read, key, id, columns } = row;
        self.read = read;
        self.summary.rows += 1;
        let (instance, columns) = match self.settled.meet(id, self.batch.retry_failed) {
            Due::Run(instance) => (instance, columns),
            Due::Settled => return self.skip(),
            // It is told from the first one, so that each has its line, and only one of each.
            Due::Repeated => {
                match self.settled.meet(RowId::of_repeated(&key, number), self.batch.retry_failed) {
                    Due::Run(instance) => {
                        (instance, Err(format!("another row before this one has the id {key}")))
                    }
                    Due::Settled | Due::Repeated => return self.skip(),
                }
            }
        };
        let name = RowName { instance, number, key };
        if let Some(outcome) = self.outcomes.earlier(instance).await? {
            let place = self.order.place();
            self.summary.found += 1;
            return self.write(place, instance, Line::of_outcome(&self.tag, &name, outcome));
        }
        let now = self.clock.now();
        let submission =
            columns.and_then(|columns| self.batch.wish.submission(&self.tag, &name, &columns, now));
        match submission {
            Err(fault) => {
                let place = self.order.place();
                self.summary.bad += 1;
                self.write(place, instance, Line::failed(&self.tag, &name, fault))
            }
            Ok(_) if !self.gate.admit(self.flight.len()) => Ok(()),
            Ok(submission) => {
                let patience = self.batch.wish.time_of_a_row(now) + self.batch.settings.overdue;
                let place = self.order.place();
                self.flight.begin(UnderWay { name, place, give_up: Instant::now() + patience });
                let (client, patience) = (self.batch.client, self.batch.settings.patience);
                self.submissions
                    .push(Box::pin(async move { (instance, send(client, submission, patience).await) }));
                Ok(())
            }
        }
    }

    /// The output has the row already.
    fn skip(&mut self) -> Result<(), CliError> {
        self.summary.skipped += 1;
        Ok(())
    }

    /// The broker has taken an intent, or not.
    fn on_sent(&mut self, instance: Instance, sent: Result<(), CliError>) -> Result<(), CliError> {
        match sent {
            Ok(()) => Ok(()),
            Err(CliError::Usage(refused)) => {
                self.summary.bad += 1;
                self.fail(instance, &refused)
            }
            Err(other) => Err(other),
        }
    }

    fn on_outcome(&mut self, instance: Instance, outcome: Outcome) -> Result<(), CliError> {
        let Some(UnderWay { name, place, .. }) = self.flight.end(instance) else { return Ok(()) };
        self.summary.offline |= outcome.offline;
        self.write(place, instance, Line::of_outcome(&self.tag, &name, outcome))
    }

    fn on_tick(&mut self) -> Result<(), CliError> {
        if self.batch.wish.deadline.is_some_and(|deadline| deadline <= self.clock.now()) {
            self.gate.stop(Stop::Deadline);
        }
        for UnderWay { name, place, .. } in self.flight.overdue(Instant::now()) {
            let id = self.tag.intent_id(name.instance);
            let reason = format!(
                "no outcome came until long after the deadline: `starling audit --intent {id}` tells what became of it"
            );
            self.write(place, name.instance, Line::failed(&self.tag, &name, reason))?;
        }
        self.output.settle()?;
        let position = Position { so_far: &self.summary, under_way: self.flight.len(), read: self.read };
        self.progress.show(&position);
        Ok(())
    }

    fn fail(&mut self, instance: Instance, reason: &str) -> Result<(), CliError> {
        let Some(UnderWay { name, place, .. }) = self.flight.end(instance) else { return Ok(()) };
        self.write(place, instance, Line::failed(&self.tag, &name, reason.to_owned()))
    }

    /// A row has ended.
    fn write(&mut self, place: u64, instance: Instance, line: Line) -> Result<(), CliError> {
        self.settled.ended(instance);
        self.gate.ended(line.cost_usd, line.unpriced_calls);
        self.summary.count(&line);
        let text = serde_json::to_string(&line).map_err(|error| CliError::Failed(error.to_string()))?;
        let output = &mut self.output;
        self.order.put(place, text, |line| output.write(line))
    }
}

/// Publishes an intent. A broker that does not answer is asked again: the intent has the same id.
async fn send(client: &Client, submission: Submission, patience: Duration) -> Result<(), CliError> {
    let since = Instant::now();
    loop {
        match client.submit(submission.clone()).await {
            Err(CliError::Unavailable(why)) if since.elapsed() < patience => {
                tracing::warn!(why, "publishing an intent again");
                sleep(AGAIN).await;
            }
            sent => return sent,
        }
    }
}
