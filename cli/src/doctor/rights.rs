//! Is everything allowed that can be tried without an effect?

use super::finding::{Finding, Remark};
use crate::installation::InboxState;
use starling_bus::{BusError, TopicDescription};

pub(super) const NAME: &str = "rights";

/// Something that was tried, and whether the broker let it be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    /// Such as `describe group starling.worker`.
    pub(super) what: String,
    /// Why not.
    pub(super) refused: Option<String>,
}

/// What the other checks have tried.
pub(super) fn tried(
    topics: &[Result<TopicDescription, BusError>],
    names: &[String],
    inboxes: &[InboxState],
    fleet: Option<&BusError>,
    fleet_topic: &str,
) -> Vec<Tried> {
    let mut all = Vec::new();
    for (name, topic) in names.iter().zip(topics) {
        all.push(one(format!("describe topic {name}"), topic.as_ref().err()));
        if let Ok(TopicDescription { settings: Err(reason), .. }) = topic {
            let what = format!("describe the configs of topic {name}");
            all.push(Tried { what, refused: Some(reason.clone()) });
        }
    }
    for state in inboxes {
        let group = &state.inbox.group;
        all.push(one(format!("describe group {group}"), state.group.as_ref().err()));
        all.push(one(format!("see what group {group} has committed"), state.committed.as_ref().err()));
    }
    all.push(one(format!("read topic {fleet_topic}"), fleet));
    all
}

fn one(what: String, error: Option<&BusError>) -> Tried {
    // Other errors are no matter of rights, and other checks tell them.
    let refused = match error {
        Some(BusError::Refused(reason)) => Some(reason.clone()),
        _ => None,
    };
    Tried { what, refused }
}

pub(super) fn judge(tried: &[Tried]) -> Finding {
    let refused = tried.iter().filter_map(|tried| Some((&tried.what, tried.refused.as_ref()?)));
    let remarks = refused.map(|(what, reason)| {
        Remark::fault(format!("may not {what}: {reason}"), format!("grant this user the right to {what}"))
    });
    let well =
        "topics, their configs, groups and commits may be seen and the fleet read; writing is not tried";
    Finding::from_remarks(NAME, well, remarks.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Status;

    #[test]
    fn only_refusals_are_a_matter_of_rights() {
        let allowed = one("describe topic a".into(), None);
        let missing = one("describe topic b".into(), Some(&BusError::NoSuchTopic { topic: "b".into() }));
        let denied = one("describe group g".into(), Some(&BusError::Refused("denied".into())));
        assert_eq!(judge(&[allowed.clone(), missing.clone()]).status, Status::Ok);
        let finding = judge(&[allowed, missing, denied]);
        assert_eq!(finding.status, Status::Fault);
        assert_eq!(finding.found, "may not describe group g: denied");
        assert_eq!(finding.advice, "grant this user the right to describe group g");
    }

    #[test]
    fn everything_that_was_tried_is_in_it() {
        let names = ["t.a".to_owned(), "t.b".to_owned()];
        let hidden = TopicDescription { name: "t.a".into(), partitions: vec![], settings: Err("no".into()) };
        let topics = [Ok(hidden), Err(BusError::Refused("denied".into()))];
        let refused: Vec<String> = tried(&topics, &names, &[], None, "t.fleet")
            .into_iter()
            .filter(|tried| tried.refused.is_some())
            .map(|tried| tried.what)
            .collect();
        assert_eq!(refused, ["describe the configs of topic t.a", "describe topic t.b"]);
    }
}
