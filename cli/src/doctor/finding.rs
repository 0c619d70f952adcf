//! What a check found, and the report over all checks.

use crate::exit::CliError;
use serde::Serialize;
use std::process::ExitCode;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, but not as well as it could, or it could not be checked.
    Warning,
    /// It does not work.
    Fault,
}

impl Status {
    /// As it stands in the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Fault => "fault",
        }
    }
}

/// The result of one check. Its fields are a contract with scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which check.
    pub name: &'static str,
    /// How bad it is.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do; empty where nothing is to be done.
    pub advice: String,
    /// What it is made of, one line each; for checks that look at many things.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
}

/// A line of a finding that is a table. Its fields are a contract with scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Detail {
    /// What was looked at, in a word or two.
    pub what: &'static str,
    /// What came of it, in a word: `works`, `ignored`, `refused`, `unknown`.
    pub result: &'static str,
    /// How bad it is.
    pub status: Status,
    /// What was seen.
    pub found: String,
    /// What that means for the swarm.
    pub means: &'static str,
}

impl Detail {
    /// For people, on one line, below that of its finding.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { what, result, found, means, .. } = self;
        let text = format!("{means} ({found})");
        format!("{:8} {what:<13} {result:<8} {}", "", on_one_line(&text))
    }
}

/// A text of somebody else's may have lines of its own.
fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// How bad it is.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do.
    pub advice: String,
}

impl Remark {
    /// It does not work.
    pub fn fault(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { status: Status::Fault, found: found.into(), advice: advice.into() }
    }

    /// It could be better.
    pub fn warning(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { status: Status::Warning, found: found.into(), advice: advice.into() }
    }
}

impl Finding {
    /// Nothing to complain about.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        let (found, advice, details) = (found.into(), String::new(), Vec::new());
        Self { name, status: Status::Ok, found, advice, details }
    }

    /// One complaint.
    pub fn of(name: &'static str, remark: Remark) -> Self {
        let Remark { status, found, advice } = remark;
        Self { name, status, found, advice, details: Vec::new() }
    }

    /// All complaints, the worst first; `well` if there are none.
    pub fn from_remarks(name: &'static str, well: impl Into<String>, mut remarks: Vec<Remark>) -> Self {
        let Some(status) = remarks.iter().map(|remark| remark.status).max() else {
            return Self::ok(name, well);
        };
        remarks.sort_by_key(|remark| std::cmp::Reverse(remark.status));
        let found: Vec<&str> = remarks.iter().map(|remark| remark.found.as_str()).collect();
        let mut advice: Vec<&str> = Vec::new();
        for remark in remarks.iter().filter(|remark| !remark.advice.is_empty()) {
            if !advice.contains(&remark.advice.as_str()) {
                advice.push(&remark.advice);
            }
        }
        Self { name, status, found: found.join("; "), advice: advice.join("; "), details: Vec::new() }
    }

    /// Something else must work first.
    pub fn not_checked(name: &'static str, why: &str, advice: &str) -> Self {
        Self::of(name, Remark::warning(format!("not checked: {why}"), advice))
    }

    /// For people, on one line.
    #[must_use]
    pub fn line(&self) -> String {
        let advice = if self.advice.is_empty() { String::new() } else { format!(" -> {}", self.advice) };
        let text = on_one_line(&format!("{}{advice}", self.found));
        format!("{:<8} {:<9} {text}", self.status.name(), self.name)
    }
}

/// The findings of all checks, in their order. Its fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// One for each check.
    pub checks: Vec<Finding>,
    /// The worst of them.
    pub status: Status,
    /// Whether a broker answered at all.
    #[serde(skip)]
    pub reached: bool,
}

impl Report {
    /// Over these findings.
    #[must_use]
    pub fn new(checks: Vec<Finding>, reached: bool) -> Self {
        let status = checks.iter().map(|finding| finding.status).max().unwrap_or(Status::Ok);
        Self { checks, status, reached }
    }

    /// Counts for the last line.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |status| self.checks.iter().filter(|finding| finding.status == status).count();
        let plural = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        format!(
            "{} ok, {}, {}",
            count(Status::Ok),
            plural(count(Status::Warning), "warning"),
            plural(count(Status::Fault), "fault")
        )
    }

    /// How the command ends.
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        match self.status {
            _ if !self.reached => CliError::Unavailable(String::new()).code(),
            Status::Fault => CliError::Failed(String::new()).code(),
            Status::Ok | Status::Warning => ExitCode::SUCCESS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_come_worst_first_and_advice_once() {
        let remarks = vec![
            Remark::warning("w", "do this"),
            Remark::fault("f", "do that"),
            Remark::warning("v", "do this"),
            Remark::warning("u", ""),
        ];
        let finding = Finding::from_remarks("x", "well", remarks);
        assert_eq!(finding.line(), "fault    x         f; w; v; u -> do that; do this");
        assert_eq!(Finding::from_remarks("x", "well", Vec::new()).line(), "ok       x         well");
    }

    #[test]
    fn the_json_is_a_contract() {
        let detail = Detail { what: "w", result: "works", status: Status::Ok, found: "f".into(), means: "m" };
        let table = Finding { details: vec![detail], ..Finding::ok("c", "") };
        assert_eq!(table.details[0].line(), "         w             works    m (f)");
        assert_eq!(
            serde_json::to_value(&table).ok(),
            Some(serde_json::json!({
                "name": "c", "status": "ok", "found": "", "advice": "",
                "details": [{"what": "w", "result": "works", "status": "ok", "found": "f", "means": "m"}]
            }))
        );
        let checks = vec![Finding::ok("a", "fine"), Finding::of("b", Remark::warning("so so", "rest"))];
        let report = Report::new(checks, true);
        assert_eq!(
            serde_json::to_value(&report).ok(),
            Some(serde_json::json!({
                "checks": [
                    {"name": "a", "status": "ok", "found": "fine", "advice": ""},
                    {"name": "b", "status": "warning", "found": "so so", "advice": "rest"}
                ],
                "status": "warning"
            }))
        );
        assert_eq!(report.summary(), "1 ok, 1 warning, 0 faults");
    }

    #[test]
    fn exit_codes_tell_a_missing_broker_from_other_faults() {
        let code = |status, reached| {
            let finding = Finding { status, ..Finding::ok("x", "") };
            format!("{:?}", Report::new(vec![finding], reached).exit())
        };
        let expected = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(code(Status::Ok, true), expected(0));
        assert_eq!(code(Status::Warning, true), expected(0));
        assert_eq!(code(Status::Fault, true), expected(1));
        assert_eq!(code(Status::Fault, false), expected(69));
    }
}
