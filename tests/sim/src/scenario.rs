//! What happens in one run: the swarm, what users do, what goes wrong and when. Data, so that it can be printed, made
//! shorter and run again.

use crate::dice::Dice;
use serde::{Deserialize, Serialize};

/// One run. Everything else that is drawn is drawn from streams of `seed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Of all streams.
    pub seed: u64,
    /// The swarm.
    pub shape: Shape,
    /// What goes wrong by chance, until `calm_at`.
    pub weather: Weather,
    /// Milliseconds from the start; from then on nothing goes wrong any more.
    pub calm_at: i64,
    /// What happens when, in order.
    pub events: Vec<Event>,
}

/// The swarm and its bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Processes of the planner service.
    pub planners: usize,
    /// Processes of the worker service.
    pub workers: usize,
    /// Processes of the critic service.
    pub critics: usize,
    /// Partitions of the coordinator's inbox.
    pub coordinator_partitions: i32,
    /// Partitions of the workers' inbox.
    pub worker_partitions: i32,
    /// Handlers that a worker process runs at once.
    pub worker_slots: usize,
    /// Decisions between two snapshots.
    pub snapshot_every: u64,
    /// Largest record of the state log, in bytes.
    pub max_record: usize,
    /// Intents that a coordinator partition works on at once.
    pub max_live: usize,
    /// How long an ended intent is remembered, in milliseconds.
    pub dedup_horizon: i64,
    /// What all intents together may take, which are of one tenant.
    #[serde(default)]
    pub tenant: Option<TenantBound>,
}

/// What a tenant may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantBound {
    /// How much.
    pub bound: Bound,
    /// For how long, in milliseconds.
    pub per: i64,
}

/// Probabilities of what goes wrong by chance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Weather {
    /// Of each record that is sent: the answer is lost, though it was written.
    pub answer_lost: f64,
    /// It is lost with its answer.
    pub lost: f64,
    /// The sender has given up long before it lands.
    pub late: f64,
    /// It takes seconds.
    pub slow: f64,
    /// It is written twice.
    pub twice: f64,
    /// It was not sent.
    pub not_sent: f64,
    /// The acknowledgement does not say where it lies.
    pub without_offset: f64,
    /// Of each commit: it is refused.
    pub commit_refused: f64,
    /// Its answer is lost.
    pub commit_answer_lost: f64,
    /// Of each single read: it has to be tried again.
    pub read_fails: f64,
    /// Of each call of a model: it takes seconds.
    pub model_slow: f64,
    /// It never answers.
    pub model_hangs: f64,
    /// It fails.
    pub model_fails: f64,
    /// It answers nonsense.
    pub model_babbles: f64,
}

/// Something that happens at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Milliseconds from the start.
    pub at: i64,
    /// What.
    pub what: What,
}

/// What can happen. Numbers of processes and partitions are taken modulo how many there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// A user publishes an intent.
    Intent(Wish),
    /// The same record once more.
    Again(u32),
    /// The same id with another goal.
    Altered(u32),
    /// A user cancels it.
    Cancel(u32),
    /// Bytes that nobody can read, or that make no sense, in an inbox.
    Garbage(Inbox, Garbage),
    /// A record that is in an inbox is written to it again.
    Duplicate(Inbox, usize),
    /// A partition of an inbox is delivered again, from so many records before its end.
    Redeliver(Inbox, i32, i64),
    /// A process dies at once, and is there again after so long.
    Crash(usize, i64),
    /// A process is told to stop, and is there again after so long.
    Stop(usize, i64),
    /// A process stands still for so long.
    Pause(usize, i64),
    /// The groups think that a process is dead, while it goes on.
    Expire(usize),
    /// The partitions of a role's group move.
    Rebalance(Inbox),
    /// The wall clock of a process jumps to so far from the right time.
    Skew(usize, i64),
    /// Nothing can be written to a topic for so long.
    Outage(Inbox, i64),
    /// Every model says that it is asked too often, for so long.
    Storm(i64),
    /// Old results are removed though tasks may refer to them.
    Forget(i32),
}

/// What a user wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wish {
    /// Names it.
    pub number: u32,
    /// Whether its id is given by the user.
    pub named: bool,
    /// `llm` or `single`.
    pub planned: bool,
    /// Milliseconds that it may take.
    pub deadline: Option<i64>,
    /// Most attempts for a task.
    pub attempts: i32,
    /// Whether it comes with inputs.
    pub inputs: bool,
    /// Whether it is no valid intent.
    pub invalid: bool,
    /// What it may take.
    #[serde(default)]
    pub bound: Bound,
}

/// What an intent may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// Anything.
    #[default]
    None,
    /// So many calls.
    Calls(i64),
    /// So many tokens.
    Tokens(i64),
}

/// The topics that somebody reads, and the dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // they are what they are called
pub enum Inbox {
    Intents,
    Coordinator,
    Planner,
    Worker,
    Critic,
    State,
    Outcomes,
    Dlq,
}

/// Sorts of unreadable records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Garbage {
    /// No bytes.
    Empty,
    /// Random bytes.
    Noise,
    /// The frame of a schema that nobody knows.
    UnknownSchema,
    /// A good record, cut off.
    Truncated,
    /// A good record of another inbox.
    Misplaced,
}

impl Scenario {
    /// The run of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::of(seed, "scenario");
        let mut shape = shape(&mut dice);
        shape.tenant = tenant(&mut Dice::of(seed, "tenant"));
        let calm_at = dice.between(3_000, 15_000);
        // Some runs are of one sort of trouble only, so that it is not drowned by others.
        let rough = dice.pick(&[0.0, 0.3, 1.0, 1.0, 3.0]);
        let weather = weather(&mut dice, rough);
        let mut events = wishes(&mut dice, calm_at);
        bounds(&mut Dice::of(seed, "bounds"), &mut events);
        let troubles = dice.pick(&[0, 1, 2, 4, 8, 12]);
        for _ in 0..troubles {
            let at = dice.between(0, calm_at);
            events.push(Event { at, what: trouble(&mut dice, &shape) });
        }
        events.sort_by_key(|event| event.at);
        Self { seed, shape, weather, calm_at, events }
    }
}

fn shape(dice: &mut Dice) -> Shape {
    Shape {
        planners: dice.count(1, 2),
        workers: dice.count(1, 3),
        critics: dice.count(1, 2),
        coordinator_partitions: dice.pick(&[1, 1, 2]),
        worker_partitions: dice.pick(&[1, 2, 4]),
        worker_slots: dice.pick(&[1, 2, 4]),
        snapshot_every: dice.pick(&[3, 8, 20, 2_000]),
        max_record: dice.pick(&[12 << 10, 24 << 10, 900 << 10]),
        max_live: dice.pick(&[1, 2, 256]),
        dedup_horizon: dice.pick(&[40_000, 3_600_000]),
        tenant: None,
    }
}

/// In a quarter of the runs the tenant may not take what it likes.
fn tenant(dice: &mut Dice) -> Option<TenantBound> {
    let bounds = [
        Bound::Calls(5),
        Bound::Calls(12),
        Bound::Calls(30),
        Bound::Calls(100),
        Bound::Tokens(100_000),
        Bound::Tokens(300_000),
    ];
    dice.chance(0.25)
        .then(|| TenantBound { bound: dice.pick(&bounds), per: dice.pick(&[10_000, 30_000, 86_400_000]) })
}

fn weather(dice: &mut Dice, rough: f64) -> Weather {
    // Each sort is absent in half of the runs.
    let mut some = |probability: f64| if dice.chance(0.5) { probability * rough } else { 0.0 };
    Weather {
        answer_lost: some(0.02),
        lost: some(0.02),
        late: some(0.01),
        slow: some(0.03),
        twice: some(0.02),
        not_sent: some(0.03),
        without_offset: some(0.01),
        commit_refused: some(0.05),
        commit_answer_lost: some(0.05),
        read_fails: some(0.05),
        model_slow: some(0.1),
        model_hangs: some(0.03),
        model_fails: some(0.1),
        model_babbles: some(0.1),
    }
}

fn wishes(dice: &mut Dice, calm_at: i64) -> Vec<Event> {
    let mut events = Vec::new();
    for number in 0..u32::try_from(dice.count(1, 5)).unwrap_or(1) {
        let at = dice.between(0, calm_at.min(6_000));
        let named = dice.chance(0.7);
        let wish = Wish {
            number,
            named,
            planned: dice.chance(0.8),
            deadline: dice.pick(&[None, None, Some(1_500), Some(6_000), Some(12_000)]),
            attempts: dice.pick(&[1, 2, 3]),
            inputs: dice.chance(0.3),
            invalid: dice.chance(0.05),
            bound: Bound::None,
        };
        events.push(Event { at, what: What::Intent(wish) });
        let later = |dice: &mut Dice| dice.between(0, calm_at);
        if dice.chance(0.25) {
            events.push(Event { at: later(dice), what: What::Again(number) });
        }
        if named && dice.chance(0.1) {
            events.push(Event { at: later(dice), what: What::Altered(number) });
        }
        if named && dice.chance(0.2) {
            events.push(Event { at: later(dice), what: What::Cancel(number) });
        }
    }
    events
}

/// In a third of the runs intents may not take what they like.
fn bounds(dice: &mut Dice, events: &mut [Event]) {
    if !dice.chance(0.33) {
        return;
    }
    for event in events {
        if let What::Intent(wish) = &mut event.what {
            wish.bound = dice.pick(&[
                Bound::None,
                Bound::Calls(3),
                Bound::Calls(5),
                Bound::Calls(8),
                Bound::Calls(13),
                Bound::Calls(40),
                Bound::Tokens(40_000),
                Bound::Tokens(70_000),
                Bound::Tokens(200_000),
            ]);
        }
    }
}

fn trouble(dice: &mut Dice, shape: &Shape) -> What {
    let processes = shape.planners + shape.workers + shape.critics;
    let process = dice.count(0, processes - 1);
    let inbox =
        dice.pick(&[Inbox::Intents, Inbox::Coordinator, Inbox::Planner, Inbox::Worker, Inbox::Critic]);
    let partition = i32::try_from(dice.count(0, 3)).unwrap_or(0);
    match dice.count(0, 16) {
        0..=2 => What::Crash(process, dice.between(0, 4_000)),
        3 => What::Stop(process, dice.between(0, 2_000)),
        4 | 5 => What::Pause(process, dice.between(50, 9_000)),
        6 => What::Expire(process),
        7 => What::Rebalance(inbox),
        8 => What::Skew(process, dice.between(-3_000, 3_000)),
        9 => {
            let topics = [
                Inbox::Coordinator,
                Inbox::Planner,
                Inbox::Worker,
                Inbox::Critic,
                Inbox::State,
                Inbox::Outcomes,
                Inbox::Dlq,
            ];
            What::Outage(dice.pick(&topics), dice.between(100, 4_000))
        }
        10 | 11 => {
            let sorts = [
                Garbage::Empty,
                Garbage::Noise,
                Garbage::UnknownSchema,
                Garbage::Truncated,
                Garbage::Misplaced,
            ];
            What::Garbage(inbox, dice.pick(&sorts))
        }
        12 | 13 => What::Duplicate(inbox, dice.count(0, 30)),
        14 => What::Storm(dice.between(500, 5_000)),
        15 => What::Redeliver(inbox, partition, dice.between(1, 10)),
        _ => What::Forget(partition),
    }
}
