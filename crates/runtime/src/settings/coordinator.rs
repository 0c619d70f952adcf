//! `[coordinator]`: what an operator can set about decisions.

use super::reader::Reader;
use starling_engine::coordinator::CoordinatorSettings;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Reads the section. Partitions and agents are not part of it: the service that knows them fills them in.
pub(super) fn read(r: &mut Reader) -> CoordinatorSettings {
    let defaults = CoordinatorSettings::default();
    let settings = CoordinatorSettings {
        default_deadline: r.duration("coordinator.default_deadline", SECOND..=365 * DAY),
        max_deadline: r.duration("coordinator.max_deadline", SECOND..=365 * DAY),
        dedup_horizon: r.duration("coordinator.dedup_horizon", SECOND..=365 * DAY),
        max_remembered: r.integer("coordinator.max_remembered", 8..=10_000_000),
        max_cancelled_per_tenant: r.integer("coordinator.max_cancelled_per_tenant", 0..=1_000_000),
        max_live: r.integer("coordinator.max_live", 1..=1_000_000),
        max_waiting: r.integer("coordinator.max_waiting", 8..=10_000_000),
        max_timers_per_tick: r.integer("coordinator.max_timers_per_tick", 1..=1_000_000),
        intent_window: r.integer("coordinator.intent_window", 1..=1_000_000),
        window_factor: r.number("coordinator.window_factor", 0.1..=1_000.0),
        min_window: r.integer("coordinator.min_window", 1..=1_000_000),
        progress_interval: r
            .duration("coordinator.progress_interval", Duration::from_millis(1)..=Duration::from_secs(60)),
        max_tasks: r.integer("coordinator.max_tasks", 1..=100),
        max_depth: r.integer("coordinator.max_depth", 1..=100),
        max_instruction_bytes: r.size("coordinator.max_instruction", 100..=1 << 20),
        max_title_bytes: r.size("coordinator.max_title", 10..=64 << 10),
        max_key_bytes: r.size("coordinator.max_key", 1..=64 << 10),
        max_plan_attempts: r.integer("coordinator.max_plan_attempts", 1..=100),
        plan_timeout: r.duration("coordinator.plan_timeout", MS * 100..=DAY),
        max_plan_silences: r.integer("coordinator.max_plan_silences", 0..=100),
        max_runs: r.integer("coordinator.max_runs", 1..=1_000),
        max_attempts: r.integer("coordinator.max_attempts", 1..=100),
        attempts_limit: r.integer("coordinator.attempts_limit", 1..=100),
        min_score: r.number("coordinator.min_score", 0.0..=1.0),
        critic_rate: r.number("critic.rate", 0.0..=1.0),
        degrade_after: Some(r.duration("coordinator.degrade_after", Duration::ZERO..=365 * DAY))
            .filter(|after| !after.is_zero()),
        plateau_delta: r.number("coordinator.plateau_delta", 0.0..=1.0),
        attempt_timeout: r.duration("coordinator.attempt_timeout", MS * 100..=DAY),
        attempt_grace: r.duration("coordinator.attempt_grace", Duration::ZERO..=DAY),
        retry_backoff: r.duration("coordinator.retry_backoff", MS..=DAY),
        max_retry_backoff: r.duration("coordinator.max_retry_backoff", MS..=DAY),
        max_hops: r.integer("coordinator.max_hops", 1..=1_000_000),
        max_notes: r.integer("coordinator.max_notes", 1..=100_000),
        max_calls: Some(r.integer("coordinator.max_calls", 0..=i64::MAX)).filter(|most| *most > 0),
        max_tokens: Some(r.integer("coordinator.max_tokens", 0..=i64::MAX)).filter(|most| *most > 0),
        max_cost_usd: Some(r.number("coordinator.max_cost_usd", 0.0..=1e12)).filter(|most| *most > 0.0),
        max_unsettled: r.integer("coordinator.max_unsettled", 0..=10_000),
        tenants: super::tenants::read(r),
        max_tenants: r.integer("coordinator.max_tenants", 1..=1_000_000),
        lease_time: r.duration("coordinator.lease_time", MS * 10..=DAY),
        lease_retry: r.duration("coordinator.lease_retry", MS * 10..=DAY),
        ..defaults
    };
    let mut at_least = |path: &str, than: &str, holds: bool| {
        if !holds {
            r.complain(path, &format!("at least {than}"), "less", &format!("together with {than}"));
        }
    };
    let longest = settings.max_deadline >= settings.default_deadline;
    at_least("coordinator.max_deadline", "coordinator.default_deadline", longest);
    let most = settings.attempts_limit >= settings.max_attempts;
    at_least("coordinator.attempts_limit", "coordinator.max_attempts", most);
    settings
}
