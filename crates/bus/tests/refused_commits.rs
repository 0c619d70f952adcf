//! Commits that a broker refuses: librdkafka's own mock of one says what it is told to.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use rdkafka::{
    mocking::MockCluster,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};
use starling_bus::{
    Bus, CommitError, CommitOffset, Deliver, GroupConfig, GroupConsumer, GroupEvent, KafkaBus, KafkaOptions,
    PartitionId,
};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

async fn member_of(cluster: &MockCluster<'static, impl rdkafka::ClientContext>) -> Arc<dyn GroupConsumer> {
    cluster.create_topic("t", 1, 1).unwrap();
    let bus = KafkaBus::new(KafkaOptions::new(cluster.bootstrap_servers())).unwrap();
    let config = GroupConfig {
        group: "g".into(),
        topics: vec!["t".into()],
        deliver: Deliver::Records,
        instance: None,
        session_timeout: Duration::from_secs(10),
        revoke_timeout: Duration::from_secs(1),
        queue_records: 100,
    };
    let member = bus.join(config).await.unwrap();
    let assigned = async { while !matches!(member.next().await, GroupEvent::Assigned(_)) {} };
    timeout(PATIENCE, assigned).await.expect("a partition");
    member
}

fn commit() -> Vec<CommitOffset> {
    vec![CommitOffset { at: PartitionId::new("t", 0), offset: 0, metadata: String::new() }]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_the_group_has_given_up_commits_nothing_more() {
    let cluster = MockCluster::new(1).unwrap();
    let member = member_of(&cluster).await;
    let refusals = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID];
    cluster.request_errors(RDKafkaApiKey::OffsetCommit, &refusals);
    let refused = timeout(PATIENCE, member.commit(commit())).await.unwrap();
    assert!(matches!(refused, Err(CommitError::Fenced(_))), "{refused:?}");
    member.leave(Duration::from_secs(1)).await;
}
