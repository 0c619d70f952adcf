//! What the partitions of a stateful processor hold, for `/metrics`: read when somebody asks.

use super::report::{PartitionPhase, PartitionStatus};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, metrics::MetricType};
use starling_engine::coordinator::budget::plus;
use starling_protocol::state::Amount;
use std::{collections::BTreeMap, fmt};
use tokio::sync::watch;

/// Sums up the partitions that this process owns.
#[derive(Debug)]
pub(super) struct LoadCollector {
    pub(super) owned: watch::Receiver<BTreeMap<i32, PartitionStatus>>,
    /// How many partitions there are, whoever owns them.
    pub(super) of: i32,
}

impl Collector for LoadCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let owned = self.owned.borrow();
        let sum = |of: fn(&PartitionStatus) -> usize| owned.values().map(of).sum::<usize>();
        let mut family = |name: &str, help: &str, label: &str, values: &[(&str, usize)]| {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (value, number) in values {
                metric.encode_family(&[(label, *value)])?.encode_gauge(&gauge(*number))?;
            }
            Ok(())
        };
        family(
            "intents",
            "Intents: worked on, waiting for that, remembered though they ended",
            "state",
            &[
                ("live", sum(|status| status.load.live)),
                ("waiting", sum(|status| status.load.waiting)),
                ("remembered", sum(|status| status.load.remembered)),
            ],
        )?;
        family(
            "tasks",
            "Tasks: with workers and critics, and ready to go there",
            "state",
            &[
                ("outstanding", sum(|status| status.load.outstanding)),
                ("ready", sum(|status| status.load.ready)),
            ],
        )?;
        let in_phase = |name: &str| owned.values().filter(|status| phase(&status.phase) == name).count();
        let phases = PHASES.map(|name| (name, in_phase(name)));
        family("state_partitions", "Partitions owned, by phase", "phase", &phases)?;

        let tenants = owned.values().flat_map(|status| &status.spending);
        let mut spent: BTreeMap<&str, Amount> = BTreeMap::new();
        for (tenant, amount) in tenants {
            let sum = spent.entry(tenant).or_default();
            *sum = plus(*sum, *amount);
        }
        #[allow(clippy::cast_precision_loss)] // far below 2^52
        for (name, help, of) in [
            ("tenant_calls", "Calls", (|spent| spent.calls as f64) as fn(&Amount) -> f64),
            ("tenant_tokens", "Tokens", |spent| spent.tokens as f64),
            ("tenant_cost_usd", "US dollars", |spent| spent.cost_usd),
        ] {
            let help = format!("{help} that tenants with a budget have spent in its present window");
            let mut metric = encoder.encode_descriptor(name, &help, None, MetricType::Gauge)?;
            for (tenant, amount) in &spent {
                metric.encode_family(&[("tenant", *tenant)])?.encode_gauge(&of(amount))?;
            }
        }

        let mut single = |name: &str, help: &str, number: usize| {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&gauge(number))
        };
        let all = usize::try_from(self.of).unwrap_or(0);
        single("coordinator_partitions", "Partitions that there are, whoever owns them", all)?;
        let effects = sum(|status| status.effects_outstanding);
        single("effects_outstanding", "Effects of decisions that are not done", effects)?;
        let live = owned.values().filter(|status| status.phase == PartitionPhase::Live);
        match live.map(|status| status.load.room).min() {
            Some(room) => single("intents_room", "Room for intents in the fullest partition", room),
            None => Ok(()), // nobody knows
        }
    }
}

const PHASES: [&str; 4] = ["replaying", "catching_up", "live", "backing_off"];

fn phase(phase: &PartitionPhase) -> &'static str {
    match phase {
        PartitionPhase::Replaying => "replaying",
        PartitionPhase::CatchingUp => "catching_up",
        PartitionPhase::Live => "live",
        PartitionPhase::BackingOff { .. } => "backing_off",
    }
}

fn gauge(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
