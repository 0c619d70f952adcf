//! One intent that has not ended: its entities, and what is derived from them so that a step need not look
//! at every task. Everything derived follows from the entities alone, whatever the order they come in.

use super::admission::strategy_of;
use starling_protocol::state::{IntentEntity, Phase, RunEntity, TaskEntity};
use starling_protocol::{IntentId, Priority, TaskCounts, TaskId, TaskKind, TaskState, Timestamp, Usage};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// An intent that waits or is worked on.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) intent: IntentEntity,
    pub(super) run: RunEntity,
    slots: BTreeMap<i32, Slot>,
    by_id: HashMap<TaskId, i32>,
    by_key: HashMap<String, i32>,
    /// Tasks that name a key, known or not, as a dependency.
    dependants: HashMap<String, Vec<i32>>,
    ready: BTreeSet<i32>,
    planned: usize,
    running: usize,
    ended: usize,
    succeeded: usize,
}

#[derive(Clone, Debug)]
struct Slot {
    task: TaskEntity,
    /// Dependencies that have not ended or are not known yet.
    unmet: usize,
}

/// What a task contributes to the indices above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskFacts {
    pub(super) ready: bool,
    /// The worker partition it is in.
    pub(super) running_in: Option<i32>,
    pub(super) timer: Option<Timestamp>,
    ended: bool,
    succeeded: bool,
}

impl TaskFacts {
    fn of(task: &TaskEntity) -> Self {
        let work = task.kind == TaskKind::Work;
        let paused = task.state == TaskState::Ready && task.not_before > Timestamp(0);
        let running = task.state == TaskState::Running;
        Self {
            ready: task.state == TaskState::Ready && !paused,
            running_in: running.then_some(task.partition),
            timer: match (running, paused) {
                (true, _) => Some(task.attempt_deadline),
                (_, true) => Some(task.not_before),
                _ => None,
            },
            ended: work && has_ended(task.state),
            succeeded: work && task.state == TaskState::Succeeded,
        }
    }
}

/// Whether a task in this state changes no more.
pub(super) fn has_ended(state: TaskState) -> bool {
    matches!(state, TaskState::Succeeded | TaskState::Failed | TaskState::Skipped)
}

/// A run entity before anything happened.
pub(super) fn new_run(intent_id: &IntentId, hop: i32) -> RunEntity {
    RunEntity {
        intent_id: intent_id.clone(),
        phase: Phase::Waiting,
        plan_attempt: 0,
        run: None,
        next_fragment: 0,
        abandoned: Vec::new(),
        plan_moved_at: Timestamp(0),
        plan_feedback: String::new(),
        hop,
        calls: 0,
        usage: Usage::default(),
        cost_usd: 0.0,
        serial_ms: 0,
        model: String::new(),
        offline: false,
        degraded: Vec::new(),
        unpriced_calls: 0,
        plan_reserved: None,
        written_off: None,
        unsettled: Vec::new(),
        over_budget: false,
        cached_calls: 0,
        cached_prompt_tokens: 0,
        plan_charged: None,
        kept: None,
        plan_wanted: false,
        refused: String::new(),
        answer: None,
    }
}

impl Live {
    pub(super) fn new(intent: IntentEntity) -> Self {
        let run = new_run(&intent.intent_id, intent.hop);
        Self {
            intent,
            run,
            slots: BTreeMap::new(),
            by_id: HashMap::new(),
            by_key: HashMap::new(),
            dependants: HashMap::new(),
            ready: BTreeSet::new(),
            planned: 0,
            running: 0,
            ended: 0,
            succeeded: 0,
        }
    }

    pub(super) fn task(&self, ordinal: i32) -> Option<&TaskEntity> {
        self.slots.get(&ordinal).map(|slot| &slot.task)
    }

    pub(super) fn ordinal(&self, id: &TaskId) -> Option<i32> {
        self.by_id.get(id).copied()
    }

    /// How urgent it is.
    pub(super) fn priority(&self) -> Priority {
        Priority::of_level(self.intent.priority)
    }

    /// Whether the intent is one task, whose result is the answer.
    pub(super) fn is_single(&self) -> bool {
        strategy_of(&self.intent.strategy).is_single()
    }

    /// Whether a model has to be asked for its plan.
    pub(super) fn asks_planner(&self) -> bool {
        strategy_of(&self.intent.strategy).asks_planner()
    }

    /// Whether results are taken as they come by now.
    pub(super) fn is_hurried(&self, now: Timestamp) -> bool {
        self.intent.degrade_at.is_some_and(|at| at <= now)
    }

    /// All tasks in plan order, the synthesis last.
    pub(super) fn tasks(&self) -> impl Iterator<Item = &TaskEntity> {
        self.slots.values().map(|slot| &slot.task)
    }

    /// The tasks of the plan, in its order.
    pub(super) fn plan_tasks(&self) -> impl Iterator<Item = &TaskEntity> {
        self.tasks().filter(|task| task.kind == TaskKind::Work)
    }

    pub(super) fn has_key(&self, key: &str) -> bool {
        self.by_key.contains_key(key)
    }

    /// The tasks that this one names as its dependencies, as far as they are known.
    pub(super) fn dependencies<'a>(&'a self, task: &'a TaskEntity) -> impl Iterator<Item = &'a TaskEntity> {
        task.depends_on.iter().filter_map(|key| self.task(*self.by_key.get(key)?))
    }

    /// Number of tasks in the plan so far.
    pub(super) fn planned(&self) -> usize {
        self.planned
    }

    /// Counts of the plan's tasks. Those that are under way are in neither part.
    pub(super) fn counts(&self) -> TaskCounts {
        let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        TaskCounts {
            total: count(self.planned()),
            succeeded: count(self.succeeded),
            failed: count(self.ended - self.succeeded),
        }
    }

    /// All tasks but the one that makes the answer.
    pub(super) fn steps(&self) -> impl Iterator<Item = &TaskEntity> {
        self.tasks().filter(|task| task.kind != TaskKind::Synthesis)
    }

    /// The tasks that condense results, level by level.
    pub(super) fn digests(&self) -> impl Iterator<Item = &TaskEntity> {
        self.tasks().filter(|task| task.kind == TaskKind::Reduce)
    }

    /// Whether every known task of the plan ended.
    pub(super) fn plan_done(&self) -> bool {
        self.ended == self.planned()
    }

    pub(super) fn succeeded(&self) -> usize {
        self.succeeded
    }

    /// Tasks that are with workers.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The first task, in plan order, that could be dispatched.
    pub(super) fn first_ready(&self) -> Option<i32> {
        self.ready.first().copied()
    }

    /// Whether a task that has not been released waits for nothing any more.
    pub(super) fn is_unblocked(&self, ordinal: i32) -> bool {
        self.slots.get(&ordinal).is_some_and(|slot| slot.unmet == 0 && slot.task.state == TaskState::Waiting)
    }

    /// The tasks that the end of this one unblocked.
    pub(super) fn unblocked_by(&self, ordinal: i32) -> Vec<i32> {
        let Some(task) = self.task(ordinal).filter(|task| task.kind == TaskKind::Work) else {
            return Vec::new();
        };
        let dependants = self.dependants.get(&task.key).map_or(&[][..], Vec::as_slice);
        dependants.iter().copied().filter(|&dependant| self.is_unblocked(dependant)).collect()
    }

    /// Adds a task.
    pub(super) fn insert(&mut self, task: TaskEntity) -> TaskFacts {
        let (ordinal, facts) = (task.ordinal, TaskFacts::of(&task));
        let mut unmet = 0;
        self.planned += usize::from(task.kind == TaskKind::Work);
        // A synthesis is made when all others have ended, and nobody can depend on it.
        if task.kind != TaskKind::Synthesis {
            for key in &task.depends_on {
                if !self.by_key.get(key).is_some_and(|&on| self.task(on).is_some_and(|t| has_ended(t.state)))
                {
                    unmet += 1;
                }
                self.dependants.entry(key.clone()).or_default().push(ordinal);
            }
            self.by_key.insert(task.key.clone(), ordinal);
        }
        self.by_id.insert(task.task_id.clone(), ordinal);
        let key = task.key.clone();
        self.slots.insert(ordinal, Slot { task, unmet });
        self.count(ordinal, None, facts);
        if facts.ended {
            self.release_dependants(&key);
        }
        facts
    }

    /// Changes a task; its key and dependencies must stay. Returns what it contributed before and after.
    pub(super) fn edit(
        &mut self,
        ordinal: i32,
        change: impl FnOnce(&mut TaskEntity),
    ) -> Option<(TaskFacts, TaskFacts)> {
        let slot = self.slots.get_mut(&ordinal)?;
        let before = TaskFacts::of(&slot.task);
        change(&mut slot.task);
        let after = TaskFacts::of(&slot.task);
        let key = (after.ended && !before.ended).then(|| slot.task.key.clone());
        self.count(ordinal, Some(before), after);
        if let Some(key) = key {
            self.release_dependants(&key);
        }
        Some((before, after))
    }

    /// Removes one task.
    pub(super) fn remove(&mut self, id: &TaskId) -> Option<TaskFacts> {
        let ordinal = self.by_id.remove(id)?;
        let facts = TaskFacts::of(&self.slots.remove(&ordinal)?.task);
        let rest: Vec<_> = std::mem::take(&mut self.slots).into_values().map(|slot| slot.task).collect();
        // Tasks go only when their whole run goes, which is rare: derive everything anew.
        let mut fresh = Self::new(self.intent.clone());
        fresh.run = self.run.clone();
        for task in rest {
            fresh.insert(task);
        }
        *self = fresh;
        Some(facts)
    }

    /// Removes all tasks.
    pub(super) fn clear(&mut self) -> Vec<(TaskId, TaskFacts)> {
        let gone = self.tasks().map(|task| (task.task_id.clone(), TaskFacts::of(task))).collect();
        let run = self.run.clone();
        *self = Self { run, ..Self::new(self.intent.clone()) };
        gone
    }

    fn count(&mut self, ordinal: i32, before: Option<TaskFacts>, after: TaskFacts) {
        if let Some(before) = before {
            self.running -= usize::from(before.running_in.is_some());
            self.ended -= usize::from(before.ended);
            self.succeeded -= usize::from(before.succeeded);
        }
        self.running += usize::from(after.running_in.is_some());
        self.ended += usize::from(after.ended);
        self.succeeded += usize::from(after.succeeded);
        if after.ready {
            self.ready.insert(ordinal);
        } else {
            self.ready.remove(&ordinal);
        }
    }

    fn release_dependants(&mut self, key: &str) {
        for dependant in self.dependants.get(key).map_or(&[][..], Vec::as_slice) {
            if let Some(slot) = self.slots.get_mut(dependant) {
                slot.unmet = slot.unmet.saturating_sub(1);
            }
        }
    }
}
