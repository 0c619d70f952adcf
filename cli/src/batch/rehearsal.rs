//! A batch against an endpoint that is no LLM, in a fraction of the time: how long would it take, what would it cost?

use super::{gate::Stop, summary::Summary};
use crate::{
    exit::CliError,
    mock_llm::{latency, positive},
};
use clap::Args;
use serde::Serialize;
use starling_llm::mock::{Latency, MockLimits, MockOptions, MockServer, MockStats, Rehearsal};
use starling_runtime::{Settings, settings::Offline};
use std::{thread::available_parallelism, time::Duration};

/// How a batch is rehearsed.
#[derive(Clone, Debug, Args)]
pub struct RehearsalArgs {
    /// Run it in this process against the mock endpoint, which is no LLM, and tell what it would take. Nothing of it is kept.
    #[arg(long)]
    pub rehearse: bool,
    /// How many times faster than in truth.
    #[arg(long, value_name = "TIMES", requires = "rehearse", default_value_t = 60.0, value_parser = positive)]
    pub scale: f64,
    /// Requests a second that the provider allows, in truth; without it, any number.
    #[arg(long, value_name = "PER_SECOND", requires = "rehearse", value_parser = positive)]
    pub provider_rate: Option<f64>,
    /// How long its replies take, in truth: 2s, or 1s..4s, or p50=2s,p99=10s.
    #[arg(long, value_name = "TIME", requires = "rehearse", default_value = "p50=2s,p99=10s", value_parser = latency)]
    pub latency: Latency,
    /// Another seed is another run.
    #[arg(long, value_name = "N", requires = "rehearse", default_value_t = 0)]
    pub seed: u64,
}

/// What a batch would take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// What became of the rows.
    pub rows: Summary,
    /// How many times faster than in truth it went.
    pub scale: f64,
    /// How long it would take, in seconds.
    pub takes_s: f64,
    /// Requests that the provider would answer.
    pub requests: u64,
    /// The share of all requests that it would refuse (429).
    pub refused_share: f64,
    /// Requests a second on average.
    pub requests_per_s: f64,
    /// Whether this machine was too slow for the scale, so that it would take less.
    pub machine_was_the_limit: bool,
}

impl RehearsalArgs {
    /// The endpoint, and the settings with it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn set_up(&self, settings: &Settings) -> Result<(MockServer, Settings), CliError> {
        let rehearsal = Rehearsal { latency: scaled(self.latency, self.scale), ..Rehearsal::new(self.seed) };
        let script = rehearsal.script().map_err(|error| CliError::Usage(error.to_string()))?;
        let limits = self.provider_rate.map(|rate| {
            let requests_per_s = rate * self.scale;
            MockLimits { requests_per_s, burst: requests_per_s.max(1.0), tokens_per_minute: None }
        });
        let options = MockOptions { limits, prompt_cache: true, ..MockOptions::new(script) };
        let server = MockServer::start(options)
            .map_err(|error| CliError::Failed(format!("the mock endpoint: {error}")))?;
        let mut settings = settings.clone();
        settings.model.offline = Offline::No;
        settings.model.fallbacks.clear();
        settings.model.provider.base_url = Some(server.base_url());
        let rate = &mut settings.model.rate.limits;
        for bound in [&mut rate.start, &mut rate.min, &mut rate.max] {
            *bound = (*bound * self.scale).min(MOST);
        }
        rate.hold = rate.hold.div_f64(self.scale).max(LEAST);
        Ok((server, settings))
    }

    /// What a run that took so much processor time says of the truth.
    #[must_use]
    pub fn forecast(&self, rows: Summary, served: &MockStats, cpu: Option<Duration>) -> Forecast {
        let takes_s = rows.seconds * self.scale;
        let cores = available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let busy = cpu.map_or(0.0, |cpu| cpu.as_secs_f64() / (rows.seconds.max(0.001) * cores));
        Forecast {
            scale: self.scale,
            takes_s,
            requests: served.calls,
            refused_share: served.refused as f64 / (served.calls + served.refused).max(1) as f64,
            requests_per_s: served.calls as f64 / takes_s.max(0.001),
            machine_was_the_limit: busy > BUSY,
            rows,
        }
    }
}

/// Requests a second that nobody limits.
const MOST: f64 = 1e6;
/// The shortest time for which a rate is held.
const LEAST: Duration = Duration::from_millis(50);
/// The share of its processors from which on a machine has nothing left.
const BUSY: f64 = 0.85;

fn scaled(latency: Latency, by: f64) -> Latency {
    let less = |time: Duration| time.div_f64(by);
    match latency {
        Latency::Fixed(time) => Latency::Fixed(less(time)),
        Latency::Uniform(from, to) => Latency::Uniform(less(from), less(to)),
        // A median of nothing is no distribution.
        Latency::LogNormal { p50, p99 } => {
            let p50 = less(p50).max(Duration::from_nanos(1));
            Latency::LogNormal { p50, p99: less(p99).max(p50) }
        }
    }
}

impl Forecast {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let Summary { ended, succeeded, calls, tokens, cost_usd, unpriced_calls, stopped, .. } = &self.rows;
        let cost = match unpriced_calls {
            0 => format!("${cost_usd:.2}"),
            calls => format!("${cost_usd:.2} and {calls} calls without a price (model.prices)"),
        };
        let mut out = format!(
            "rehearsal {ended} rows, {succeeded} succeeded; no LLM was asked, and nothing is kept\n\
             takes     {}, at {:.1} times the speed of truth\n\
             model     {calls} calls, {tokens} tokens, {cost}\n\
             provider  {} requests, {:.2}/s; {:.2} % refused (429)\n",
            hours(self.takes_s),
            self.scale,
            self.requests,
            self.requests_per_s,
            self.refused_share * 100.0,
        );
        if let Some(stop) = stopped.filter(|stop| *stop != Stop::Limit) {
            out.push_str(&format!("stopped   {stop}\n"));
        }
        if self.machine_was_the_limit {
            out.push_str(
                "machine   it was too slow for this scale: in truth it takes less; use a smaller --scale\n",
            );
        }
        out
    }
}

fn hours(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round();
    if minutes >= 90.0 {
        format!("{:.0} h {:.0} min", (minutes / 60.0).floor(), minutes % 60.0)
    } else {
        format!("{:.0} min {:.0} s", (seconds / 60.0).floor(), (seconds % 60.0).floor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_told_in_the_time_of_truth() {
        let args = RehearsalArgs {
            rehearse: true,
            scale: 60.0,
            provider_rate: Some(5.0),
            latency: Latency::Fixed(Duration::from_secs(3)),
            seed: 0,
        };
        let rows =
            Summary { ended: 100, succeeded: 100, seconds: 240.0, cost_usd: 1.5, ..Summary::default() };
        let served = MockStats { calls: 990, refused: 10, ..MockStats::default() };
        let forecast = args.forecast(rows, &served, Some(Duration::from_secs(1)));
        assert_eq!((forecast.takes_s, forecast.refused_share), (14_400.0, 0.01));
        let text = forecast.text();
        assert!(
            text.contains("4 h 0 min") && text.contains("1.00 % refused") && text.contains("$1.50"),
            "{text}"
        );
        assert!(!forecast.machine_was_the_limit);
        assert_eq!(scaled(args.latency, 60.0), Latency::Fixed(Duration::from_millis(50)));
    }
}
