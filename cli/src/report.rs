//! The report at the end of an intent: for people, and as JSON.

use serde_json::{Value, json};
use starling_protocol::{IntentId, Outcome, OutcomeStatus, TaskState};
use starling_runtime::settings::ModelSettings;
use starling_service::ollama_nearby;
use std::fmt::Write as _;

/// The JSON contract of `run --json` and `result --json`.
#[must_use]
pub fn json(id: &IntentId, outcome: &Outcome) -> Value {
    let mut value = json!({ "intent_id": id.as_str() });
    if let (Value::Object(all), Ok(Value::Object(said))) = (&mut value, serde_json::to_value(outcome)) {
        all.extend(said);
        all.insert("context_reuse".to_owned(), outcome.context_reuse().into());
    }
    value
}

/// What stands before and after everything that the offline model made.
pub const OFFLINE_NOTICE: &str = "OFFLINE MODEL: no API key is set, so no LLM is used. The answer is made by a \
deterministic program that only rearranges what it was given. Set OPENAI_API_KEY (and OPENAI_BASE_URL for a \
compatible server) to use a real model.";

/// What stands before everything that the offline model makes: the notice, and what else there is on this machine.
pub async fn offline_notice(settings: &ModelSettings) -> String {
    match ollama_nearby(settings).await {
        Some(ollama) => format!(
            "{OFFLINE_NOTICE}\nAn Ollama answers at {} and has {}: {} has it used.",
            ollama.chosen.endpoint,
            ollama.chosen.model,
            ollama.flags()
        ),
        None => OFFLINE_NOTICE.to_owned(),
    }
}

/// The report for people, without the answer.
#[must_use]
pub fn text(id: &IntentId, outcome: &Outcome) -> String {
    let mut out = String::new();
    let o = outcome;
    // Writing to a String cannot fail, so the results are of no interest.
    let _ = writeln!(out, "intent    {id}  {}", o.status.name());
    if !o.reason.is_empty() {
        let _ = writeln!(out, "reason    {}", o.reason);
    }
    let _ = writeln!(
        out,
        "tasks     {} total, {} succeeded, {} failed",
        o.tasks.total, o.tasks.succeeded, o.tasks.failed
    );
    let _ = writeln!(
        out,
        "model     {}{}; {} calls, {} prompt + {} completion tokens, {}",
        o.model,
        if o.offline { " (not an LLM)" } else { "" },
        o.calls,
        o.usage.prompt_tokens,
        o.usage.completion_tokens,
        cost(o)
    );
    if o.cached_calls > 0 || o.usage.cached_tokens > 0 {
        let _ = writeln!(
            out,
            "reused    {:.0} % of the context; {} answers from the cache, {} prompt tokens from the provider's",
            o.context_reuse() * 100.0,
            o.cached_calls,
            o.usage.cached_tokens
        );
    }
    let l = &o.latency_ms;
    let _ = writeln!(out, "tasks'    p50 {}, p99 {}", duration(l.p50), duration(l.p99));
    let _ = write!(out, "wall      {}; one after the other {}", duration(l.wall), duration(l.serial_sum));
    if l.wall > 0 && l.serial_sum > 0 {
        let _ = write!(out, "; speed-up {:.1}", l.serial_sum as f64 / l.wall as f64);
    }
    out.push('\n');
    for report in o.task_reports.iter().filter(|r| matches!(r.status, TaskState::Failed | TaskState::Skipped))
    {
        let status = if report.status == TaskState::Failed { "failed" } else { "skipped" };
        let _ =
            writeln!(out, "{status:<9} {} ({} attempts): {}", report.title, report.attempts, report.error);
    }
    if !o.degraded.is_empty() {
        let _ = writeln!(out, "degraded  {}", o.degraded.join("; "));
    }
    let _ = writeln!(out, "trace     {}", o.trace_id);
    out
}

/// What the calls cost, as far as it is known.
fn cost(outcome: &Outcome) -> String {
    match (outcome.known_cost(), outcome.cost_usd) {
        (Some(usd), _) => format!("${usd:.4}"),
        (None, 0.0) => "cost not known: no price set (model.prices)".to_owned(),
        (None, usd) => {
            format!("${usd:.4} and {} calls without a price (model.prices)", outcome.unpriced_calls)
        }
    }
}

/// A number of milliseconds for people.
#[must_use]
pub fn duration(ms: i64) -> String {
    match ms {
        ..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1e3),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

/// Whether the outcome has an answer worth printing.
#[must_use]
pub fn has_answer(outcome: &Outcome) -> bool {
    let may = matches!(
        outcome.status,
        OutcomeStatus::Succeeded | OutcomeStatus::Partial | OutcomeStatus::OverBudget
    );
    may && !outcome.answer.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_protocol::{Latency, TaskCounts, Usage};

    fn outcome(cost_usd: f64, unpriced_calls: i64) -> Outcome {
        Outcome {
            status: OutcomeStatus::Succeeded,
            answer: "a".into(),
            reason: String::new(),
            model: "m".into(),
            offline: false,
            tasks: TaskCounts::default(),
            calls: 5,
            usage: Usage { prompt_tokens: 10, completion_tokens: 20, cached_tokens: 0 },
            cost_usd,
            latency_ms: Latency::default(),
            trace_id: String::new(),
            degraded: vec![],
            task_reports: vec![],
            unpriced_calls,
            cached_calls: 0,
            cached_prompt_tokens: 0,
            strategy: "llm".into(),
        }
    }

    #[test]
    fn a_cost_that_is_not_known_is_not_told() {
        for (cost_usd, unpriced_calls, said) in [
            (0.0123, 0, "completion tokens, $0.0123\n"),
            (0.0, 0, "completion tokens, $0.0000\n"),
            (0.0, 5, "completion tokens, cost not known: no price set (model.prices)\n"),
            (0.0123, 3, "completion tokens, $0.0123 and 3 calls without a price (model.prices)\n"),
        ] {
            let text = text(&IntentId::from_string("i"), &outcome(cost_usd, unpriced_calls));
            assert!(text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn what_was_reused_is_told_where_something_was() {
        let id = IntentId::from_string("i");
        let mut outcome = outcome(0.0, 0);
        assert!(!text(&id, &outcome).contains("reused"));
        assert_eq!(json(&id, &outcome)["context_reuse"], json!(0.0));
        outcome.usage = Usage { prompt_tokens: 800, completion_tokens: 20, cached_tokens: 100 };
        (outcome.cached_calls, outcome.cached_prompt_tokens) = (3, 200);
        let said = "reused    30 % of the context; 3 answers from the cache, 100 prompt tokens from the provider's\n";
        assert!(text(&id, &outcome).contains(said), "{}", text(&id, &outcome));
        let value = json(&id, &outcome);
        assert_eq!((&value["context_reuse"], &value["cached_calls"]), (&json!(0.3), &json!(3)));
        assert_eq!(value["usage"]["cached_tokens"], json!(100));
    }
}
