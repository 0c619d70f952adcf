//! What a tenant may take, and what becomes of its intents when that is gone.

use crate::builders::*;
use crate::tenants_world::{Fate, TenantsWorld, Wish};
use starling_engine::coordinator::budget::Budget;
use starling_engine::coordinator::{
    AgentCost, Coordinator, CoordinatorSettings, Effect, Event, TenantBudget, TenantBudgets,
};
use starling_protocol::state::{Amount, Entity};
use starling_protocol::topic::partition_of;
use starling_protocol::{
    Body, Envelope, IntentId, LeaseGrant, LeaseRequest, Limits, OutcomeStatus, Timestamp,
};
use std::collections::BTreeMap;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

fn calls(most: i64) -> Budget {
    Budget { calls: Some(most), ..Budget::default() }
}

fn sharing(budget: Budget, per: Duration, coordinator_partitions: i32) -> CoordinatorSettings {
    let others = Some(TenantBudget { budget, per });
    let tenants = TenantBudgets { others, named: BTreeMap::from([("free".to_owned(), None)]) };
    CoordinatorSettings { coordinator_partitions, tenants, max_tasks: 10, ..priced() }
}

fn wish(single: bool, tasks: usize, share: i64) -> Wish {
    let tasks = (0..tasks).map(|at| spec(i32::try_from(at).unwrap(), &format!("k{at}"), &[]));
    Wish {
        tenant: "acme",
        single,
        limits: Limits::default(),
        tasks: tasks.collect(),
        fates: vec![Fate::Takes(share)],
    }
}

/// Intents whose names belong to that partition.
fn names_in(partition: i32, partitions: i32, count: usize) -> Vec<IntentId> {
    let all = (0..).map(|at| id(&format!("i{at}")));
    all.filter(|id| partition_of(id.as_str(), partitions) == partition).take(count).collect()
}

fn ended(settings: CoordinatorSettings, wishes: impl IntoIterator<Item = (IntentId, Wish)>) -> TenantsWorld {
    let mut world = TenantsWorld::new(settings, wishes.into_iter().collect(), 0);
    world.drain();
    world
}

#[test]
fn whichever_partition_needs_it_gets_it_to_the_last_call() {
    for spread in [false, true] {
        let names: Vec<IntentId> = match spread {
            false => names_in(3, 5, 40),
            true => (0..40).map(|at| id(&format!("i{at}"))).collect(),
        };
        let world = ended(sharing(calls(100), DAY, 5), names.into_iter().map(|id| (id, wish(true, 0, 8))));
        let spent: i64 = world.outcomes.values().map(|outcome| outcome.calls).sum();
        assert_eq!(spent, 100, "spread: {spread}");
        let status = |status| world.outcomes.values().filter(|outcome| outcome.status == status).count();
        let (succeeded, over) = (status(OutcomeStatus::Succeeded), status(OutcomeStatus::OverBudget));
        assert_eq!(succeeded + over, 40);
        assert!(succeeded >= 25, "{succeeded} had up to four calls of a hundred");
    }
}

#[test]
fn an_intent_that_its_tenant_can_pay_no_more_ends_with_what_it_has() {
    let world = ended(sharing(calls(12), DAY, 3), [(id("a"), wish(false, 8, 8))]);
    let outcome = &world.outcomes[&id("a")];
    assert_eq!(outcome.status, OutcomeStatus::OverBudget, "{outcome:#?}");
    assert!(!outcome.answer.is_empty() && outcome.calls <= 12, "{outcome:#?}");
    let reason = format!(
        "the budget of tenant acme, 12 calls in 1d, was used up: {} of 8 tasks were left out",
        8 - outcome.tasks.succeeded
    );
    assert_eq!(outcome.reason, reason);
    assert!(outcome.tasks.succeeded >= 4, "{outcome:#?}");
}

#[test]
fn what_is_kept_for_answers_is_used_by_others_in_the_end() {
    let names = (0..6).map(|at| id(&format!("i{at}")));
    let world = ended(sharing(calls(60), DAY, 3), names.map(|id| (id, wish(false, 8, 8))));
    let answers = world.outcomes.values().filter(|outcome| !outcome.answer.is_empty()).count();
    let told: Vec<_> = world.outcomes.values().map(|o| (o.status, o.calls, o.reason.as_str())).collect();
    assert!(answers >= 3, "{told:#?}");
    let spent: i64 = world.outcomes.values().map(|outcome| outcome.calls).sum();
    assert!((50..=60).contains(&spent), "{spent}");
}

#[test]
fn the_next_window_has_the_whole_again() {
    let settings = sharing(calls(8), Duration::from_secs(60), 1);
    let mut one = One::new(settings);
    for window in 0..3 {
        one.now = Timestamp(1_020_000 + window * 60_000);
        let name = format!("i{window}");
        let tasks = one.until_task(&name, "single");
        assert_eq!(job(&tasks).allowance.map(|allowance| allowance.calls), Some(4), "window {window}");
        assert_eq!(one.purse().1, Amount { calls: 4, ..one.purse().1 });
    }
}

#[test]
fn what_nobody_pays_for_costs_no_record() {
    let wish = Wish { tenant: "free", ..wish(false, 4, 8) };
    let world = ended(sharing(calls(1), DAY, 3), (0..4).map(|at| (id(&format!("i{at}")), wish.clone())));
    assert!(world.outcomes.values().all(|outcome| outcome.status == OutcomeStatus::Succeeded));
    assert_eq!((world.leases, world.purses().len()), (0, 0));
}

#[test]
fn what_can_never_be_paid_is_told_before_anything_is_asked() {
    let unpriced = || {
        let mut settings = sharing(Budget { cost_usd: Some(90.0), ..Budget::default() }, DAY, 1);
        settings.costs.critic = AgentCost { model: "judge-1".into(), ..AgentCost::default() };
        settings
    };
    let full = CoordinatorSettings { max_tenants: 0, ..sharing(calls(100), DAY, 1) };
    let table = [
        (
            sharing(calls(3), DAY, 1),
            OutcomeStatus::OverBudget,
            "tenant acme has 3 calls in 1d: the budget of 3 calls does not cover a plan, a task and an answer",
        ),
        (
            unpriced(),
            OutcomeStatus::Rejected,
            "the budget of tenant acme, $90 in 1d, cannot be kept: model.prices has no price for judge-1",
        ),
        (
            full,
            OutcomeStatus::OverBudget,
            "there are purses of 0 tenants, and no room for that of another one",
        ),
    ];
    for (settings, status, reason) in table {
        let effects = coordinator(settings).step(START, received(1, intent("a", "llm", 5)));
        let outcome = outcome(&effects).unwrap();
        assert_eq!((outcome.status, kinds(&effects)), (status, vec!["Outcome"]), "{outcome:?}");
        assert!(outcome.reason.starts_with(reason), "{}", outcome.reason);
    }
}

/// One partition, which is its own bank, and what it sends itself.
struct One {
    coordinator: Coordinator,
    now: Timestamp,
    offset: i64,
}

impl One {
    fn new(settings: CoordinatorSettings) -> Self {
        Self { coordinator: coordinator(settings), now: START, offset: 0 }
    }

    fn receive(&mut self, envelope: Envelope) -> Vec<Effect> {
        self.offset += 1;
        self.coordinator.step(self.now, received(self.offset, envelope))
    }

    fn tick(&mut self) -> Vec<Effect> {
        self.now = self.coordinator.next_timer().unwrap().max(self.now);
        self.coordinator.step(self.now, Event::Tick)
    }

    /// Publishes an intent, and carries what it sends to itself until there is a task.
    fn until_task(&mut self, name: &str, strategy: &str) -> Envelope {
        let mut effects = self.receive(intent(name, strategy, 5));
        for _ in 0..4 {
            if let Some(task) = tasks(&effects).pop() {
                return task;
            }
            let next = sent(&effects).next().expect("it goes on").clone();
            effects = self.receive(next);
        }
        panic!("no task: {effects:#?}");
    }

    /// Of the last purse: leased, open, spent.
    fn purse(&self) -> (Amount, Amount, Amount) {
        let purse = |entity| match entity {
            Entity::Purse(purse) => Some(purse),
            _ => None,
        };
        let purses = self.coordinator.entities().into_iter().filter_map(purse);
        let last = purses.max_by_key(|purse| purse.window).unwrap();
        (last.leased, last.open, last.spent)
    }
}

fn request(effects: &[Effect]) -> Option<LeaseRequest> {
    sent(effects).find_map(|envelope| match &envelope.body {
        Body::LeaseRequest(request) => Some(request.clone()),
        _ => None,
    })
}

#[test]
fn a_request_that_is_lost_is_made_again_and_an_answer_that_was_overtaken_is_none() {
    let mut one = One::new(sharing(calls(40), DAY, 1));
    let effects = one.receive(intent("a", "single", 5));
    let first = request(&effects).unwrap();
    assert_eq!((first.asked, first.need.map(|need| need.calls)), (1, Some(1)));
    assert_eq!(kinds(&one.tick()), ["LeaseRequest"], "it was lost");
    let again = one.tick();
    let second = request(&again).unwrap();
    assert_eq!(second.asked, 3);
    // The answer to the first comes after all.
    let header = sent(&effects).next().unwrap().clone();
    let grant = LeaseGrant {
        window: first.window,
        asked: 1,
        leased: Amount { calls: 40, ..Amount::default() },
        granted: true,
        most: Amount { calls: 40, ..Amount::default() },
        moving: false,
        refusal: None,
    };
    let late = Envelope { intent_id: first.purse, body: Body::LeaseGrant(grant), ..header };
    assert!(kinds(&one.receive(late)).is_empty());
    let answered = one.receive(sent(&again).next().unwrap().clone());
    let task = one.receive(sent(&answered).next().unwrap().clone());
    assert_eq!(tasks(&task).len(), 1);
}

#[test]
fn what_is_not_reserved_is_given_back_after_a_while_and_what_is_spent_is_told() {
    let mut one = One::new(sharing(calls(40), DAY, 1));
    let task = one.until_task("a", "single");
    assert_eq!((one.purse().0.calls, one.purse().1.calls), (40, 4), "one partition has all of it");
    let effects = one.tick();
    let told = request(&effects).unwrap();
    assert_eq!((told.held.calls, told.spent.calls, told.need), (4, 0, None));
    let grant = one.receive(sent(&effects).next().unwrap().clone());
    one.receive(sent(&grant).next().unwrap().clone());
    assert_eq!(kinds(&one.receive(result(&task, None))), ["Outcome"]);
    let told = request(&one.tick()).unwrap();
    assert_eq!((told.held.calls, told.spent.calls, told.need), (1, 1, None));
}

#[test]
fn what_ends_before_it_says_what_it_took_counts_in_full() {
    let mut one = One::new(sharing(calls(40), DAY, 1));
    one.until_task("a", "single");
    one.receive(cancel("a"));
    let (_, open, spent) = one.purse();
    assert_eq!((open.calls, spent.calls), (0, 4));
}

#[test]
fn a_bank_has_room_for_the_books_of_so_many_tenants() {
    let settings = CoordinatorSettings { max_tenants: 1, ..sharing(calls(40), DAY, 1) };
    let mut one = One::new(settings);
    let request = |tenant: &str| {
        let window = Timestamp(0);
        let body = LeaseRequest {
            purse: IntentId::purse(tenant, window, 0, 1),
            partition: 0,
            window,
            asked: 1,
            held: Amount::default(),
            spent: Amount::default(),
            kept: Amount::default(),
            need: Some(Amount { calls: 1, ..Amount::default() }),
        };
        let of = envelope(&IntentId::bank(tenant, window), 0, Body::LeaseRequest(body));
        Envelope { tenant: tenant.to_owned(), ..of }
    };
    let refusals: Vec<bool> = ["a", "b", "c", "d", "a"]
        .map(|tenant| {
            let effects = one.receive(request(tenant));
            sent(&effects).any(|envelope| match &envelope.body {
                Body::LeaseGrant(grant) => grant.refusal.is_some(),
                other => panic!("{}", other.kind()),
            })
        })
        .into();
    assert_eq!(refusals, [false, false, false, true, false]);
}

/// What a step decides is one record: it must not end everybody at once.
#[test]
fn no_step_ends_more_than_a_few_intents_for_want_of_money() {
    let mut one = One::new(sharing(calls(4), DAY, 1));
    let task = one.until_task("first", "single");
    let mut reply = result(&task, None);
    if let Body::TaskResult(result) = &mut reply.body {
        result.report = report(4);
    }
    one.receive(reply);
    let mut asked = Vec::new();
    for at in 0..40 {
        asked.extend(one.receive(intent(&format!("i{at}"), "single", 5)));
    }
    let mut ended = 0;
    while ended < 40 {
        let Some(envelope) = sent(&asked).find(|envelope| envelope.intent_id.is_address()).cloned() else {
            asked = one.tick();
            continue;
        };
        let effects = one.receive(envelope);
        let outcomes = kinds(&effects).into_iter().filter(|kind| *kind == "Outcome").count();
        assert!(outcomes <= 16, "{outcomes} at once");
        ended += outcomes;
        asked = effects;
    }
}
