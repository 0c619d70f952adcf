//! `starling run --dry-run`: the plan of an intent and what it would take, without doing any of it.

use crate::{
    args::RunArgs,
    exit::CliError,
    planned::{Planned, planned},
    report,
    session::Session,
};
use serde_json::{Value, json};
use starling_protocol::{TaskSpec, state::Amount};
use std::{fmt::Write as _, process::ExitCode};

pub(super) async fn dry_run(session: &Session, args: RunArgs) -> Result<ExitCode, CliError> {
    let forecast = Forecast(planned(session, args.intent).await?);
    if args.json {
        println!("{}", forecast.json());
    } else {
        print!("{}", forecast.text());
        if forecast.0.offline {
            eprintln!("{}", report::offline_notice(&session.settings.model).await);
        }
    }
    session.flush_telemetry().await;
    Ok(ExitCode::SUCCESS)
}

/// A plan, and what it takes.
struct Forecast(Planned);

impl Forecast {
    /// The tasks of the plan; one whose result is the answer is none.
    fn tasks(&self) -> &[TaskSpec] {
        if self.0.strategy.is_single() { &[] } else { &self.0.plan.tasks }
    }

    fn spent(&self) -> Amount {
        let report = &self.0.report;
        Amount { calls: report.calls, tokens: report.usage.total(), cost_usd: report.cost_usd }
    }

    /// What is left of the budget by what it takes: `None` if there is no budget.
    fn covered(&self) -> Option<bool> {
        let budget = &self.0.budget;
        let left = budget.less(self.spent());
        budget.is_bounded().then(|| left.fits(self.0.expected) > 0)
    }

    fn cost(&self, usd: f64) -> Value {
        if self.0.priced { json!(usd) } else { Value::Null }
    }

    fn json(&self) -> Value {
        let (spent, expected) = (self.spent(), self.0.expected);
        let task = |task: &TaskSpec| {
            json!({
                "key": task.key, "title": task.title, "agent": task.agent, "depends_on": task.depends_on,
                "critic": task.critic,
            })
        };
        json!({
            "dry_run": true,
            "offline": self.0.offline,
            "strategy": self.0.strategy.to_string(),
            "tasks": self.tasks().iter().map(task).collect::<Vec<_>>(),
            "spent": { "calls": spent.calls, "tokens": spent.tokens, "cost_usd": self.cost(spent.cost_usd) },
            "expected": {
                "calls": expected.calls,
                "tokens": expected.tokens,
                "cost_usd": self.cost(expected.cost_usd),
            },
            "covered": self.covered(),
        })
    }

    fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail, so the results are of no interest.
        for task in self.tasks() {
            let on = if task.depends_on.is_empty() {
                String::new()
            } else {
                format!(" after {}", task.depends_on.join(", "))
            };
            let critic = if task.critic { "" } else { ", no critic" };
            let _ = writeln!(out, "{:<16} {} ({}{critic}){on}", task.key, task.title, task.agent);
        }
        if self.tasks().is_empty() {
            out.push_str("one task, and no plan\n");
        }
        let cost = |usd: f64| {
            if self.0.priced {
                format!("${usd:.4}")
            } else {
                "cost not known: no price set (model.prices)".to_owned()
            }
        };
        let (spent, expected) = (self.spent(), self.0.expected);
        let _ = writeln!(
            out,
            "\nstrategy  {}\nspent     {} calls, {} tokens, {}\nexpected  {} calls, up to {} tokens, {}, if each step \
             succeeds at its first try",
            self.0.strategy,
            spent.calls,
            spent.tokens,
            cost(spent.cost_usd),
            expected.calls,
            expected.tokens,
            if self.0.priced {
                format!("up to {}", cost(expected.cost_usd))
            } else {
                cost(expected.cost_usd)
            },
        );
        match self.covered() {
            Some(true) => {
                let _ = writeln!(out, "budget    {}: covers it", self.0.budget);
            }
            Some(false) => {
                let _ = writeln!(
                    out,
                    "budget    {}: may not cover it; what it does not cover is left out",
                    self.0.budget
                );
            }
            None => {}
        }
        out
    }
}
