//! One value of each kind of record, with every field set to something that can be told apart.
#![allow(dead_code)] // each test file uses a part of it

use starling_protocol::fleet::{FleetBeat, ModelAsk};
use starling_protocol::state::*;
use starling_protocol::*;

/// An envelope around `body`.
pub(crate) fn envelope(body: Body) -> Envelope {
    Envelope {
        id: EnvelopeId::derive(body.kind(), &["sample"]),
        intent_id: IntentId::from_string("laptops-2024:1"),
        tag: "role:worker.gpu#lane-7".parse().unwrap(),
        hop: 4,
        created_at: Timestamp(1_767_225_600_123),
        deadline: Timestamp(1_767_225_900_000),
        tenant: "default".into(),
        body,
    }
}

/// One of each body, in the order of the union.
pub(crate) fn bodies() -> Vec<Body> {
    vec![
        Body::Intent(Intent {
            goal: "Compare the laptops and recommend three – für unter 900 €".into(),
            strategy: "llm".into(),
            priority: 7,
            limits: Limits {
                max_tasks: Some(20),
                max_attempts: None,
                min_score: Some(0.75),
                max_calls: Some(50),
                max_tokens: Some(200_000),
                max_cost_usd: Some(0.25),
                degrade_after_ms: Some(30_000),
            },
            inputs: vec![
                Input {
                    name: "laptops.csv".into(),
                    media_type: "text/csv".into(),
                    content: "name,price\nA,100\n".into(),
                    chunks: Vec::new(),
                },
                Input {
                    name: "reviews.txt".into(),
                    media_type: "text/plain".into(),
                    content: String::new(),
                    chunks: vec![record_ref("starling.content")],
                },
            ],
            items: vec!["first".into(), "second".into()],
            // One only: the order of a map is not kept by every writer.
            parameters: [("languages".to_owned(), r#"["de","fr"]"#.to_owned())].into(),
        }),
        Body::Rejection(Rejection {
            code: "invalid_intent".into(),
            message: "goal: missing, expected a non-empty string".into(),
        }),
        Body::PlanRequest(PlanRequest {
            plan_attempt: 2,
            goal: "Compare".into(),
            strategy: "llm".into(),
            max_tasks: 100,
            intent_ref: Some(record_ref("starling.coordinator")),
            feedback: Some("task b depends on itself".into()),
            allowance: Some(allowance()),
        }),
        Body::PlanFragment(PlanFragment {
            plan_attempt: 2,
            run: run(),
            seq: 3,
            tasks: vec![TaskSpec {
                ordinal: 5,
                key: "rank".into(),
                title: "Rank".into(),
                instruction: "Rank the laptops by price".into(),
                agent: "worker".into(),
                depends_on: vec!["extract".into(), "clean".into()],
                critic: true,
                terms: terms(),
            }],
            end: Some(PlanEnd { report: report(), failure: Some(failure()), answer: Some(answer()) }),
        }),
        Body::Task(task()),
        Body::TaskTurn(TaskTurn {
            task_id: task_id(),
            run: run(),
            attempt: 1,
            step: 2,
            text: "I need prices".into(),
            calls: vec![tool_call()],
            report: report(),
        }),
        Body::TaskResult(TaskResult {
            task_id: task_id(),
            run: run(),
            kind: TaskKind::Work,
            attempt: 1,
            step: 0,
            title: "Rank".into(),
            agent: "worker".into(),
            goal: "Compare".into(),
            instruction: "Rank the laptops by price".into(),
            min_score: 0.6,
            output: "1. A\n2. B\n".into(),
            failure: None,
            report: report(),
            worker: "worker-3".into(),
            critic_allowance: Some(allowance()),
            rule_based: true,
        }),
        Body::Verdict(verdict()),
        Body::ToolRequest(ToolRequest {
            task_id: task_id(),
            run: run(),
            attempt: 1,
            step: 2,
            calls: vec![tool_call()],
            turn: record_ref("starling.coordinator"),
        }),
        Body::ToolReply(ToolReply {
            task_id: task_id(),
            run: run(),
            attempt: 1,
            step: 2,
            outputs: vec![ToolOutput { call_id: "call_1".into(), content: "899".into(), is_error: false }],
        }),
        Body::Progress(Progress {
            phase: "running".into(),
            tasks: TaskCounts { total: 9, succeeded: 4, failed: 1 },
            changed: vec![TaskProgress {
                task_id: task_id(),
                ordinal: 5,
                title: "Rank".into(),
                agent: "worker".into(),
                state: TaskState::Running,
                attempt: 2,
                score: Some(0.4),
                depends_on: vec![task_id()],
                error: String::new(),
            }],
        }),
        Body::Outcome(Outcome {
            status: OutcomeStatus::OverBudget,
            answer: "Buy A".into(),
            reason: "the budget of $1 is used up".into(),
            model: "offline".into(),
            offline: true,
            tasks: TaskCounts { total: 9, succeeded: 8, failed: 1 },
            calls: 21,
            usage: Usage { prompt_tokens: 12_345, completion_tokens: 678, cached_tokens: 2_048 },
            cost_usd: 0.0123,
            latency_ms: Latency { wall: 1_260, p50: 300, p99: 640, serial_sum: 30_400 },
            trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".into(),
            degraded: vec!["critic_unavailable:rank".into()],
            task_reports: vec![TaskReport {
                task_id: task_id(),
                title: "Rank".into(),
                agent: "worker".into(),
                status: TaskState::Failed,
                attempts: 3,
                score: None,
                latency_ms: 640,
                depends_on: vec![task_id()],
                error: "rate limited".into(),
                cited: true,
            }],
            unpriced_calls: 2,
            cached_calls: 3,
            cached_prompt_tokens: 4_321,
            strategy: "playbook:order-inquiry".into(),
        }),
        Body::Cancel(Cancel { reason: "user pressed ctrl-c".into() }),
        Body::LeaseRequest(LeaseRequest {
            purse: IntentId::purse("shop", Timestamp(1_767_225_600_000), 3, 12),
            partition: 3,
            window: Timestamp(1_767_225_600_000),
            asked: 7,
            held: amount(9),
            spent: amount(2),
            kept: amount(3),
            need: Some(amount(5)),
        }),
        Body::LeaseGrant(LeaseGrant {
            window: Timestamp(1_767_225_600_000),
            asked: 7,
            leased: amount(14),
            granted: true,
            most: amount(90),
            moving: true,
            refusal: Some("there is no room for the books of more tenants".into()),
        }),
        Body::Content(Content {
            heading: "name,review\n".into(),
            overlap: "A,good\n".into(),
            text: "B,\"better – by far\"\n".into(),
        }),
    ]
}

/// A task as the coordinator sends it.
pub(crate) fn task() -> Task {
    Task {
        task_id: task_id(),
        run: run(),
        kind: TaskKind::Synthesis,
        attempt: 2,
        step: 1,
        title: "Rank".into(),
        agent: "worker".into(),
        goal: "Compare the laptops and recommend three".into(),
        instruction: "Rank the laptops by price, then by weight; give each a sentence".into(),
        intent_ref: Some(record_ref("starling.coordinator")),
        dependencies: vec![
            Dependency {
                task_id: task_id(),
                title: "Extract".into(),
                result: Some(record_ref("starling.critic")),
                failure: None,
                number: 3,
            },
            Dependency {
                task_id: task_id(),
                title: "Clean".into(),
                result: None,
                failure: Some(failure()),
                number: 0,
            },
        ],
        feedback: Some(Feedback {
            score: 0.4,
            text: "name the prices".into(),
            result: Some(record_ref("starling.critic")),
        }),
        next_tag: "role:critic".parse().unwrap(),
        min_score: 0.6,
        allowance: Some(allowance()),
        critic_allowance: Some(Allowance { tokens: None, cost_usd: None, ..allowance() }),
        terms: terms(),
        last_attempt: true,
    }
}

fn terms() -> TaskTerms {
    TaskTerms {
        items: Some(IndexRange { from: 1, to: 2 }),
        inputs: Some(IndexRange { from: 0, to: 1 }),
        timeout_ms: Some(5_000),
        fallback: Some(Fallback { text: "We will look into it.".into(), with_results: true }),
        parts: Some(PartRange { from: 2, to: 5, tokens: 5_900 }),
    }
}

fn answer() -> AnswerSpec {
    AnswerSpec { instruction: "Write one reply".into(), terms: terms() }
}

fn amount(calls: i64) -> Amount {
    Amount { calls, tokens: calls * 1_000, cost_usd: 0.25 }
}

fn allowance() -> Allowance {
    Allowance { calls: 2, tokens: Some(9_000), cost_usd: Some(0.015) }
}

/// A verdict with a score.
pub(crate) fn verdict() -> Verdict {
    Verdict {
        task_id: task_id(),
        run: run(),
        attempt: 1,
        step: 0,
        judgement: Judgement::Scored(Scored { score: 0.85, feedback: "well done".into() }),
        result: record_ref("starling.critic"),
        work: report(),
        worker: "worker-3".into(),
        report: report(),
    }
}

/// One of each state record, in the order of the union.
pub(crate) fn state_records() -> Vec<StateRecord> {
    vec![
        StateRecord::EpochStart(EpochStart {
            nonce: "0f1e2d3c".into(),
            partitions: 12,
            version: "0.1.0".into(),
            at: Timestamp(1_767_225_600_123),
        }),
        StateRecord::Decision(decision()),
        StateRecord::SnapshotChunk(SnapshotChunk {
            epoch: 77,
            nonce: "0f1e2d3c".into(),
            seq: 12,
            now: Timestamp(1_767_225_600_500),
            next_input: 41,
            partitions: 12,
            part: 1,
            parts: 2,
            entities: entities(),
            pending: vec![PendingEffects { seq: 12, effects: vec![effect()] }],
            effects_done: 11,
        }),
    ]
}

/// A decision with every kind of entity.
pub(crate) fn decision() -> Decision {
    Decision {
        epoch: 77,
        nonce: "0f1e2d3c".into(),
        seq: 13,
        now: Timestamp(1_767_225_600_500),
        next_input: 42,
        changed: entities(),
        deleted: vec![EntityKey {
            intent_id: IntentId::from_string("old"),
            kind: EntityKind::Task,
            task_id: Some(task_id()),
        }],
        effects: vec![effect(), LoggedEffect { key: None, headers: vec![], ..effect() }],
        effects_done: 11,
    }
}

/// What a process says of itself.
pub(crate) fn fleet_beat() -> FleetBeat {
    FleetBeat {
        process: "worker-3-0f1e".into(),
        role: "worker".into(),
        pool: "gpu".into(),
        version: "0.1.0".into(),
        slots: 8,
        busy: 3,
        partitions: vec![0, 5, 127],
        active: 0,
        at: Timestamp(1_767_225_600_123),
        leaving: false,
        room: -1,
        asks: vec![ModelAsk {
            endpoint: "http://localhost:1/v1".into(),
            model: "m".into(),
            demand: 12.5,
            found: 0.0,
            open: 3,
            waiting: 7,
            breaker: 1,
        }],
    }
}

fn entities() -> Vec<Entity> {
    let intent_id = IntentId::from_string("laptops-2024:1");
    vec![
        Entity::Intent(IntentEntity {
            intent_id: intent_id.clone(),
            goal: "Compare".into(),
            strategy: "llm".into(),
            tenant: "default".into(),
            priority: 5,
            created_at: Timestamp(1),
            accepted_at: Timestamp(2),
            deadline: Timestamp::MAX,
            max_tasks: 100,
            max_attempts: 3,
            min_score: 0.6,
            intent_ref: Some(record_ref("starling.coordinator")),
            hop: 1,
            trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into(),
            max_calls: Some(50),
            max_tokens: Some(200_000),
            max_cost_usd: Some(0.25),
            degrade_at: Some(Timestamp(1_700_000_030_000)),
        }),
        Entity::Run(RunEntity {
            intent_id: intent_id.clone(),
            phase: Phase::Running,
            plan_attempt: 1,
            run: Some(run()),
            next_fragment: 3,
            abandoned: vec![RunId::from_random(7)],
            plan_moved_at: Timestamp(3),
            plan_feedback: "cycle".into(),
            hop: 6,
            calls: 9,
            usage: Usage { prompt_tokens: 100, completion_tokens: 50, cached_tokens: 64 },
            cost_usd: 0.25,
            serial_ms: 900,
            model: "gpt".into(),
            offline: false,
            degraded: vec!["critic_unavailable:rank".into()],
            unpriced_calls: 2,
            plan_reserved: Some(Amount { calls: 1, tokens: 9_000, cost_usd: 0.01 }),
            written_off: Some(Amount { calls: 2, tokens: 700, cost_usd: 0.02 }),
            unsettled: vec![Unsettled {
                step: "task/2".into(),
                amount: Amount { calls: 4, tokens: 5_000, cost_usd: 0.03 },
                charged: Some(Timestamp(8)),
            }],
            over_budget: true,
            cached_calls: 3,
            cached_prompt_tokens: 4_321,
            plan_charged: Some(Timestamp(9)),
            kept: Some(Charge { window: Timestamp(9), amount: amount(1) }),
            plan_wanted: true,
            refused: "the budget of the tenant was used up".into(),
            answer: Some(answer()),
        }),
        Entity::Task(TaskEntity {
            intent_id: intent_id.clone(),
            task_id: task_id(),
            kind: TaskKind::Work,
            ordinal: 5,
            key: "rank".into(),
            title: "Rank".into(),
            instruction: "Rank the laptops".into(),
            agent: "worker".into(),
            depends_on: vec!["extract".into()],
            critic: true,
            state: TaskState::Ready,
            attempt: 1,
            step: 0,
            partition: 17,
            started_at: Timestamp(4),
            attempt_deadline: Timestamp(5),
            not_before: Timestamp(0),
            best: Some(BestAttempt { attempt: 1, score: Some(0.5), result: record_ref("starling.critic") }),
            last_score: Some(0.5),
            feedback: "name the prices".into(),
            failure: Some(failure()),
            latency_ms: 0,
            trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into(),
            reserved: Some(Amount { calls: 2, tokens: 9_500, cost_usd: 0.04 }),
            charged: Some(Timestamp(9)),
            terms: terms(),
        }),
        Entity::Ended(EndedEntity {
            intent_id: intent_id.clone(),
            tenant: "default".into(),
            status: OutcomeStatus::Partial,
            forget_at: Timestamp(6),
        }),
        Entity::Cancelled(CancelledEntity {
            intent_id,
            tenant: "default".into(),
            reason: "changed my mind".into(),
            forget_at: Timestamp(7),
        }),
        Entity::Purse(PurseEntity {
            purse: IntentId::purse("shop", Timestamp(1_767_225_600_000), 3, 12),
            tenant: "shop".into(),
            window: Timestamp(1_767_225_600_000),
            ends: Timestamp(1_767_312_000_000),
            leased: amount(14),
            spent: amount(2),
            open: amount(4),
            kept: amount(3),
            asked: 7,
            answered: 6,
            asked_at: Some(Timestamp(10)),
            moved_at: Some(Timestamp(11)),
        }),
        Entity::Bank(BankEntity {
            bank: IntentId::bank("shop", Timestamp(1_767_225_600_000)),
            tenant: "shop".into(),
            window: Timestamp(1_767_225_600_000),
            forget_at: Timestamp(1_767_398_400_000),
            accounts: vec![BankAccount {
                partition: 3,
                asked: 7,
                leased: amount(14),
                spent: amount(2),
                kept: amount(3),
            }],
        }),
    ]
}

fn effect() -> LoggedEffect {
    LoggedEffect {
        topic: "starling.worker".into(),
        partition: 17,
        key: Some(b"lane-7".to_vec()),
        headers: vec![LoggedHeader { name: "traceparent".into(), value: b"00-4bf9".to_vec() }],
        payload: vec![0xc3, 0x01, 0xff, 0x00],
    }
}

fn record_ref(topic: &str) -> RecordRef {
    RecordRef {
        topic: topic.into(),
        partition: 3,
        offset: 1_234_567,
        envelope_id: EnvelopeId::derive("TaskResult", &["sample"]),
        bytes: 2_048,
        tokens: 512,
        digest: starling_protocol::ids::content_digest(b"sample"),
    }
}

fn report() -> CallReport {
    CallReport {
        model: "gpt".into(),
        offline: false,
        calls: 2,
        usage: Usage { prompt_tokens: 900, completion_tokens: 120, cached_tokens: 512 },
        cost_usd: 0.004,
        latency_ms: 310,
        unpriced_calls: 1,
        cached_calls: 3,
        cached_prompt_tokens: 4_321,
    }
}

fn failure() -> Failure {
    Failure { code: "rate_limited".into(), message: "429, try later".into(), retryable: true }
}

fn tool_call() -> ToolCall {
    ToolCall { call_id: "call_1".into(), name: "price".into(), arguments: r#"{"laptop":"A"}"#.into() }
}

fn run() -> RunId {
    RunId::from_random(0x0123_4567_89ab_cdef)
}

fn task_id() -> TaskId {
    TaskId::planned(&IntentId::from_string("laptops-2024:1"), &run(), 5)
}
