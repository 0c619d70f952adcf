//! What every bus promises, checked on each of them.
//!
//! The Kafka half needs a broker: `make test` brings one up and names it in `STARLING_TEST_BROKERS`. With
//! `STARLING_TEST_MEMORY_ONLY=1` that half is left out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod groups;
mod inspections;
mod logs;
mod world;

use world::World;

macro_rules! contract {
    ($($suite:ident::$case:ident)*) => {
        mod memory {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $suite::$case(World::memory()).await;
            })*
        }

        mod kafka {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                if let Some(world) = World::kafka() {
                    $suite::$case(world).await;
                }
            })*
        }
    };
}

contract! {
    logs::order_and_content_are_kept
    logs::a_record_too_large_is_refused_and_the_next_is_taken
    logs::a_full_queue_does_not_take_more
    logs::single_records_are_read_in_the_order_asked_for
    logs::trimmed_records_are_gone
    logs::a_reader_starts_where_it_is_told
    logs::a_removed_partition_is_silent_and_can_be_added_again
    logs::a_reader_pauses_without_gap_or_repetition
    logs::an_offset_out_of_range_is_loud
    logs::topics_are_created_once_and_missing_ones_are_named
    groups::a_group_goes_on_from_its_commit_with_metadata
    groups::the_end_is_told_whenever_it_is_reached
    groups::two_topics_both_tell_their_end
    groups::a_paused_partition_that_comes_back_runs
    groups::pausing_leaves_no_gap_and_repeats_nothing
    groups::a_full_queue_stops_delivery_and_loses_nothing
    groups::partitions_move_after_the_acknowledgement
    groups::a_dead_members_records_come_again
    groups::assignment_only_brings_no_records
    groups::leaving_is_bounded_without_acknowledgement
    groups::leaving_revokes_then_closes
    groups::a_second_member_of_one_instance_name_ends_the_first
    groups::an_invalid_committed_offset_is_loud
    groups::members_come_and_go_and_every_record_is_done_once
    inspections::a_cluster_names_itself_and_its_brokers
    inspections::topics_tell_their_partitions_and_settings
    inspections::settings_are_told_as_they_were_set
    inspections::a_group_tells_who_has_what
    inspections::ends_and_commits_are_told_for_many_at_once
    inspections::the_first_record_since_a_time_is_told
}

/// The broker-side group protocol keeps the same promises.
mod kafka_consumer_protocol {
    use super::*;

    macro_rules! cases {
        ($($case:ident)*) => {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                if let Some(world) = World::kafka_with(starling_bus::GroupProtocol::Consumer) {
                    groups::$case(world).await;
                }
            }
        )*};
    }

    cases! {
        a_group_goes_on_from_its_commit_with_metadata
        partitions_move_after_the_acknowledgement
        a_dead_members_records_come_again
        leaving_revokes_then_closes
        members_come_and_go_and_every_record_is_done_once
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn members_of_a_group_that_the_broker_balances_are_not_told() {
        if let Some(world) = World::kafka_with(starling_bus::GroupProtocol::Consumer) {
            inspections::members_are_told_or_nothing(world).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_record_is_refused_for_the_sake_of_another() {
    if let Some(world) = World::kafka() {
        logs::no_record_is_refused_for_the_sake_of_another(world).await;
    }
}

#[tokio::test]
async fn an_unreachable_broker_is_named_soon() {
    world::unreachable().await;
}
