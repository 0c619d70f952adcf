//! Does the schema registry answer, and does it have what this version writes?

use super::finding::{Finding, Remark};
use starling_protocol::TopicNames;
use starling_runtime::{
    Schemas, Settings,
    registry::{RegistryError, enveloped_topics},
    settings::{RegistryMode, RegistrySettings},
};
use std::time::Duration;

pub(super) const NAME: &str = "registry";

/// How long to look for it.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) async fn check(settings: &Settings) -> Finding {
    let Some(url) = &settings.registry.url else {
        return Finding::ok(NAME, "none: registry.url is empty");
    };
    let names = TopicNames::new(settings.topics.prefix.as_str());
    let topics = enveloped_topics(&names, &settings.topics.pools);
    // It is looked at, never written to, whatever services may do.
    let looking = RegistrySettings {
        mode: RegistryMode::Lookup,
        connect_timeout: settings.registry.connect_timeout.min(PATIENCE),
        ..settings.registry.clone()
    };
    let answer = Schemas::prepare(&looking, &topics).await.map(drop);
    judge(url.as_str(), settings.registry.mode, topics.len(), &answer)
}

pub(super) fn judge(
    url: &str,
    mode: RegistryMode,
    subjects: usize,
    answer: &Result<(), RegistryError>,
) -> Finding {
    let url = url.trim_end_matches('/');
    let fault = |found: String, advice: &str| Finding::of(NAME, Remark::fault(found, advice));
    match answer {
        Ok(()) => {
            Finding::ok(NAME, format!("{url} has the schema of this version under all {subjects} subjects"))
        }
        Err(RegistryError::Missing { subjects: missing, .. }) if mode == RegistryMode::Register => {
            let count = missing.len();
            Finding::ok(
                NAME,
                format!("{url} answers; {count} of {subjects} subjects are registered by the first service"),
            )
        }
        Err(RegistryError::Missing { subjects: missing, .. }) => {
            let advice = "starling topics create --set registry.mode=register";
            fault(
                format!("{url} does not have the schema of this version under {}", missing.join(", ")),
                advice,
            )
        }
        Err(RegistryError::Unreachable { reason, .. }) => {
            let advice =
                "start it (`scripts/registry start`), or correct registry.url: services do not start without";
            fault(format!("{url} does not answer: {reason}"), advice)
        }
        Err(RegistryError::Refused { said, .. }) => {
            let advice = "correct registry.url, registry.user and registry.password";
            fault(format!("{url} refuses: {said}"), advice)
        }
        Err(error @ (RegistryError::Incompatible { .. } | RegistryError::Client(_))) => {
            fault(error.to_string(), "correct the settings of [registry]")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Status;

    #[test]
    fn a_registry_is_judged_by_what_it_says_and_by_who_may_register() {
        let url = || "http://r".to_owned();
        let missing = || Err(RegistryError::Missing { url: url(), subjects: vec!["s.worker-value".into()] });
        let refused = RegistryError::Refused {
            url: url(),
            subject: "s.worker-value".into(),
            said: "who are you".into(),
        };
        let silent = RegistryError::Unreachable { url: url(), reason: "refused".into() };
        for (mode, answer, status, found) in [
            (
                RegistryMode::Register,
                Ok(()),
                Status::Ok,
                "http://r has the schema of this version under all 9",
            ),
            (RegistryMode::Register, missing(), Status::Ok, "1 of 9 subjects are registered by the first"),
            (RegistryMode::Lookup, missing(), Status::Fault, "under s.worker-value"),
            (RegistryMode::Lookup, Err(refused), Status::Fault, "refuses: who are you"),
            (RegistryMode::Register, Err(silent), Status::Fault, "does not answer: refused"),
        ] {
            let finding = judge("http://r/", mode, 9, &answer);
            assert_eq!(finding.status, status, "{finding:?}");
            assert!(finding.found.contains(found), "{finding:?}");
            assert_eq!(finding.advice.is_empty(), status == Status::Ok, "{finding:?}");
        }
    }
}
