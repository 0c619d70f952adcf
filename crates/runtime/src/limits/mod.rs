//! Limits of the topics that the promises rest on.
//!
//! [`judge`] is the one place that says what is wrong with them and how bad it is. A service asks at its start
//! ([`check`]) and refuses to run where a promise would be broken; `starling doctor` shows everything.

mod judge;

pub use judge::{Limit, Needs, Weight, judge};

use crate::{settings::Settings, topics::topic_specs};
use starling_bus::{BusError, Inspector, TopicDescription};
use std::fmt;

/// Questions that may go unanswered before the start goes on without the answer.
const TRIES: usize = 2;

/// The topics are so that a promise would be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct LimitsError {
    /// At least one.
    pub broken: Vec<Limit>,
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the topics would break what is promised, for {} reason(s):", self.broken.len())?;
        self.broken.iter().try_for_each(|limit| writeln!(f, "  {}\n    -> {}", limit.found, limit.advice))?;
        write!(f, "`starling doctor` looks at everything at once.")
    }
}

/// Looks at the topics of the installation. What is only not as good as it could be is logged; so is that the
/// topics' settings may not be seen, which prevents nothing: not every user has the right DescribeConfigs.
///
/// # Errors
/// A promise would be broken; every reason is named.
pub async fn check(settings: &Settings, inspector: &dyn Inspector) -> Result<(), LimitsError> {
    let names: Vec<String> = topic_specs(&settings.topics).into_iter().map(|spec| spec.name).collect();
    let told = ask(inspector, &names).await;
    inspector.rest();
    let told = match told {
        Ok(told) => told,
        Err(error) => {
            tracing::warn!(%error, "the topics' settings cannot be seen: whether they keep what is promised is not checked");
            return Ok(());
        }
    };
    warn_of_hidden(&told);
    let (broken, weak): (Vec<Limit>, Vec<Limit>) =
        judge(&Needs::of(settings), &told).into_iter().partition(|limit| limit.weight == Weight::Breaks);
    for limit in weak {
        tracing::warn!(found = limit.found, advice = limit.advice, "a topic is not as the settings need it");
    }
    if broken.is_empty() { Ok(()) } else { Err(LimitsError { broken }) }
}

async fn ask(
    inspector: &dyn Inspector,
    names: &[String],
) -> Result<Vec<Result<TopicDescription, BusError>>, BusError> {
    let mut tries = 1;
    loop {
        match inspector.topics(names).await {
            Err(BusError::Unreachable { .. } | BusError::Retry(_)) if tries < TRIES => tries += 1,
            told => return told,
        }
    }
}

/// Says once for all topics what cannot be checked.
fn warn_of_hidden(told: &[Result<TopicDescription, BusError>]) {
    let hidden = |topic: &TopicDescription| Some((topic.name.clone(), topic.settings.clone().err()?));
    let hidden: Vec<(String, String)> = told.iter().flatten().filter_map(hidden).collect();
    if let Some((_, why)) = hidden.first() {
        let topics: Vec<&str> = hidden.iter().map(|(name, _)| name.as_str()).collect();
        tracing::warn!(
            topics = topics.join(", "),
            why,
            "the topics' settings may not be seen: whether they keep what is promised is not checked"
        );
    }
}
