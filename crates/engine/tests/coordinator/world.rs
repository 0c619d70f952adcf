//! A coordinator amid scripted services, with a log that it is rebuilt from, and everything that can go
//! wrong between them.

use crate::builders::*;
use crate::invariants::{
    Decided, i4_windows_are_kept, i5_replay_is_life, i7_successor_decides_the_same, i9_nothing_idles,
    i49_budgets_are_kept, is_synthesis,
};
use starling_engine::coordinator::{
    Changes, Coordinator, CoordinatorSettings, Destination, Effect, Event, FleetView, WorkerInboxes,
    WorkerMember,
};
use starling_protocol::state::Entity;
use starling_protocol::{Body, Envelope, IntentId, Limits, PlanEnd, TaskSpec, Timestamp};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What a planner does with a request.
#[derive(Clone, Debug)]
pub(crate) enum PlanScript {
    /// The plan, so many tasks a fragment.
    Good(usize),
    /// So many fragments, then death; another process begins anew.
    Crash(usize),
    /// A plan with a circle.
    Circle,
    /// No plan, for a reason that may pass.
    Fails,
    /// Nothing.
    Silent,
}

/// What comes of an attempt at a task.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Score(f64),
    Unparseable,
    Unavailable,
    FailsOnce,
    FailsForGood,
    Silent,
}

/// How the services treat one intent. Lists are used round and round.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) single: bool,
    pub(crate) priority: i32,
    pub(crate) limits: Limits,
    pub(crate) tasks: Vec<TaskSpec>,
    pub(crate) plans: Vec<PlanScript>,
    pub(crate) replies: Vec<Vec<Reply>>,
    pub(crate) synthesis: Vec<Reply>,
}

pub(crate) struct World {
    settings: Arc<CoordinatorSettings>,
    coordinator: Coordinator,
    now: Timestamp,
    offset: i64,
    runs: u128,
    scripts: HashMap<IntentId, Script>,
    /// Records on their way to the inbox, one queue for each producer.
    pending: Vec<VecDeque<Envelope>>,
    delivered: Vec<Envelope>,
    /// Inputs since the last decision was written; a crash brings them back.
    undecided: Vec<Event>,
    again: VecDeque<Event>,
    effects: Vec<Effect>,
    last_effects: Vec<Effect>,
    snapshot: Vec<Entity>,
    log: Vec<Changes>,
    /// The coordinator's time at the last decision.
    decided_at: Timestamp,
    pub(crate) decided: Decided,
}

/// Of the default pool, and of another one.
fn inboxes() -> WorkerInboxes {
    WorkerInboxes::from(8).with("research", 3)
}

impl World {
    pub(crate) fn new(settings: CoordinatorSettings, scripts: HashMap<IntentId, Script>) -> Self {
        // Known or unknown, the fleet allows the same number of tasks.
        let window_factor = settings.min_window as f64;
        let settings = Arc::new(CoordinatorSettings { window_factor, ..settings });
        let mut names: Vec<_> = scripts.iter().collect();
        names.sort_by(|a, b| a.0.cmp(b.0));
        let strategy = |script: &Script| if script.single { "single" } else { "llm" };
        let pending = names
            .iter()
            .map(|(id, script)| {
                let mut envelope = intent(id.as_str(), strategy(script), script.priority);
                if let Body::Intent(intent) = &mut envelope.body {
                    intent.limits = script.limits.clone();
                }
                VecDeque::from([envelope])
            })
            .collect();
        Self {
            coordinator: Coordinator::new(Arc::clone(&settings), 0, inboxes()),
            settings,
            now: START,
            offset: 0,
            runs: 0,
            scripts,
            pending,
            delivered: Vec::new(),
            undecided: Vec::new(),
            again: VecDeque::new(),
            effects: Vec::new(),
            last_effects: Vec::new(),
            snapshot: Vec::new(),
            log: Vec::new(),
            decided_at: Timestamp(0),
            decided: Decided::default(),
        }
    }

    /// One thing happens, chosen by two numbers.
    pub(crate) fn happen(&mut self, what: u8, which: usize) {
        match what % 16 {
            0..=7 => self.deliver(which, false),
            8 => self.deliver(which, true),
            9 if !self.delivered.is_empty() => {
                let old = self.delivered[which % self.delivered.len()].clone();
                self.receive(old);
            }
            10 => self.tick(),
            11 => self.crash(),
            12 => self.hand_over(which),
            13 => self.write_snapshot(),
            14 if which.is_multiple_of(8) => {
                let mut ids: Vec<_> = self.scripts.keys().cloned().collect();
                ids.sort();
                let id = &ids[which / 8 % ids.len()];
                self.pending.push(VecDeque::from([cancel(id.as_str())]));
            }
            15 => {
                let member =
                    WorkerMember { process: "w".into(), pool: None, slots: 1, partitions: vec![0, 5] };
                let pool = Some("research".to_owned());
                let other = WorkerMember { pool, partitions: vec![2], ..member.clone() };
                let view = FleetView { workers: vec![member, other], active_coordinators: 1 };
                self.step(Event::Fleet(view));
            }
            _ => self.now = Timestamp(self.now.0 - 3), // a clock jumps
        }
        if which.is_multiple_of(3) {
            self.decide();
        }
    }

    /// Lets everything that is under way arrive, and time go by, until nothing is left to do.
    pub(crate) fn drain(&mut self) {
        for _ in 0..100_000 {
            self.decide();
            let load = self.coordinator.load();
            if !self.again.is_empty() || self.pending.iter().any(|queue| !queue.is_empty()) {
                self.deliver(0, false);
            } else if load.live + load.waiting > 0 {
                self.tick();
            } else {
                let ids: Vec<_> = self.scripts.keys().cloned().collect();
                return self.decided.i6_everything_ended(&ids, &self.coordinator);
            }
        }
        panic!("I6: it never ends: {:#?}", self.coordinator.entities());
    }

    fn deliver(&mut self, which: usize, keep: bool) {
        if let Some(event) = self.again.pop_front() {
            return self.step(event);
        }
        self.pending.retain(|queue| !queue.is_empty());
        if self.pending.is_empty() {
            return;
        }
        let which = which % self.pending.len();
        let queue = &mut self.pending[which];
        let Some(envelope) = (if keep { queue.front().cloned() } else { queue.pop_front() }) else { return };
        self.delivered.push(envelope.clone());
        self.receive(envelope);
    }

    fn receive(&mut self, envelope: Envelope) {
        self.offset += 1;
        self.now = Timestamp(self.now.0 + 1);
        self.step(received(self.offset, envelope));
    }

    fn tick(&mut self) {
        if let Some(at) = self.coordinator.next_timer() {
            // Ends are not forgotten here: the intents could then run again, rightly.
            let last = START.plus(self.settings.max_deadline * 2);
            self.now = self.now.max(at.min(last));
            self.step(Event::Tick);
        }
    }

    fn step(&mut self, event: Event) {
        let effects = self.coordinator.step(self.now, event.clone());
        self.effects.extend(effects);
        i9_nothing_idles(&self.coordinator, &self.settings, self.settings.min_window);
        i49_budgets_are_kept(&self.coordinator);
        if matches!(event, Event::Received { .. }) {
            self.undecided.push(event);
        }
    }

    /// Writes a decision down and performs what follows from it.
    fn decide(&mut self) {
        i4_windows_are_kept(&self.coordinator, &self.settings, self.settings.min_window);
        self.log.push(self.coordinator.take_changes());
        self.decided_at = self.coordinator.now();
        self.undecided.clear();
        let effects = std::mem::take(&mut self.effects);
        let limits =
            |id: &IntentId| self.scripts.get(id).map(|script| script.limits.clone()).unwrap_or_default();
        self.decided.note(&effects, &self.settings, limits);
        self.perform(&effects);
        self.last_effects = effects;
    }

    /// The owner dies. What it had not written never happened; what it had is performed again.
    fn crash(&mut self) {
        self.coordinator = self.successor();
        self.effects.clear();
        for event in self.undecided.drain(..).rev() {
            self.again.push_front(event);
        }
        let effects = self.last_effects.clone();
        self.perform(&effects);
    }

    /// Another owner takes over in good order; the old one's view of the next input is compared.
    fn hand_over(&mut self, which: usize) {
        self.decide();
        let successor = self.successor();
        let mut old = std::mem::replace(&mut self.coordinator, successor);
        i5_replay_is_life(&old, &self.coordinator);
        let before = self.undecided.len();
        self.deliver(which, false);
        if let Some(event) = self.undecided.get(before).cloned() {
            i7_successor_decides_the_same(&old.step(self.now, event), &self.effects);
        }
    }

    fn successor(&self) -> Coordinator {
        let mut new = Coordinator::new(Arc::clone(&self.settings), 0, inboxes());
        for chunk in self.snapshot.chunks(3) {
            new.apply(chunk, &[]);
        }
        for changes in &self.log {
            new.apply(&changes.changed, &changes.deleted);
        }
        new.resume_at(self.decided_at);
        assert_eq!(new.take_changes(), Changes::default(), "what is applied is no change");
        new
    }

    fn write_snapshot(&mut self) {
        self.decide();
        self.snapshot = self.coordinator.entities();
        self.log.clear();
        i5_replay_is_life(&self.coordinator, &self.successor());
    }

    fn perform(&mut self, effects: &[Effect]) {
        for effect in effects {
            let Effect::Send { to, envelope, .. } = effect else { continue };
            match to {
                Destination::Planner => self.plan(envelope),
                Destination::Worker { pool, partition } => {
                    assert!((0..if pool.is_some() { 3 } else { 8 }).contains(partition));
                    self.work(envelope);
                }
                Destination::Outcomes | Destination::Control => {}
                Destination::Coordinator => panic!("no tenant has a budget"),
            }
        }
    }

    fn plan(&mut self, envelope: &Envelope) {
        let Body::PlanRequest(request) = &envelope.body else { panic!("no plan request") };
        let script = self.scripts[&envelope.intent_id].clone();
        let nth = usize::try_from(request.plan_attempt - 1).unwrap();
        match &script.plans[nth % script.plans.len()] {
            PlanScript::Silent => {}
            PlanScript::Good(size) => self.send_plan(envelope, script.tasks, *size, usize::MAX, None),
            PlanScript::Crash(fragments) => {
                self.send_plan(envelope, script.tasks.clone(), 1, *fragments, None);
                self.send_plan(envelope, script.tasks, 2, usize::MAX, None);
            }
            PlanScript::Circle => {
                let circle = vec![spec(0, "free", &[]), spec(1, "x", &["y"]), spec(2, "y", &["x"])];
                self.send_plan(envelope, circle, 1, usize::MAX, None);
            }
            PlanScript::Fails => {
                let end = PlanEnd { report: report(1), failure: Some(failure(true)), answer: None };
                self.send_plan(envelope, Vec::new(), 1, usize::MAX, Some(end));
            }
        }
    }

    fn send_plan(
        &mut self,
        envelope: &Envelope,
        tasks: Vec<TaskSpec>,
        size: usize,
        most: usize,
        end: Option<PlanEnd>,
    ) {
        let Body::PlanRequest(request) = &envelope.body else { panic!("no plan request") };
        self.runs += 1;
        let run = run(self.runs);
        let parts: Vec<Vec<TaskSpec>> = match tasks.is_empty() {
            true => vec![Vec::new()],
            false => tasks.chunks(size.max(1)).map(<[TaskSpec]>::to_vec).collect(),
        };
        let last = parts.len() - 1;
        let fragments = parts.into_iter().enumerate().take(most).map(|(seq, part)| {
            let end = (seq == last).then(|| end.clone().or_else(plan_end)).flatten();
            let seq = i32::try_from(seq).unwrap();
            fragment(envelope.intent_id.as_str(), request.plan_attempt, &run, seq, part, end)
        });
        self.pending.push(fragments.collect());
    }

    fn work(&mut self, task: &Envelope) {
        let script = &self.scripts[&task.intent_id];
        let job = job(task);
        let replies = match script.tasks.iter().position(|spec| spec.title == job.title) {
            Some(ordinal) if !is_synthesis(task) => &script.replies[ordinal % script.replies.len()],
            _ => &script.synthesis,
        };
        let judged = job.next_tag.role == starling_protocol::Role::Critic;
        let reply = match &replies[usize::try_from(job.attempt - 1).unwrap() % replies.len()] {
            Reply::Silent => return,
            Reply::FailsOnce => result(task, Some(failure(true))),
            Reply::FailsForGood => result(task, Some(failure(false))),
            _ if !judged => result(task, None),
            Reply::Score(score) => verdict(task, scored(*score)),
            Reply::Unparseable => verdict(task, unparseable()),
            Reply::Unavailable => verdict(task, unavailable()),
        };
        self.pending.push(VecDeque::from([reply]));
    }
}
