//! Percentiles, processor time, memory, and the form in which figures are printed.

use serde_json::{Value, json};
use starling_llm::mock::MockServer;
use std::{fmt::Write as _, fs, time::Duration};

/// Median and 99th percentile in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

impl Percentiles {
    /// Of at least one value; `None` of none. Nearest rank.
    pub(super) fn of(mut values: Vec<Duration>) -> Option<Self> {
        values.sort_unstable();
        let at = |share: f64| rank_of_sorted(&values, share).map(|value| value.as_secs_f64() * 1e3);
        Some(Self { p50: at(0.5)?, p99: at(0.99)? })
    }

    fn json(value: Option<Self>) -> Value {
        let round = |ms: f64| (ms * 1e3).round() / 1e3;
        json!({ "p50": value.map(|v| round(v.p50)), "p99": value.map(|v| round(v.p99)) })
    }
}

/// The value below which that share of them lies, by nearest rank; `None` of none.
pub(super) fn rank(values: &[Duration], share: f64) -> Option<Duration> {
    let mut values = values.to_vec();
    values.sort_unstable();
    rank_of_sorted(&values, share)
}

fn rank_of_sorted(values: &[Duration], share: f64) -> Option<Duration> {
    let rank = (share * values.len() as f64).ceil().max(1.0) as usize;
    values.get(rank - 1).copied()
}

/// What a bench found; `None` where it does not measure.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub(super) bench: &'static str,
    pub(super) bus: &'static str,
    pub(super) workers: usize,
    pub(super) slots: usize,
    pub(super) subtasks_per_s: Option<f64>,
    pub(super) plain_hop: Option<Percentiles>,
    pub(super) coordinator_hop: Option<Percentiles>,
    pub(super) intent: Option<Percentiles>,
    pub(super) cpu_s_per_1000: Option<f64>,
    pub(super) rss_mb: Option<f64>,
    /// Figures beyond the contract, shown after it.
    pub(super) more: Vec<(&'static str, f64)>,
}

impl Figures {
    pub(super) fn new(bench: &'static str, bus: &'static str) -> Self {
        Self {
            bench,
            bus,
            workers: 1,
            slots: 1,
            subtasks_per_s: None,
            plain_hop: None,
            coordinator_hop: None,
            intent: None,
            cpu_s_per_1000: None,
            rss_mb: rss_mb(),
            more: Vec::new(),
        }
    }

    pub(super) fn json(&self) -> Value {
        let mut value = json!({
            "bench": self.bench,
            "bus": self.bus,
            "workers": self.workers,
            "slots": self.slots,
            "subtasks_per_s": self.subtasks_per_s,
            "hop_ms": {
                "plain": Percentiles::json(self.plain_hop),
                "coordinator": Percentiles::json(self.coordinator_hop),
            },
            "intent_ms": Percentiles::json(self.intent),
            "cpu_s_per_1000": self.cpu_s_per_1000,
            "rss_mb": self.rss_mb,
        });
        if let Value::Object(all) = &mut value {
            all.extend(self.more.iter().map(|(name, figure)| ((*name).to_owned(), json!(figure))));
        }
        value
    }

    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "bench {} on {}, {} worker members of {} slots\n",
            self.bench, self.bus, self.workers, self.slots
        );
        // Writing to a String cannot fail.
        let mut line = |name: &str, figure: String| {
            let _ = writeln!(out, "  {name:<28} {figure}");
        };
        if let Some(rate) = self.subtasks_per_s {
            line("criticised subtasks/s", format!("{rate:.0}"));
        }
        for (name, value) in [
            ("plain hop", self.plain_hop),
            ("hop through coordinator", self.coordinator_hop),
            ("intent", self.intent),
        ] {
            if let Some(p) = value {
                line(name, format!("p50 {:.2} ms, p99 {:.2} ms", p.p50, p.p99));
            }
        }
        if let Some(cpu) = self.cpu_s_per_1000 {
            line("CPU seconds per 1,000", format!("{cpu:.2} (this process, its model server included)"));
        }
        if let Some(rss) = self.rss_mb {
            line("RSS", format!("{rss:.0} MB"));
        }
        for (name, figure) in &self.more {
            line(name, format!("{figure:.3}"));
        }
        out
    }
}

/// Processor time of this process so far, user and system.
pub(crate) fn cpu_time() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may contain spaces; the fields after it are counted from the state.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10)) // Linux reports hundredths of a second on every platform
}

/// Processor time of the mock endpoint's thread so far.
pub(super) fn mock_cpu_time() -> Option<Duration> {
    let threads = fs::read_dir("/proc/self/task").ok()?;
    let named = |folder: &std::path::Path| {
        fs::read_to_string(folder.join("comm")).is_ok_and(|name| name.trim() == MockServer::THREAD)
    };
    let folder = threads.flatten().map(|entry| entry.path()).find(|folder| named(folder))?;
    let schedstat = fs::read_to_string(folder.join("schedstat")).ok()?;
    Some(Duration::from_nanos(schedstat.split_whitespace().next()?.parse().ok()?))
}

/// Resident memory of this process in MB.
pub(super) fn rss_mb() -> Option<f64> {
    of_status("VmRSS:")
}

/// The most that it ever had.
pub(super) fn peak_rss_mb() -> Option<f64> {
    of_status("VmHWM:")
}

fn of_status(field: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let values = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(Percentiles::of(values), Some(Percentiles { p50: 50.0, p99: 99.0 }));
        assert_eq!(Percentiles::of(vec![]), None);
    }

    #[test]
    fn a_figure_that_is_not_measured_is_null() {
        let json = Figures::new("hop", "memory").json();
        assert!(json["subtasks_per_s"].is_null());
        assert!(json["hop_ms"]["plain"]["p50"].is_null());
    }
}
