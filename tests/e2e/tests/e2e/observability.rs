//! What the dashboard and the alert rules ask for is what a running swarm exports.

use crate::SOON;
use anyhow::{Context, Result};
use serde_json::Value;
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions};
use starling_llm::{Purpose, mock::MockAction};
use starling_protocol::OutcomeStatus;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// What others export: the Kafka exporter, and Prometheus itself.
const FOREIGN: [&str; 3] = ["kafka_consumergroup_lag", "up", "ALERTS"];
/// Labels that Prometheus adds, and those of what is foreign.
const FOREIGN_LABELS: [&str; 6] = ["job", "instance", "consumergroup", "topic", "alertname", "alertstate"];
/// Words of the query language that stand before something else than a parenthesis.
const WORDS: [&str; 8] = ["sum", "min", "max", "count", "and", "or", "unless", "bool"];

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_the_dashboard_and_the_alerts_ask_for_is_exported() -> Result<()> {
    // Some metrics are there only once something has failed.
    let model = Scripted::new(Plan::new().task("good", &[]).task("doomed", &[])).but(|call| {
        let doomed = call.purpose == Purpose::Work && call.section("Task") == Some("doomed");
        doomed.then(|| MockAction::error(400, "this prompt is not for me"))
    });
    // What is asked of planners has a price, and nothing else has.
    let options = SwarmOptions::new(model.options(), 1)
        .set("model.plan=priced")
        .set("model.prices.priced.input=1000")
        .set("model.prices.priced.output=1000");
    let swarm = Swarm::start(options).await?;
    let id = swarm.submit("observed", "Be seen").await?;
    let outcome = swarm.outcome(&id, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Partial, "{}", outcome.reason);
    assert!(outcome.cost_usd > 0.0, "{outcome:?}");
    assert_eq!(outcome.unpriced_calls, outcome.calls - 1, "all but that of the planner");

    // The coordinator tells of its load now and then.
    let at_rest = |text: &str| text.contains("starling_intents{state=\"live\"} 0");
    let until = Instant::now() + SOON;
    let mut text = swarm.metrics().await?;
    while !at_rest(&text) && Instant::now() < until {
        sleep(Duration::from_millis(100)).await;
        text = swarm.metrics().await?;
    }
    assert!(!text.contains(id.as_str()), "an intent is no label: {text}");
    let exported = Exported::read(&text);
    let rules = file("deploy/prometheus/rules/starling.yml")?;
    let dashboard: Value = serde_json::from_str(&file("deploy/grafana/starling.json")?)?;
    let recorded = values_of(&rules, "- record: ");
    let mut expressions = expressions_of_rules(&rules);
    assert_eq!(expressions.len(), recorded.len() + values_of(&rules, "- alert: ").len());
    expressions_of_dashboard(&dashboard, &mut expressions);
    assert!(expressions.len() > 60, "{expressions:#?}");
    let mut faults = Vec::new();
    for expression in &expressions {
        let asked = Asked::read(expression);
        let known = |metric: &String| {
            exported.metrics.contains(metric)
                || recorded.contains(metric)
                || FOREIGN.contains(&metric.as_str())
        };
        faults.extend(asked.metrics.iter().filter(|metric| !known(metric)).cloned());
        for (label, values) in asked.labels {
            let known = exported.labels.get(&label);
            if FOREIGN_LABELS.contains(&label.as_str()) {
                continue;
            }
            match known {
                None => faults.push(format!("label {label} in {expression}")),
                Some(known) => faults.extend(
                    values.difference(known).map(|value| format!("{label}={value:?} in {expression}")),
                ),
            }
        }
    }
    assert!(faults.is_empty(), "nobody exports: {faults:#?}\n{text}");

    let costs: Vec<&str> = text.lines().filter(|line| line.starts_with("starling_cost_usd_total{")).collect();
    assert!(matches!(costs[..], [cost] if cost.contains("purpose=\"plan\"")), "{costs:?}");

    // Figures that one intent leaves behind.
    for line in [
        "starling_outcomes_total{status=\"partial\"} 1",
        "starling_outcomes_total{status=\"succeeded\"} 0",
        "starling_orch_split_latency_count 1",
        "starling_intent_seconds_count 1",
        "starling_state_partitions{phase=\"live\"} 3",
        "starling_coordinator_partitions 3",
        "starling_intents{state=\"live\"} 0",
        "starling_tasks{state=\"outstanding\"} 0",
        "kind=\"bad_request\"} 1",
    ] {
        assert!(text.contains(line), "{line} is missing: {text}");
    }
    Ok(())
}

fn file(path: &str) -> Result<String> {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).context(path)
}

/// Metrics as they are exported, and which values each label has.
#[derive(Default)]
struct Exported {
    metrics: BTreeSet<String>,
    labels: BTreeMap<String, BTreeSet<String>>,
}

impl Exported {
    fn read(text: &str) -> Self {
        let mut all = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let asked = Asked::read(line);
            all.metrics.extend(asked.metrics);
            for (label, values) in asked.labels {
                all.labels.entry(label).or_default().extend(values);
            }
        }
        all
    }
}

/// What an expression asks for: metrics, labels, and the values that it compares them with.
#[derive(Debug, Default, PartialEq)]
struct Asked {
    metrics: BTreeSet<String>,
    labels: BTreeMap<String, BTreeSet<String>>,
}

impl Asked {
    fn read(expression: &str) -> Self {
        let mut asked = Self::default();
        let mut rest = expression;
        while let Some(first) = rest.chars().next() {
            let is_part = |c: char| c.is_ascii_alphanumeric() || "_:.".contains(c);
            if first == '{' {
                rest = asked.matchers(&rest[1..]);
            } else if first == '[' {
                rest = rest.split_once(']').map_or("", |(_, rest)| rest);
            } else if is_part(first) {
                let (word, after) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
                rest = after.trim_start();
                if ["by", "on"].contains(&word) {
                    let (labels, after) = rest[1..].split_once(')').unwrap();
                    labels.split(',').for_each(|label| asked.label(label.trim(), &[]));
                    rest = after;
                } else if word.starts_with(|c: char| c.is_ascii_alphabetic())
                    && !rest.starts_with('(')
                    && !WORDS.contains(&word)
                {
                    asked.metrics.insert(word.to_owned());
                }
            } else {
                rest = &rest[first.len_utf8()..];
            }
        }
        asked
    }

    /// Reads `name="value", …}`; gives what stands behind it.
    fn matchers<'e>(&mut self, mut rest: &'e str) -> &'e str {
        while let Some((matcher, after)) = rest.split_once('"')
            && !matcher.contains('}')
        {
            let (value, after) = after.split_once('"').unwrap();
            let label = matcher.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let words: Vec<&str> = value.split('|').collect();
            // Patterns and variables name no values.
            let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            self.label(label, if words.iter().all(is_word) { &words } else { &[] });
            rest = after;
        }
        rest.split_once('}').map_or("", |(_, rest)| rest)
    }

    fn label(&mut self, label: &str, values: &[&str]) {
        let known = self.labels.entry(label.to_owned()).or_default();
        known.extend(values.iter().map(|value| (*value).to_owned()));
    }
}

/// The values of a key in a rules file.
fn values_of(rules: &str, key: &str) -> BTreeSet<String> {
    rules.lines().filter_map(|line| line.trim_start().strip_prefix(key)).map(str::to_owned).collect()
}

fn expressions_of_rules(rules: &str) -> Vec<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut expressions = Vec::new();
    let mut lines = rules.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(value) = line.trim_start().strip_prefix("expr: ") else { continue };
        let mut expression = value.trim_start_matches('|').to_owned();
        while let Some(more) = lines.next_if(|more| value == "|" && indent(more) > indent(line)) {
            expression = expression + more + "\n";
        }
        expressions.push(expression);
    }
    expressions
}

/// Queries of panels, annotations and variables.
fn expressions_of_dashboard(node: &Value, expressions: &mut Vec<String>) {
    match node {
        Value::Array(parts) => parts.iter().for_each(|part| expressions_of_dashboard(part, expressions)),
        Value::Object(parts) => {
            for (name, part) in parts {
                match (name.as_str(), part) {
                    ("expr", Value::String(expression)) => expressions.push(expression.clone()),
                    ("definition", Value::String(values)) => {
                        let metric = values.strip_prefix("label_values(").and_then(|v| v.split_once(','));
                        expressions.push(metric.unwrap().0.to_owned());
                    }
                    _ => expressions_of_dashboard(part, expressions),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn expressions_are_taken_apart() {
    let asked = Asked::read(
        "histogram_quantile(0.9, sum by (topic, le) (rate(a_bucket{job=~\"$job\", kind!~\"x|y\"}[5m])))\n\
         / on (topic) sum(b:c) > 1e3 and up == 0",
    );
    let set = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(asked.metrics, set(&["a_bucket", "b:c", "up"]));
    let labels = [("job", set(&[])), ("kind", set(&["x", "y"])), ("le", set(&[])), ("topic", set(&[]))];
    assert_eq!(asked.labels, labels.into_iter().map(|(name, set)| (name.to_owned(), set)).collect());
    assert_eq!(Asked::read("x_total{a=\"b c\"} 1.5").metrics, set(&["x_total"]));
    let rules = "  - record: r\n    expr: |\n      a\n      + b\n    x: y\n  - alert: A\n    expr: c\n";
    assert_eq!(expressions_of_rules(rules), ["      a\n      + b\n", "c"]);
}
