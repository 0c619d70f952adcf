//! Tenants with budgets amid random orders, losses, duplicates, crashes and take-overs of several coordinators.

use crate::builders::{id, priced, spec};
use crate::tenants_world::{Fate, TenantsWorld, Wish};
use proptest::collection::vec;
use proptest::prelude::*;
use starling_engine::coordinator::budget::Budget;
use starling_engine::coordinator::{CoordinatorSettings, TenantBudget, TenantBudgets};
use starling_protocol::{Limits, TaskSpec};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        12 => (0..9_i64).prop_map(Fate::Takes),
        2 => (0..9_i64).prop_map(Fate::Fails),
        1 => Just(Fate::Silent),
        1 => Just(Fate::Late),
    ]
}

fn tasks(count: usize) -> Vec<TaskSpec> {
    let one = |at: usize| {
        let on = if at % 3 == 2 { vec![format!("k{}", at - 1)] } else { Vec::new() };
        let on: Vec<&str> = on.iter().map(String::as_str).collect();
        TaskSpec { critic: at.is_multiple_of(2), ..spec(i32::try_from(at).unwrap(), &format!("k{at}"), &on) }
    };
    (0..count).map(one).collect()
}

fn wish() -> impl Strategy<Value = Wish> {
    let limits = prop_oneof![
        4 => Just(Limits::default()),
        1 => (4..40_i64).prop_map(|most| Limits { max_calls: Some(most), ..Limits::default() }),
    ];
    let tenant = prop_oneof![6 => Just("acme"), 3 => Just("shop"), 1 => Just("free")];
    (tenant, prop::bool::weighted(0.2), limits, 1..5_usize, vec(fate(), 1..6)).prop_map(
        |(tenant, single, limits, count, fates)| Wish { tenant, single, limits, tasks: tasks(count), fates },
    )
}

fn budget() -> impl Strategy<Value = Budget> {
    prop_oneof![
        4 => (4..120_i64).prop_map(|most| Budget { calls: Some(most), ..Budget::default() }),
        3 => (30..600_i64).prop_map(|most| Budget { tokens: Some(most * 1_000), ..Budget::default() }),
        1 => (30..300_i32).prop_map(|most| Budget { cost_usd: Some(f64::from(most)), ..Budget::default() }),
        1 => (10..90_i64).prop_map(|most| {
            Budget { calls: Some(most), tokens: Some(most * 4_000), cost_usd: Some(1_000.0) }
        }),
    ]
}

/// A world: partitions, seconds of a window, intents, and of ten records between coordinators how many are lost.
fn world() -> impl Strategy<Value = TenantsWorld> {
    let seconds = prop_oneof![Just(10_u64), Just(60), Just(86_400)];
    (1..5_i32, seconds, budget(), budget(), vec(wish(), 1..9), 0..4_usize).prop_map(
        |(coordinator_partitions, seconds, acme, shop, wishes, losing)| {
            let of = |budget| Some(TenantBudget { budget, per: Duration::from_secs(seconds) });
            let named = BTreeMap::from([("acme".to_owned(), of(acme)), ("free".to_owned(), None)]);
            let settings = CoordinatorSettings {
                coordinator_partitions,
                tenants: TenantBudgets { others: of(shop), named },
                max_tasks: 8,
                ..priced()
            };
            let wishes = wishes.into_iter().enumerate().map(|(at, wish)| (id(&format!("i{at}")), wish));
            TenantsWorld::new(settings, wishes.collect(), losing)
        },
    )
}

impl std::fmt::Debug for TenantsWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.described())
    }
}

proptest! {
    #[test]
    fn tenants_keep_within_their_budgets_whatever_happens(
        mut world in world(),
        happenings in vec((any::<u8>(), any::<u16>()), 0..400),
    ) {
        for (what, which) in happenings {
            world.happen(what, usize::from(which));
        }
        world.drain();
    }
}

/// The random worlds are worth something only if they end in different ways, for the tenants' budgets too.
#[test]
fn random_tenants_end_in_every_way() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let (mut ways, mut refused, mut leases): (HashMap<&str, usize>, _, _) = (HashMap::new(), 0, 0);
    for _ in 0..60 {
        let mut world = world().new_tree(&mut runner).unwrap().current();
        let happenings = vec((any::<u8>(), any::<u16>()), 100).new_tree(&mut runner).unwrap().current();
        for (what, which) in happenings {
            world.happen(what, usize::from(which));
        }
        world.drain();
        leases += world.leases;
        for outcome in world.outcomes.values() {
            *ways.entry(outcome.status.name()).or_default() += 1;
            refused += usize::from(outcome.reason.starts_with("the budget of tenant"));
        }
    }
    for way in ["succeeded", "partial", "over_budget"] {
        assert!(ways.get(way).is_some_and(|&n| n >= 3), "{ways:?}");
    }
    assert!(refused >= 10 && leases >= 200, "{refused} refused, {leases} records between coordinators");
}
