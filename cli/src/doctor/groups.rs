//! Is every inbox read, and how far?

use super::{
    finding::{Finding, Remark, Status},
    fleet::Fleet,
};
use crate::installation::{InboxState, ranges, role_of, unread};
use starling_bus::BusError;
use starling_protocol::TopicNames;
use std::collections::BTreeSet;

pub(super) const NAME: &str = "groups";

/// What is known of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) role: String,
    pub(super) topic: String,
    pub(super) members: usize,
    pub(super) partitions: usize,
    /// Partitions that nobody reads.
    pub(super) unread: Vec<i32>,
    /// Whether the group is settling who reads what.
    pub(super) settling: bool,
    pub(super) lag: Option<i64>,
    /// Why it could not be asked about.
    pub(super) trouble: Option<String>,
}

/// Who reads an inbox, as the broker says; where it does not, as the fleet says.
pub(super) fn groups(states: &[InboxState], fleet: &Fleet, names: &TopicNames) -> Vec<Group> {
    states.iter().map(|state| group(state, fleet, names)).collect()
}

fn group(state: &InboxState, fleet: &Fleet, names: &TopicNames) -> Group {
    let (members, unread, settling) = match (state.members(), &state.group) {
        (Some((members, unread)), Ok(Some(group))) => (members, unread, group.state.contains("Rebalance")),
        _ => {
            let of_role: Vec<_> =
                fleet.living.iter().filter(|beat| role_of(beat, names) == state.inbox.role).collect();
            let read: BTreeSet<i32> =
                of_role.iter().flat_map(|beat| beat.partitions.iter().copied()).collect();
            (of_role.len(), unread(&read, state.partitions), false)
        }
    };
    let trouble = [state.group.as_ref().err(), state.committed.as_ref().err(), state.marks.as_ref().err()];
    Group {
        role: state.inbox.role.clone(),
        topic: state.inbox.name.clone(),
        members,
        partitions: usize::try_from(state.partitions).unwrap_or(0),
        unread,
        settling,
        lag: state.lag(),
        trouble: trouble.into_iter().flatten().next().map(|error| match error {
            // The broker answers other questions, so it is there.
            BusError::Unreachable { reason, .. } => format!("no answer ({reason})"),
            other => other.to_string(),
        }),
    }
}

pub(super) fn judge(groups: &[Group]) -> Finding {
    let mut remarks = Vec::new();
    let mut said = Vec::new();
    for group in groups {
        let lag = group.lag.map_or_else(|| "lag -".to_owned(), |lag| format!("lag {lag}"));
        said.push(format!("{} {} reading, {lag}", group.role, group.members));
        if let Some(trouble) = &group.trouble {
            let found = format!("{}: {trouble}", group.role);
            remarks.push(Remark::warning(found, ""));
            continue;
        }
        remarks.extend(remark(group, &lag));
    }
    Finding::from_remarks(NAME, said.join("; "), remarks)
}

fn remark(group: &Group, lag: &str) -> Option<Remark> {
    let Group { role, topic, .. } = group;
    let start = match role.as_str() {
        "intake" | "coordinator" | "planner" => "start starling-planner".to_owned(),
        "critic" => "start starling-critic".to_owned(),
        "worker" => "start starling-worker".to_owned(),
        // A pool is not read by the service as it is started by default.
        other => format!("start a service that reads {other}, or take its pool out of topics.pools"),
    };
    if group.members == 0 {
        // An installation that is not used now has nobody, which is no fault.
        let status = if group.lag.is_some_and(|lag| lag > 0) { Status::Fault } else { Status::Warning };
        return Some(Remark { status, found: format!("nobody reads {topic}, {lag}"), advice: start });
    }
    if group.unread.is_empty() {
        return idle(group);
    }
    let found = format!("nobody reads partitions {} of {topic}, {lag}", ranges(&group.unread));
    Some(if group.settling {
        Remark::warning(format!("{found}; the group is settling who does"), "look again in a moment")
    } else {
        Remark::fault(found, format!("restart the members of {role}; {start} if too few are running"))
    })
}

/// A partition has one reader, so members beyond their number do nothing.
fn idle(group: &Group) -> Option<Remark> {
    let Group { role, topic, members, partitions, .. } = group;
    let idle = members.checked_sub(*partitions).filter(|idle| *idle > 0 && *partitions > 0)?;
    let found = format!(
        "{topic} has {partitions} partitions and {members} members of {role} read it: {idle} of them have nothing to do"
    );
    // Partitions of the coordinator follow from the ids of the intents.
    let advice = if role == "coordinator" {
        format!("start fewer than {members} planners, or more of them only for the sake of safety")
    } else {
        format!("start fewer members of {role}, or give {topic} more partitions: docs/deploy.md tells how")
    };
    Some(Remark::warning(found, advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(members: usize, unread: Vec<i32>, settling: bool, lag: Option<i64>) -> Group {
        let (role, topic) = ("worker".to_owned(), "s.worker".to_owned());
        Group { role, topic, members, partitions: 3, unread, settling, lag, trouble: None }
    }

    #[test]
    fn groups_are_judged_by_who_reads_and_what_waits() {
        for (group, status, found, advice) in [
            (group(2, vec![], false, Some(7)), Status::Ok, "worker 2 reading, lag 7", ""),
            (group(2, vec![], false, None), Status::Ok, "worker 2 reading, lag -", ""),
            (group(3, vec![], false, None), Status::Ok, "worker 3 reading", ""),
            (
                group(5, vec![], false, Some(0)),
                Status::Warning,
                "s.worker has 3 partitions and 5 members of worker read it: 2 of them have nothing to do",
                "more partitions",
            ),
            (
                group(0, vec![0, 1], false, Some(0)),
                Status::Warning,
                "nobody reads s.worker, lag 0",
                "starling-worker",
            ),
            (
                group(0, vec![0, 1], false, Some(3)),
                Status::Fault,
                "nobody reads s.worker, lag 3",
                "starling-worker",
            ),
            (
                group(1, vec![1, 2], false, Some(0)),
                Status::Fault,
                "nobody reads partitions 1-2 of s.worker",
                "restart",
            ),
            (group(1, vec![1, 2], true, Some(0)), Status::Warning, "settling", "look again"),
            (
                Group { trouble: Some("denied".into()), ..group(1, vec![], false, None) },
                Status::Warning,
                "worker: denied",
                "",
            ),
        ] {
            let finding = judge(&[group]);
            assert_eq!(finding.status, status, "{finding:?}");
            assert!(finding.found.contains(found), "{finding:?}");
            assert!(finding.advice.contains(advice), "{finding:?}");
        }
    }
}
