//! The whole path in one process, on the bus in memory: one record in, one outcome out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod malformed;

use starling_agents::AgentCatalogue;
use starling_llm::{
    Backoff, Model, OfflineModel, OpenAiModel, OpenAiOptions, Price, Purpose,
    mock::{MockAction, MockOptions, MockServer, chaos::Kind, scripts},
};
use starling_protocol::{Body, Outcome, OutcomeStatus, TaskState, Topic, Usage};
use starling_runtime::{Node, Settings};
use starling_service::{
    Parts, library,
    testing::{Answer, Ear, ScriptedModel, memory_node, publish_raw},
};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, Ordering},
};
use std::time::Duration;

/// All services on one node.
async fn swarm(model: Arc<dyn Model>) -> (Node, Ear) {
    swarm_with(model, &[]).await
}

/// The same with further settings.
async fn swarm_with(model: Arc<dyn Model>, settings: &[(&str, &str)]) -> (Node, Ear) {
    let mut overrides = vec![
        ("topics.partitions.coordinator", "2"),
        ("topics.partitions.worker", "8"),
        ("topics.partitions.critic", "2"),
        ("fleet.interval", "100ms"),
    ];
    overrides.extend(settings);
    let node = memory_node(&overrides).await;
    let (catalogue, playbooks) = library(&node.settings).unwrap();
    let parts = Parts { model, agents: Arc::new(catalogue).into(), playbooks: Arc::new(playbooks) };
    tokio::spawn(starling_planner::serve(node.clone(), parts.clone()));
    tokio::spawn(starling_worker::serve(node.clone(), parts.clone()));
    tokio::spawn(starling_critic::serve(node.clone(), parts));
    let outcomes = Ear::on(&node, &Topic::Outcomes).await;
    (node, outcomes)
}

async fn outcome(ear: &Ear) -> (String, Outcome) {
    let heard = ear.next().await.envelope;
    match heard.body {
        Body::Outcome(outcome) => (heard.intent_id.as_str().to_owned(), outcome),
        other => panic!("expected an outcome, found {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_becomes_an_answer_without_kafka_and_without_a_key() {
    let (node, outcomes) = swarm(Arc::new(OfflineModel::new())).await;
    let intent = r#"{
        "id": "laptops-1",
        "goal": "Compare the laptops and recommend two",
        "inputs": [{"name": "laptops.csv", "media_type": "text/csv",
                    "content": "name,price,battery_hours\nAir,999,15\nPro,1999,18\nBook,499,8\n"}]
    }"#;
    publish_raw(&node, &Topic::Intents, intent).await;
    let (id, outcome) = outcome(&outcomes).await;
    assert_eq!(id, "laptops-1");
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{outcome:#?}");
    assert!(outcome.offline && !outcome.answer.is_empty(), "{outcome:#?}");
    assert!(outcome.tasks.total >= 1 && outcome.tasks.succeeded == outcome.tasks.total, "{outcome:#?}");
    assert!(outcome.calls > i64::from(outcome.tasks.total), "{outcome:#?}");
    node.shutdown.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_result_is_tried_again_with_the_critics_words_and_invalid_intents_are_answered() {
    let plan = r#"{"tasks":[
        {"key":"a","title":"First","instruction":"do a","agent":"worker","depends_on":[],"critic":true},
        {"key":"b","title":"Second","instruction":"do b","agent":"analyst","depends_on":["a"],"critic":false}]}"#;
    let model = ScriptedModel::new(move |request| {
        let user = &request.messages[1].text;
        Answer::Say(match request.purpose {
            Purpose::Plan => plan.to_owned(),
            Purpose::Work if user.contains("do b") => "b is done".to_owned(),
            Purpose::Work if user.contains("name the prices") => "second try".to_owned(),
            Purpose::Work => "first try".to_owned(),
            Purpose::Judge if user.contains("second try") => r#"{"score":0.9,"feedback":""}"#.to_owned(),
            Purpose::Judge => r#"{"score":0.2,"feedback":"name the prices"}"#.to_owned(),
            Purpose::Synthesize => "all together".to_owned(),
        })
    });
    let (node, outcomes) = swarm(model.clone()).await;

    publish_raw(&node, &Topic::Intents, r#"{"id":"bad","goal":""}"#).await;
    let (id, rejected) = outcome(&outcomes).await;
    assert_eq!((id.as_str(), rejected.status), ("bad", OutcomeStatus::Rejected));
    assert!(rejected.reason.contains("goal"), "{}", rejected.reason);

    publish_raw(&node, &Topic::Intents, r#"{"id":"good","goal":"g"}"#).await;
    let (_, outcome) = outcome(&outcomes).await;
    assert_eq!((outcome.status, outcome.answer.as_str()), (OutcomeStatus::Succeeded, "all together"));
    let reports: Vec<_> =
        outcome.task_reports.iter().map(|r| (r.title.as_str(), r.attempts, r.score)).take(2).collect();
    assert_eq!(reports, [("First", 2, Some(0.9)), ("Second", 1, None)]);
    // plan, a, judge, a again, judge, b, synthesis
    assert_eq!((outcome.calls, model.asked().len()), (7, 7), "{outcome:#?}");
    let second = model.asked().iter().find(|r| r.messages[1].text.contains("do b")).unwrap().clone();
    assert!(second.messages[1].text.contains("### First\nsecond try\n"));
    let metrics = node.metrics.encode();
    for line in [
        "starling_outcomes_total{status=\"rejected\"} 1",
        "starling_outcomes_total{status=\"succeeded\"} 1",
        "starling_outcomes_total{status=\"failed\"} 0",
        "starling_task_retries_total 1",
        "starling_orch_split_latency_count 1",
        "starling_intent_seconds_count 1",
    ] {
        assert!(metrics.contains(line), "{line} is missing: {metrics}");
    }
    node.shutdown.cancel();
}

/// Plans a hundred tasks; every reply takes 300 and 700 tokens, and of ten calls `failing` fail.
fn endpoint_for_a_hundred(failing: u64, tokens: Arc<AtomicI64>) -> MockServer {
    let script = scripts::fanout(100, scripts::Latencies::default());
    let script = Arc::new(move |call: &_| {
        let call: &starling_llm::mock::MockCall = call;
        if call.number * 7 % 10 < failing {
            return MockAction::error(500, "not now");
        }
        match script(call) {
            MockAction::Reply { text, .. } => {
                tokens.fetch_add(1_000, Ordering::SeqCst);
                let usage = Some(Usage { prompt_tokens: 300, completion_tokens: 700, cached_tokens: 0 });
                MockAction::Reply { text, usage, delay: Some(Duration::from_millis(5)) }
            }
            other => other,
        }
    });
    MockServer::start(MockOptions::new(script)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_kept_by_all_services_together_whatever_runs_at_once_and_fails() {
    const USD_FOR_A_THOUSAND: f64 = 1.0;
    for (limit, failing, panel) in [
        (r#""max_calls":50"#, 0, 1),
        (r#""max_calls":50"#, 3, 1),
        (r#""max_calls":50"#, 3, 3),
        (r#""max_tokens":80000"#, 0, 1),
        (r#""max_tokens":80000"#, 3, 1),
        (r#""max_tokens":80000"#, 0, 3),
        (r#""max_cost_usd":80"#, 0, 1),
        (r#""max_cost_usd":80"#, 3, 1),
    ] {
        let tokens = Arc::new(AtomicI64::new(0));
        let server = endpoint_for_a_hundred(failing, tokens.clone());
        let mut options = OpenAiOptions::new(server.base_url(), "m");
        options.backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(5) };
        let usd = USD_FOR_A_THOUSAND * 1_000.0;
        options.prices.insert("m".to_owned(), Price { input: usd, cached_input: usd, output: usd });
        let (url, members) = (server.base_url(), panel.to_string());
        let settings = [
            ("critic.panel", members.as_str()),
            ("model.base_url", url.as_str()),
            ("model.name", "m"),
            ("model.prices.m.input", "1000"),
            ("model.prices.m.output", "1000"),
            ("processor.slots.worker", "100"),
            ("processor.slots.critic", "100"),
        ];
        let (node, outcomes) = swarm_with(Arc::new(OpenAiModel::new(options).unwrap()), &settings).await;
        let intent = format!(r#"{{"id":"i","goal":"g","limits":{{{limit}}}}}"#);
        publish_raw(&node, &Topic::Intents, intent).await;
        let (_, outcome) = outcome(&outcomes).await;
        let (calls, tokens) = (server.stats().calls, tokens.load(Ordering::SeqCst));
        let name = format!(
            "{limit}, {failing} of ten fail, {panel} critics; {calls} calls, {tokens} tokens: {outcome:#?}"
        );
        assert_eq!(outcome.status, OutcomeStatus::OverBudget, "{name}");
        let (answer, missing) = outcome.answer.split_once("\n\n").unwrap();
        assert_eq!(answer, "All tasks are done.", "{name}");
        assert!(missing.starts_with("Not in this answer, because it failed:"), "{name}");
        let least = if panel == 1 { 10 } else { 4 };
        assert!(outcome.tasks.succeeded >= least && outcome.tasks.total == 100, "{name}");
        assert!(outcome.degraded.iter().any(|note| note.starts_with("over_budget:Task")), "{name}");
        // What was reported is what the endpoint saw, and within the budget.
        let told = outcome.usage.prompt_tokens + outcome.usage.completion_tokens;
        assert_eq!((outcome.calls, told), (i64::try_from(calls).unwrap(), tokens), "{name}");
        match limit {
            r#""max_calls":50"# => assert!(calls <= 50, "{name}"),
            _ => assert!(tokens <= 80_000, "{name}"),
        }
        node.shutdown.cancel();
    }
}

/// The intents of a tenant fall on several partitions, which know of each other only by what they lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_budget_of_a_tenant_is_kept_by_all_partitions_together() {
    // Less than one intent would take, which is 202 calls of 1,000 tokens: so whoever begins first, none is through.
    for (limit, failing, most) in [("max_calls", 0, 90), ("max_calls", 3, 90), ("max_tokens", 0, 180_000)] {
        let tokens = Arc::new(AtomicI64::new(0));
        let server = endpoint_for_a_hundred(failing, tokens.clone());
        let mut options = OpenAiOptions::new(server.base_url(), "m");
        options.backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(5) };
        let (url, bound, path) = (server.base_url(), most.to_string(), format!("tenants.shop.{limit}"));
        let settings = [
            ("model.base_url", url.as_str()),
            ("model.name", "m"),
            ("topics.partitions.coordinator", "3"),
            ("processor.slots.worker", "100"),
            ("processor.slots.critic", "100"),
            (path.as_str(), bound.as_str()),
            ("tenants.shop.per", "365d"),
            ("coordinator.lease_time", "100ms"),
            ("coordinator.lease_retry", "50ms"),
        ];
        let (node, outcomes) = swarm_with(Arc::new(OpenAiModel::new(options).unwrap()), &settings).await;
        for number in 0..5 {
            let intent = format!(r#"{{"id":"i{number}","goal":"g","tenant":"shop"}}"#);
            publish_raw(&node, &Topic::Intents, intent).await;
        }
        publish_raw(&node, &Topic::Intents, r#"{"id":"free","goal":"g","strategy":"single"}"#).await;
        let mut all = Vec::new();
        for _ in 0..6 {
            all.push(outcome(&outcomes).await);
        }
        let told: Vec<_> = all.iter().map(|(id, o)| (id, o.status, o.calls, o.reason.as_str())).collect();
        let name = format!("{most} {limit}, {failing} of ten fail: {told:#?}");
        let (free, shop): (Vec<_>, Vec<_>) = all.iter().partition(|(id, _)| id == "free");
        assert!(free.iter().all(|(_, outcome)| outcome.status == OutcomeStatus::Succeeded), "{name}");
        assert!(shop.iter().all(|(_, outcome)| outcome.status == OutcomeStatus::OverBudget), "{name}");
        let refused = |outcome: &Outcome| outcome.reason.starts_with("the budget of tenant shop, ");
        assert!(shop.iter().all(|(_, outcome)| refused(outcome)), "{name}");
        assert!(shop.iter().any(|(_, outcome)| !outcome.answer.is_empty()), "{name}");
        // What was reported is what the endpoint saw, and within the budget.
        let sum = |of: fn(&Outcome) -> i64| shop.iter().map(|(_, outcome)| of(outcome)).sum::<i64>();
        let (calls, used) = (sum(|outcome| outcome.calls), sum(|outcome| outcome.usage.total()));
        let of_free = free.iter().map(|(_, outcome)| outcome.calls).sum::<i64>();
        assert_eq!(calls + of_free, i64::try_from(server.stats().calls).unwrap(), "{name}");
        let taken = if limit == "max_calls" { calls } else { used };
        assert!(taken <= most && taken >= most / 4, "{taken} taken, {name}");
        if failing == 0 {
            // It is told a moment after it was decided.
            let line = format!("starling_tenant_calls{{tenant=\"shop\"}} {calls}.0");
            let told = async {
                while !node.metrics.encode().contains(&line) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            let told = tokio::time::timeout(Duration::from_secs(10), told).await;
            assert!(told.is_ok(), "{line} is missing: {}", node.metrics.encode());
        }
        node.shutdown.cancel();
    }
}

/// Whoever condenses or answers is told of each result once, within the prompt that there is room for, and what the answer
/// cites is known by its number through all levels.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_outgrow_the_prompt_are_condensed_and_stay_citable() {
    const TASKS: usize = 60;
    const PROMPT: usize = 4 << 10;
    let numbers = |text: &str| -> Vec<usize> {
        text.split('[').filter_map(|part| part.split_once(']')?.0.parse().ok()).collect()
    };
    let model = ScriptedModel::new(move |request| {
        let user = &request.messages[1].text;
        Answer::Say(match request.purpose {
            Purpose::Plan => {
                let task = |n| {
                    format!(
                        r#"{{"key":"k{n}","title":"Part {n}","instruction":"do {n}","agent":"worker","depends_on":[],"critic":false}}"#
                    )
                };
                format!("{{\"tasks\":[{}]}}", (1..=TASKS).map(task).collect::<Vec<_>>().join(","))
            }
            Purpose::Work => "a fact. ".repeat(40),
            Purpose::Judge => r#"{"score":0.9,"feedback":""}"#.to_owned(),
            Purpose::Synthesize => {
                assert!(user.len() < PROMPT + (2 << 10), "{} bytes", user.len());
                assert!(!user.contains("bytes left out"), "{user}");
                numbers(user).iter().map(|n| format!("A fact [{n}]. ")).collect()
            }
        })
    });
    let (node, outcomes) = swarm_with(model.clone(), &[("agents.prompt", "4KiB")]).await;
    publish_raw(&node, &Topic::Intents, r#"{"id":"i","goal":"g"}"#).await;
    let (_, outcome) = outcome(&outcomes).await;
    assert_eq!((outcome.status, outcome.degraded.len()), (OutcomeStatus::Succeeded, 0), "{outcome:#?}");
    assert_eq!(numbers(&outcome.answer), (1..=TASKS).collect::<Vec<_>>());
    let (planned, others): (Vec<_>, Vec<_>) =
        outcome.task_reports.iter().partition(|report| report.title.starts_with("Part "));
    assert_eq!(planned.iter().filter(|report| report.cited).count(), TASKS);
    let digests = others.iter().filter(|report| report.agent == "reducer").count();
    assert!((5..20).contains(&digests), "{digests} digests");
    node.shutdown.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hardly_a_task_fails_for_replies_that_are_bad_in_every_way() {
    const INTENTS: usize = 40;
    const TASKS: usize = 100;
    // One step back by two: kinds that are alike stand side by side, and come half a round, or 420 calls, apart. Closer,
    // both questions of one call could be held back.
    const STRIDE: usize = Kind::ALL.len() - 2;
    const { assert!(Kind::ALL.len() % 2 == 1, "else not every kind has its turn") };
    let script = scripts::fanout(TASKS, scripts::Latencies::default());
    let server = MockServer::start(MockOptions::new(Arc::new(move |call| {
        // Every twentieth reply is bad, in each way in turn.
        let turn = usize::try_from(call.number / 20).unwrap() * STRIDE % Kind::ALL.len();
        match script(call) {
            MockAction::Reply { text, .. } if call.number % 20 == 0 => {
                Kind::ALL[turn].act(call, &text, Duration::ZERO)
            }
            action => action,
        }
    })));
    let server = server.unwrap();
    let mut options = OpenAiOptions::new(server.base_url(), "m");
    options.backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(5) };
    options.max_response_bytes = 1 << 20;
    let settings = [
        ("processor.slots.worker", "20"),
        ("processor.slots.critic", "20"),
        ("coordinator.max_plan_attempts", "10"),
    ];
    let (node, outcomes) = swarm_with(Arc::new(OpenAiModel::new(options).unwrap()), &settings).await;
    for n in 0..INTENTS {
        publish_raw(&node, &Topic::Intents, format!(r#"{{"id":"i{n}","goal":"g{n}"}}"#)).await;
    }
    let (mut all, mut failed) = (0, Vec::new());
    for _ in 0..INTENTS {
        let (_, outcome) = outcome(&outcomes).await;
        assert!(!outcome.answer.is_empty(), "{outcome:#?}");
        all += outcome.task_reports.len();
        failed.extend(outcome.task_reports.into_iter().filter(|task| task.status != TaskState::Succeeded));
    }
    assert!(all >= INTENTS * TASKS);
    assert!(failed.len() * 10_000 <= 3 * all, "{failed:#?}");
    let calls = usize::try_from(server.stats().calls).unwrap();
    println!(
        "{all} tasks, {calls} calls, {} of them with a bad reply, {} tasks failed",
        calls / 20,
        failed.len()
    );
    node.shutdown.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_of_money_for_a_model_without_a_price_is_refused_before_anything_is_asked() {
    let model = ScriptedModel::saying("never asked");
    let settings = [("model.base_url", "http://127.0.0.1:9/v1"), ("model.name", "priceless")];
    let (node, outcomes) = swarm_with(model.clone(), &settings).await;
    publish_raw(&node, &Topic::Intents, r#"{"id":"i","goal":"g","limits":{"max_cost_usd":1}}"#).await;
    let (_, outcome) = outcome(&outcomes).await;
    assert_eq!(outcome.status, OutcomeStatus::Rejected);
    assert!(outcome.reason.contains("model.prices has no price for priceless"), "{}", outcome.reason);
    assert!(model.asked().is_empty());
    node.shutdown.cancel();
}

/// The built-in agents, and one whose tasks are for the pool `research`.
fn with_scout() -> Arc<AgentCatalogue> {
    let dir = tempfile::tempdir().unwrap();
    let scout = "name = \"scout\"\ndescription = \"d\"\npurpose = \"work\"\npool = \"research\"\nprompt = \"Look.\"\n";
    std::fs::write(dir.path().join("scout.toml"), scout).unwrap();
    Arc::new(AgentCatalogue::load(Some(dir.path())).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tasks_of_an_agent_are_done_by_the_workers_of_its_pool() {
    let task = |key: &str, agent: &str| {
        format!(
            r#"{{"key":"{key}","title":"{key}","instruction":"do {key}","agent":"{agent}","depends_on":[],"critic":true}}"#
        )
    };
    let plan = [task("a", "worker"), task("b", "scout"), task("c", "scout")].join(",");
    let model = ScriptedModel::new(move |request| {
        Answer::Say(match request.purpose {
            Purpose::Plan => format!("{{\"tasks\":[{plan}]}}"),
            Purpose::Judge => r#"{"score":0.9,"feedback":""}"#.to_owned(),
            _ => "done".to_owned(),
        })
    });
    let node = memory_node(&[
        ("topics.partitions.coordinator", "2"),
        ("topics.partitions.worker", "8"),
        ("topics.pools", "research:3"),
        ("fleet.interval", "100ms"),
    ])
    .await;
    let (_, playbooks) = library(&node.settings).unwrap();
    let parts = Parts { model, agents: with_scout().into(), playbooks: Arc::new(playbooks) };
    tokio::spawn(starling_planner::serve(node.clone(), parts.clone()));
    tokio::spawn(starling_critic::serve(node.clone(), parts.clone()));
    let results = Ear::on(&node, &Topic::Critic).await;
    for pool in ["default", "research"] {
        let settings = Settings { worker_pools: vec![pool.to_owned()], ..Settings::clone(&node.settings) };
        let member = Node { process: pool.into(), settings: Arc::new(settings), ..node.clone() };
        tokio::spawn(starling_worker::serve(member, parts.clone()));
    }
    let outcomes = Ear::on(&node, &Topic::Outcomes).await;
    publish_raw(&node, &Topic::Intents, r#"{"id":"pools","goal":"g"}"#).await;
    let (_, outcome) = outcome(&outcomes).await;
    assert_eq!((outcome.status, outcome.tasks.succeeded), (OutcomeStatus::Succeeded, 3), "{outcome:#?}");
    for _ in 0..3 {
        let Body::TaskResult(result) = results.next().await.envelope.body else { panic!("no result") };
        let expected = if result.title == "a" { "default" } else { "research" };
        assert_eq!(result.worker, expected, "{}", result.title);
    }
    node.shutdown.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_change_are_known_to_planner_coordinator_and_worker() {
    let plan = r#"{"tasks":[{"key":"a","title":"a","instruction":"i","agent":"scout","depends_on":[],"critic":false}]}"#;
    let model = ScriptedModel::new(move |request| {
        Answer::Say(match request.purpose {
            Purpose::Plan => plan.to_owned(),
            _ => "done".to_owned(),
        })
    });
    let node = memory_node(&[("topics.pools", "research:3"), ("fleet.interval", "100ms")]).await;
    let (change, agents) = tokio::sync::watch::channel(Arc::new(AgentCatalogue::load(None).unwrap()));
    let (_, playbooks) = library(&node.settings).unwrap();
    let parts = Parts { model: model.clone(), agents: agents.into(), playbooks: Arc::new(playbooks) };
    let settings = Settings { worker_pools: node.settings.all_pools(), ..Settings::clone(&node.settings) };
    let member = Node { settings: Arc::new(settings), ..node.clone() };
    tokio::spawn(starling_planner::serve(node.clone(), parts.clone()));
    tokio::spawn(starling_worker::serve(member, parts.clone()));
    tokio::spawn(starling_critic::serve(node.clone(), parts));
    let outcomes = Ear::on(&node, &Topic::Outcomes).await;
    let run = async |number: i32| {
        publish_raw(&node, &Topic::Intents, format!(r#"{{"id":"i-{number}","goal":"g"}}"#)).await;
        let (_, outcome) = outcome(&outcomes).await;
        assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{outcome:#?}");
        outcome.task_reports[0].agent.clone()
    };
    assert_eq!(run(0).await, "worker", "nobody knows a scout");
    change.send(with_scout()).unwrap();
    // The parts hear of it one by one; whoever does not know it yet takes the worker.
    let mut number = 1;
    while run(number).await != "scout" {
        number += 1;
        assert!(number < 1_000, "the coordinator has never heard of it");
    }
    let asked = model.asked();
    let work = asked.iter().rfind(|asked| asked.purpose == Purpose::Work).unwrap();
    assert_eq!(work.messages[0].text, "Look.", "the worker has its prompt");
    let last_plan = asked.iter().rfind(|asked| asked.purpose == Purpose::Plan).unwrap();
    assert!(last_plan.messages[1].text.contains("- scout: "), "the planner can name it");
    node.shutdown.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn support_is_answered_by_rule_where_the_model_is_too_slow() {
    // An endpoint that is slower than any time that a task may have: it never answers.
    let server = MockServer::start(MockOptions::new(Arc::new(|_| MockAction::hold_then_reply("too late"))));
    let server = server.unwrap();
    // The playbook as it is shipped, but for how long somebody waits.
    let folder = tempfile::tempdir().unwrap();
    for name in ["order-inquiry", "product-recommendation"] {
        let shipped = format!("{}/../../playbooks/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let shipped = std::fs::read_to_string(shipped).unwrap();
        assert!(shipped.contains("timeout = \"5s\""));
        let impatient = shipped.replace("timeout = \"5s\"", "timeout = \"50ms\"");
        std::fs::write(folder.path().join(format!("{name}.toml")), impatient).unwrap();
    }
    let folder = folder.path().to_str().unwrap();
    let options = OpenAiOptions::new(server.base_url(), "m");
    let model = Arc::new(OpenAiModel::new(options).unwrap());
    let (node, outcomes) = swarm_with(model, &[("playbooks.dir", folder)]).await;
    for (intent, keys, said) in [
        (
            r#"{"strategy":"playbook:order-inquiry","parameters":{"order_id":4711,"message":"Where is it?"}}"#,
            &["question", "status", "rules", "reply", "synthesis"],
            "Thank you for your message about order 4711.",
        ),
        (
            r#"{"strategy":"playbook:product-recommendation","parameters":{"need":"a warm coat"}}"#,
            &["needs", "candidates", "fit", "doubts", "synthesis"],
            "No reservations were looked up.",
        ),
    ] {
        publish_raw(&node, &Topic::Intents, intent).await;
        let (_, outcome) = outcome(&outcomes).await;
        assert_eq!((outcome.status, outcome.tasks.succeeded), (OutcomeStatus::Succeeded, 4), "{outcome:#?}");
        assert!(outcome.answer.contains(said), "{}", outcome.answer);
        let mut degraded = outcome.degraded.clone();
        degraded.sort();
        let mut expected: Vec<String> = keys.iter().map(|key| format!("rule_based:{key}")).collect();
        expected.sort();
        assert_eq!(degraded, expected);
        assert!(outcome.task_reports.iter().all(|task| task.attempts == 1), "{outcome:#?}");
    }
    server.release_for_good();
    node.shutdown.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_goes_bad_after_its_first_task_is_asked_for_once_more_with_what_was_wrong() {
    const GOOD: &str = r#"{"tasks":[{"key":"a","title":"A","instruction":"do a","critic":false}"#;
    let wordy = format!(r#",{{"key":"b","instruction":"{}"}}]}}"#, "word ".repeat(300));
    for (rest, wrong) in [
        // The first task has been given out by then: nobody can take it back and ask again in silence.
        (r#",{"key":"b","instruction":["#, "does not end"),
        (r#",{"key":"b"}]}"#, "task 2: instruction: expected a text"),
        (wordy.as_str(), "task 2: instruction: expected at most 200 tokens"),
        (r#",{"key":"b","instruction":"x","depends_on":["z"]}]}"#, "depends on \"z\""),
    ] {
        let plans = Arc::new(Mutex::new(Vec::new()));
        let (asked, rest) = (plans.clone(), rest.to_owned());
        let server = MockServer::start(MockOptions::new(Arc::new(move |call| match call.purpose {
            Purpose::Plan => {
                let feedback = call.section("Feedback").map(str::to_owned);
                let mut asked = asked.lock().unwrap();
                asked.push(feedback);
                let rest = if asked.len() == 1 { rest.clone() } else { "]}".to_owned() };
                MockAction::Stream { chunks: [GOOD.to_owned(), rest].map(|c| (Duration::ZERO, c)).into() }
            }
            _ => MockAction::reply("done"),
        })));
        let server = server.unwrap();
        let model = OpenAiModel::new(OpenAiOptions::new(server.base_url(), "m")).unwrap();
        let (node, outcomes) = swarm(Arc::new(model)).await;
        publish_raw(&node, &Topic::Intents, r#"{"id":"i","goal":"g"}"#).await;
        let (_, outcome) = outcome(&outcomes).await;
        assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{outcome:#?}");
        let plans = plans.lock().unwrap();
        assert_eq!((plans.len(), &plans[0]), (2, &None), "one corrective retry: {plans:?}");
        let feedback = plans[1].as_deref().unwrap_or_default();
        assert!(feedback.contains(wrong), "{wrong}: {feedback}");
        node.shutdown.cancel();
    }
}
