//! What the rules of agents change: pools, times, attempts, and whose results are scored.

use crate::builders::*;
use starling_engine::coordinator::{
    AgentRules, CallCosts, Coordinator, CoordinatorSettings, Destination, Effect, Event, FleetView,
    KnownAgents, WorkerInboxes, WorkerMember, is_judged,
};
use starling_protocol::{Envelope, IntentId, Limits, TaskId, TaskSpec, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Settings with an agent "scout" that has these rules.
fn with_scout(rules: AgentRules) -> CoordinatorSettings {
    let mut settings = settings();
    settings.agents.insert("scout".into(), rules);
    settings
}

fn scout(ordinal: i32) -> TaskSpec {
    TaskSpec { agent: "scout".into(), ..spec(ordinal, &format!("t{ordinal}"), &[]) }
}

fn research() -> AgentRules {
    AgentRules { pool: Some("research".into()), ..AgentRules::default() }
}

fn coordinator_of(settings: CoordinatorSettings) -> Coordinator {
    Coordinator::new(Arc::new(settings), 0, WorkerInboxes::from(8).with("research", 3))
}

/// Gives it an intent "a" with this plan; says what follows.
fn plan(coordinator: &mut Coordinator, specs: Vec<TaskSpec>) -> Vec<Effect> {
    coordinator.step(START, received(1, intent("a", "llm", 5)));
    coordinator.step(START, received(2, fragment("a", 1, &run(1), 0, specs, plan_end())))
}

/// How many tasks were sent to each pool, by partition.
fn sent_to(effects: &[Effect]) -> BTreeMap<(String, i32), usize> {
    let mut all = BTreeMap::new();
    for effect in effects {
        if let Effect::Send { to: Destination::Worker { pool, partition }, envelope, .. } = effect {
            assert_eq!(envelope.tag.pool, *pool);
            *all.entry((pool.clone().unwrap_or_default(), *partition)).or_insert(0) += 1;
        }
    }
    all
}

fn member(pool: &str, slots: i32, partitions: &[i32]) -> WorkerMember {
    let pool = Some(pool.to_owned()).filter(|pool| !pool.is_empty());
    WorkerMember { process: format!("w-{pool:?}"), pool, slots, partitions: partitions.to_vec() }
}

#[test]
fn the_tasks_of_a_pool_go_where_its_members_have_room_and_a_full_pool_holds_up_no_other() {
    let mut coordinator =
        coordinator_of(CoordinatorSettings { window_factor: 1.0, ..with_scout(research()) });
    let workers = vec![member("", 2, &[4]), member("research", 3, &[1])];
    coordinator.step(START, Event::Fleet(FleetView { workers, active_coordinators: 1 }));
    // The tasks of the default pool come first in the plan, and are more than it takes.
    let specs = (0..6).map(|at| spec(at, &format!("k{at}"), &[])).chain((6..12).map(scout)).collect();
    let effects = plan(&mut coordinator, specs);
    let expected = BTreeMap::from([((String::new(), 4), 2), (("research".to_owned(), 1), 3)]);
    assert_eq!(sent_to(&effects), expected);
    // What ends makes room in its own pool.
    let of_pool = |task: &&Envelope| task.tag.pool.is_some();
    let ended = tasks(&effects).iter().find(of_pool).cloned().unwrap();
    let effects = coordinator.step(START, received(3, verdict(&ended, scored(1.0))));
    assert_eq!(sent_to(&effects), BTreeMap::from([(("research".to_owned(), 1), 1)]));
}

#[test]
fn a_pool_without_members_gets_enough_to_be_noticed() {
    let mut coordinator = coordinator_of(CoordinatorSettings { min_window: 4, ..with_scout(research()) });
    let workers = vec![member("", 50, &[0])];
    coordinator.step(START, Event::Fleet(FleetView { workers, active_coordinators: 1 }));
    let effects = plan(&mut coordinator, (0..10).map(scout).collect());
    assert_eq!(tasks(&effects).len(), 4);
}

#[test]
fn a_successor_without_the_pool_gives_its_tasks_to_the_default_one() {
    let settings = with_scout(research());
    let mut coordinator = coordinator_of(CoordinatorSettings { min_window: 1, ..settings.clone() });
    let first = tasks(&plan(&mut coordinator, (0..2).map(scout).collect()));
    assert_eq!(first.len(), 1);
    let mut successor = Coordinator::new(Arc::new(settings), 0, 8);
    successor.apply(&coordinator.entities(), &[]);
    let effects = successor.step(START, received(3, verdict(&first[0], scored(1.0))));
    assert!(sent_to(&effects).keys().all(|(pool, _)| pool.is_empty()), "{effects:?}");
    assert_eq!(tasks(&effects).len(), 1);
}

#[test]
fn an_agents_time_and_attempts_take_the_place_of_the_settings() {
    let rules =
        AgentRules { timeout: Some(Duration::from_secs(7)), max_attempts: Some(2), ..AgentRules::default() };
    let mut coordinator = coordinator_of(with_scout(rules));
    let specs = vec![scout(0), spec(1, "plain", &[])];
    let first = tasks(&plan(&mut coordinator, specs));
    assert_eq!(first[0].deadline, START.plus(Duration::from_secs(7)));
    assert_eq!(first[1].deadline, START.plus(settings().attempt_timeout));
    let again = tasks(&coordinator.step(START, received(3, verdict(&first[0], scored(0.1)))));
    assert_eq!(job(&again[0]).attempt, 2);
    // The settings allow three.
    let effects = coordinator.step(START, received(4, verdict(&again[0], scored(0.2))));
    assert!(tasks(&effects).is_empty(), "{effects:?}");
}

#[test]
fn a_share_of_the_results_is_scored_always_the_same_ones_and_the_outcome_says_how_many_are_not() {
    let quarter = AgentRules { critic_rate: Some(0.25), ..AgentRules::default() };
    let specs: Vec<TaskSpec> = (0..40).map(scout).chain([spec(40, "plain", &[])]).collect();
    let judged = |effects: &[Effect]| -> Vec<bool> {
        let is_judged = |task: &Envelope| job(task).next_tag.role == starling_protocol::Role::Critic;
        tasks(effects).iter().map(is_judged).collect()
    };
    let mut coordinator = coordinator_of(with_scout(quarter.clone()));
    let effects = plan(&mut coordinator, specs.clone());
    let first = judged(&effects);
    let count = first.iter().filter(|judged| **judged).count() - 1;
    assert!((4..=18).contains(&count), "{count} of 40");
    assert!(first[40], "of other agents all are scored");
    assert_eq!(judged(&plan(&mut coordinator_of(with_scout(quarter)), specs)), first);

    let mut last = Vec::new();
    for (task, judged) in tasks(&effects).iter().zip(&first) {
        let reply = if *judged { verdict(task, scored(1.0)) } else { result(task, None) };
        last = tasks(&coordinator.step(START, received(5, reply)));
    }
    let effects = coordinator.step(START, received(6, result(&last[0], None)));
    assert_eq!(outcome(&effects).unwrap().degraded, [format!("unjudged:{}", 40 - count)]);
}

#[test]
fn rates_of_nothing_and_of_all_mean_it() {
    let run = run(1);
    let ids = (0..1_000).map(|at| TaskId::planned(&IntentId::from_string("i"), &run, at));
    let count = |rate: f64| ids.clone().filter(|id| is_judged(id, rate)).count();
    assert_eq!((count(0.0), count(1.0)), (0, 1_000));
    assert!((250..=350).contains(&count(0.3)), "{}", count(0.3));
}

#[test]
fn agents_that_change_hold_for_what_is_planned_from_then_on() {
    let mut coordinator = coordinator_of(settings());
    coordinator.step(START, received(1, intent("a", "llm", 5)));
    let early = fragment("a", 1, &run(1), 0, vec![scout(0)], None);
    let effects = coordinator.step(START, received(2, early));
    assert_eq!(job(&tasks(&effects)[0]).agent, "worker", "nobody knows the other one");
    let agents = with_scout(research()).agents;
    let known = KnownAgents { agents, costs: CallCosts::default() };
    coordinator.step(START, Event::Agents(Arc::new(known)));
    let late = fragment("a", 1, &run(1), 1, vec![scout(1)], plan_end());
    let effects = coordinator.step(Timestamp(START.0 + 1), received(3, late));
    assert_eq!(job(&tasks(&effects)[0]).agent, "scout");
    assert_eq!(sent_to(&effects).len(), 1);
    assert!(sent_to(&effects).keys().all(|(pool, _)| pool == "research"));
}

#[test]
fn what_is_reserved_for_a_critic_is_enough_for_its_panel() {
    for (panel, calls) in [(1, 1), (3, 3)] {
        let mut settings = settings();
        settings.costs.critic_calls = panel;
        settings.costs.tries = 1;
        let mut coordinator = coordinator_of(settings);
        let limits = Limits { max_calls: Some(40), ..Limits::default() };
        coordinator.step(START, received(1, intent_within("a", "llm", limits)));
        let plan = fragment("a", 1, &run(1), 0, vec![spec(0, "t", &[])], plan_end());
        let task = tasks(&coordinator.step(START, received(2, plan))).remove(0);
        assert_eq!(job(&task).critic_allowance.unwrap().calls, calls);
        assert_eq!(job(&task).allowance.unwrap().calls, 1);
    }
}
