//! `starling doctor`: is everything there that the swarm needs?
//!
//! Each check is a question to somebody and a plain function that judges the answer. The checks run side by
//! side, each within a time limit; those that need a broker wait for the first of them.

mod broker;
mod endpoints;
mod finding;
mod fleet;
mod groups;
mod model;
mod preflight;
mod registry;
mod rights;
mod topics;

pub use finding::{Detail, Finding, Report, Status};
pub(crate) use fleet::long_enough;

use crate::{
    installation::{Inbox, InboxState, inboxes},
    session::Session,
};
use finding::Remark;
use futures::{FutureExt as _, future::join_all};
use starling_bus::{Bus, BusError, ClusterDescription, Inspector, TopicDescription, TopicSpec};
use starling_protocol::{Topic, TopicNames};
use starling_runtime::{Settings, limits::Needs, topics::topic_specs};
use starling_service::library;
use std::{future::Future, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long models may take that are called: some small calls for each, which a small machine makes one after the other.
const PATIENCE_WITH_MODELS: Duration = Duration::from_secs(180);

/// How long a group may take to settle who reads what before that is a finding.
const SETTLING: Duration = Duration::from_secs(2);

/// What to look at beside what is always looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Ask each model, and try out what its endpoint does of the protocol.
    pub call_model: bool,
}

/// Looks at everything.
pub async fn examine(session: &Session, bus: Result<&dyn Bus, BusError>, options: Options) -> Report {
    let settings = session.settings.as_ref();
    let patience = if options.call_model { PATIENCE_WITH_MODELS } else { PATIENCE };
    let one = |finding: Finding| vec![finding];
    let (on_broker, registry, model, traces, health) = futures::join!(
        on_broker(settings, bus),
        within(PATIENCE, registry::NAME, registry::check(settings).map(one)),
        within(patience, model::NAME, model::check(&settings.model, options.call_model)),
        within(
            PATIENCE,
            endpoints::TRACES,
            endpoints::check_traces(settings.telemetry.otlp_endpoint.as_deref()).map(one)
        ),
        within(
            PATIENCE,
            endpoints::HEALTH,
            endpoints::check_health(settings.http.listen.as_deref()).map(one)
        ),
    );
    let OnBroker { findings, reached } = on_broker;
    let mut checks = vec![check_settings(session)];
    checks.extend(findings);
    checks.extend([registry, model, traces, health].into_iter().flatten());
    Report::new(checks, reached)
}

/// A check that takes too long is a finding too.
async fn within(
    patience: Duration,
    name: &'static str,
    check: impl Future<Output = Vec<Finding>>,
) -> Vec<Finding> {
    timeout(patience, check).await.unwrap_or_else(|_| {
        let found = format!("no answer within {} s", patience.as_secs());
        vec![Finding::of(name, Remark::fault(found, ""))]
    })
}

/// Without valid settings no command starts, so what is left is where they come from.
fn check_settings(session: &Session) -> Finding {
    const NAME: &str = "settings";
    let origins = session.origins();
    let from = if origins.is_empty() { String::new() } else { format!(" and {}", origins.join("; ")) };
    let well = format!("valid, from the built-in defaults{from}");
    let library = library(&session.settings).err();
    let fault = |error: &dyn std::fmt::Display| {
        Remark::fault(error.to_string(), "correct the files in agents.dir or playbooks.dir")
    };
    Finding::from_remarks(NAME, well, library.iter().map(|error| fault(error)).collect())
}

/// The checks that need a broker.
struct OnBroker {
    findings: Vec<Finding>,
    reached: bool,
}

/// Their names, in the order of the report.
const ON_BROKER: [&str; 7] =
    [broker::NAME, topics::NAME, rights::NAME, groups::NAME, fleet::NAME, fleet::VERSIONS, fleet::CLOCK];

async fn on_broker(settings: &Settings, bus: Result<&dyn Bus, BusError>) -> OnBroker {
    let brokers = settings.kafka.brokers.as_str();
    let began = Instant::now();
    let asked = match &bus {
        Ok(bus) => limited(brokers, async { bus.inspector().cluster().await }).await,
        Err(error) => Err(error.clone()),
    };
    let took = began.elapsed();
    let (Ok(bus), Ok(cluster)) = (bus, &asked) else {
        let reached = !matches!(asked, Err(BusError::Unreachable { .. } | BusError::Retry(_)));
        let first = broker::judge(brokers, &asked, &[], took);
        let why = if reached { "the broker refuses" } else { "no broker answers" };
        let rest = ON_BROKER[1..].iter().map(|name| Finding::not_checked(name, why, ""));
        return OnBroker { findings: std::iter::once(first).chain(rest).collect(), reached };
    };
    let (silent, seen) = futures::join!(broker::silent_addresses(cluster), Seen::look(settings, bus));
    let mut findings = vec![broker::judge(brokers, &asked, &silent, took)];
    findings.extend(seen.judge(settings, cluster));
    OnBroker { findings, reached: true }
}

/// An answer of the bus, or that it took too long.
async fn limited<T>(brokers: &str, asked: impl Future<Output = Result<T, BusError>>) -> Result<T, BusError> {
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| {
        let reason = format!("no answer within {} s", PATIENCE.as_secs());
        Err(BusError::Unreachable { brokers: brokers.to_owned(), reason })
    })
}

/// What was seen on the broker.
struct Seen {
    names: TopicNames,
    specs: Vec<TopicSpec>,
    topic_names: Vec<String>,
    topics: Result<Vec<Result<TopicDescription, BusError>>, BusError>,
    inboxes: Vec<InboxState>,
    heard: fleet::Heard,
}

impl Seen {
    async fn look(settings: &Settings, bus: &dyn Bus) -> Self {
        let names = TopicNames::new(settings.topics.prefix.as_str());
        let specs = topic_specs(&settings.topics);
        let topic_names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        let brokers = settings.kafka.brokers.as_str();
        let inspector = bus.inspector();
        let topics_and_inboxes = async {
            let topics = limited(brokers, inspector.topics(&topic_names)).await;
            let asked = inboxes(&settings.topics).into_iter().filter_map(|inbox| {
                let mut there = topics.iter().flatten().flatten();
                let count = there.find(|topic| topic.name == inbox.name)?.partitions.len();
                Some((inbox, i32::try_from(count).unwrap_or(i32::MAX)))
            });
            let asked = asked.map(|(inbox, count)| {
                let inspector = inspector.clone();
                async move { timeout(PATIENCE, settled(inspector.as_ref(), inbox, count)).await }
            });
            let inboxes = join_all(asked).await.into_iter().flatten().collect();
            (topics, inboxes)
        };
        let listening = fleet::listen(bus, &names, fleet::long_enough(settings.fleet.interval));
        let ((topics, inboxes), heard) = futures::join!(topics_and_inboxes, listening);
        Self { names, specs, topic_names, topics, inboxes, heard }
    }

    fn judge(self, settings: &Settings, cluster: &ClusterDescription) -> Vec<Finding> {
        let Self { names, specs, topic_names, topics, inboxes, heard } = self;
        let fleet_topic = names.name(&Topic::Fleet);
        let told = match &topics {
            Ok(told) => told.as_slice(),
            Err(_) => &[],
        };
        let fleet = heard.into_fleet(has_broker_time(told, &fleet_topic));
        let needed = topics::Needed {
            specs: &specs,
            names: &names,
            limits: Needs::of(settings),
            cluster_size: cluster.brokers.len(),
        };
        let of_topics = match &topics {
            Ok(told) => topics::judge(&needed, told),
            Err(error) => Finding::of(topics::NAME, Remark::fault(error.to_string(), "")),
        };
        let tried = rights::tried(told, &topic_names, &inboxes, fleet.error.as_ref(), &fleet_topic);
        let of_groups = if inboxes.is_empty() {
            Finding::not_checked(groups::NAME, "no inbox could be seen", "")
        } else {
            groups::judge(&groups::groups(&inboxes, &fleet, &names))
        };
        vec![
            of_topics,
            rights::judge(&tried, &settings.topics.prefix),
            of_groups,
            fleet::judge(&fleet, &names),
            fleet::judge_versions(&fleet, env!("CARGO_PKG_VERSION")),
            fleet::judge_clock(&fleet, settings.fleet.forget_after),
        ]
    }
}

/// What is known of an inbox. Partitions move one after the other, so one that nobody reads may have a reader in
/// a moment.
async fn settled(inspector: &dyn Inspector, inbox: Inbox, partitions: i32) -> InboxState {
    let seen = InboxState::ask(inspector, inbox.clone(), partitions).await;
    let on_its_way = |(members, unread): (usize, Vec<i32>)| members > 0 && !unread.is_empty();
    if !seen.members().is_some_and(on_its_way) {
        return seen;
    }
    sleep(SETTLING).await;
    InboxState::ask(inspector, inbox, partitions).await
}

/// Whether records of a topic have the broker's time, not the sender's.
fn has_broker_time(topics: &[Result<TopicDescription, BusError>], name: &str) -> bool {
    topics.iter().flatten().find(|topic| topic.name == name).is_some_and(|topic| {
        let kind = topic.settings.as_ref().ok().and_then(|settings| settings.get("message.timestamp.type"));
        kind.is_some_and(|kind| kind == "LogAppendTime")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::session::Log;
    use starling_bus::{MemoryBus, MemoryOptions};
    use starling_runtime::process::CommonFlags;

    fn session() -> Session {
        let set = [("model.offline", "true"), ("fleet.interval", "50ms")]
            .map(|(path, value)| (path.to_owned(), value.to_owned()))
            .to_vec();
        Session::open(&CommonFlags { set, ..CommonFlags::default() }, Log::Silent).unwrap()
    }

    #[tokio::test]
    async fn all_checks_are_in_the_report_in_their_order_with_a_broker_and_without() {
        let session = session();
        let bus = MemoryBus::new(MemoryOptions::default());
        let nobody = BusError::Unreachable { brokers: "b:1".into(), reason: "refused".into() };
        let with: Result<&dyn Bus, BusError> = Ok(bus.as_ref());
        for (bus, reached) in [(with, true), (Err(nobody), false)] {
            let report = examine(&session, bus, Options::default()).await;
            let names: Vec<&str> = report.checks.iter().map(|check| check.name).collect();
            let expected = [
                "settings", "broker", "topics", "rights", "groups", "fleet", "versions", "clock", "registry",
                "model", "traces", "health",
            ];
            assert_eq!(names, expected);
            assert_eq!((report.reached, report.status), (reached, Status::Fault), "{report:#?}");
        }
    }

    #[tokio::test]
    async fn topics_in_memory_are_as_needed() {
        let session = session();
        let bus = MemoryBus::new(MemoryOptions::default());
        bus.create_topics(&topic_specs(&session.settings.topics)).await.unwrap();
        let seen = Seen::look(&session.settings, bus.as_ref()).await;
        let cluster = bus.inspector().cluster().await.unwrap();
        let findings = seen.judge(&session.settings, &cluster);
        assert_eq!(findings[0].status, Status::Ok, "{findings:#?}");
        assert_eq!(findings[1].status, Status::Ok, "{findings:#?}");
        assert_eq!(findings[2].status, Status::Warning, "nobody reads: {findings:#?}");
    }
}
