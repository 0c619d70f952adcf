//! The offline model through its port, with the prompts that the services send.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use futures::StreamExt;
use serde_json::Value;
use starling_llm::{
    ChatRequest, Format, Message, Model, OfflineModel, OfflineOptions, Purpose, Reuse, Speaker, StreamEvent,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;
use tokio::time::Instant;

const LAPTOPS: &str = include_str!("../../../examples/laptops.csv");
const TICKET: &str = include_str!("../../../examples/support-ticket.txt");
const GOAL: &str = "Compare the laptops in examples/laptops.csv and recommend three";

fn request(purpose: Purpose, prompt: String) -> ChatRequest {
    ChatRequest {
        purpose,
        messages: vec![Message { speaker: Speaker::User, text: prompt }],
        tools: Vec::new(),
        format: Format::Text,
        max_tokens: None,
        temperature: None,
        deadline: Instant::now() + Duration::from_secs(60),
        traceparent: None,
        allowance: None,
        reuse: Reuse::Allowed,
        priority: starling_protocol::Priority::default(),
        model: None,
    }
}

async fn ask(purpose: Purpose, prompt: String) -> String {
    let reply = OfflineModel::new().chat(request(purpose, prompt)).await;
    reply.unwrap().text
}

struct Case {
    goal: &'static str,
    inputs: String,
    items: String,
}

fn input(name: &str, media: &str, text: &str) -> String {
    format!("## Inputs\n### {name} ({media}, {} bytes)\n{text}\n", text.len())
}

impl Case {
    fn plan_prompt(&self, max_tasks: usize) -> String {
        format!(
            "## Goal\n{}\n## Limits\nmax_tasks: {max_tasks}\n{}{}## Agents\n- planner: plans\n- worker: does tasks\n- critic: judges\n",
            self.goal, self.inputs, self.items
        )
    }

    /// Plays the whole swarm: plan, every task in order, verdicts, answer.
    async fn play(&self, max_tasks: usize, fail: &str) -> (String, Vec<f64>) {
        let plan: Value =
            serde_json::from_str(&ask(Purpose::Plan, self.plan_prompt(max_tasks)).await).unwrap();
        let mut results: BTreeMap<String, (String, String)> = BTreeMap::new();
        let mut order = vec![];
        let mut scores = vec![];
        for task in plan["tasks"].as_array().unwrap() {
            let title = task["title"].as_str().unwrap();
            let instruction = task["instruction"].as_str().unwrap();
            let mut before = String::new();
            for key in task["depends_on"].as_array().unwrap() {
                let (title, text) = &results[key.as_str().unwrap()];
                writeln!(before, "### {title}\n{text}").unwrap();
            }
            let result = if task["key"] == fail {
                "(failed: the model is unreachable)".to_owned()
            } else {
                let prompt = format!(
                    "## Goal\n{}\n## Task\n{title}\n## Instruction\n{instruction}\n{}{}## Results\n{before}",
                    self.goal, self.inputs, self.items
                );
                let result = ask(Purpose::Work, prompt).await;
                let prompt = format!(
                    "## Goal\n{}\n## Task\n{title}\n## Instruction\n{instruction}\n## Result\n{result}",
                    self.goal
                );
                let verdict: Value = serde_json::from_str(&ask(Purpose::Judge, prompt).await).unwrap();
                let score = verdict["score"].as_f64().unwrap();
                assert!(score >= 0.6, "{title}: {verdict}\n{result}");
                scores.push(score);
                result
            };
            let key = task["key"].as_str().unwrap().to_owned();
            order.push(key.clone());
            results.insert(key, (title.to_owned(), result));
        }
        let mut all = String::new();
        for key in order {
            let (title, text) = &results[&key];
            writeln!(all, "### {title}\n{text}").unwrap();
        }
        let prompt = format!("## Goal\n{}\n{}{}## Results\n{all}", self.goal, self.inputs, self.items);
        (ask(Purpose::Synthesize, prompt).await, scores)
    }
}

fn cases() -> Vec<Case> {
    let none = String::new;
    vec![
        Case { goal: GOAL, inputs: input("laptops.csv", "text/csv", LAPTOPS), items: none() },
        Case {
            goal: "Sort out this ticket",
            inputs: input("support-ticket.txt", "text/plain", TICKET),
            items: none(),
        },
        Case {
            goal: "Plan a move to Lisbon and find a school for two children; keep it cheap",
            inputs: none(),
            items: none(),
        },
        Case {
            goal: "Say what is known about each",
            inputs: input("laptops.csv", "text/csv", LAPTOPS),
            items: format!("## Items\n{}", "- Quill 13\n- Nimbus 12\n- nothing of the sort\n".repeat(10)),
        },
    ]
}

#[tokio::test]
async fn plans_are_valid_within_the_limit_and_deterministic() {
    for case in cases() {
        for max_tasks in [1, 2, 3, 4, 5, 10, 30, 100] {
            let text = ask(Purpose::Plan, case.plan_prompt(max_tasks)).await;
            assert_eq!(text, ask(Purpose::Plan, case.plan_prompt(max_tasks)).await);
            let plan: Value = serde_json::from_str(&text).unwrap();
            let tasks = plan["tasks"].as_array().unwrap();
            assert!(!tasks.is_empty() && tasks.len() <= max_tasks, "{} of {max_tasks}", tasks.len());
            let mut known = std::collections::BTreeSet::new();
            for task in tasks {
                assert_eq!(task["agent"], "worker");
                for text in ["title", "instruction"] {
                    assert!(!task[text].as_str().unwrap().is_empty());
                }
                assert!(task["critic"].is_boolean());
                for dependency in task["depends_on"].as_array().unwrap() {
                    assert!(known.contains(dependency.as_str().unwrap()));
                }
                assert!(known.insert(task["key"].as_str().unwrap()), "a key twice");
            }
        }
    }
}

#[tokio::test]
async fn the_laptops_are_compared_and_three_recommended() {
    for max_tasks in [1, 4, 20, 100] {
        let (answer, scores) = cases()[0].play(max_tasks, "").await;
        let recommended: Vec<&str> = answer
            .lines()
            .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()) && line.contains("**"))
            .collect();
        assert_eq!(recommended.len(), 3, "{answer}");
        for line in recommended {
            let name = line.split("**").nth(1).unwrap();
            assert!(LAPTOPS.contains(&format!("\n{name},")), "{name}");
            assert!(line.contains("best of 40"), "reasons in figures: {line}");
        }
        assert!(answer.contains("not an LLM"));
        assert!(answer.contains("| 1 | "));
        if max_tasks == 100 {
            println!("{answer}\n{scores:?}");
            assert!(scores.iter().any(|s| *s != scores[0]), "scores vary");
            assert_eq!(answer, cases()[0].play(max_tasks, "").await.0);
        }
    }
}

#[tokio::test]
async fn a_lost_task_is_told_and_the_rest_still_answers() {
    let (answer, _) = cases()[0].play(100, "row-3").await;
    assert!(answer.contains("1 of 43 tasks failed"), "{answer}");
    assert!(answer.contains("Not ranked"), "{answer}");
    let (answer, _) = cases()[0].play(100, "rank").await;
    assert!(answer.contains("Recommended:") && answer.contains("| 1 | "), "{answer}");
}

#[tokio::test]
async fn prose_items_and_bare_goals_get_honest_answers() {
    for (case, expected) in [
        (1, vec!["carrier leaves at 17:00", "roll the scanners back", "urgent by its words", "48213"]),
        (2, vec!["find a school", "Risks", "knows nothing beyond"]),
        (3, vec!["Quill 13", "price (usd)", "nothing more about it"]),
    ] {
        let (answer, _) = cases()[case].play(40, "").await;
        println!("{answer}\n=======\n");
        assert!(answer.contains("not an LLM"));
        for text in expected {
            assert!(answer.contains(text), "{text} is missing in {answer}");
        }
    }
}

#[tokio::test]
async fn streams_are_the_reply_in_pieces_and_reports_are_labelled() {
    let prompt = cases()[0].plan_prompt(100);
    let whole = OfflineModel::new().chat(request(Purpose::Plan, prompt.clone())).await.unwrap();
    assert!(whole.report.offline && whole.report.calls == 1 && whole.report.cost_usd == 0.0);
    let stream = OfflineModel::new().stream(request(Purpose::Plan, prompt)).await.unwrap();
    let events: Vec<_> = stream.map(Result::unwrap).collect().await;
    assert!(events.len() > 5);
    let mut text = String::new();
    for event in &events {
        match event {
            StreamEvent::Text(piece) => text.push_str(piece),
            StreamEvent::Calls(deeds) => panic!("nobody offered tools: {deeds:?}"),
            StreamEvent::Done(report) => assert_eq!(report.usage, whole.report.usage),
        }
    }
    assert!(matches!(events.last(), Some(StreamEvent::Done(_))));
    assert_eq!(text, whole.text);
    let info = OfflineModel::new().info();
    assert!(info.offline && info.model == "offline");
}

#[tokio::test(start_paused = true)]
async fn thinking_takes_its_time_and_ends_at_the_deadline() {
    let slow = OfflineModel::with_options(OfflineOptions {
        latency: Duration::from_secs(5),
        ..OfflineOptions::default()
    });
    let start = Instant::now();
    slow.chat(request(Purpose::Work, "hello there".to_owned())).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    let mut hurried = request(Purpose::Work, "hello there".to_owned());
    hurried.deadline = Instant::now() + Duration::from_secs(2);
    let error = slow.chat(hurried).await.unwrap_err();
    assert_eq!(error.kind.code(), "deadline");
    let error = slow.chat(request(Purpose::Plan, "  ".to_owned())).await.unwrap_err();
    assert_eq!(error.kind.code(), "bad_reply");
}

#[tokio::test]
async fn strange_prompts_are_answered_without_panic() {
    let odd = [
        "## Inputs\n### x (text/csv, 3 bytes)\na,b\n\"\n## Instruction\nAssess row 99999999999999999999 of x\n",
        "## Goal\n\n## Instruction\nAssess rows 5 to 2 of x (y): z\n## Inputs\n### x.csv (text/csv, 9 bytes)\na,b\n1,2\n3,4\n",
        "## Instruction\nAssess rows 1 to 18446744073709551615 of x (y): z\n## Inputs\n### x.csv (text/csv, 9 bytes)\na,b\n1,2\n3,4\n",
        "## Instruction\nHandle items 0 to 0: \n## Items\n- ü\n",
        "## Instruction\nHandle items 18446744073709551615 to 3: \n## Items\n- ü\n",
        "## Limits\nmax_tasks: 0\n## Goal\n🦜🦜 and and and",
        "## Result\n\n## Task\n",
        "## Inputs\n### a.csv (text/csv, 1 bytes)\na,b\nNaN,inf\n1e999,-1\n## Goal\nbest 2 of a\n## Results\n### x\nscore: NaN | row 0 | x\nscore: 0.5 | row 9 | y\n",
    ];
    for prompt in odd {
        for purpose in [Purpose::Plan, Purpose::Work, Purpose::Judge, Purpose::Synthesize] {
            assert!(!ask(purpose, prompt.to_owned()).await.is_empty());
        }
    }
}
