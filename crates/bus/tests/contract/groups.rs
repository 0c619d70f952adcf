//! Consumer groups.

use crate::world::{PATIENCE, World, drain, next, numbers, record, record_of, records, text, until};
use starling_bus::{
    Assignment, CommitError, CommitOffset, Committed, Deliver, GroupConfig, GroupConsumer, GroupEvent,
    PartitionId,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::time::timeout;

fn assigned(event: GroupEvent) -> Option<Vec<Assignment>> {
    match event {
        GroupEvent::Assigned(assignments) => Some(assignments),
        _ => None,
    }
}

fn commit_of(at: &PartitionId, offset: i64, metadata: &str) -> Vec<CommitOffset> {
    vec![CommitOffset { at: at.clone(), offset, metadata: metadata.to_owned() }]
}

pub(crate) async fn a_group_goes_on_from_its_commit_with_metadata(world: World) {
    let topic = world.topic("resume", 1).await;
    let at = PartitionId::new(topic.clone(), 0);
    let config = world.group(&[&topic]);
    world.fill(&at, 0..10).await;
    assert_eq!(world.bus.committed(&config.group, &at).await.unwrap(), None);

    let first = world.bus.join(config.clone()).await.unwrap();
    assert_eq!(until(&first, assigned).await, [Assignment { at: at.clone(), committed: None }]);
    assert_eq!(text(&records(&first, 1).await[0]), "0");
    let long = "x".repeat(4096);
    let too_long = first.commit(commit_of(&at, 4, &format!("{long}yyy"))).await;
    assert!(matches!(too_long, Err(CommitError::MetadataTooLarge(_))), "{too_long:?}");
    first.commit(commit_of(&at, 6, &long)).await.unwrap();
    let leaving = first.clone();
    let left = tokio::spawn(async move { leaving.leave(PATIENCE).await });
    while !matches!(next(&first).await, GroupEvent::Closed) {}
    left.await.unwrap();
    let after = first.commit(commit_of(&at, 7, "")).await;
    assert!(matches!(after, Err(CommitError::Fenced(_))), "{after:?}");

    let committed = Committed { offset: 6, metadata: long };
    assert_eq!(world.bus.committed(&config.group, &at).await.unwrap(), Some(committed.clone()));
    let second = world.bus.join(config).await.unwrap();
    assert_eq!(until(&second, assigned).await, [Assignment { at, committed: Some(committed) }]);
    let rest: Vec<_> = records(&second, 4).await.iter().map(|record| text(record).to_owned()).collect();
    assert_eq!(rest, numbers(6..10));
}

pub(crate) async fn the_end_is_told_whenever_it_is_reached(world: World) {
    let topic = world.topic("end", 1).await;
    let at = PartitionId::new(topic.clone(), 0);
    let member = world.bus.join(world.group(&[&topic])).await.unwrap();
    for count in 0..3 {
        let end = until(&member, |event| match event {
            GroupEvent::End { at, next_offset } => Some((at, next_offset)),
            _ => None,
        });
        assert_eq!(end.await, (at.clone(), count));
        world.bus.send(record(&at, "more")).await.unwrap();
    }
}

pub(crate) async fn two_topics_both_tell_their_end(world: World) {
    let (one, two) = (world.topic("one", 1).await, world.topic("two", 1).await);
    world.fill(&PartitionId::new(two.clone(), 0), 0..3).await;
    let member = world.bus.join(world.group(&[&one, &two])).await.unwrap();
    let mut ends = std::collections::BTreeMap::new();
    while ends.get(&one) != Some(&0) || ends.get(&two) != Some(&3) {
        let (at, offset) = until(&member, |event| match event {
            GroupEvent::End { at, next_offset } => Some((at, next_offset)),
            _ => None,
        })
        .await;
        ends.insert(at.topic, offset);
    }
}

pub(crate) async fn pausing_leaves_no_gap_and_repeats_nothing(world: World) {
    let topic = world.topic("pause", 2).await;
    let (at, other) = (PartitionId::new(topic.clone(), 0), PartitionId::new(topic.clone(), 1));
    world.fill(&at, 0..2000).await;
    let member = world.bus.join(GroupConfig { queue_records: 50, ..world.group(&[&topic]) }).await.unwrap();
    let mut seen: Vec<_> = records(&member, 120).await;
    member.pause(std::slice::from_ref(&at));
    seen.extend(drain(&member).await);
    assert!(seen.len() < 2000, "it has stopped");
    assert!(drain(&member).await.is_empty());
    world.fill(&other, 0..1).await;
    assert_eq!(records(&member, 1).await[0].at, other, "others are not paused");
    member.resume(&[at]);
    let missing = 2000 - seen.len();
    seen.extend(records(&member, missing).await);
    let seen: Vec<_> = seen.iter().map(|record| text(record).to_owned()).collect();
    assert_eq!(seen, numbers(0..2000));
}

pub(crate) async fn a_full_queue_stops_delivery_and_loses_nothing(world: World) {
    let topic = world.topic("slow", 3).await;
    for partition in 0..3 {
        world.fill(&PartitionId::new(topic.clone(), partition), 0..300).await;
    }
    let member = world.bus.join(GroupConfig { queue_records: 10, ..world.group(&[&topic]) }).await.unwrap();
    let mut seen = vec![Vec::new(); 3];
    for count in 0..900 {
        if count % 250 == 100 {
            tokio::time::sleep(Duration::from_millis(150)).await; // an application that is slow at times
        }
        let record = until(&member, record_of).await;
        seen[usize::try_from(record.at.partition).unwrap()].push(text(&record).to_owned());
    }
    assert_eq!(seen, vec![numbers(0..300); 3]);
}

pub(crate) async fn partitions_move_after_the_acknowledgement(world: World) {
    let topic = world.topic("move", 4).await;
    let config = world.group(&[&topic]);
    let first = world.bus.join(config.clone()).await.unwrap();
    let mut owned = 0;
    while owned < 4 {
        owned += until(&first, assigned).await.len();
    }

    let second = world.bus.join(config).await.unwrap();
    let newcomer = second.clone();
    let arrival = tokio::spawn(async move {
        let mut got = Vec::new();
        while got.len() < 2 {
            got.extend(until(&newcomer, assigned).await);
        }
        got
    });
    let mut moved = Vec::new();
    while moved.len() < 2 {
        let (partitions, acknowledge) = until(&first, |event| match event {
            GroupEvent::Revoked(partitions, acknowledge) => Some((partitions, acknowledge)),
            _ => None,
        })
        .await;
        for at in &partitions {
            first.commit(commit_of(at, 0, "last word")).await.unwrap();
        }
        assert!(!arrival.is_finished(), "not before the acknowledgement");
        moved.extend(partitions);
        acknowledge.acknowledge();
    }
    // The first goes on being polled, or it would never hear of the rest.
    let got = timeout(PATIENCE, arrival).await.unwrap().unwrap();
    let mut names: Vec<_> = got.iter().map(|assignment| assignment.at.clone()).collect();
    names.sort();
    moved.sort();
    assert_eq!(names, moved);
    for assignment in &got {
        assert_eq!(assignment.committed, Some(Committed { offset: 0, metadata: "last word".into() }));
        second.commit(commit_of(&assignment.at, 0, "mine")).await.unwrap();
        let stale = first.commit(commit_of(&assignment.at, 0, "late")).await;
        assert!(matches!(stale, Err(CommitError::Fenced(_))), "{stale:?}");
    }
}

pub(crate) async fn a_dead_members_records_come_again(world: World) {
    let topic = world.topic("death", 1).await;
    let at = PartitionId::new(topic.clone(), 0);
    world.fill(&at, 0..20).await;
    let first = world.bus.join(world.group(&[&topic])).await.unwrap();
    records(&first, 20).await;
    first.commit(commit_of(&at, 5, "")).await.unwrap();
    drop(first);
    let second = world.bus.join(world.group(&[&topic])).await.unwrap();
    let again: Vec<_> = records(&second, 15).await.iter().map(|record| text(record).to_owned()).collect();
    assert_eq!(again, numbers(5..20));
}

pub(crate) async fn assignment_only_brings_no_records(world: World) {
    let (topic, other) = (world.topic("only", 2).await, world.topic("state", 1).await);
    let at = PartitionId::new(topic.clone(), 0);
    world.fill(&at, 0..5).await;
    let config = GroupConfig { deliver: Deliver::AssignmentOnly, ..world.group(&[&topic]) };
    let member = world.bus.join(config.clone()).await.unwrap();
    assert_eq!(until(&member, assigned).await.len(), 2);
    world.fill(&at, 5..10).await;
    let heard = timeout(Duration::from_millis(500), member.next()).await;
    assert!(heard.is_err(), "{heard:?}");
    let hint = PartitionId::new(other, 0);
    member.commit(commit_of(&hint, 0, "a hint in a topic that is not subscribed")).await.unwrap();
    assert!(world.bus.committed(&config.group, &hint).await.unwrap().is_some());
}

pub(crate) async fn leaving_is_bounded_without_acknowledgement(world: World) {
    let topic = world.topic("stuck", 1).await;
    let member = world.bus.join(world.group(&[&topic])).await.unwrap();
    until(&member, assigned).await;
    let started = Instant::now();
    member.leave(Duration::from_millis(500)).await; // nobody calls `next`, nobody acknowledges
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    member.leave(Duration::from_millis(100)).await;
}

pub(crate) async fn leaving_revokes_then_closes(world: World) {
    let topic = world.topic("leave", 3).await;
    let member = world.bus.join(world.group(&[&topic])).await.unwrap();
    assert_eq!(until(&member, assigned).await.len(), 3);
    let leaving = member.clone();
    let left = tokio::spawn(async move { leaving.leave(PATIENCE).await });
    let (partitions, acknowledge) = until(&member, |event| match event {
        GroupEvent::Revoked(partitions, acknowledge) => Some((partitions, acknowledge)),
        _ => None,
    })
    .await;
    assert_eq!(partitions.len(), 3);
    member.commit(commit_of(&partitions[0], 0, "still mine")).await.unwrap();
    acknowledge.acknowledge();
    let after = next(&member).await;
    assert!(matches!(after, GroupEvent::Closed), "{after:?}");
    timeout(PATIENCE, left).await.unwrap().unwrap();
    assert!(matches!(next(&member).await, GroupEvent::Closed), "and stays closed");
}

pub(crate) async fn a_second_member_of_one_instance_name_ends_the_first(world: World) {
    let topic = world.topic("static", 2).await;
    let config = GroupConfig { instance: Some("worker-1".into()), ..world.group(&[&topic]) };
    let first = world.bus.join(config.clone()).await.unwrap();
    assert_eq!(until(&first, assigned).await.len(), 2);
    let second = world.bus.join(config).await.unwrap();
    assert_eq!(until(&second, assigned).await.len(), 2);
    while !matches!(next(&first).await, GroupEvent::Fatal(_)) {}
}

pub(crate) async fn an_invalid_committed_offset_is_loud(world: World) {
    let topic = world.topic("lost", 2).await;
    let (at, other) = (PartitionId::new(topic.clone(), 0), PartitionId::new(topic.clone(), 1));
    world.fill(&at, 0..10).await;
    world.fill(&other, 0..1).await;
    let first = world.bus.join(world.group(&[&topic])).await.unwrap();
    until(&first, assigned).await;
    first.commit(commit_of(&at, 2, "")).await.unwrap();
    drop(first);
    world.bus.trim(&at, 5).await.unwrap();
    let second = world.bus.join(world.group(&[&topic])).await.unwrap();
    let (mut loud, mut other_came) = (false, false);
    while !(loud && other_came) {
        match next(&second).await {
            GroupEvent::OutOfRange { at: lost, offset } => {
                assert_eq!((lost, offset), (at.clone(), 2));
                loud = true;
            }
            GroupEvent::Record(record) => {
                assert_eq!(record.at, other);
                other_came = true;
            }
            _ => {}
        }
    }
}

/// Processes until it has left, committing what it has done whenever partitions go.
async fn work(member: Arc<dyn GroupConsumer>, done: Arc<Mutex<Vec<(i32, i64)>>>) {
    let mut positions: HashMap<PartitionId, i64> = HashMap::new();
    loop {
        match next(&member).await {
            GroupEvent::Record(record) => {
                positions.insert(record.at.clone(), record.offset + 1);
                done.lock().unwrap().push((record.at.partition, record.offset));
            }
            GroupEvent::Revoked(partitions, acknowledge) => {
                let gone = partitions.iter().filter_map(|at| Some((at, positions.remove(at)?)));
                let commits: Vec<_> = gone.flat_map(|(at, offset)| commit_of(at, offset, "")).collect();
                // Another member may have joined in this very moment. The partitions are held until it is made.
                member.commit(commits).await.unwrap();
                acknowledge.acknowledge();
            }
            GroupEvent::Closed => return,
            GroupEvent::Assigned(_) | GroupEvent::End { .. } => {}
            other => panic!("unexpected: {other:?}"),
        }
    }
}

pub(crate) async fn members_come_and_go_and_every_record_is_done_once(world: World) {
    const PARTITIONS: i32 = 6;
    const EACH: usize = 400;
    let topic = world.topic("churn", PARTITIONS).await;
    let config = GroupConfig { queue_records: 20, ..world.group(&[&topic]) };
    let done: Arc<Mutex<Vec<(i32, i64)>>> = Arc::default();
    let count = |done: &Mutex<Vec<(i32, i64)>>| done.lock().unwrap().len();
    let mut members = std::collections::VecDeque::new();
    for wave in 0..4 {
        let member = world.bus.join(config.clone()).await.unwrap();
        members.push_back((member.clone(), tokio::spawn(work(member, done.clone()))));
        for partition in 0..PARTITIONS {
            let quarter = EACH / 4;
            world
                .fill(&PartitionId::new(topic.clone(), partition), wave * quarter..(wave + 1) * quarter)
                .await;
        }
        if wave >= 2 {
            let (oldest, working) = members.pop_front().unwrap();
            oldest.leave(PATIENCE).await;
            working.await.unwrap();
        }
    }
    let all = usize::try_from(PARTITIONS).unwrap() * EACH;
    let missing = |done: &Mutex<Vec<(i32, i64)>>| {
        let done = done.lock().unwrap();
        let expected = (0..PARTITIONS).flat_map(|partition| (0..EACH as i64).map(move |n| (partition, n)));
        let missing: Vec<_> = expected.filter(|record| !done.contains(record)).collect();
        format!("{:?} to {:?} and what is between", missing.first(), missing.last())
    };
    let deadline = Instant::now() + PATIENCE;
    while count(&done) < all {
        assert!(Instant::now() < deadline, "{} of {all} records, missing {}", count(&done), missing(&done));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut done = done.lock().unwrap().clone();
    done.sort_unstable();
    let expected: Vec<_> =
        (0..PARTITIONS).flat_map(|partition| (0..EACH as i64).map(move |n| (partition, n))).collect();
    assert_eq!(done, expected);
}

pub(crate) async fn a_paused_partition_that_comes_back_runs(world: World) {
    let topic = world.topic("comeback", 2).await;
    let config = world.group(&[&topic]);
    let first = world.bus.join(config.clone()).await.unwrap();
    let all = until(&first, assigned).await.into_iter().map(|assignment| assignment.at).collect::<Vec<_>>();
    first.pause(&all);
    let second = world.bus.join(config).await.unwrap();
    let taking = second.clone();
    let taken = tokio::spawn(async move { until(&taking, assigned).await });
    until(&first, |event| matches!(event, GroupEvent::Revoked(..)).then_some(())).await; // dropped: they may go
    timeout(PATIENCE, taken).await.unwrap().unwrap();
    drop(second);
    let back = until(&first, assigned).await.remove(0).at;
    world.fill(&back, 0..3).await;
    assert!(records(&first, 3).await.iter().all(|record| record.at == back));
}
