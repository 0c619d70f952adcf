//! What an operator can ask.

use crate::world::{PATIENCE, World, next, until};
use starling_bus::{BusError, CommitOffset, Committed, GroupEvent, PartitionId, TopicSpec};
use starling_protocol::Timestamp;
use std::{sync::Arc, time::Instant};

pub(crate) async fn a_cluster_names_itself_and_its_brokers(world: World) {
    let cluster = world.bus.inspector().cluster().await.unwrap();
    assert!(cluster.id.is_some_and(|id| !id.is_empty()));
    assert!(!cluster.brokers.is_empty());
    assert!(cluster.brokers.iter().all(|broker| !broker.address.is_empty()));
}

pub(crate) async fn topics_tell_their_partitions_and_settings(world: World) {
    let (one, two) = (world.topic("one", 3).await, world.topic("two", 1).await);
    let missing = format!("{one}.missing");
    let asked = [two.to_string(), missing.clone(), one.to_string()];
    let told = world.bus.inspector().topics(&asked).await.unwrap();
    let [Ok(two), Err(error), Ok(one)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(*error, BusError::NoSuchTopic { topic: missing });
    assert_eq!((&two.name, two.partitions.len()), (&asked[0], 1));
    assert_eq!((&one.name, one.partitions.len()), (&asked[2], 3));
    for partition in &one.partitions {
        assert!(partition.leader.is_some_and(|leader| partition.replicas.contains(&leader)), "{partition:?}");
        assert_eq!(partition.in_sync, partition.replicas);
    }
    let settings = one.settings.as_ref().unwrap();
    let expected = (2 * crate::world::MAX_RECORD).to_string();
    assert_eq!(settings.get("max.message.bytes"), Some(&expected), "{settings:?}");
    assert!(world.bus.inspector().topics(&[]).await.unwrap().is_empty());
}

/// Everything that limits are judged by is told as it was set, also by an inspector that has rested.
pub(crate) async fn settings_are_told_as_they_were_set(world: World) {
    let name = world.topic("near", 1).await.to_string() + ".set";
    let set = [
        ("cleanup.policy", "compact,delete"),
        ("max.message.bytes", "70000"),
        ("min.insync.replicas", "1"),
        ("retention.bytes", "-1"),
        ("retention.ms", "123456789"),
        ("unclean.leader.election.enable", "true"),
    ];
    let settings = set.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
    let spec = TopicSpec { name: name.clone(), partitions: 1, replication: -1, settings };
    world.bus.create_topics(&[spec]).await.unwrap();
    let inspector = world.bus.inspector();
    for _ in 0..2 {
        let told = inspector.topics(std::slice::from_ref(&name)).await.unwrap();
        let [Ok(topic)] = told.as_slice() else { panic!("{told:?}") };
        let told = topic.settings.as_ref().unwrap();
        for (name, value) in set {
            assert_eq!(told.get(name).map(String::as_str), Some(value), "{name}");
        }
        inspector.rest();
    }
}

pub(crate) async fn a_group_tells_who_has_what(world: World) {
    let topic = world.topic("members", 3).await;
    let config = world.group(&[&topic]);
    let inspector = world.bus.inspector();
    assert_eq!(inspector.group(&config.group).await.unwrap(), None, "nobody was ever in it");
    let member = world.bus.join(config.clone()).await.unwrap();
    let mut assigned = 0;
    while assigned < 3 {
        assigned += until(&member, |event| match event {
            GroupEvent::Assigned(assignments) => Some(assignments.len()),
            _ => None,
        })
        .await;
    }
    let group = inspector.group(&config.group).await.unwrap().expect("it has a member");
    let [one] = group.members.as_slice() else { panic!("{group:?}") };
    let all: Vec<_> = (0..3).map(|partition| PartitionId::new(topic.clone(), partition)).collect();
    assert_eq!(one.partitions, all);
    assert!(!one.id.is_empty() && !one.host.is_empty(), "{one:?}");
    assert_eq!(group.state, "Stable");

    let leaving = member.clone();
    let left = tokio::spawn(async move { leaving.leave(PATIENCE).await });
    while !matches!(next(&member).await, GroupEvent::Closed) {}
    left.await.unwrap();
    let empty = inspector.group(&config.group).await.unwrap();
    assert!(empty.is_none_or(|group| group.members.is_empty()));
}

/// For a group that the broker balances: never a wrong answer.
pub(crate) async fn members_are_told_or_nothing(world: World) {
    let topic = world.topic("balanced", 2).await;
    let config = world.group(&[&topic]);
    let member = world.bus.join(config.clone()).await.unwrap();
    until(&member, |event| matches!(event, GroupEvent::Assigned(_)).then_some(())).await;
    assert_eq!(world.bus.inspector().group(&config.group).await.unwrap(), None);
}

pub(crate) async fn ends_and_commits_are_told_for_many_at_once(world: World) {
    let (one, two) = (world.topic("ends", 3).await, world.topic("others", 1).await);
    let at: Vec<_> = (0..3).map(|partition| PartitionId::new(one.clone(), partition)).collect();
    let other = PartitionId::new(two, 0);
    world.fill(&at[1], 0..5).await;
    world.fill(&other, 0..2).await;
    let inspector = world.bus.inspector();
    world.bus.trim(&at[1], 2).await.unwrap();
    let asked = [at[1].clone(), other, at[0].clone(), at[2].clone()];
    let told = inspector.watermarks(&asked).await.unwrap();
    let told: Vec<_> = told.into_iter().map(|marks| marks.map(|marks| (marks.low, marks.high))).collect();
    assert_eq!(told, [Some((2, 5)), Some((0, 2)), Some((0, 0)), Some((0, 0))]);
    assert!(inspector.watermarks(&[]).await.unwrap().is_empty());

    let config = world.group(&[&one]);
    assert_eq!(inspector.committed(&config.group, &at).await.unwrap(), [None, None, None]);
    let member = world.bus.join(config.clone()).await.unwrap();
    let mut assigned = 0;
    while assigned < 3 {
        assigned += until(&member, |event| match event {
            GroupEvent::Assigned(assignments) => Some(assignments.len()),
            _ => None,
        })
        .await;
    }
    let commit = |at: &PartitionId, offset| CommitOffset { at: at.clone(), offset, metadata: "x".into() };
    member.commit(vec![commit(&at[1], 4), commit(&at[2], 0)]).await.unwrap();
    let committed = inspector.committed(&config.group, &at).await.unwrap();
    let told = |offset| Some(Committed { offset, metadata: "x".to_owned() });
    assert_eq!(committed, [None, told(4), told(0)]);

    let missing: Arc<str> = format!("{one}.missing").into();
    let began = Instant::now();
    let told = inspector.watermarks(&[PartitionId::new(missing, 0)]).await;
    assert!(matches!(told, Err(BusError::NoSuchTopic { .. })), "{told:?}");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

pub(crate) async fn the_first_record_since_a_time_is_told(world: World) {
    let topic = world.topic("times", 2).await;
    let at = PartitionId::new(topic.clone(), 1);
    // Each younger than the one before: the clock of a record has milliseconds.
    let mut times = Vec::new();
    for n in 0..4 {
        loop {
            world.fill(&at, n..n + 1).await;
            let high = world.bus.watermarks(&at).await.unwrap().high;
            let read = world.bus.read(&[(at.clone(), high - 1)]).await;
            let time = read[0].as_ref().unwrap().timestamp;
            if times.last().is_none_or(|(_, last)| time > *last) {
                times.push((high - 1, time));
                break;
            }
        }
    }
    world.bus.trim(&at, times[1].0).await.unwrap();
    let high = world.bus.watermarks(&at).await.unwrap().high;
    let inspector = world.bus.inspector();
    let empty = PartitionId::new(topic.clone(), 0);
    let later = Timestamp(times[3].1.0 + 60_000);
    let cases = [
        (Timestamp(0), times[1].0),
        (Timestamp(-5), times[1].0),
        (times[0].1, times[1].0),
        (times[2].1, times[2].0),
        (Timestamp(times[2].1.0 + 1), times[3].0),
        (later, high),
    ];
    for (time, expected) in cases {
        let told = inspector.offsets_since(&[at.clone(), empty.clone()], time).await.unwrap();
        assert_eq!(told, [Some(expected), Some(0)], "{time:?} in {times:?}");
    }
    assert!(inspector.offsets_since(&[], later).await.unwrap().is_empty());
    let missing = PartitionId::new(format!("{topic}.missing"), 0);
    let told = inspector.offsets_since(&[missing], later).await;
    assert!(matches!(told, Err(BusError::NoSuchTopic { .. })), "{told:?}");
}
