//! Random plans, replies, orders, duplicates, crashes and take-overs: the invariants hold.

use crate::builders::{id, priced, spec};
use crate::world::{PlanScript, Reply, Script, World};
use proptest::collection::vec;
use proptest::prelude::*;
use starling_engine::coordinator::{AgentRules, CoordinatorSettings};
use starling_protocol::{Limits, TaskSpec};
use std::collections::HashMap;

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        6 => (0.0..1.0_f64).prop_map(Reply::Score),
        1 => Just(Reply::Unparseable),
        1 => Just(Reply::Unavailable),
        2 => Just(Reply::FailsOnce),
        1 => Just(Reply::FailsForGood),
        1 => Just(Reply::Silent),
    ]
}

fn plan_script() -> impl Strategy<Value = PlanScript> {
    prop_oneof![
        6 => (1..5_usize).prop_map(PlanScript::Good),
        2 => (1..4_usize).prop_map(PlanScript::Crash),
        1 => Just(PlanScript::Circle),
        1 => Just(PlanScript::Fails),
        1 => Just(PlanScript::Silent),
    ]
}

/// A plan without circles in random order: the dependencies are bits over earlier ranks.
fn tasks() -> impl Strategy<Value = Vec<TaskSpec>> {
    (1..9_usize).prop_flat_map(|count| {
        let order = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
        (order, vec((any::<u16>(), any::<bool>()), count)).prop_map(|(order, bits)| {
            let place = |rank: usize| order.iter().position(|&at| at == rank);
            let mut specs: Vec<TaskSpec> = bits
                .iter()
                .enumerate()
                .filter_map(|(rank, (bits, critic))| {
                    let on: Vec<String> =
                        (0..rank).filter(|on| bits >> on & 1 == 1).map(|on| format!("k{on}")).collect();
                    let on: Vec<&str> = on.iter().map(String::as_str).collect();
                    let ordinal = i32::try_from(place(rank)?).ok()?;
                    // Some are of another pool, and of some only a share is scored.
                    let agent =
                        ["worker", "worker", "scout", "spotcheck"][usize::from(bits >> 12) % 4].into();
                    Some(TaskSpec { critic: *critic, agent, ..spec(ordinal, &format!("k{rank}"), &on) })
                })
                .collect();
            specs.sort_by_key(|spec| spec.ordinal);
            specs
        })
    })
}

/// Of three intents one has a budget.
fn limits() -> impl Strategy<Value = Limits> {
    let calls = (1..60_i64).prop_map(|most| Limits { max_calls: Some(most), ..Limits::default() });
    let tokens = (1..120_i64).prop_map(|most| Limits { max_tokens: Some(most * 1_000), ..Limits::default() });
    let money =
        (1..120_i32).prop_map(|most| Limits { max_cost_usd: Some(f64::from(most)), ..Limits::default() });
    prop_oneof![6 => Just(Limits::default()), 1 => calls, 1 => tokens, 1 => money]
}

fn script() -> impl Strategy<Value = Script> {
    (
        prop::bool::weighted(0.2),
        0..10,
        limits(),
        tasks(),
        vec(plan_script(), 1..4),
        vec(vec(reply(), 1..4), 1..9),
        vec(prop_oneof![4 => Just(Reply::Score(1.0)), 1 => reply()], 1..3),
    )
        .prop_map(|(single, priority, limits, tasks, plans, replies, synthesis)| Script {
            single,
            priority,
            limits,
            tasks,
            plans,
            replies,
            synthesis,
        })
}

fn with_agents() -> CoordinatorSettings {
    let mut settings = priced();
    let scout = AgentRules { pool: Some("research".into()), max_attempts: Some(2), ..AgentRules::default() };
    let spotcheck = AgentRules { critic_rate: Some(0.5), ..AgentRules::default() };
    settings.agents.extend([("scout".into(), scout), ("spotcheck".into(), spotcheck)]);
    settings
}

proptest! {
    #[test]
    fn invariants_hold_whatever_happens(
        scripts in vec(script(), 1..5),
        happenings in vec((any::<u8>(), any::<u16>()), 0..300),
        min_window in 1..12_usize,
        intent_window in 1..6_usize,
        max_live in 1..4_usize,
        // A result has 25 tokens: from all of them in one prompt down to not even two.
        texts_tokens in prop_oneof![Just(24_000_i64), 40..120_i64],
    ) {
        let mut settings = CoordinatorSettings {
            min_window,
            intent_window,
            max_live,
            ..with_agents()
        };
        settings.costs.texts_tokens = texts_tokens;
        let scripts: HashMap<_, _> =
            scripts.into_iter().enumerate().map(|(at, script)| (id(&format!("i{at}")), script)).collect();
        let mut world = World::new(settings, scripts);
        for (what, which) in happenings {
            world.happen(what, usize::from(which));
        }
        world.drain();
    }
}

/// The random worlds are worth something only if they end in different ways.
#[test]
fn random_worlds_end_in_every_way() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut ways: HashMap<&str, usize> = HashMap::new();
    for _ in 0..150 {
        let script = script().new_tree(&mut runner).unwrap().current();
        let happenings = vec((any::<u8>(), any::<u16>()), 100).new_tree(&mut runner).unwrap().current();
        let mut world = World::new(with_agents(), HashMap::from([(id("i"), script)]));
        for (what, which) in happenings {
            world.happen(what, usize::from(which));
        }
        world.drain();
        for status in world.decided.statuses() {
            *ways.entry(status.name()).or_default() += 1;
        }
    }
    for way in ["succeeded", "partial", "failed", "cancelled", "over_budget"] {
        assert!(ways.get(way).is_some_and(|&n| n >= 3), "{ways:?}");
    }
}
