//! Sends ready tasks to workers: as many as the windows allow, in fair order, each to a chosen partition.
//! What is not sent can still be reordered and cancelled.

use super::citations::number_of;
use super::fair_queue::FairQueue;
use super::live::Live;
use super::placement::Placement;
use super::pools::Pool;
use super::reserve::{Cover, Grant, cover};
use super::store::Store;
use super::{Coordinator, CoordinatorSettings, Destination, Effect, FleetView};
use starling_protocol::state::{Amount, TaskEntity};
use starling_protocol::{
    Body, Dependency, EnvelopeId, Feedback, IntentId, Priority, Role, Tag, Task, TaskKind, TaskState,
    Timestamp,
};

impl Coordinator {
    pub(super) fn on_fleet(&mut self, view: &FleetView) {
        let pools = self.store.pools();
        for pool in pools.all() {
            let (name, partitions) = (pools.name(pool), pools.outstanding(pool).len());
            // Coordinators begin at different partitions, spread over all of them.
            let first = usize::try_from(self.partition).unwrap_or(0) * 37 % partitions.max(1);
            if let Some(lane) = self.lanes.get_mut(pool) {
                lane.placement = Placement::new(view, name, partitions, first);
                lane.window = window(&self.settings, view, name);
            }
        }
    }

    /// Puts an intent in the queue of each pool for which it has something to do.
    pub(super) fn wake(&mut self, id: &IntentId) {
        let Some(live) = self.store.live(id).filter(|live| live.has_ready()) else { return };
        let priority = live.priority();
        for pool in self.store.pools().all() {
            if self.store.first_ready(live, pool).is_some()
                && let Some(lane) = self.lanes.get_mut(pool)
            {
                lane.queue.wake(id, priority);
            }
        }
    }

    /// Sends what may be sent. Where a budget is used up, what is left out may make room for the answer.
    pub(super) fn dispatch(&mut self) {
        let cold = std::mem::take(&mut self.cold);
        if cold {
            self.find_lacking();
        }
        // Plans before tasks, also where it is not known yet who lacks something: a successor must not decide otherwise.
        self.serve_lacking();
        self.dispatch_ready(cold);
        while self.serve_lacking() || self.stop_over_budget(cold) || self.stop_refused() {
            self.dispatch_ready(false);
        }
        self.pause_asking();
        self.ask_for_leases();
    }

    fn dispatch_ready(&mut self, cold: bool) {
        let woken: Vec<IntentId> = if cold {
            self.store.all_live().filter(|(_, live)| live.has_ready()).map(|(id, _)| id.clone()).collect()
        } else {
            let has_ready = |id: &&IntentId| self.store.live(id).is_some_and(Live::has_ready);
            self.touched.keys().filter(has_ready).cloned().collect()
        };
        for id in &woken {
            self.wake(id);
        }
        // Whoever is first may fill the windows of intents, so that each pool is it in turn.
        let mut pools: Vec<Pool> = self.store.pools().all().collect();
        self.first_pool = (self.first_pool + 1) % pools.len().max(1);
        pools.rotate_left(self.first_pool);
        for pool in pools {
            self.dispatch_to(pool);
        }
    }

    fn dispatch_to(&mut self, pool: Pool) {
        loop {
            let Some(lane) = self.lanes.get_mut(pool).filter(|lane| !lane.queue.is_empty()) else { return };
            let (store, settings, now, window) = (&self.store, &self.settings, self.now, lane.window);
            let leases = &mut self.leases;
            let may = |id: &IntentId| match turn(store, settings, now, id, pool) {
                Some(Turn::May) => true,
                Some(Turn::Lacks(tenant, need)) => {
                    leases.lacks(tenant, id, need);
                    false
                }
                None => false,
            };
            let room = |priority: Priority| store.pools().outstanding_of(pool, priority.is_batch()) < window;
            let Some(id) = lane.queue.next(room, may) else { return };
            let next = self.store.live(&id).and_then(|live| self.store.first_ready(live, pool));
            let Some(ordinal) = next else { return };
            self.send_task(&id, ordinal, pool);
        }
    }

    fn send_task(&mut self, id: &IntentId, ordinal: i32, pool: Pool) {
        let now = self.now;
        self.skip_critic_in_a_hurry(id, ordinal);
        let Some(live) = self.store.live(id) else { return };
        let Cover::Granted(grant) = cover(&self.settings, &self.store, now, live, ordinal) else { return };
        let timeout = live.task(ordinal).and_then(|task| self.settings.agents.get(&task.agent)?.timeout);
        let timeout = timeout.unwrap_or(self.settings.attempt_timeout);
        let deadline = live.intent.deadline.min(now.plus(timeout));
        let grace = self.settings.attempt_grace;
        let (pools, lane) = (self.store.pools(), self.lanes.get(pool));
        let chosen = lane.map_or(0, |lane| lane.placement.choose(pools.outstanding(pool)));
        let partition = i32::try_from(chosen).unwrap_or(0);
        let pool = pools.name(pool).map(str::to_owned);
        self.edit_task(id, ordinal, |task| {
            task.state = TaskState::Running;
            task.attempt += 1;
            task.step = 0;
            task.partition = partition;
            task.not_before = Timestamp(0);
            task.attempt_deadline = deadline.plus(grace);
            task.reserved = grant.reserved;
            task.charged = grant.draw.map(|draw| draw.window);
            if task.attempt == 1 {
                task.started_at = now;
            }
        });
        if let (Some(draw), Some(reserved)) = (grant.draw, grant.reserved) {
            self.draw(id, draw, reserved);
        }
        let Some(live) = self.store.live(id) else { return };
        let Some(task) = live.task(ordinal) else { return };
        let envelope_id = EnvelopeId::of_step("task", &task.task_id, task.attempt, task.step);
        let tag = Tag { pool: pool.clone(), ..Tag::role(Role::Worker) };
        let body = Body::Task(message(live, task, grant));
        let envelope = self.envelope(live, envelope_id, tag, deadline, body);
        let (trace, links) = (task.trace.clone(), links(live, task));
        let to = Destination::Worker { pool, partition };
        let priority = live.priority();
        self.effects.push(Effect::Send { to, envelope, trace, links, priority });
    }

    /// Asks no critic for a task of an intent that has taken too long already.
    fn skip_critic_in_a_hurry(&mut self, id: &IntentId, ordinal: i32) {
        let Some(live) = self.store.live(id).filter(|live| live.is_hurried(self.now)) else { return };
        if live.task(ordinal).is_some_and(|task| task.critic) {
            self.edit_task(id, ordinal, |task| task.critic = false);
            self.add_note(id, CRITICS_SKIPPED.to_owned());
        }
    }
}

/// The note about an intent of which some results were not scored, for want of time.
const CRITICS_SKIPPED: &str = "critics_skipped";

/// Tasks that wait for a member beyond the factor, for each root of its slots. Coordinators do not know of each other's
/// tasks, so what they give a member together differs from member to member like independent draws do, by the root of the
/// mean, and half of what they have sent may be with critics. Where a member has one slot, its queue must be five deep on
/// average, or it is empty too often: `starling bench scaling` uses 93 % of 50 such members with 3, and 96 % with 5.
const UNEVENNESS: f64 = 5.0;

/// What belongs to the dispatch to one pool. Soft state.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    /// Intents that may have tasks for it.
    pub(super) queue: FairQueue,
    placement: Placement,
    /// Tasks that may be with its workers at a time.
    window: usize,
}

/// How many tasks may be with the workers of a pool, of batches and of others, each: a batch takes no room from intents of
/// which somebody waits for the outcome, whose tasks overtake those of batches in the inbox. It is a few times what this
/// partition's share of the fleet can run, and some more for members with few slots. While no worker is known, some are sent
/// all the same: their lag is what makes an autoscaler start workers. A small fleet gets no more than it can run soon,
/// because a task's time runs while it waits in the inbox.
fn window(settings: &CoordinatorSettings, fleet: &FleetView, pool: Option<&str>) -> usize {
    let pool = fleet.workers.iter().filter(|worker| worker.pool.as_deref() == pool);
    let unevenness = if fleet.active_coordinators > 1 { UNEVENNESS } else { 0.0 };
    let wanted = |slots: f64| settings.window_factor * slots + unevenness * slots.sqrt();
    let wanted: f64 = pool.map(|worker| wanted(f64::from(worker.slots.max(0)))).sum();
    if wanted <= 0.0 {
        return settings.min_window;
    }
    let share = wanted / f64::from(fleet.active_coordinators.max(1));
    (share.ceil() as usize).max(1) // a float that is no usize becomes the nearest that is
}

/// Whether an intent may dispatch now.
enum Turn<'s> {
    /// It may.
    May,
    /// Its tenant's purse does not cover what its next task takes.
    Lacks(&'s str, Amount),
}

fn turn<'s>(
    store: &'s Store,
    settings: &CoordinatorSettings,
    now: Timestamp,
    id: &IntentId,
    pool: Pool,
) -> Option<Turn<'s>> {
    let live = store.live(id)?;
    let may = live.running() < settings.intent_window && live.intent.deadline > now;
    match cover(settings, store, now, live, store.first_ready(live, pool).filter(|_| may)?) {
        Cover::Granted(_) => Some(Turn::May),
        Cover::Lacking(need) => Some(Turn::Lacks(&live.intent.tenant, need)),
        Cover::OverOwn => None,
    }
}

fn message(live: &Live, task: &TaskEntity, grant: Grant) -> Task {
    let next = if task.critic {
        Tag::role(Role::Critic).with_lane(task.task_id.as_str())
    } else {
        Tag::role(Role::Coordinator).with_lane(live.intent.intent_id.as_str())
    };
    Task {
        task_id: task.task_id.clone(),
        run: live.run.run.clone().unwrap_or_else(|| starling_protocol::RunId::from_string("")),
        kind: task.kind,
        attempt: task.attempt,
        step: task.step,
        title: task.title.clone(),
        agent: task.agent.clone(),
        goal: live.intent.goal.clone(),
        instruction: task.instruction.clone(),
        // What is condensed are the results alone.
        intent_ref: live.intent.intent_ref.clone().filter(|_| task.kind != TaskKind::Reduce),
        dependencies: live.dependencies(task).map(|on| dependency(on, task.kind)).collect(),
        feedback: feedback(task),
        next_tag: next,
        min_score: live.intent.min_score,
        allowance: grant.work,
        critic_allowance: grant.critic,
        terms: task.terms.clone(),
        last_attempt: task.attempt >= live.intent.max_attempts,
    }
}

fn dependency(on: &TaskEntity, of: TaskKind) -> Dependency {
    let is_cited = of != TaskKind::Work && on.kind == TaskKind::Work;
    let succeeded = on.state == TaskState::Succeeded;
    Dependency {
        task_id: on.task_id.clone(),
        title: on.title.clone(),
        result: on.best.as_ref().filter(|_| succeeded).map(|best| best.result.clone()),
        failure: on.failure.clone().filter(|_| !succeeded),
        number: if is_cited { number_of(on) } else { 0 },
    }
}

/// What the critic said of the last attempt that it scored.
fn feedback(task: &TaskEntity) -> Option<Feedback> {
    let score = task.last_score?;
    let spoken_of = task.best.as_ref().filter(|best| best.score == Some(score));
    let result = spoken_of.map(|best| best.result.clone());
    Some(Feedback { score, text: task.feedback.clone(), result })
}

/// Traces of what came together for this task, its trigger excepted.
fn links(live: &Live, task: &TaskEntity) -> Vec<String> {
    let mut links: Vec<String> = live
        .dependencies(task)
        .map(|on| &on.trace)
        .filter(|trace| !trace.is_empty() && **trace != task.trace)
        .cloned()
        .collect();
    links.sort_unstable();
    links.dedup();
    links
}
