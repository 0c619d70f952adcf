//! All entities of one partition, with the indices over them. Life and replay change entities through the
//! same functions, so that they cannot differ.

use super::CoordinatorSettings;
use super::event::Changes;
use super::ledgers::Ledgers;
use super::live::{Live, TaskFacts};
use starling_protocol::state::{
    BankEntity, CancelledEntity, EndedEntity, Entity, EntityKey, EntityKind, IntentEntity, Phase,
    PurseEntity, RunEntity, TaskEntity,
};
use starling_protocol::{IntentId, TaskId, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Order of admission: priority, then age.
type WaitKey = (Reverse<i32>, Timestamp, IntentId);

#[derive(Clone, Debug)]
pub(super) struct Store {
    live: BTreeMap<IntentId, Live>,
    ended: BTreeMap<IntentId, EndedEntity>,
    cancelled: BTreeMap<IntentId, CancelledEntity>,
    cancelled_by_tenant: HashMap<String, usize>,
    waiting: BTreeSet<WaitKey>,
    /// An entity has at most one timer; which one follows from the entity.
    timers: BTreeSet<(Timestamp, EntityKey)>,
    /// Tasks with workers, by worker partition.
    outstanding: Vec<u32>,
    outstanding_total: usize,
    /// Those of them that are of batches.
    outstanding_batch: usize,
    ready_total: usize,
    /// Names of the entities that changed since [`Store::take_changes`].
    dirty: BTreeSet<EntityKey>,
    plan_timeout: Duration,
    /// Of tenants.
    ledgers: Ledgers,
}

impl Store {
    pub(super) fn new(worker_partitions: usize, settings: &CoordinatorSettings) -> Self {
        Self {
            live: BTreeMap::new(),
            ended: BTreeMap::new(),
            cancelled: BTreeMap::new(),
            cancelled_by_tenant: HashMap::new(),
            waiting: BTreeSet::new(),
            timers: BTreeSet::new(),
            outstanding: vec![0; worker_partitions.max(1)],
            outstanding_total: 0,
            outstanding_batch: 0,
            ready_total: 0,
            dirty: BTreeSet::new(),
            plan_timeout: settings.plan_timeout,
            ledgers: Ledgers::new(settings.lease_time, settings.lease_retry),
        }
    }

    // What there is.

    pub(super) fn live(&self, id: &IntentId) -> Option<&Live> {
        self.live.get(id)
    }

    pub(super) fn all_live(&self) -> impl Iterator<Item = (&IntentId, &Live)> {
        self.live.iter()
    }

    pub(super) fn ended(&self, id: &IntentId) -> Option<&EndedEntity> {
        self.ended.get(id)
    }

    pub(super) fn cancelled(&self, id: &IntentId) -> Option<&CancelledEntity> {
        self.cancelled.get(id)
    }

    pub(super) fn cancelled_of(&self, tenant: &str) -> usize {
        self.cancelled_by_tenant.get(tenant).copied().unwrap_or(0)
    }

    pub(super) fn admitted_count(&self) -> usize {
        self.live.len() - self.waiting.len()
    }

    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn remembered_count(&self) -> usize {
        self.ended.len() + self.cancelled.len()
    }

    pub(super) fn outstanding(&self) -> &[u32] {
        &self.outstanding
    }

    pub(super) fn outstanding_total(&self) -> usize {
        self.outstanding_total
    }

    /// Tasks with workers that are of batches, or that are not.
    pub(super) fn outstanding_of(&self, batch: bool) -> usize {
        if batch { self.outstanding_batch } else { self.outstanding_total - self.outstanding_batch }
    }

    pub(super) fn ready_total(&self) -> usize {
        self.ready_total
    }

    pub(super) fn first_waiting(&self) -> Option<IntentId> {
        self.waiting.first().map(|(_, _, id)| id.clone())
    }

    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The first timer that is due.
    pub(super) fn due(&self, now: Timestamp) -> Option<EntityKey> {
        self.timers.first().filter(|(at, _)| *at <= now).map(|(_, key)| key.clone())
    }

    // Changing it.

    pub(super) fn insert_intent(&mut self, intent: IntentEntity) {
        let key = key(&intent.intent_id, EntityKind::Intent);
        self.timers.insert((intent.deadline, key.clone()));
        self.waiting.insert(wait_key(&intent));
        self.dirty.insert(key);
        self.dirty.insert(self::key(&intent.intent_id, EntityKind::Run));
        self.live.insert(intent.intent_id.clone(), Live::new(intent));
    }

    pub(super) fn edit_run(&mut self, id: &IntentId, change: impl FnOnce(&mut RunEntity)) {
        let Some(live) = self.live.get_mut(id) else { return };
        let key = key(id, EntityKind::Run);
        let before = plan_timer(&live.run, self.plan_timeout);
        change(&mut live.run);
        let after = plan_timer(&live.run, self.plan_timeout);
        if live.run.phase == Phase::Waiting {
            self.waiting.insert(wait_key(&live.intent));
        } else if !self.waiting.is_empty() {
            self.waiting.remove(&wait_key(&live.intent));
        }
        self.move_timer(&key, before, after);
        self.dirty.insert(key);
    }

    pub(super) fn insert_task(&mut self, task: TaskEntity) {
        let Some(live) = self.live.get_mut(&task.intent_id) else { return };
        let key = task_key(&task.intent_id, &task.task_id);
        let facts = live.insert(task);
        self.count(&key, None, Some(facts));
        self.dirty.insert(key);
    }

    pub(super) fn edit_task(&mut self, id: &IntentId, ordinal: i32, change: impl FnOnce(&mut TaskEntity)) {
        let Some(live) = self.live.get_mut(id) else { return };
        let Some((before, after)) = live.edit(ordinal, change) else { return };
        let Some(task) = live.task(ordinal) else { return };
        let key = task_key(id, &task.task_id);
        self.count(&key, Some(before), Some(after));
        self.dirty.insert(key);
    }

    pub(super) fn remove_tasks(&mut self, id: &IntentId) {
        let Some(live) = self.live.get_mut(id) else { return };
        for (task_id, facts) in live.clear() {
            let key = task_key(id, &task_id);
            self.count(&key, Some(facts), None);
            self.dirty.insert(key);
        }
    }

    /// Removes an intent with its run and its tasks.
    pub(super) fn remove_intent(&mut self, id: &IntentId) {
        self.remove_tasks(id);
        let Some(live) = self.live.remove(id) else { return };
        let (intent_key, run_key) = (key(id, EntityKind::Intent), key(id, EntityKind::Run));
        self.waiting.remove(&wait_key(&live.intent));
        self.move_timer(&intent_key, Some(live.intent.deadline), None);
        self.move_timer(&run_key, plan_timer(&live.run, self.plan_timeout), None);
        self.dirty.extend([intent_key, run_key]);
    }

    pub(super) fn insert_ended(&mut self, ended: EndedEntity) {
        self.remove_ended(&ended.intent_id.clone());
        let key = key(&ended.intent_id, EntityKind::Ended);
        self.timers.insert((ended.forget_at, key.clone()));
        self.dirty.insert(key);
        self.ended.insert(ended.intent_id.clone(), ended);
    }

    pub(super) fn remove_ended(&mut self, id: &IntentId) {
        if let Some(ended) = self.ended.remove(id) {
            let key = key(id, EntityKind::Ended);
            self.move_timer(&key, Some(ended.forget_at), None);
            self.dirty.insert(key);
        }
    }

    pub(super) fn insert_cancelled(&mut self, cancelled: CancelledEntity) {
        self.remove_cancelled(&cancelled.intent_id.clone());
        let key = key(&cancelled.intent_id, EntityKind::Cancelled);
        self.timers.insert((cancelled.forget_at, key.clone()));
        self.dirty.insert(key);
        *self.cancelled_by_tenant.entry(cancelled.tenant.clone()).or_default() += 1;
        self.cancelled.insert(cancelled.intent_id.clone(), cancelled);
    }

    pub(super) fn remove_cancelled(&mut self, id: &IntentId) {
        let Some(cancelled) = self.cancelled.remove(id) else { return };
        let key = key(id, EntityKind::Cancelled);
        self.move_timer(&key, Some(cancelled.forget_at), None);
        self.dirty.insert(key);
        if let Some(count) = self.cancelled_by_tenant.get_mut(&cancelled.tenant) {
            *count -= 1;
            if *count == 0 {
                self.cancelled_by_tenant.remove(&cancelled.tenant);
            }
        }
    }

    // Books of tenants.

    pub(super) fn ledgers(&self) -> &Ledgers {
        &self.ledgers
    }

    pub(super) fn insert_purse(&mut self, purse: PurseEntity) {
        let id = purse.purse.clone();
        self.change_ledgers(&id, EntityKind::Purse, |ledgers| ledgers.insert_purse(purse));
    }

    pub(super) fn edit_purse(&mut self, id: &IntentId, change: impl FnOnce(&mut PurseEntity)) {
        self.change_ledgers(id, EntityKind::Purse, |ledgers| ledgers.edit_purse(id, change));
    }

    pub(super) fn remove_purse(&mut self, id: &IntentId) {
        self.change_ledgers(id, EntityKind::Purse, |ledgers| ledgers.remove_purse(id));
    }

    /// Forgets the purses that a tenant has of windows before this one.
    pub(super) fn forget_purses(&mut self, tenant: &str, window: Timestamp) {
        for id in self.ledgers.purses_before(tenant, window) {
            self.remove_purse(&id);
        }
    }

    pub(super) fn insert_bank(&mut self, bank: BankEntity) {
        let id = bank.bank.clone();
        self.change_ledgers(&id, EntityKind::Bank, |ledgers| ledgers.insert_bank(bank));
    }

    pub(super) fn edit_bank(&mut self, id: &IntentId, change: impl FnOnce(&mut BankEntity)) {
        self.change_ledgers(id, EntityKind::Bank, |ledgers| ledgers.edit_bank(id, change));
    }

    pub(super) fn remove_bank(&mut self, id: &IntentId) {
        self.change_ledgers(id, EntityKind::Bank, |ledgers| ledgers.remove_bank(id));
    }

    fn change_ledgers(&mut self, id: &IntentId, kind: EntityKind, change: impl FnOnce(&mut Ledgers)) {
        let key = key(id, kind);
        let before = self.ledgers.timer(&key);
        change(&mut self.ledgers);
        let after = self.ledgers.timer(&key);
        self.move_timer(&key, before, after);
        self.dirty.insert(key);
    }

    // Writing it down and reading it back.

    pub(super) fn take_changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        for key in std::mem::take(&mut self.dirty) {
            match self.entity(&key) {
                Some(entity) => changes.changed.push(entity),
                None => changes.deleted.push(key),
            }
        }
        changes
    }

    pub(super) fn entities(&self) -> Vec<Entity> {
        // In the order of their keys: an intent, its run, its tasks by id.
        let mut all = Vec::new();
        for live in self.live.values() {
            all.push(Entity::Intent(live.intent.clone()));
            all.push(Entity::Run(live.run.clone()));
            let mut tasks: Vec<_> = live.tasks().collect();
            tasks.sort_by(|a, b| a.task_id.cmp(&b.task_id));
            all.extend(tasks.into_iter().cloned().map(Entity::Task));
        }
        all.extend(self.ended.values().cloned().map(Entity::Ended));
        all.extend(self.cancelled.values().cloned().map(Entity::Cancelled));
        all.extend(self.ledgers.entities());
        all
    }

    pub(super) fn apply(&mut self, changed: &[Entity], deleted: &[EntityKey]) {
        let dirty = std::mem::take(&mut self.dirty);
        for key in deleted {
            self.load_deletion(key);
        }
        // An intent before its run before its tasks; `changed` may be in any order.
        let mut changed: Vec<&Entity> = changed.iter().collect();
        changed.sort_by_cached_key(|entity| entity.key().kind);
        for entity in changed {
            self.load(entity.clone());
        }
        self.dirty = dirty;
    }

    fn load(&mut self, entity: Entity) {
        match entity {
            Entity::Intent(intent) if self.live.contains_key(&intent.intent_id) => {} // it never changes
            Entity::Intent(intent) => self.insert_intent(intent),
            Entity::Run(run) => self.edit_run(&run.intent_id.clone(), |old| *old = run),
            Entity::Task(task) => {
                let known = self.live.get(&task.intent_id).and_then(|live| live.ordinal(&task.task_id));
                match known {
                    Some(ordinal) => self.edit_task(&task.intent_id.clone(), ordinal, |old| *old = task),
                    None => self.insert_task(task),
                }
            }
            Entity::Ended(ended) => self.insert_ended(ended),
            Entity::Cancelled(cancelled) => self.insert_cancelled(cancelled),
            Entity::Purse(purse) => self.insert_purse(purse),
            Entity::Bank(bank) => self.insert_bank(bank),
        }
    }

    fn load_deletion(&mut self, key: &EntityKey) {
        match (key.kind, &key.task_id) {
            (EntityKind::Intent, _) => self.remove_intent(&key.intent_id),
            (EntityKind::Run, _) | (EntityKind::Task, None) => {} // a run goes with its intent
            (EntityKind::Task, Some(task_id)) => {
                let gone = self.live.get_mut(&key.intent_id).and_then(|live| live.remove(task_id));
                self.count(key, gone, None);
            }
            (EntityKind::Ended, _) => self.remove_ended(&key.intent_id),
            (EntityKind::Cancelled, _) => self.remove_cancelled(&key.intent_id),
            (EntityKind::Purse, _) => self.remove_purse(&key.intent_id),
            (EntityKind::Bank, _) => self.remove_bank(&key.intent_id),
        }
    }

    fn entity(&self, key: &EntityKey) -> Option<Entity> {
        let live = || self.live.get(&key.intent_id);
        Some(match key.kind {
            EntityKind::Intent => Entity::Intent(live()?.intent.clone()),
            EntityKind::Run => Entity::Run(live()?.run.clone()),
            EntityKind::Task => {
                let live = live()?;
                Entity::Task(live.task(live.ordinal(key.task_id.as_ref()?)?)?.clone())
            }
            EntityKind::Ended => Entity::Ended(self.ended.get(&key.intent_id)?.clone()),
            EntityKind::Cancelled => Entity::Cancelled(self.cancelled.get(&key.intent_id)?.clone()),
            EntityKind::Purse => Entity::Purse(self.ledgers.purse(&key.intent_id)?.clone()),
            EntityKind::Bank => Entity::Bank(self.ledgers.bank(&key.intent_id)?.clone()),
        })
    }

    fn count(&mut self, key: &EntityKey, before: Option<TaskFacts>, after: Option<TaskFacts>) {
        let of_batch = self.live.get(&key.intent_id).is_some_and(|live| live.priority().is_batch());
        let of_batch = usize::from(of_batch); // an intent's priority never changes
        let ready = |facts: Option<TaskFacts>| usize::from(facts.is_some_and(|f| f.ready));
        self.ready_total = self.ready_total + ready(after) - ready(before);
        if let Some(partition) = before.and_then(|f| f.running_in) {
            self.outstanding_total -= 1;
            self.outstanding_batch -= of_batch;
            if let Some(count) = self.in_partition(partition) {
                *count -= 1;
            }
        }
        if let Some(partition) = after.and_then(|f| f.running_in) {
            self.outstanding_total += 1;
            self.outstanding_batch += of_batch;
            if let Some(count) = self.in_partition(partition) {
                *count += 1;
            }
        }
        self.move_timer(key, before.and_then(|f| f.timer), after.and_then(|f| f.timer));
    }

    fn in_partition(&mut self, partition: i32) -> Option<&mut u32> {
        usize::try_from(partition).ok().and_then(|partition| self.outstanding.get_mut(partition))
    }

    fn move_timer(&mut self, key: &EntityKey, before: Option<Timestamp>, after: Option<Timestamp>) {
        if before == after {
            return;
        }
        if let Some(at) = before {
            self.timers.remove(&(at, key.clone()));
        }
        if let Some(at) = after {
            self.timers.insert((at, key.clone()));
        }
    }
}

fn key(id: &IntentId, kind: EntityKind) -> EntityKey {
    EntityKey { intent_id: id.clone(), kind, task_id: None }
}

fn task_key(id: &IntentId, task_id: &TaskId) -> EntityKey {
    EntityKey { intent_id: id.clone(), kind: EntityKind::Task, task_id: Some(task_id.clone()) }
}

fn wait_key(intent: &IntentEntity) -> WaitKey {
    (Reverse(intent.priority), intent.accepted_at, intent.intent_id.clone())
}

fn plan_timer(run: &RunEntity, timeout: Duration) -> Option<Timestamp> {
    (run.phase == Phase::Planning && !run.plan_wanted).then(|| run.plan_moved_at.plus(timeout))
}
