//! The flags of `starling mock-llm`, and the endpoint that they make.

use crate::exit::CliError;
use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use starling_llm::mock::{
    Abilities, Formats, Latency, MockLimits, MockOptions, Rehearsal, Streams, Tools, chaos::Kind,
};
use starling_runtime::settings::parse_duration;
use std::time::Duration;

/// More requests a second than there can be.
const UNLIMITED: f64 = 1e9;

/// `starling mock-llm`.
#[derive(Clone, Debug, Args)]
pub struct MockLlmArgs {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// The port; 0 takes a free one.
    #[arg(long, default_value_t = 8089)]
    pub port: u16,
    /// A model that it has; may be given several times. /v1/models lists them, others are unknown. Without any, every
    /// name will do, and there is no list.
    #[arg(long = "model", value_name = "NAME")]
    pub models: Vec<String>,
    /// Another seed is another run: what happens to a call depends on it, on the call, and on how often it came before.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// How long replies take: 300ms, or 100ms..2s (uniform), or p50=300ms,p99=2s (log-normal).
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = latency)]
    pub latency: Latency,
    /// Requests a second; more are refused (429).
    #[arg(long, value_name = "N", value_parser = positive)]
    pub rate: Option<f64>,
    /// Requests that may come at once; without it, those of a second.
    #[arg(long, value_name = "N", requires = "rate", value_parser = positive)]
    pub burst: Option<f64>,
    /// Tokens in a minute, sent and asked for, by four characters a token; more are refused (429).
    #[arg(long, value_name = "N", value_parser = positive)]
    pub tokens_per_minute: Option<f64>,
    /// Count prompts whole, and what it has seen at the beginning of earlier ones as cached, as providers do.
    #[arg(long)]
    pub prompt_cache: bool,
    /// Something of everything: --status-5xx 0.05 --cut 0.05 --slow 0.05 --malformed 0.15, where these say nothing else.
    #[arg(long)]
    pub chaos: bool,
    /// Share of calls that are answered with a status of 500 or more.
    #[arg(long, value_name = "SHARE")]
    pub status_5xx: Option<f64>,
    /// Share of calls whose reply, streamed or not, breaks off.
    #[arg(long, value_name = "SHARE")]
    pub cut: Option<f64>,
    /// Share of calls whose reply trickles.
    #[arg(long, value_name = "SHARE")]
    pub slow: Option<f64>,
    /// How much longer a reply takes that trickles.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub slow_by: Duration,
    /// Share of calls whose reply is bad in one of the ways of --kind.
    #[arg(long, value_name = "SHARE")]
    pub malformed: Option<f64>,
    /// A way in which replies are bad; may be given several times. Without it, all of them. With it, and nothing said about
    /// shares, all replies are.
    #[arg(long = "kind", value_name = "KIND", value_parser = kinds())]
    pub kinds: Vec<String>,
    /// What becomes of a response_format: it is taken, ignored, refused, or only a schema is refused.
    #[arg(long, value_name = "HOW", default_value = "taken", value_parser = one_of(Formats::NAMED))]
    pub formats: Formats,
    /// What becomes of a stream: the reply comes in pieces, in one piece, as if no stream were asked for, or not at all.
    #[arg(long, value_name = "HOW", default_value = "pieces", value_parser = one_of(Streams::NAMED))]
    pub streams: Streams,
    /// What becomes of tools: the first is called, they are ignored, or refused.
    #[arg(long, value_name = "HOW", default_value = "ignored", value_parser = one_of(Tools::NAMED))]
    pub tools: Tools,
    /// Print the counts at the end as one JSON object.
    #[arg(long)]
    pub json: bool,
}

impl MockLlmArgs {
    /// The endpoint.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub fn options(&self) -> Result<MockOptions, CliError> {
        let script = self.rehearsal().script().map_err(|error| CliError::Usage(error.to_string()))?;
        let abilities = Abilities { formats: self.formats, streams: self.streams, tools: self.tools };
        Ok(MockOptions {
            limits: self.limits(),
            models: Some(self.models.clone()),
            prompt_cache: self.prompt_cache,
            ..MockOptions::new(abilities.play(script))
        })
    }

    fn rehearsal(&self) -> Rehearsal {
        let preset = if self.chaos { Rehearsal::chaos(self.seed) } else { Rehearsal::new(self.seed) };
        let kinds: Vec<Kind> = self.kinds.iter().filter_map(|name| Kind::named(name)).collect();
        let mut rehearsal = Rehearsal {
            latency: self.latency,
            status_5xx: self.status_5xx.unwrap_or(preset.status_5xx),
            cut: self.cut.unwrap_or(preset.cut),
            slow: self.slow.unwrap_or(preset.slow),
            slow_by: self.slow_by,
            malformed: self.malformed.unwrap_or(preset.malformed),
            ..preset
        };
        if !kinds.is_empty() {
            rehearsal.kinds = kinds;
            if self.malformed.is_none() && !self.chaos {
                rehearsal.malformed =
                    (1.0 - rehearsal.status_5xx - rehearsal.cut - rehearsal.slow).clamp(0.0, 1.0);
            }
        }
        rehearsal
    }

    fn limits(&self) -> Option<MockLimits> {
        let limited = self.rate.is_some() || self.tokens_per_minute.is_some();
        let requests_per_s = self.rate.unwrap_or(UNLIMITED);
        limited.then(|| MockLimits {
            requests_per_s,
            burst: self.burst.unwrap_or(requests_per_s.max(1.0)),
            tokens_per_minute: self.tokens_per_minute,
        })
    }
}

/// A value by its name.
fn one_of<T: Copy + Default + Send + Sync + 'static>(
    named: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(named.iter().map(|(name, _)| *name));
    names.map(move |given| {
        // Other names have been refused.
        named.iter().find(|(name, _)| *name == given).map(|(_, value)| *value).unwrap_or_default()
    })
}

fn kinds() -> PossibleValuesParser {
    PossibleValuesParser::new(Kind::ALL.iter().map(|kind| PossibleValue::new(kind.name()).help(kind.about())))
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "expected a time such as 300ms or 5s".to_owned())
}

/// A number above 0.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

/// Reads `300ms`, `100ms..2s`, and `p50=300ms,p99=2s`.
pub(crate) fn latency(text: &str) -> Result<Latency, String> {
    let latency = if let Some((from, to)) = text.split_once("..") {
        Latency::Uniform(duration(from)?, duration(to)?)
    } else if let Some((p50, p99)) = text.strip_prefix("p50=").and_then(|rest| rest.split_once(",p99=")) {
        Latency::LogNormal { p50: duration(p50)?, p99: duration(p99)? }
    } else {
        Latency::Fixed(
            duration(text).map_err(|_| "expected 300ms, 100ms..2s, or p50=300ms,p99=2s".to_owned())?,
        )
    };
    latency.check().map_err(|error| error.to_string())?;
    Ok(latency)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        args: MockLlmArgs,
    }

    fn args(flags: &[&str]) -> Result<MockLlmArgs, String> {
        let flags = ["mock-llm"].iter().chain(flags);
        Flags::try_parse_from(flags).map(|flags| flags.args).map_err(|error| error.to_string())
    }

    #[test]
    fn latencies_are_distributions() {
        let ms = Duration::from_millis;
        for (text, expected) in [
            ("300ms", Some(Latency::Fixed(ms(300)))),
            ("100ms..2s", Some(Latency::Uniform(ms(100), ms(2000)))),
            ("p50=300ms,p99=2s", Some(Latency::LogNormal { p50: ms(300), p99: ms(2000) })),
            ("2s..1s", None),
            ("p50=2s,p99=1s", None),
            ("p50=2s", None),
            ("300", None),
            ("", None),
        ] {
            assert_eq!(latency(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn flags_that_make_no_endpoint_are_usage_errors() {
        for flags in [
            &["--cut", "0.6", "--slow", "0.6"][..],
            &["--malformed", "1.5"],
            &["--chaos", "--status-5xx", "0.9"],
            &["--cut", "NaN"],
        ] {
            assert!(matches!(args(flags).unwrap().options(), Err(CliError::Usage(_))), "{flags:?}");
        }
        for flags in [
            &["--rate", "0"][..],
            &["--burst", "3"],
            &["--kind", "nothing"],
            &["--latency", "soon"],
            &["--streams", "often"],
        ] {
            assert!(args(flags).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn shares_are_those_of_the_flags_then_of_the_preset() {
        let shares = |flags: &[&str]| {
            let Rehearsal { status_5xx, cut, slow, malformed, kinds, .. } = args(flags).unwrap().rehearsal();
            ([status_5xx, cut, slow, malformed], kinds.len())
        };
        let all = Kind::ALL.len();
        for (flags, expected) in [
            (&[][..], ([0.0, 0.0, 0.0, 0.0], all)),
            (&["--chaos"], ([0.05, 0.05, 0.05, 0.15], all)),
            (&["--chaos", "--cut", "0", "--kind", "html"], ([0.05, 0.0, 0.05, 0.15], 1)),
            (&["--kind", "html", "--kind", "fences"], ([0.0, 0.0, 0.0, 1.0], 2)),
            (&["--kind", "html", "--cut", "0.25"], ([0.0, 0.25, 0.0, 0.75], 1)),
            (&["--kind", "html", "--malformed", "0.5"], ([0.0, 0.0, 0.0, 0.5], 1)),
        ] {
            assert_eq!(shares(flags), expected, "{flags:?}");
        }
    }

    #[test]
    fn parts_of_the_protocol_are_taken_ignored_or_refused_by_name() {
        let parts = |flags: &[&str]| {
            let MockLlmArgs { formats, streams, tools, .. } = args(flags).unwrap();
            (formats, streams, tools)
        };
        assert_eq!(parts(&[]), (Formats::Taken, Streams::Pieces, Tools::Ignored));
        let flags = ["--formats", "no-schema", "--streams", "one-piece", "--tools", "called"];
        assert_eq!(parts(&flags), (Formats::NoSchema, Streams::OnePiece, Tools::Called));
    }

    #[test]
    fn a_rate_is_a_burst_of_a_second_and_tokens_alone_limit_no_requests() {
        let limits = |flags: &[&str]| args(flags).unwrap().options().unwrap().limits;
        assert_eq!(limits(&["--chaos"]), None);
        let of = |requests_per_s, burst, tokens_per_minute| {
            Some(MockLimits { requests_per_s, burst, tokens_per_minute })
        };
        assert_eq!(limits(&["--rate", "20"]), of(20.0, 20.0, None));
        assert_eq!(limits(&["--rate", "0.5"]), of(0.5, 1.0, None));
        assert_eq!(limits(&["--rate", "20", "--burst", "5"]), of(20.0, 5.0, None));
        assert_eq!(limits(&["--tokens-per-minute", "9000"]), of(UNLIMITED, UNLIMITED, Some(9000.0)));
    }
}
