//! A book that fits no window, through the document review.

use super::{KEY, PATIENCE, outcome, starling};
use starling_llm::Purpose;
use starling_llm::mock::{MockAction, MockCall, MockOptions, MockServer, scripts};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;

/// Tokens of a prompt, four characters each, beyond which the endpoint says that it is too long.
const WINDOW: usize = 8_000;
const PAGES: usize = 1_000;
const PAGE: usize = 2_600;

/// Drawn from a seed.
struct Words(u64);

impl Words {
    fn next(&mut self) -> &'static str {
        const WORDS: [&str; 16] = [
            "river",
            "contract",
            "seven",
            "because",
            "under",
            "lighthouse",
            "pays",
            "until",
            "nobody",
            "a",
            "of",
            "whenever",
            "the",
            "cedes",
            "harbour",
            "on",
        ];
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        WORDS[(self.0 >> 60) as usize]
    }
}

fn book() -> String {
    let mut words = Words(7);
    let mut book = String::new();
    for page in 1..=PAGES {
        let end = page * PAGE;
        book.push_str(&format!("# Page {page}\n\nmark-{page:04} "));
        while book.len() < end - 24 {
            for _ in 0..9 {
                book.push_str(words.next());
                book.push(' ');
                if book.len() >= end - 24 {
                    break;
                }
            }
            book.pop();
            book.push_str(". ");
        }
        let missing = end - book.len() - 1;
        book.push_str(&"x".repeat(missing));
        book.push('\n');
    }
    book
}

fn sent(call: &MockCall) -> usize {
    let messages = call.body["messages"].as_array().unwrap();
    messages.iter().filter_map(|message| message["content"].as_str()).map(str::len).sum::<usize>().div_ceil(4)
}

#[tokio::test]
async fn a_thousand_pages_are_each_read_once_within_a_window_of_eight_thousand_tokens() {
    let book = book();
    assert_eq!(book.len(), PAGES * PAGE);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("book.md");
    std::fs::write(&file, &book).unwrap();

    let read: Arc<Mutex<BTreeMap<usize, Vec<String>>>> = Arc::default();
    let largest: Arc<Mutex<usize>> = Arc::default();
    let script = {
        let (read, largest) = (read.clone(), largest.clone());
        Arc::new(move |call: &MockCall| {
            let tokens = sent(call);
            let mut largest = largest.lock().unwrap();
            *largest = tokens.max(*largest);
            if tokens > WINDOW {
                let body = format!(
                    r#"{{"error":{{"message":"maximum context length is {WINDOW} tokens, you requested {tokens}","code":"context_length_exceeded"}}}}"#
                );
                return MockAction::Status { code: 400, headers: Vec::new(), body };
            }
            let text = match call.purpose {
                Purpose::Work => {
                    let inputs = call.section("Inputs").unwrap_or_default();
                    let (title, text) = inputs.split_once('\n').unwrap_or_default();
                    let number = title.split("part ").nth(1).and_then(|rest| rest.split(' ').next());
                    let number: usize = number.and_then(|number| number.parse().ok()).unwrap_or(0);
                    read.lock().unwrap().entry(number).or_default().push(text.to_owned());
                    scripts::work_reply(call)
                }
                Purpose::Judge => scripts::verdict(0.9, "fine"),
                Purpose::Plan => panic!("a playbook needs no plan"),
                Purpose::Synthesize => "The review.".to_owned(),
            };
            MockAction::reply_after(Duration::ZERO, text)
        })
    };
    let server = MockServer::start(MockOptions::new(script)).unwrap();
    let mut command = starling();
    command.env("OPENAI_BASE_URL", server.base_url()).env("OPENAI_API_KEY", KEY);
    command.args(["run", "--json", "--playbook", "document-review", "--chunk-tokens", "7200"]);
    command.args(["--set", "agents.prompt=30KiB", "--file"]).arg(&file);
    let output = timeout(PATIENCE, command.output()).await.expect("a run ends").unwrap();
    let outcome = outcome(&output);
    assert_eq!(outcome["status"], "succeeded", "{outcome}");

    let read = read.lock().unwrap();
    assert!((90..=100).contains(&read.len()), "{} parts", read.len());
    assert!(read.values().all(|times| times.len() == 1), "a part was read again, or two have one number");
    let whole: String = read.values().flatten().map(|text| text.as_str()).collect();
    // A part ends where the prompt's next line begins.
    let marks = |text: &str| text.split("mark-").skip(1).map(|rest| rest[..4].to_owned()).collect::<Vec<_>>();
    assert_eq!(marks(&whole), marks(&book), "each page once, in order");
    assert_eq!(whole.matches("# Page ").count(), PAGES);
    let largest = *largest.lock().unwrap();
    assert!((WINDOW * 8 / 10..=WINDOW).contains(&largest), "{largest} tokens");
}

#[tokio::test]
async fn what_does_not_fit_into_the_tasks_of_a_plan_is_refused_before_anything_is_spent() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("book.md");
    std::fs::write(&file, book()).unwrap();
    let script = Arc::new(|_: &MockCall| -> MockAction { panic!("nobody may be asked") });
    let server = MockServer::start(MockOptions::new(script)).unwrap();
    let mut command = starling();
    command.env("OPENAI_BASE_URL", server.base_url()).env("OPENAI_API_KEY", KEY);
    command
        .args(["run", "--json", "--playbook", "document-review", "--max-tasks", "20", "--file"])
        .arg(&file);
    let output = timeout(PATIENCE, command.output()).await.expect("a run ends").unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{told}");
    assert!(
        told.contains("--file: ") && told.contains("parts in at most 20 tasks: a task would read up to"),
        "{told}"
    );
}
