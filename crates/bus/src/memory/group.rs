//! Consumer groups: membership, cooperative rebalancing, committed offsets.

use super::{
    assignment::{Candidate, plan},
    core::Core,
    faults::CommitFault,
    feed::{Feed, FeedId},
};
use crate::{
    Assignment, BusError, CommitError, CommitOffset, Committed, Deliver, GroupConfig, GroupEvent,
    PartitionId, RevokeAck,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
    time::timeout,
};

/// What a broker takes as commit metadata by default.
const METADATA_LIMIT: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) members: BTreeMap<FeedId, Member>,
    pub(super) committed: HashMap<PartitionId, Committed>,
    /// Every topic that a member ever subscribed to: its records wait for this group.
    pub(super) topics: BTreeSet<Arc<str>>,
    turn: usize,
}

#[derive(Debug)]
pub(super) struct Member {
    topics: Vec<Arc<str>>,
    config: Arc<GroupConfig>,
    runtime: Handle,
    owned: BTreeSet<PartitionId>,
    /// The part of `owned` that waits for the acknowledgement of its revocation.
    releasing: BTreeSet<PartitionId>,
    leaving: bool,
}

impl Member {
    pub(super) fn owned(&self) -> impl Iterator<Item = &PartitionId> {
        self.owned.iter()
    }

    fn owns(&self, at: &PartitionId) -> bool {
        self.owned.contains(at) || !self.topics.contains(&at.topic)
    }
}

impl Group {
    /// The offset below which this group has no use for records of `at`; `None` if it never reads them.
    pub(super) fn needs_from(&self, at: &PartitionId, first: i64) -> Option<i64> {
        match self.committed.get(at) {
            Some(committed) => Some(committed.offset),
            None => self.topics.contains(&at.topic).then_some(first),
        }
    }
}

impl Core {
    /// A new member. Its feed is made here; the group is balanced anew.
    pub(super) fn join(
        &mut self,
        config: GroupConfig,
        wake: Arc<Notify>,
        runtime: Handle,
    ) -> Result<FeedId, BusError> {
        if let Some(topic) = config.topics.iter().find(|topic| !self.topics.contains_key(topic.as_str())) {
            return Err(BusError::NoSuchTopic { topic: topic.clone() });
        }
        let id = self.new_feed(Feed::new(wake));
        self.enter(id, Arc::new(config), runtime);
        Ok(id)
    }

    /// Takes (or, after an expired session, takes back) a place in the group.
    fn enter(&mut self, id: FeedId, config: Arc<GroupConfig>, runtime: Handle) {
        let name = config.group.clone();
        if let Some(instance) = &config.instance {
            self.fence_instance(&name, instance, id);
        }
        let topics: Vec<Arc<str>> = config.topics.iter().map(|topic| Arc::from(topic.as_str())).collect();
        let group = self.groups.entry(name.clone()).or_default();
        group.topics.extend(topics.iter().cloned());
        let (owned, releasing) = (BTreeSet::new(), BTreeSet::new());
        group.members.insert(id, Member { topics, config, runtime, owned, releasing, leaving: false });
        self.rebalance(&name);
    }

    /// A second member of the same instance name ends the first.
    fn fence_instance(&mut self, group: &str, instance: &str, by: FeedId) {
        let older = self.groups.get(group).and_then(|group| {
            let same = |member: &Member| member.config.instance.as_deref() == Some(instance);
            group.members.iter().find(|(id, member)| **id != by && same(member)).map(|(id, _)| *id)
        });
        if let Some(older) = older {
            self.evict(group, older);
            let reason = format!("another member took the instance name {instance}");
            self.tell(older, GroupEvent::Fatal(BusError::Fatal(reason)));
            self.tell(older, GroupEvent::Closed);
        }
    }

    /// Begins to balance: revokes what has to move and assigns what is free. Each released partition
    /// brings it here again.
    pub(super) fn rebalance(&mut self, name: &str) {
        let Some(group) = self.groups.get(name) else { return };
        let candidates: Vec<Candidate> = group
            .members
            .iter()
            .filter(|(_, member)| !member.leaving)
            .map(|(id, member)| Candidate {
                id: *id,
                topics: member.topics.clone(),
                keeps: member.owned.difference(&member.releasing).cloned().collect(),
            })
            .collect();
        let topics: Vec<(Arc<str>, i32)> = group
            .topics
            .iter()
            .filter_map(|topic| Some((topic.clone(), self.topics.get(topic)?.count())))
            .collect();
        let taken: BTreeSet<PartitionId> =
            group.members.values().flat_map(|member| member.owned.iter().cloned()).collect();
        let plan = plan(&candidates, &topics, group.turn);
        for candidate in candidates {
            let Some(target) = plan.get(&candidate.id) else { continue };
            self.revoke(name, candidate.id, candidate.keeps.difference(target).cloned().collect());
            self.assign(name, candidate.id, target.difference(&taken).cloned().collect());
        }
    }

    fn assign(&mut self, name: &str, id: FeedId, partitions: Vec<PartitionId>) {
        let Some(group) = self.groups.get_mut(name) else { return };
        let Some(member) = group.members.get_mut(&id) else { return };
        if partitions.is_empty() {
            return;
        }
        member.owned.extend(partitions.iter().cloned());
        let deliver = member.config.deliver;
        let assignments: Vec<Assignment> = partitions
            .into_iter()
            .map(|at| Assignment { committed: group.committed.get(&at).cloned(), at })
            .collect();
        self.tell(id, GroupEvent::Assigned(assignments.clone()));
        if deliver == Deliver::Records {
            for Assignment { at, committed } in assignments {
                self.follow(id, at, committed.map(|committed| committed.offset));
            }
        }
    }

    fn revoke(&mut self, name: &str, id: FeedId, partitions: Vec<PartitionId>) {
        let Some(member) = self.groups.get_mut(name).and_then(|group| group.members.get_mut(&id)) else {
            return;
        };
        if partitions.is_empty() {
            return;
        }
        member.releasing.extend(partitions.iter().cloned());
        let (acknowledge, acknowledged) = oneshot::channel();
        let (within, runtime) = (member.config.revoke_timeout, member.runtime.clone());
        for at in &partitions {
            self.unfollow(id, at);
        }
        self.tell(id, GroupEvent::Revoked(partitions.clone(), RevokeAck(Some(acknowledge))));
        let (home, name) = (self.home.clone(), name.to_owned());
        runtime.spawn(async move {
            let _ = timeout(within, acknowledged).await; // acknowledged, dropped or too late: they go
            if let Some(home) = home.upgrade() {
                home.lock().released(&name, id, &partitions);
            }
        });
    }

    fn released(&mut self, name: &str, id: FeedId, partitions: &[PartitionId]) {
        let Some(group) = self.groups.get_mut(name) else { return };
        let Some(member) = group.members.get_mut(&id) else { return };
        for at in partitions {
            if member.releasing.remove(at) {
                member.owned.remove(at);
            }
        }
        if member.leaving && member.owned.is_empty() {
            group.members.remove(&id);
            self.tell(id, GroupEvent::Closed);
        }
        self.rebalance(name);
    }

    /// Begins to leave: everything is revoked, and once it is released the feed closes.
    pub(super) fn leave(&mut self, name: &str, id: FeedId) {
        let Some(member) = self.groups.get_mut(name).and_then(|group| group.members.get_mut(&id)) else {
            return;
        };
        if std::mem::replace(&mut member.leaving, true) {
            return;
        }
        if member.owned.is_empty() {
            return self.released(name, id, &[]);
        }
        let rest = member.owned.difference(&member.releasing).cloned().collect();
        self.revoke(name, id, rest);
    }

    /// Ends a member at once, acknowledged or not.
    pub(super) fn remove_member(&mut self, name: &str, id: FeedId) {
        if self.evict(name, id).is_some() {
            self.tell(id, GroupEvent::Closed);
            self.rebalance(name);
        }
    }

    /// What happens when the group no longer believes that a member is alive. It comes back by itself
    /// once it has heard of it.
    pub(super) fn expire(&mut self, name: &str, id: FeedId) {
        if let Some(member) = self.evict(name, id) {
            self.exiles.insert(id, (member.config, member.runtime));
            self.tell(id, GroupEvent::Lost(member.owned.into_iter().collect()));
            self.rebalance(name);
        }
    }

    /// The next event of a feed; after [`GroupEvent::Lost`] its member joins again.
    pub(super) fn take(&mut self, id: FeedId) -> Option<GroupEvent> {
        let event = self.feeds.get_mut(&id)?.take(&mut self.topics, id)?;
        if matches!(event, GroupEvent::Lost(_))
            && let Some((config, runtime)) = self.exiles.remove(&id)
        {
            self.enter(id, config, runtime);
        }
        Some(event)
    }

    fn evict(&mut self, name: &str, id: FeedId) -> Option<Member> {
        let member = self.groups.get_mut(name)?.members.remove(&id)?;
        for at in &member.owned {
            self.unfollow(id, at);
        }
        Some(member)
    }

    /// Moves every partition of the group, as a forced rebalance does.
    pub(super) fn shuffle(&mut self, name: &str) {
        let Some(group) = self.groups.get_mut(name) else { return };
        group.turn += 1;
        let all: Vec<(FeedId, Vec<PartitionId>)> = group
            .members
            .iter()
            .map(|(id, member)| (*id, member.owned.difference(&member.releasing).cloned().collect()))
            .collect();
        for (id, partitions) in all {
            self.revoke(name, id, partitions);
        }
    }

    pub(super) fn commit(
        &mut self,
        name: &str,
        id: FeedId,
        offsets: Vec<CommitOffset>,
    ) -> Result<(), CommitError> {
        let fault = self.faults.next_commit(name);
        if let Some(CommitFault::Refused(error)) = fault {
            return Err(error);
        }
        let fenced = |what: String| Err(CommitError::Fenced(what));
        let Some(group) = self.groups.get_mut(name) else { return fenced(format!("group {name} is empty")) };
        let Some(member) = group.members.get(&id) else {
            return fenced(format!("the session in group {name} has expired"));
        };
        if let Some(lost) = offsets.iter().find(|offset| !member.owns(&offset.at)) {
            return fenced(format!("{} is not assigned to this member of {name}", lost.at));
        }
        let limit = self.faults.max_offset_metadata.unwrap_or(METADATA_LIMIT);
        if let Some(long) = offsets.iter().find(|offset| offset.metadata.len() > limit) {
            let length = long.metadata.len();
            return Err(CommitError::MetadataTooLarge(format!("{length} bytes for {}", long.at)));
        }
        for CommitOffset { at, offset, metadata } in offsets {
            group.committed.insert(at, Committed { offset, metadata });
        }
        match fault {
            Some(CommitFault::AnswerLost) => Err(CommitError::Retry("the answer was lost".into())),
            _ => Ok(()),
        }
    }
}
