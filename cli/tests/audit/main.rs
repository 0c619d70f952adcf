//! The auditor on histories that really happened: it finds nothing wrong with them as they are, and whatever is
//! done to one of their records it notices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;
mod reuse;
mod tampering;

use history::{World, terms};
use starling_audit::{Standing, Status, Terms, tree_of};
use starling_protocol::IntentId;

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_that_went_well_is_clean() {
    let world = World::start(&[]).await;
    let id = world.run("well").await;
    let account = world.settled(&id).await;
    let text = tree_of(&account);
    println!("{text}");
    assert_eq!(account.standing, Standing::Clean, "{text}");
    assert_eq!(account.counts.of(Status::Original), account.entries.len(), "{text}");
    assert!(account.repeated.is_empty() && account.notes.is_empty() && account.progress > 0, "{text}");
    // From the first record to the last along causes.
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("intents[") && lines[0].contains("Published"), "{text}");
    assert!(lines[1].starts_with("  coordinator[") && lines[1].contains("  Intent"), "{text}");
    assert!(lines[2].starts_with("    planner[") && lines[2].contains("PlanRequest plan 1"), "{text}");
    assert!(text.contains("Outcome succeeded"), "{text}");
    assert!(lines.last().unwrap().contains("well  succeeded  clean: "), "{text}");

    // As JSON it is a contract.
    let json = serde_json::to_value(&account).unwrap();
    assert_eq!(json["standing"], "clean", "{json}");
    assert_eq!(json["entries"][1]["causes"][0], json["entries"][0]["record"], "{json}");
    let fields: Vec<&str> = json["entries"][1].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["about", "at", "causes", "id", "kind", "promise", "record", "status", "why"]);

    let unknown = world.auditor().intent(&IntentId::from_string("nobody"), terms()).await.unwrap();
    assert_eq!(unknown.standing, Standing::Unaccounted, "what is not known cannot be vouched for");
    assert!(unknown.notes.iter().any(|note| note.starts_with("nothing is known")), "{:?}", unknown.notes);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_is_read_in_as_many_passes_as_its_intents_need() {
    let world = World::start(&[("audit.at_once", "2")]).await;
    let before = terms().now;
    let mut last = None;
    for n in 0..5 {
        last = Some(world.run(&format!("r{n}")).await);
    }
    world.settled(&last.unwrap()).await;
    let report = world.auditor().range(None, None, terms()).await.unwrap();
    assert_eq!((report.intents, report.clean), (5, 5), "{}", report.text());
    assert!(report.is_fine() && report.accounts.is_empty(), "{}", report.text());

    let after = terms().now;
    let none = world.auditor().range(Some(after), None, terms()).await.unwrap();
    assert_eq!(none.intents, 0, "{}", none.text());
    let none = world.auditor().range(None, Some(before), terms()).await.unwrap();
    assert_eq!(none.intents, 0, "{}", none.text());
    let all = world.auditor().range(Some(before), Some(after), terms()).await.unwrap();
    assert_eq!(all.clean, 5, "{}", all.text());
    world.stop().await;

    // Beyond the limit it vouches for nothing.
    let world = World::start(&[("audit.at_once", "1"), ("audit.max_intents", "1")]).await;
    for n in 0..3 {
        let id = world.run(&format!("r{n}")).await;
        world.settled(&id).await;
    }
    let report = world.auditor().range(None, None, terms()).await.unwrap();
    assert!(!report.is_fine() && report.text().contains("more intents than the limit"), "{}", report.text());
    world.stop().await;
}

/// What coordinators say to each other is no intent's: it is counted, and must be decided.
#[tokio::test(flavor = "multi_thread")]
async fn what_coordinators_lease_to_each_other_is_counted_and_no_intents() {
    let budget =
        [("tenants.t.max_calls", "1000"), ("tenants.t.per", "365d"), ("coordinator.lease_time", "50ms")];
    let world = World::start(&budget).await;
    for n in 0..3 {
        let id = world.run(&format!("r{n}")).await;
        let account = world.settled(&id).await;
        assert_eq!(account.standing, Standing::Clean, "{}", tree_of(&account));
    }
    let mut report = world.auditor().range(None, None, terms()).await.unwrap();
    for _ in 0..100 {
        if report.is_fine() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await; // the last of them are under way
        report = world.auditor().range(None, None, terms()).await.unwrap();
    }
    assert!(report.is_fine(), "{}", report.text());
    assert_eq!((report.intents, report.clean, report.strays), (3, 3, 0), "{}", report.text());
    assert!(report.leases >= 4, "{} records between coordinators", report.leases);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_swarm_works_nothing_is_called_lost_or_broken() {
    const INTENTS: usize = 12;
    let world = std::sync::Arc::new(World::start(&[]).await);
    let since = terms().now;
    let working: Vec<_> = (0..INTENTS)
        .map(|n| {
            let world = world.clone();
            tokio::spawn(async move { world.run(&format!("busy-{n}")).await })
        })
        .collect();
    let mut looked = 0;
    let mut under_way = 0;
    while working.iter().any(|run| !run.is_finished()) || looked < 3 {
        // From the beginning, and from a time on, as somebody does who has a long history.
        for since in [None, Some(since)] {
            let report = world.auditor().range(since, None, Terms { ended: false, ..terms() }).await.unwrap();
            for account in &report.accounts {
                let worst = account.entries.iter().map(|entry| entry.status).max();
                assert!(worst <= Some(Status::Pending), "{}", tree_of(account));
                under_way += account.counts.of(Status::Pending);
            }
            assert_eq!(report.notes, Vec::<String>::new());
        }
        looked += 1;
    }
    for run in working {
        world.settled(&run.await.unwrap()).await;
    }
    println!("{looked} audits while it worked saw {under_way} records under way");
    let report = world.auditor().range(None, None, terms()).await.unwrap();
    assert_eq!((report.clean, report.is_fine()), (INTENTS, true), "{}", report.text());
    std::sync::Arc::into_inner(world).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trimmed_state_log_leaves_questions_and_accuses_nobody() {
    let world =
        World::start(&[("statelog.snapshot_every", "3"), ("topics.partitions.coordinator", "1")]).await;
    let mut last = None;
    for n in 0..6 {
        last = Some(world.run(&format!("s{n}")).await);
    }
    let last = world.settled(&last.unwrap()).await;
    let report = world.auditor().range(None, None, terms()).await.unwrap();
    println!("{}", report.text());
    assert!(report.is_fine(), "{}", report.text());
    assert_eq!(report.counts.of(Status::Violation) + report.counts.of(Status::Unaccounted), 0);
    assert!(report.counts.of(Status::Unknown) > 0, "the first decisions are deleted: {}", report.text());
    assert!(last.notes.iter().any(|note| note.contains("begins after decision")), "{:?}", last.notes);
    world.stop().await;
}
