//! Accounts for people.

use crate::account::{Account, Counts, Entry, Purpose, Standing, Status};
use crate::report::Report;
use std::fmt::Write as _;

/// Deepest indentation.
const DEEPEST: usize = 12;

/// The account of one intent as a tree, and what it comes to.
#[must_use]
pub fn tree_of(account: &Account) -> String {
    let mut out = String::new();
    for entry in &account.entries {
        out.push_str(&entry_line(entry));
    }
    for call in &account.repeated {
        let _ = writeln!(out, "repeated {}: {}", purpose(call.purpose), call.about);
        for answer in &call.answers {
            let by = &answer.process;
            let taken = if answer.taken { "  counts" } else { "" };
            let _ = writeln!(out, "  {}  {by}{taken}", answer.record);
        }
    }
    for moved in &account.moved {
        let _ = writeln!(
            out,
            "moved: {} {}, from {} to {}: it may have been asked twice",
            moved.record, moved.about, moved.from, moved.to
        );
    }
    for note in &account.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out.push_str(&line_of(account));
    out.push('\n');
    out
}

/// What the account of one intent comes to, in one line.
#[must_use]
pub fn line_of(account: &Account) -> String {
    let ended = match (account.outcome, account.live) {
        (Some(status), _) => status.name(),
        (None, true) => "goes on",
        (None, false) => "no outcome",
    };
    let mut line = format!("{}  {ended}  {}", account.intent_id, standing(account.standing));
    let _ = write!(line, ": {}", figures(&account.counts));
    let [plan, work, judge] = [Purpose::Plan, Purpose::Work, Purpose::Judge].map(|p| account.repetitions(p));
    if plan + work + judge > 0 {
        let _ = write!(line, "; calls repeated: {plan} plan, {work} work, {judge} judge");
    }
    if account.parts > 0 {
        let _ = write!(line, "; {} parts of inputs", account.parts);
    }
    if !account.moved.is_empty() {
        let _ = write!(line, "; {} tasks moved", account.moved.len());
    }
    line
}

impl Report {
    /// One line for each intent that is not clean, what is wrong with it, and the totals.
    #[must_use]
    pub fn text(&self) -> String {
        const SHOWN: usize = 5;
        let mut out = String::new();
        for account in &self.accounts {
            let _ = writeln!(out, "{}", line_of(account));
            if account.is_fine() {
                continue;
            }
            let mut findings: Vec<&Entry> = account.findings().collect();
            findings.sort_by_key(|entry| std::cmp::Reverse(entry.status));
            for entry in findings.iter().take(SHOWN) {
                let _ = write!(out, "  {}", entry_line(&Entry { depth: 0, ..(*entry).clone() }));
            }
            let more = findings.len().saturating_sub(SHOWN);
            if more > 0 {
                let _ = writeln!(out, "  and {more} more: starling audit --intent {}", account.intent_id);
            }
        }
        for stray in &self.lost_strays {
            let _ =
                writeln!(out, "{}  of no intent  {}  {}", stray.record, stray.status.name(), stray.reason);
        }
        let shown = self.accounts.len();
        let wanting = self.intents - self.clean;
        if wanting > shown {
            let _ = writeln!(out, "and {} more intents that are not clean", wanting - shown);
        }
        for note in &self.notes {
            let _ = writeln!(out, "note: {note}");
        }
        let unknown = self.counts.of(Status::Unknown);
        if unknown > 0 {
            let _ =
                writeln!(out, "note: of {unknown} records nobody can tell: what would show it is deleted");
        }
        let _ = writeln!(
            out,
            "{} intents: {} clean, {} go on, {} unaccounted, {} violated",
            self.intents, self.clean, self.live, self.unaccounted, self.violated
        );
        let _ = writeln!(
            out,
            "records: {}; {} of no intent; calls repeated: {} plan, {} work, {} judge; {} tasks moved",
            figures(&self.counts),
            self.strays,
            self.repeated_calls.plan,
            self.repeated_calls.work,
            self.repeated_calls.judge,
            self.moved
        );
        out
    }
}

fn entry_line(entry: &Entry) -> String {
    let mut line = "  ".repeat(entry.depth.min(DEEPEST));
    match &entry.record {
        Some(place) => line.push_str(&place.to_string()),
        None => line.push_str("(not there)"),
    }
    let id: String = entry.id.chars().take(8).collect();
    let _ = write!(line, "  {}", entry.kind);
    if !entry.about.is_empty() {
        let _ = write!(line, " {}", entry.about);
    }
    if !id.is_empty() {
        let _ = write!(line, "  {id}");
    }
    for cause in entry.causes.iter().filter(|cause| matches!(cause, crate::Cause::Decision(..))) {
        let _ = write!(line, "  by {cause}");
    }
    let _ = match (entry.status, entry.promise) {
        (Status::Unaccounted, _) => write!(line, "  UNACCOUNTED"),
        (Status::Violation, Some(promise)) => write!(line, "  VIOLATION of promise {}", promise.number()),
        (status, _) => write!(line, "  {}", words(status)),
    };
    if !entry.why.is_empty() {
        let _ = write!(line, ": {}", entry.why);
    }
    line.push('\n');
    line
}

fn words(status: Status) -> &'static str {
    match status {
        Status::RepeatedCall => "repeated call",
        Status::DeadLetter => "dead letter",
        Status::Violation => "VIOLATION",
        other => other.name(),
    }
}

fn figures(counts: &Counts) -> String {
    let some = Status::ALL.into_iter().filter(|status| counts.of(*status) > 0);
    let figures: Vec<String> =
        some.map(|status| format!("{} {}", counts.of(status), words(status))).collect();
    if figures.is_empty() { "no records".to_owned() } else { figures.join(", ") }
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Clean => "clean",
        Standing::Live => "under way",
        Standing::Unaccounted => "UNACCOUNTED",
        Standing::Violated => "VIOLATED",
    }
}

fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Plan => "plan",
        Purpose::Work => "work",
        Purpose::Judge => "verdict",
    }
}
