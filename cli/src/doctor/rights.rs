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
    /// It said nothing. That is how clients meet brokers that may not tell them of a group.
    Silence,
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
        Some(BusError::Unreachable { .. }) => Answer::Silence,
        // No matter of rights, and other checks tell it.
        Some(_) => Answer::Unknown,
    };
    Tried { what, answer }
}

/// `prefix` is that of the installation's topics.
pub(super) fn judge(tried: &[Tried], prefix: &str) -> Finding {
    let of = |kind: fn(&Answer) -> bool| -> Vec<&str> {
        tried.iter().filter(|tried| kind(&tried.answer)).map(|tried| tried.what.as_str()).collect()
    };
    let advice = format!("grant this user what `scripts/kafka-rights show operator --prefix {prefix}` lists");
    let mut remarks = Vec::new();
    let reason = tried.iter().find_map(|tried| match &tried.answer {
        Answer::Refused(reason) => Some(reason),
        _ => None,
    });
    if let Some(reason) = reason {
        let refused = of(|answer| matches!(answer, Answer::Refused(_)));
        // The reasons are as alike as the questions.
        remarks.push(Remark::fault(format!("may not {} ({reason})", refused.join(", ")), advice.as_str()));
    }
    let silent = of(|answer| matches!(answer, Answer::Silence));
    if !silent.is_empty() {
        let found = format!("no answer when asked to {}", silent.join(", "));
        remarks.push(Remark::fault(found, advice.as_str()));
    }
    let unknown = of(|answer| matches!(answer, Answer::Unknown));
    if !unknown.is_empty() {
        remarks.push(Remark::warning(format!("could not be tried: {}", unknown.join(", ")), ""));
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
    fn refusals_and_silence_are_a_matter_of_rights() {
        let refused = BusError::Refused("denied".into());
        let silence = BusError::Unreachable { brokers: "b".into(), reason: "timed out".into() };
        let missing = BusError::NoSuchTopic { topic: "b".into() };
        for (errors, status, found) in [
            (vec![None, None], Status::Ok, "may be seen"),
            (vec![None, Some(&missing), Some(&missing)], Status::Warning, "could not be tried: ask 1, ask 2"),
            (vec![None, Some(&refused), Some(&refused)], Status::Fault, "may not ask 1, ask 2 (denied)"),
            (vec![Some(&silence), None], Status::Fault, "no answer when asked to ask 0"),
        ] {
            let tried: Vec<Tried> =
                errors.iter().enumerate().map(|(n, error)| one(format!("ask {n}"), *error)).collect();
            let finding = judge(&tried, "s");
            assert_eq!(finding.status, status, "{finding:?}");
            assert!(finding.found.contains(found), "{finding:?}");
            let advises = finding.advice.contains("scripts/kafka-rights show operator --prefix s");
            assert_eq!(advises, status == Status::Fault, "{finding:?}");
        }
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
