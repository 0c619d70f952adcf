//! A member whose client does not yet know of the generation that its group is in.

use crate::SOON;
use anyhow::{Result, ensure};
use starling_bus::{
    Bus, CommitOffset, Committed, Deliver, GroupConfig, GroupEvent, KafkaBus, KafkaOptions, PartitionId,
    TopicSpec,
};
use starling_e2e::{Api, Frames, Proxy, brokers, delete_topic};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_the_generation_before_is_made_when_the_client_hears_of_the_next_one() -> Result<()> {
    let broker = brokers()?;
    let proxy = Proxy::before(&broker).await?;
    let topic = format!("generations-{}", std::process::id());
    let direct = KafkaBus::new(KafkaOptions::new(&broker))?;
    let spec = TopicSpec { name: topic.clone(), partitions: 1, replication: -1, settings: BTreeMap::new() };
    direct.create_topics(&[spec]).await?;
    let member = KafkaBus::new(KafkaOptions::new(proxy.address()))?.join(group(&topic)).await?;
    let assigned = async { while !matches!(member.next().await, GroupEvent::Assigned(_)) {} };
    timeout(SOON, assigned).await?;

    // The group goes on to its next generation, and the answer that says so to this member is on its way.
    let generation = proxy.hold(Frames::answers(Api::JoinGroup));
    let joining = tokio::spawn({
        let (direct, topic) = (direct.clone(), topic.clone());
        async move { direct.join(group(&topic)).await }
    });
    generation.until_held(1).await?;
    let refusal = proxy.hold(Frames::answers(Api::OffsetCommit));
    let at = PartitionId::new(topic.as_str(), 0);
    let offset = CommitOffset { at: at.clone(), offset: 0, metadata: "last words".to_owned() };
    let committing = tokio::spawn({
        let member = Arc::clone(&member);
        async move { member.commit(vec![offset]).await }
    });
    refusal.until_held(1).await?;
    refusal.release();
    generation.release();
    timeout(SOON, committing).await???;
    let committed = direct.committed(&topic, &at).await?;
    ensure!(committed == Some(Committed { offset: 0, metadata: "last words".to_owned() }), "{committed:?}");

    member.leave(SOON).await;
    joining.await??.leave(SOON).await;
    delete_topic(&broker, &topic).await
}

fn group(topic: &str) -> GroupConfig {
    GroupConfig {
        group: topic.to_owned(),
        topics: vec![topic.to_owned()],
        deliver: Deliver::Records,
        instance: None,
        session_timeout: Duration::from_secs(30),
        revoke_timeout: Duration::from_secs(5),
        queue_records: 10,
    }
}
