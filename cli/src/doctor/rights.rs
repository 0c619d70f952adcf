//! Is everything allowed that can be tried without an effect?

use super::finding::{Finding, Remark};
use crate::installation::InboxState;
use starling_bus::{BusError, TopicDescription};

pub(super) const NAME: &str = "rights";

/// Something that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    /// Such as `describe group starling.worker`.
    pub(super) what: String,
    /// What came of it.
    pub(super) answer: Answer,
}

/// What the broker said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It did it.
    Allowed,
    /// It does not want to, for this reason.
    Refused(String),
    /// Something else was in the way.
    Unknown,
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
            all.push(Tried { what, answer: Answer::Refused(reason.clone()) });
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
    let answer = match error {
        None => Answer::Allowed,
        Some(BusError::Refused(reason)) => Answer::Refused(reason.clone()),
        // No matter of rights, and other checks tell it.
        Some(_) => Answer::Unknown,
    };
    Tried { what, answer }
}

pub(super) fn judge(tried: &[Tried]) -> Finding {
    let mut remarks = Vec::new();
    let mut untried = Vec::new();
    for Tried { what, answer } in tried {
        match answer {
            Answer::Allowed => {}
            Answer::Refused(reason) => remarks.push(Remark::fault(
                format!("may not {what}: {reason}"),
                format!("grant this user the right to {what}"),
            )),
            Answer::Unknown => untried.push(what),
        }
    }
    if let Some(first) = untried.first() {
        let more = untried.len() - 1;
        let others = if more == 0 { String::new() } else { format!(", and {more} more") };
        remarks.push(Remark::warning(format!("could not be tried: {first}{others}"), ""));
    }
    let well =
        "topics, their configs, groups and commits may be seen and the fleet read; writing is not tried";
    Finding::from_remarks(NAME, well, remarks)
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
        assert_eq!(judge(std::slice::from_ref(&allowed)).status, Status::Ok);
        let finding = judge(&[allowed.clone(), missing.clone(), missing.clone()]);
        assert_eq!(finding.status, Status::Warning);
        assert_eq!(finding.found, "could not be tried: describe topic b, and 1 more");
        let finding = judge(&[allowed, missing, denied]);
        assert_eq!(finding.status, Status::Fault);
        assert_eq!(finding.found, "may not describe group g: denied; could not be tried: describe topic b");
        assert_eq!(finding.advice, "grant this user the right to describe group g");
    }

    #[test]
    fn everything_that_was_tried_is_in_it() {
        let names = ["t.a".to_owned(), "t.b".to_owned()];
        let hidden = TopicDescription { name: "t.a".into(), partitions: vec![], settings: Err("no".into()) };
        let topics = [Ok(hidden), Err(BusError::Refused("denied".into()))];
        let refused: Vec<String> = tried(&topics, &names, &[], None, "t.fleet")
            .into_iter()
            .filter(|tried| matches!(tried.answer, Answer::Refused(_)))
            .map(|tried| tried.what)
            .collect();
        assert_eq!(refused, ["describe the configs of topic t.a", "describe topic t.b"]);
    }
}
