//! What a member does when the group moves partitions. Runs in the polling thread.

use super::{
    convert::{committed_in, list_of},
    shared::{PumpConsumer, Shared},
};
use crate::{Assignment, BusError, Deliver, GroupEvent, PartitionId};
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{Consumer, RebalanceProtocol},
    error::{KafkaError, KafkaResult},
    types::RDKafkaRespErr,
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// How long to go on asking for committed offsets: without them nothing can be read.
const OFFSETS_WITHIN: Duration = Duration::from_secs(60);

pub(super) fn serve(
    shared: &Arc<Shared>,
    consumer: &PumpConsumer,
    what: RDKafkaRespErr,
    list: &mut TopicPartitionList,
) {
    let partitions: Vec<PartitionId> = list
        .elements()
        .iter()
        .map(|element| PartitionId::new(element.topic(), element.partition()))
        .collect();
    let result = match what {
        RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => assigned(shared, consumer, partitions),
        RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => revoked(shared, consumer, partitions),
        _ => return,
    };
    if let Err(error) = result {
        let reason = format!("the assignment could not be changed: {error}");
        shared.handover.put(GroupEvent::Trouble(BusError::Retry(reason)));
    }
}

fn assigned(shared: &Shared, consumer: &PumpConsumer, partitions: Vec<PartitionId>) -> KafkaResult<()> {
    if partitions.is_empty() || shared.leaving.load(Ordering::Relaxed) {
        return assign(consumer, &list_of(&partitions));
    }
    let assignments = match committed_offsets(shared, consumer, &partitions) {
        Ok(assignments) => assignments,
        Err(error) => {
            // Guessing where to start would repeat or skip work: end loudly instead.
            shared.handover.put(GroupEvent::Fatal(BusError::Fatal(format!("no committed offsets: {error}"))));
            return assign(consumer, &list_of(&[]));
        }
    };
    let mut starts = TopicPartitionList::with_capacity(assignments.len());
    for Assignment { at, committed } in &assignments {
        let start = match (shared.deliver, committed) {
            (Deliver::AssignmentOnly, _) => Offset::End,
            (Deliver::Records, Some(committed)) => Offset::Offset(committed.offset),
            (Deliver::Records, None) => Offset::Beginning,
        };
        starts.add_partition_offset(&at.topic, at.partition, start)?;
    }
    assign(consumer, &starts)?;
    let mut book = shared.book();
    let silent = book.is_throttled() || shared.deliver == Deliver::AssignmentOnly;
    if silent {
        consumer.pause(&starts)?;
    }
    for Assignment { at, committed } in &assignments {
        book.insert(at.clone(), committed.as_ref().map(|committed| committed.offset), silent);
    }
    if shared.deliver == Deliver::AssignmentOnly {
        book.want_paused(&partitions, true);
    }
    drop(book);
    shared.handover.put(GroupEvent::Assigned(assignments));
    Ok(())
}

fn revoked(shared: &Shared, consumer: &PumpConsumer, partitions: Vec<PartitionId>) -> KafkaResult<()> {
    let lost = consumer.assignment_lost();
    let mut known = partitions.clone();
    known.retain(|at| shared.book().contains(at));
    let held = shared.book().held(&known);
    if !known.is_empty() && !shared.leaving.load(Ordering::Relaxed) {
        shared.handover.purge(|at| known.contains(at));
        if lost {
            shared.retract(&known);
            shared.handover.put(GroupEvent::Lost(known));
        } else {
            shared.revoke(known.clone(), shared.revoke_timeout);
            shared.retract(&known);
        }
    }
    if !held.is_empty() {
        consumer.resume(&list_of(&held))?;
    }
    match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_unassign(&list_of(&partitions)),
        RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.unassign(),
    }
}

fn assign(consumer: &PumpConsumer, list: &TopicPartitionList) -> KafkaResult<()> {
    match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_assign(list),
        RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.assign(list),
    }
}

fn committed_offsets(
    shared: &Shared,
    consumer: &PumpConsumer,
    partitions: &[PartitionId],
) -> Result<Vec<Assignment>, KafkaError> {
    let deadline = Instant::now() + OFFSETS_WITHIN;
    loop {
        let answer =
            consumer.committed_offsets(list_of(partitions), shared.request_timeout).and_then(|list| {
                list.elements().iter().try_for_each(|element| element.error())?;
                Ok(partitions
                    .iter()
                    .map(|at| Assignment { at: at.clone(), committed: committed_in(&list, at) })
                    .collect())
            });
        match answer {
            Ok(assignments) => return Ok(assignments),
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(error) => {
                shared.handover.put(GroupEvent::Trouble(shared.error(&error)));
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}
