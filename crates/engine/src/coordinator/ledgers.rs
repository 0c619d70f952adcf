//! The purses and banks of tenants that this partition keeps, by their addresses.

use starling_protocol::state::{BankEntity, Entity, EntityKey, EntityKind, PurseEntity};
use starling_protocol::{IntentId, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Ledgers {
    purses: BTreeMap<IntentId, PurseEntity>,
    /// Their addresses, by tenant and start of the window.
    addresses: BTreeMap<String, BTreeMap<Timestamp, IntentId>>,
    banks: BTreeMap<IntentId, BankEntity>,
    lease_time: Duration,
    lease_retry: Duration,
}

impl Ledgers {
    pub(super) fn new(lease_time: Duration, lease_retry: Duration) -> Self {
        let (purses, addresses, banks) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { purses, addresses, banks, lease_time, lease_retry }
    }

    pub(super) fn purse(&self, id: &IntentId) -> Option<&PurseEntity> {
        self.purses.get(id)
    }

    pub(super) fn purse_of(&self, tenant: &str, window: Timestamp) -> Option<&PurseEntity> {
        self.purses.get(self.addresses.get(tenant)?.get(&window)?)
    }

    pub(super) fn purses_before(&self, tenant: &str, window: Timestamp) -> Vec<IntentId> {
        let of = self.addresses.get(tenant).into_iter().flatten();
        of.filter(|(starts, _)| **starts < window).map(|(_, id)| id.clone()).collect()
    }

    pub(super) fn purses(&self) -> impl Iterator<Item = &PurseEntity> {
        self.purses.values()
    }

    pub(super) fn purses_count(&self) -> usize {
        self.purses.len()
    }

    pub(super) fn bank(&self, id: &IntentId) -> Option<&BankEntity> {
        self.banks.get(id)
    }

    pub(super) fn banks_count(&self) -> usize {
        self.banks.len()
    }

    pub(super) fn insert_purse(&mut self, purse: PurseEntity) {
        let id = purse.purse.clone();
        self.addresses.entry(purse.tenant.clone()).or_default().insert(purse.window, id.clone());
        self.purses.insert(id, purse);
    }

    /// Changes a purse; its address, tenant and window must stay.
    pub(super) fn edit_purse(&mut self, id: &IntentId, change: impl FnOnce(&mut PurseEntity)) {
        self.purses.get_mut(id).map(change);
    }

    pub(super) fn remove_purse(&mut self, id: &IntentId) {
        let Some(purse) = self.purses.remove(id) else { return };
        if let Some(addresses) = self.addresses.get_mut(&purse.tenant) {
            addresses.remove(&purse.window);
            if addresses.is_empty() {
                self.addresses.remove(&purse.tenant);
            }
        }
    }

    pub(super) fn insert_bank(&mut self, bank: BankEntity) {
        self.banks.insert(bank.bank.clone(), bank);
    }

    pub(super) fn edit_bank(&mut self, id: &IntentId, change: impl FnOnce(&mut BankEntity)) {
        self.banks.get_mut(id).map(change);
    }

    pub(super) fn remove_bank(&mut self, id: &IntentId) {
        self.banks.remove(id);
    }

    pub(super) fn entities(&self) -> impl Iterator<Item = Entity> {
        let purses = self.purses.values().cloned().map(Entity::Purse);
        purses.chain(self.banks.values().cloned().map(Entity::Bank))
    }

    /// When something of a purse or a bank is due.
    pub(super) fn timer(&self, key: &EntityKey) -> Option<Timestamp> {
        match key.kind {
            EntityKind::Purse => self.purse(&key.intent_id).map(|purse| self.purse_timer(purse)),
            EntityKind::Bank => self.bank(&key.intent_id).map(|bank| bank.forget_at),
            _ => None,
        }
    }

    fn purse_timer(&self, purse: &PurseEntity) -> Timestamp {
        let tells = match (purse.asked_at, purse.moved_at) {
            (Some(asked), _) => asked.plus(self.lease_retry),
            (None, Some(moved)) => moved.plus(self.lease_time),
            (None, None) => purse.ends,
        };
        tells.min(purse.ends)
    }
}
