//! All rows, in the order in which they run.

mod brokers;
mod coordinators;
mod handlers;
mod intents;
mod kills;
mod members;
mod records;
mod soak;
mod stops;

use crate::row::Row;
use anyhow::Result;
use bytes::Bytes;
use starling_bus::OutRecord;
use starling_e2e::{Swarm, brokers, until};
use starling_protocol::Topic;
use std::time::Duration;

/// How long what takes no time on an idle machine may take on a busy one.
pub(crate) const SOON: Duration = Duration::from_secs(90);

/// The suite.
pub(crate) static ALL: &[Row] = &[
    Row::new("worker killed in mid-call", "I16 I23", |world| Box::pin(kills::worker_in_mid_call(world)))
        .quick(),
    Row::new("worker killed between produce and commit", "I16 I17 I23", |world| {
        Box::pin(kills::worker_between_produce_and_commit(world))
    })
    .quick(),
    Row::new("critic killed between produce and commit", "I16 I17", |world| {
        Box::pin(kills::critic_between_produce_and_commit(world))
    }),
    Row::new("worker killed at the limit of its commits", "I16 I43", |world| {
        Box::pin(kills::worker_at_the_limit_of_metadata(world))
    }),
    Row::new("planner killed in mid-stream", "I1 I24", |world| Box::pin(kills::planner_in_mid_stream(world)))
        .quick(),
    Row::new("coordinator killed between append and effects", "I11 I24", |world| {
        Box::pin(coordinators::between_append_and_effects(world))
    })
    .quick(),
    Row::new("coordinator killed between effects and their mark", "I11 I24", |world| {
        Box::pin(coordinators::between_effects_and_mark(world))
    }),
    Row::new("coordinator killed in mid-replay", "I5 I13 I24", |world| {
        Box::pin(coordinators::in_mid_replay(world))
    }),
    Row::new("coordinator killed in mid-snapshot", "I13 I24", |world| {
        Box::pin(coordinators::in_mid_snapshot(world))
    }),
    Row::new("worker stopped beyond its session, then continued", "I18 I23", |world| {
        Box::pin(stops::worker_beyond_its_session(world))
    })
    .quick(),
    Row::new("coordinator stopped beyond its session, then continued", "I10 I25", |world| {
        Box::pin(stops::coordinator_beyond_its_session(world))
    }),
    Row::new("broker killed and restarted", "I10 I11 I17", |world| Box::pin(brokers::killed(world))),
    Row::new("broker unreachable for 60 s, both ways", "I10 I17 I18", |world| {
        Box::pin(brokers::unreachable_both_ways(world))
    }),
    Row::new("broker unreachable for 60 s, towards it", "I10 I17 I18", |world| {
        Box::pin(brokers::unreachable_there(world))
    }),
    Row::new("broker unreachable for 60 s, from it", "I10 I12 I18", |world| {
        Box::pin(brokers::unreachable_back(world))
    }),
    Row::new("one of three brokers killed", "I10 I17", |world| Box::pin(brokers::one_of_three_killed(world))),
    Row::new("a tenth of the workers killed every second", "I16 I18 I23", |world| {
        Box::pin(members::a_tenth_killed_every_second(world))
    })
    .alone()
    .within(900),
    Row::new("rolling restart of the workers under load", "I16 I20", |world| {
        Box::pin(members::rolling_restart(world))
    })
    .alone()
    .within(1200),
    Row::new("rebalance storm", "I16 I18 I20", |world| Box::pin(members::rebalance_storm(world)))
        .alone()
        .within(600),
    Row::new("handler longer than max.poll.interval", "I20", |world| {
        Box::pin(handlers::longer_than_max_poll_interval(world))
    }),
    Row::new("handler that never returns", "I3 I20", |world| Box::pin(handlers::never_returns(world)))
        .quick(),
    Row::new("poison in every inbox", "I19 I22", |world| Box::pin(records::poison(world))).quick(),
    Row::new("dead letters refuse", "I19", |world| Box::pin(records::dead_letters_refuse(world))),
    Row::new("dead letters missing", "I19", |world| Box::pin(records::dead_letters_missing(world))),
    Row::new("topic deleted and recreated under a consumer", "I1 I6", |world| {
        Box::pin(records::topic_recreated(world))
    }),
    Row::new("reference to a record removed or replaced", "I6", |world| {
        Box::pin(records::reference_broken(world))
    }),
    Row::new("result larger than max.message.bytes", "I6 I19", |world| {
        Box::pin(records::result_too_large(world))
    }),
    Row::new("duplicate intent ids", "I1", |world| Box::pin(intents::duplicate_ids(world))),
    Row::new("cancelled before it comes", "I1", |world| Box::pin(intents::cancelled_before_it_comes(world))),
    Row::new("results twice and out of order", "I1 I3", |world| {
        Box::pin(intents::results_twice_and_out_of_order(world))
    }),
    Row::new("SIGTERM in a call of 120 s", "I23 I28", |world| {
        Box::pin(handlers::sigterm_in_a_long_call(world))
    }),
    Row::new("SIGTERM without a broker", "I28", |world| Box::pin(handlers::sigterm_without_broker(world))),
    Row::new("producer queue full", "I11 I12", |world| Box::pin(handlers::producer_queue_full(world))),
    Row::new("coordinator inbox trimmed below its position", "I12", |world| {
        Box::pin(records::coordinator_inbox_trimmed(world))
    }),
    Row::new("worker inbox trimmed below its position", "I19", |world| {
        Box::pin(records::worker_inbox_trimmed(world))
    }),
    Row::new("soak with random faults", "I1 I6 I16", |world| Box::pin(soak::soak(world)))
        .once()
        .alone()
        .within(1200),
    Row::new("disk of the broker full", "I10 I17", |world| Box::pin(brokers::disk_full(world))),
];

/// Waits until so many members are in a group.
pub(crate) async fn members(swarm: &Swarm, role: &str, count: usize) -> Result<()> {
    let inspector = swarm.bus.inspector();
    let group = swarm.names.group(role);
    until(&format!("{count} members in {group}"), SOON, || async {
        let described = inspector.group(&group).await?;
        Ok(described.is_some_and(|group| group.members.len() == count && group.state == "Stable"))
    })
    .await
}

/// The brokers that the rows share which do no harm to them.
pub(crate) fn shared_brokers() -> Result<String> {
    brokers()
}

/// The number in the title of a task, such as 7 in `t7`.
pub(crate) fn number(title: &str) -> Option<usize> {
    title.strip_prefix('t')?.parse().ok()
}

/// Puts bytes into a partition.
pub(crate) async fn put(swarm: &Swarm, topic: &Topic, partition: i32, bytes: &[u8]) -> Result<()> {
    let to = swarm.logs.partition(topic, partition);
    let payload = Some(Bytes::copy_from_slice(bytes));
    swarm.bus.send(OutRecord { to, key: None, headers: Vec::new(), payload }).await?;
    Ok(())
}
