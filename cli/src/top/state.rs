//! What `top` knows. Everything here is bounded, and changes by plain functions of what came and when.

use crate::installation::HeardBeat;
use starling_protocol::{
    Body, Envelope, IntentId, Outcome, OutcomeStatus, Progress, TaskCounts, Timestamp,
    fleet::{FleetBeat, FleetMember},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// Members that are shown.
const MAX_MEMBERS: usize = 2_000;
/// Intents that are remembered; the oldest that ended go first.
const MAX_INTENTS: usize = 500;
/// Failures that are remembered.
const MAX_FAILURES: usize = 200;
/// Ended intents that are recognised when their outcome comes again.
const MAX_COUNTED: usize = 20_000;
/// Measurements of the ends of topics from which their pace follows.
const SAMPLES: usize = 4;

/// What came from the installation.
#[derive(Clone, Debug)]
pub enum Update {
    /// A process spoke of itself.
    Beat(HeardBeat),
    /// Progress or an outcome.
    Said(Box<Envelope>),
    /// A record that could not be handled.
    DeadLetter {
        /// When it became one.
        at: Timestamp,
        /// Where it came from.
        from: String,
        /// Why.
        reason: String,
    },
    /// The topics were looked at.
    Topics(Vec<TopicFigures>),
    /// Something cannot be read, or can again.
    Trouble {
        /// What.
        of: String,
        /// Why; `None` if it can be read again.
        why: Option<String>,
    },
}

/// A topic as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicFigures {
    /// Its name without the prefix.
    pub name: String,
    /// How many partitions it has.
    pub partitions: Option<usize>,
    /// All records that it ever had: the sum of its next offsets.
    pub written: Option<i64>,
    /// Members of the group that reads it.
    pub members: Option<usize>,
    /// Partitions that nobody reads, of those that a group should.
    pub unread: Option<usize>,
    /// Records that the group has not done.
    pub lag: Option<i64>,
}

/// A member of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// What it said last.
    pub beat: FleetBeat,
    /// When that was.
    pub heard: Timestamp,
}

/// A topic and how it changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicState {
    /// As it was found last.
    pub figures: TopicFigures,
    samples: VecDeque<(Timestamp, i64)>,
}

/// An intent.
#[derive(Clone, Debug, PartialEq)]
pub struct IntentState {
    /// Its phase, or how it ended.
    pub phase: String,
    /// Tasks.
    pub tasks: TaskCounts,
    /// Whether it has ended.
    pub ended: bool,
    /// When it was first heard of.
    pub since: Timestamp,
    /// When something was last heard of it.
    pub changed: Timestamp,
    /// How long it took, in milliseconds.
    pub wall: Option<i64>,
    /// Cost in US dollars, once it is known.
    pub cost: Option<f64>,
    /// Tokens of all calls.
    pub tokens: Option<i64>,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When.
    pub at: Timestamp,
    /// How an intent ended, or `dead letter`.
    pub kind: String,
    /// Which intent, or where the record came from.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// Sums over the outcomes that were seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Totals {
    /// Outcomes.
    pub intents: u64,
    /// Those that succeeded.
    pub succeeded: u64,
    /// Tokens of all their calls.
    pub tokens: i64,
    /// Their cost in US dollars, if that of all is known.
    pub cost: Option<f64>,
}

impl Default for Totals {
    fn default() -> Self {
        Self { intents: 0, succeeded: 0, tokens: 0, cost: Some(0.0) }
    }
}

/// Everything that is known.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Living members, by their names.
    pub members: BTreeMap<FleetMember, Member>,
    /// Topics, in the order of an installation.
    pub topics: Vec<TopicState>,
    /// Intents.
    pub intents: BTreeMap<IntentId, IntentState>,
    /// Failures, the latest first.
    pub failures: VecDeque<Failure>,
    /// Sums.
    pub totals: Totals,
    /// What cannot be read now, and why.
    pub trouble: BTreeMap<String, String>,
    counted: BTreeSet<IntentId>,
    counted_in_order: VecDeque<IntentId>,
}

impl State {
    /// Takes in what came at `now`.
    pub fn apply(&mut self, update: Update, now: Timestamp) {
        match update {
            Update::Beat(heard) => self.beat(heard, now),
            Update::Said(envelope) => self.said(*envelope),
            Update::DeadLetter { at, from, reason } => {
                self.fail(Failure { at, kind: "dead letter".to_owned(), what: from, reason });
            }
            Update::Topics(topics) => self.measure(topics, now),
            Update::Trouble { of, why: Some(why) } => {
                self.trouble.insert(of, why);
            }
            Update::Trouble { of, why: None } => {
                self.trouble.remove(&of);
            }
        }
    }

    /// Forgets members that have been silent for this long.
    pub fn forget_silent(&mut self, now: Timestamp, after: Duration) {
        self.members.retain(|_, member| now.since(member.heard) <= after);
    }

    fn beat(&mut self, heard: HeardBeat, now: Timestamp) {
        let key = heard.beat.member();
        if heard.beat.leaving {
            self.members.remove(&key);
            return;
        }
        // What was said before is as old as its record says; what is said now is heard now, whatever the clocks.
        let at = if heard.live { now } else { heard.stamped.min(now) };
        if self.members.len() < MAX_MEMBERS || self.members.contains_key(&key) {
            self.members.insert(key, Member { beat: heard.beat, heard: at });
        }
    }

    fn said(&mut self, envelope: Envelope) {
        let Envelope { intent_id, created_at, body, .. } = envelope;
        match body {
            Body::Progress(progress) => self.progress(intent_id, created_at, &progress),
            Body::Outcome(outcome) => self.outcome(intent_id, created_at, &outcome),
            _ => {}
        }
    }

    fn progress(&mut self, id: IntentId, at: Timestamp, progress: &Progress) {
        let intent = self.intents.entry(id).or_insert_with(|| IntentState::since(at));
        // The topics of progress and of outcomes are read side by side, so an older word may come later.
        if at >= intent.changed && intent.wall.is_none() {
            intent.phase.clone_from(&progress.phase);
            intent.tasks = progress.tasks;
            intent.ended = OutcomeStatus::ALL.iter().any(|status| status.name() == progress.phase);
            intent.changed = at;
        }
        intent.since = intent.since.min(at);
        self.make_room();
    }

    fn outcome(&mut self, id: IntentId, at: Timestamp, outcome: &Outcome) {
        let wall = outcome.latency_ms.wall;
        let tokens = outcome.usage.total();
        let intent = self.intents.entry(id.clone()).or_insert_with(|| IntentState::since(at));
        *intent = IntentState {
            phase: outcome.status.name().to_owned(),
            tasks: outcome.tasks,
            ended: true,
            since: Timestamp(at.0.saturating_sub(wall)).min(intent.since),
            changed: at,
            wall: Some(wall),
            cost: outcome.known_cost(),
            tokens: Some(tokens),
        };
        self.make_room();
        if !self.count(&id) {
            return;
        }
        self.totals.intents += 1;
        self.totals.succeeded += u64::from(outcome.status == OutcomeStatus::Succeeded);
        self.totals.tokens = self.totals.tokens.saturating_add(tokens);
        self.totals.cost = self.totals.cost.zip(outcome.known_cost()).map(|(sum, cost)| sum + cost);
        if outcome.status != OutcomeStatus::Succeeded {
            let reason = outcome.reason.clone();
            self.fail(Failure { at, kind: outcome.status.name().to_owned(), what: id.to_string(), reason });
        }
    }

    /// Whether this is the first outcome of the intent: its record may come again.
    fn count(&mut self, id: &IntentId) -> bool {
        if !self.counted.insert(id.clone()) {
            return false;
        }
        self.counted_in_order.push_back(id.clone());
        if self.counted_in_order.len() > MAX_COUNTED
            && let Some(oldest) = self.counted_in_order.pop_front()
        {
            self.counted.remove(&oldest);
        }
        true
    }

    fn make_room(&mut self) {
        if self.intents.len() > MAX_INTENTS {
            let oldest = self.intents.iter().min_by_key(|(_, intent)| (!intent.ended, intent.changed));
            if let Some(id) = oldest.map(|(id, _)| id.clone()) {
                self.intents.remove(&id);
            }
        }
    }

    fn fail(&mut self, failure: Failure) {
        let place = self.failures.partition_point(|known| known.at > failure.at);
        self.failures.insert(place, failure);
        self.failures.truncate(MAX_FAILURES);
    }

    fn measure(&mut self, topics: Vec<TopicFigures>, now: Timestamp) {
        let mut known: BTreeMap<String, VecDeque<(Timestamp, i64)>> = std::mem::take(&mut self.topics)
            .into_iter()
            .map(|topic| (topic.figures.name, topic.samples))
            .collect();
        self.topics = topics
            .into_iter()
            .map(|figures| {
                let mut samples = known.remove(&figures.name).unwrap_or_default();
                match figures.written {
                    Some(written) => {
                        if samples.back().is_some_and(|(_, before)| *before > written) {
                            samples.clear(); // the topic was made anew
                        }
                        samples.push_back((now, written));
                        if samples.len() > SAMPLES {
                            samples.pop_front();
                        }
                    }
                    None => samples.clear(),
                }
                TopicState { figures, samples }
            })
            .collect();
    }
}

impl IntentState {
    fn since(at: Timestamp) -> Self {
        Self {
            phase: String::new(),
            tasks: TaskCounts::default(),
            ended: false,
            since: at,
            changed: Timestamp(i64::MIN),
            wall: None,
            cost: None,
            tokens: None,
        }
    }

    /// How long it took or has taken, in milliseconds; `None` if it has ended and nobody said how long it took.
    #[must_use]
    pub fn age(&self, now: Timestamp) -> Option<i64> {
        match self.wall {
            Some(wall) => Some(wall),
            None if self.ended => None,
            None => i64::try_from(now.since(self.since).as_millis()).ok(),
        }
    }
}

impl TopicState {
    /// Records a second over the last measurements; `None` before the second one.
    #[must_use]
    pub fn pace(&self) -> Option<f64> {
        let ((from, before), (to, after)) = (self.samples.front()?, self.samples.back()?);
        let seconds = to.since(*from).as_secs_f64();
        (seconds > 0.0).then(|| (after - before) as f64 / seconds)
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use starling_protocol::{EnvelopeId, Latency, Role, Tag, Usage, fleet::ModelAsk};

    pub(crate) fn beat(process: &str, role: &str, at: i64, live: bool) -> Update {
        Update::Beat(HeardBeat {
            beat: FleetBeat {
                process: process.into(),
                role: role.into(),
                pool: String::new(),
                version: "0.1.0".into(),
                slots: 4,
                busy: 1,
                partitions: vec![0, 1, 2, 5],
                active: 0,
                at: Timestamp(at),
                leaving: false,
                room: -1,
                asks: vec![],
            },
            stamped: Timestamp(at),
            live,
        })
    }

    /// A beat of a process that asks a model.
    pub(crate) fn asking(beat: Update, demand: f64, found: f64, breaker: i32) -> Update {
        let Update::Beat(mut heard) = beat else { return beat };
        let (endpoint, model) = ("https://x/v1".to_owned(), "m".to_owned());
        let (open, waiting) = (if breaker > 0 { 4 } else { 5 }, 6);
        heard.beat.asks.push(ModelAsk { endpoint, model, demand, found, open, waiting, breaker });
        Update::Beat(heard)
    }

    fn said(id: &str, at: i64, body: Body) -> Update {
        Update::Said(Box::new(Envelope {
            id: EnvelopeId::from_string("e"),
            intent_id: IntentId::from_string(id),
            tag: Tag::role(Role::Coordinator),
            hop: 0,
            created_at: Timestamp(at),
            deadline: Timestamp::MAX,
            tenant: "t".into(),
            body,
        }))
    }

    pub(crate) fn progress(id: &str, at: i64, phase: &str, done: i32, total: i32) -> Update {
        let tasks = TaskCounts { total, succeeded: done, failed: 0 };
        said(id, at, Body::Progress(Progress { phase: phase.into(), tasks, changed: vec![] }))
    }

    pub(crate) fn outcome(id: &str, at: i64, status: OutcomeStatus) -> Update {
        let reason = if status == OutcomeStatus::Succeeded { "" } else { "no luck" };
        let outcome = Outcome {
            status,
            answer: "a".into(),
            reason: reason.into(),
            model: "m".into(),
            offline: false,
            tasks: TaskCounts { total: 3, succeeded: 2, failed: 1 },
            calls: 7,
            usage: Usage { prompt_tokens: 100, completion_tokens: 50, cached_tokens: 0 },
            cost_usd: 0.25,
            latency_ms: Latency { wall: 4_000, ..Latency::default() },
            trace_id: String::new(),
            degraded: vec![],
            task_reports: vec![],
            unpriced_calls: 0,
            cached_calls: 0,
            cached_prompt_tokens: 0,
            strategy: "llm".into(),
        };
        said(id, at, Body::Outcome(outcome))
    }

    pub(crate) fn topic(name: &str, written: Option<i64>, lag: Option<i64>) -> TopicFigures {
        TopicFigures {
            name: name.into(),
            partitions: Some(12),
            written,
            members: lag.map(|_| 2),
            unread: lag.map(|_| 0),
            lag,
        }
    }

    pub(crate) fn state_of(updates: Vec<(i64, Update)>) -> State {
        let mut state = State::default();
        for (now, update) in updates {
            state.apply(update, Timestamp(now));
        }
        state
    }

    #[test]
    fn members_come_go_and_are_forgotten() {
        let mut state = state_of(vec![
            (10_000, beat("old/s.worker", "worker", 1_000, false)),
            (10_000, beat("w/s.worker", "worker", 1, true)),
            (10_000, beat("x/s.worker", "worker", 10_000, true)),
        ]);
        let Update::Beat(mut farewell) = beat("x/s.worker", "worker", 10_001, true) else { unreachable!() };
        farewell.beat.leaving = true;
        state.apply(Update::Beat(farewell), Timestamp(10_001));
        state.forget_silent(Timestamp(11_000), Duration::from_secs(5));
        let names: Vec<&str> = state.members.keys().map(|(process, ..)| process.as_str()).collect();
        assert_eq!(names, ["w/s.worker"]);
    }

    #[test]
    fn an_outcome_counts_once_and_an_older_word_does_not_undo_it() {
        let state = state_of(vec![
            (0, progress("i", 1_000, "running", 1, 3)),
            (0, outcome("i", 5_000, OutcomeStatus::Partial)),
            (0, outcome("i", 5_000, OutcomeStatus::Partial)),
            (0, progress("i", 4_000, "running", 2, 3)),
        ]);
        let intent = &state.intents[&IntentId::from_string("i")];
        assert_eq!(
            (intent.phase.as_str(), intent.ended, intent.age(Timestamp(9_000))),
            ("partial", true, Some(4_000))
        );
        assert_eq!(state.totals, Totals { intents: 1, succeeded: 0, tokens: 150, cost: Some(0.25) });
        assert_eq!(state.failures.len(), 1);
        assert_eq!(state.failures[0].reason, "no luck");
    }

    #[test]
    fn a_sum_with_something_unknown_in_it_is_not_known() {
        let mut unpriced = outcome("j", 6_000, OutcomeStatus::Succeeded);
        let Update::Said(envelope) = &mut unpriced else { panic!("an outcome") };
        let Body::Outcome(said) = &mut envelope.body else { panic!("an outcome") };
        said.unpriced_calls = 1;
        let state = state_of(vec![
            (0, outcome("i", 5_000, OutcomeStatus::Succeeded)),
            (0, unpriced),
            (0, outcome("k", 7_000, OutcomeStatus::Succeeded)),
        ]);
        let cost = |id: &str| state.intents[&IntentId::from_string(id)].cost;
        assert_eq!((cost("i"), cost("j"), cost("k")), (Some(0.25), None, Some(0.25)));
        assert_eq!((state.totals.tokens, state.totals.cost), (450, None));
    }

    #[test]
    fn progress_before_the_outcome_has_no_cost() {
        let state = state_of(vec![
            (0, progress("i", 2_000, "running", 1, 3)),
            (0, progress("i", 1_000, "planning", 0, 0)),
            (0, progress("j", 1_000, "failed", 0, 0)),
        ]);
        let intent = &state.intents[&IntentId::from_string("i")];
        assert_eq!(
            (intent.phase.as_str(), intent.cost, intent.age(Timestamp(4_000))),
            ("running", None, Some(3_000))
        );
        let ended = &state.intents[&IntentId::from_string("j")];
        assert_eq!((ended.ended, ended.age(Timestamp(4_000))), (true, None), "how long it took is not known");
    }

    #[test]
    fn the_pace_follows_from_measurements() {
        let measured = |points: &[(i64, Option<i64>)]| {
            let updates = points
                .iter()
                .map(|(at, written)| (*at, Update::Topics(vec![topic("worker", *written, None)])));
            state_of(updates.collect()).topics[0].pace()
        };
        assert_eq!(measured(&[(0, Some(10))]), None);
        assert_eq!(measured(&[(0, Some(10)), (2_000, Some(30))]), Some(10.0));
        assert_eq!(measured(&[(0, Some(10)), (2_000, Some(4))]), None, "made anew");
        assert_eq!(measured(&[(0, Some(10)), (1_000, None), (2_000, Some(30))]), None);
        let long: Vec<_> = (0..10).map(|n| (n * 1_000, Some(n * n))).collect();
        assert_eq!(measured(&long), Some(15.0), "only the last are of interest");
    }

    #[test]
    fn everything_is_bounded() {
        let mut state = State::default();
        for n in 0..1_500 {
            let id = format!("i{n}");
            state.apply(progress(&format!("running-{}", n % 10), n, "running", 0, 1), Timestamp(n));
            state.apply(outcome(&id, n, OutcomeStatus::Failed), Timestamp(n));
            state.apply(beat(&format!("p{}/s.worker", n * 2), "worker", n, true), Timestamp(n));
        }
        assert_eq!(state.intents.len(), MAX_INTENTS);
        assert!(state.intents.contains_key(&IntentId::from_string("running-3")), "the ended go first");
        assert!(!state.intents.contains_key(&IntentId::from_string("i0")));
        assert_eq!(state.failures.len(), MAX_FAILURES);
        assert_eq!(state.failures[0].what, "i1499", "the latest first");
        assert_eq!(state.totals.intents, 1_500);
        assert!(state.members.len() <= MAX_MEMBERS);
    }
}
