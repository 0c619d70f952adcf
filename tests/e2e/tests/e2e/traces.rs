//! One intent is one trace: one root, no span without its parent.

use crate::SOON;
use anyhow::Result;
use starling_e2e::{Plan, Scripted, Span, SpanSink, Swarm, SwarmOptions, brokers, faults_of_tree};
use starling_llm::{Purpose, mock::MockAction, mock::scripts::verdict};
use starling_protocol::Topic;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

#[tokio::test(flavor = "multi_thread")]
async fn the_spans_of_an_intent_form_one_tree() -> Result<()> {
    let plan = Plan::new().task("A", &[]).task("B", &[]).task("C", &["A", "B"]);
    // B is done twice: the second attempt belongs to the same tree.
    let model = Scripted::new(plan).but(|call| {
        let rejected = call.purpose == Purpose::Judge
            && call.section("Task") == Some("B")
            && call.section("Result") == Some("first try");
        if rejected {
            return Some(MockAction::reply(verdict(0.1, "again")));
        }
        let first = call.purpose == Purpose::Work
            && call.section("Task") == Some("B")
            && call.section("Feedback").is_none();
        first.then(|| MockAction::reply("first try"))
    });
    let sink = SpanSink::start().await?;
    let mut options = SwarmOptions::new(model.options(), 2);
    options.otlp = Some(sink.endpoint.clone());
    let mut swarm = Swarm::start(options).await?;

    let brokers = brokers()?;
    let (code, run) = swarm.cli(&["run", "Trace it", "--json", "--brokers", &brokers]).await?;
    assert_eq!(code, Some(0), "{}", run.last_lines());
    let report: serde_json::Value = serde_json::from_str(&run.stdout())?;
    let trace = report["trace_id"].as_str().unwrap();
    let spans = whole_tree(&sink, trace, &swarm).await?;
    let root = spans.iter().find(|span| span.parent.is_empty()).unwrap();
    assert_eq!((root.name.as_str(), root.service.as_str()), ("starling run", "starling-cli"));
    check_names(&spans, &swarm);
    check_contents(&spans);

    // Nobody began a trace for this one: it has one all the same.
    let id = swarm.publish(b"Trace this as well", &[]).await?;
    let outcome = swarm.outcome(&id, SOON).await?;
    let spans = whole_tree(&sink, &outcome.trace_id, &swarm).await?;
    check_names(&spans, &swarm);
    check_contents(&spans);
    Ok(())
}

/// The spans of a trace, once nothing is missing; what is wrong with them if something is for too long.
async fn whole_tree(sink: &SpanSink, trace: &str, swarm: &Swarm) -> Result<Vec<Span>> {
    let until = Instant::now() + SOON;
    let end = format!("send {}", swarm.names.name(&Topic::Outcomes));
    let mut known = 0;
    loop {
        let spans = sink.of_trace(trace);
        let faults = faults_of_tree(&spans);
        let complete = faults.is_empty() && spans.iter().any(|span| span.name == end);
        if complete && spans.len() == known {
            println!("{} spans, one root", spans.len());
            return Ok(spans);
        }
        known = spans.len();
        anyhow::ensure!(Instant::now() < until, "{} spans of trace {trace}: {faults:#?}", spans.len());
        tokio::time::sleep(Duration::from_millis(500)).await; // several times what exporters wait
    }
}

fn check_names(spans: &[Span], swarm: &Swarm) {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for span in spans {
        *names.entry(&span.name).or_default() += 1;
    }
    let inboxes = [Topic::Coordinator, Topic::Planner, Topic::Worker(None), Topic::Critic];
    for topic in inboxes.iter().map(|topic| swarm.names.name(topic)) {
        for verb in ["send", "process"] {
            assert!(names.contains_key(format!("{verb} {topic}").as_str()), "{verb} {topic}: {names:#?}");
        }
    }
    let intents = format!("process {}", swarm.names.name(&Topic::Intents));
    assert_eq!(names.get(intents.as_str()), Some(&1), "{names:#?}");
    let outcomes = format!("send {}", swarm.names.name(&Topic::Outcomes));
    assert_eq!(names.get(outcomes.as_str()), Some(&1), "{names:#?}");
    // Three tasks, one of them twice; each is judged; one plan, one answer.
    for (name, times) in [
        ("invoke_agent planner", 1),
        ("invoke_agent worker", 4),
        ("invoke_agent critic", 4),
        ("invoke_agent synthesizer", 1),
    ] {
        assert_eq!(names.get(name), Some(&times), "{name}: {names:#?}");
    }
    let chats: usize =
        names.iter().filter(|(name, _)| name.starts_with("chat ")).map(|(_, times)| times).sum();
    assert_eq!(chats, 10, "{names:#?}");
    let known = |name: &str| {
        name == "starling run"
            || ["send ", "process ", "chat ", "invoke_agent "].iter().any(|verb| name.starts_with(verb))
    };
    assert!(names.keys().all(|name| known(name)), "{names:#?}");
}

fn check_contents(spans: &[Span]) {
    let by_id: BTreeMap<&str, &Span> = spans.iter().map(|span| (span.id.as_str(), span)).collect();
    for span in spans {
        let parent = by_id.get(span.parent.as_str()).map(|parent| parent.name.as_str());
        if span.name.starts_with("chat ") {
            assert!(
                parent.is_some_and(|name| name.starts_with("invoke_agent ")),
                "{span:?} below {parent:?}"
            );
            for key in ["gen_ai.request.model", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"] {
                assert!(span.attributes.get(key).is_some_and(|value| !value.is_empty()), "{key} of {span:?}");
            }
        }
        if span.name.starts_with("invoke_agent ") {
            assert!(parent.is_some_and(|name| name.starts_with("process ")), "{span:?} below {parent:?}");
        }
        if let Some(topic) = span.name.strip_prefix("process ").filter(|_| parent.is_some()) {
            let sent = format!("send {topic}");
            let named = parent.is_some_and(|name| name == sent || name == "starling run");
            assert!(named, "{span:?} below {parent:?}");
        }
    }
    let scores: Vec<&String> = spans
        .iter()
        .filter(|span| span.name == "invoke_agent critic")
        .filter_map(|span| span.attributes.get("starling.score"))
        .collect();
    assert_eq!(scores.len(), 4, "every verdict has its score: {scores:?}");
    let most_links = spans.iter().map(|span| span.links.len()).max().unwrap_or(0);
    assert!(most_links >= 2, "the synthesis builds on three results: one is its cause, two are links");
}
