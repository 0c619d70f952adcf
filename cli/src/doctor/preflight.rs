//! What the endpoint of a model does of the protocol, and what that means for the swarm.

use super::finding::{Detail, Finding, Status};
use starling_llm::{Feature, JsonForm, Purpose, Purposes, Trial, Verdict};
use starling_protocol::CallReport;

pub(super) const NAME: &str = "preflight";

/// A model that was tried out.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    /// Its name.
    pub(super) model: String,
    /// What the settings use it for.
    pub(super) uses: Purposes,
    /// What was tried, in its order.
    pub(super) trials: Vec<Trial>,
    /// What all calls to it took.
    pub(super) report: CallReport,
}

/// The finding about a model of the endpoint that is set in `section`.
pub(super) fn judge(endpoint: &str, section: &str, tried: &Tried) -> Finding {
    let details: Vec<Detail> = tried.trials.iter().map(|trial| detail(trial, tried.uses)).collect();
    let status = details.iter().map(|detail| detail.status).max().unwrap_or(Status::Ok);
    let others: Vec<String> = details
        .iter()
        .filter(|detail| detail.result != result(Verdict::Works))
        .map(|detail| format!("{} {}", detail.what, detail.result))
        .collect();
    let came = if others.is_empty() { "all works".to_owned() } else { others.join(", ") };
    let found = format!("{endpoint}, model {}: {came}; {}", tried.model, taken(&tried.report));
    Finding { name: NAME, status, found, advice: advice(section, tried, &details), details }
}

fn detail(trial: &Trial, uses: Purposes) -> Detail {
    Detail {
        what: what(trial.feature),
        result: result(trial.verdict),
        status: if needed(trial.feature, uses) { status(trial) } else { Status::Ok },
        found: trial.seen.clone(),
        means: if needed(trial.feature, uses) { means(trial) } else { "not needed for what this model does" },
    }
}

/// Whether anything that the model is used for goes by it.
fn needed(feature: Feature, uses: Purposes) -> bool {
    match feature {
        Feature::UnknownName | Feature::Tools => true,
        Feature::Json(_) => uses.contains(Purpose::Plan) || uses.contains(Purpose::Judge),
        Feature::Stream | Feature::StreamCounts => uses.contains(Purpose::Plan),
    }
}

fn status(trial: &Trial) -> Status {
    match (trial.feature, trial.verdict) {
        (Feature::Tools, _) | (_, Verdict::Works) => Status::Ok,
        (Feature::Stream, Verdict::Refused) => Status::Fault,
        _ => Status::Warning,
    }
}

fn what(feature: Feature) -> &'static str {
    match feature {
        Feature::UnknownName => "unknown name",
        Feature::Json(JsonForm::Schema) => "json schema",
        Feature::Json(JsonForm::Object) => "json object",
        Feature::Json(JsonForm::Prompt) => "json prompt",
        Feature::Stream => "stream",
        Feature::StreamCounts => "stream counts",
        Feature::Tools => "tools",
    }
}

fn result(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Works => "works",
        Verdict::Ignored => "ignored",
        Verdict::Refused => "refused",
        Verdict::Unknown => "unknown",
    }
}

fn means(trial: &Trial) -> &'static str {
    use JsonForm::{Object, Prompt, Schema};
    use Verdict::{Refused, Unknown, Works};
    match (trial.feature, trial.verdict) {
        (Feature::Tools, _) => "for information, the swarm offers no tools yet",
        (_, Unknown) => "it could not be told",
        (Feature::UnknownName, Works) => "a mistake in the name of a model is noticed",
        (Feature::UnknownName, _) => "a mistake in the name of a model would not be noticed",
        (Feature::Json(Schema), Works) => "plans and verdicts keep to their schemas",
        (Feature::Json(Object | Prompt), Works) => {
            "plans and verdicts come by a schema in the prompt, which some replies miss; those are asked for again"
        }
        (Feature::Json(Schema | Object), Refused) => {
            "each process finds that out with its first plan or verdict"
        }
        (Feature::Json(_), _) => "plans and verdicts are often of no use, and are asked for again",
        (Feature::Stream, Works) => "tasks begin while their plan is still being written",
        (Feature::Stream, Refused) => "no plan can be made: plans are asked for as streams",
        (Feature::Stream, _) => "tasks begin only when the whole plan is there",
        (Feature::StreamCounts, Works) => "what plans take is known",
        (Feature::StreamCounts, _) => {
            "what plans take is estimated, and so are their part of budgets and costs"
        }
    }
}

fn advice(section: &str, tried: &Tried, details: &[Detail]) -> String {
    let mut advice = Vec::new();
    let bad = |feature: Feature| {
        let found = tried.trials.iter().zip(details).find(|(trial, _)| trial.feature == feature);
        found.filter(|(_, detail)| detail.status != Status::Ok).map(|(trial, _)| trial.verdict)
    };
    if bad(Feature::UnknownName) == Some(Verdict::Ignored) {
        advice.push(format!("make sure that {section}.name is what is to answer"));
    }
    let forms = || {
        tried.trials.iter().filter_map(|trial| match trial.feature {
            Feature::Json(form) => Some((form, trial.verdict)),
            _ => None,
        })
    };
    let first = forms().next().filter(|(form, _)| bad(Feature::Json(*form)).is_some());
    let works = forms().find(|(_, verdict)| *verdict == Verdict::Works);
    match (first, works) {
        (Some(_), Some((form, _))) => advice.push(format!("set {section}.json = \"{}\"", word(form))),
        (Some((_, Verdict::Ignored | Verdict::Refused)), None) => {
            advice
                .push(format!("take another model for plans and verdicts ({section}.plan, {section}.judge)"));
        }
        _ => {}
    }
    if bad(Feature::Stream) == Some(Verdict::Refused) {
        advice.push("take another endpoint for plans, or --strategy single, which has none".to_owned());
    }
    let unknown = |detail: &Detail| detail.status != Status::Ok && detail.result == result(Verdict::Unknown);
    if details.iter().any(unknown) {
        advice.push("try it again for what could not be told".to_owned());
    }
    advice.join("; ")
}

/// As the setting `json` has it.
fn word(form: JsonForm) -> &'static str {
    match form {
        JsonForm::Schema => "schema",
        JsonForm::Object => "object",
        JsonForm::Prompt => "prompt",
    }
}

fn taken(report: &CallReport) -> String {
    let cost = match report.unpriced_calls {
        0 => format!("${:.6}", report.cost_usd),
        _ => "cost not known (model.prices)".to_owned(),
    };
    let usage = report.usage;
    format!(
        "took {} calls, {} prompt + {} completion tokens, {cost}",
        report.calls, usage.prompt_tokens, usage.completion_tokens
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_protocol::Usage;

    fn tried(trials: &[(Feature, Verdict)], uses: Purposes) -> Tried {
        let trials = trials
            .iter()
            .map(|(feature, verdict)| Trial { feature: *feature, verdict: *verdict, seen: "s".to_owned() })
            .collect();
        let usage = Usage { prompt_tokens: 30, completion_tokens: 4, cached_tokens: 0 };
        let report = CallReport { calls: 6, usage, unpriced_calls: 6, ..CallReport::default() };
        Tried { model: "m".to_owned(), uses, trials, report }
    }

    #[test]
    fn each_trial_says_what_it_means_and_what_to_do() {
        use Feature::{Json, Stream, StreamCounts, Tools, UnknownName};
        use JsonForm::{Object, Prompt, Schema};
        use Verdict::{Ignored, Refused, Unknown, Works};
        let all = Purposes::ALL;
        let work: Purposes = [Purpose::Work, Purpose::Synthesize].into_iter().collect();
        for (trials, uses, status, advice) in [
            (&[(UnknownName, Works), (Json(Schema), Works), (Tools, Works)][..], all, Status::Ok, ""),
            (&[(Tools, Refused)], all, Status::Ok, ""),
            (
                &[(UnknownName, Ignored)],
                all,
                Status::Warning,
                "make sure that model.name is what is to answer",
            ),
            (
                &[(Json(Schema), Refused), (Json(Object), Works)],
                all,
                Status::Warning,
                "set model.json = \"object\"",
            ),
            (
                &[(Json(Schema), Ignored), (Json(Object), Ignored), (Json(Prompt), Works)],
                all,
                Status::Warning,
                "set model.json = \"prompt\"",
            ),
            (&[(Json(Prompt), Ignored)], all, Status::Warning, "take another model"),
            (&[(Json(Schema), Ignored), (Stream, Refused)], work, Status::Ok, ""),
            (&[(Stream, Ignored), (StreamCounts, Ignored)], all, Status::Warning, ""),
            (&[(Stream, Refused)], all, Status::Fault, "--strategy single"),
            (&[(Json(Schema), Unknown)], all, Status::Warning, "try it again"),
        ] {
            let finding = judge("http://e", "model", &tried(trials, uses));
            assert_eq!(finding.status, status, "{finding:#?}");
            assert!(finding.advice.contains(advice), "{advice} is missing: {finding:#?}");
            assert_eq!(finding.advice.is_empty(), advice.is_empty(), "{finding:#?}");
            assert_eq!(finding.details.len(), trials.len());
        }
    }

    #[test]
    fn what_the_calls_took_is_told() {
        let trials = [(Feature::Stream, Verdict::Works), (Feature::Tools, Verdict::Ignored)];
        let mut tried = tried(&trials, Purposes::ALL);
        let found = judge("http://e", "model", &tried).found;
        let expected = "http://e, model m: tools ignored; took 6 calls, 30 prompt + 4 completion tokens, cost not \
                        known (model.prices)";
        assert_eq!(found, expected);
        tried.report = CallReport { cost_usd: 0.000_25, unpriced_calls: 0, ..tried.report };
        tried.trials.pop();
        assert!(
            judge("http://e", "model", &tried)
                .found
                .ends_with("all works; took 6 calls, 30 prompt + 4 completion tokens, $0.000250")
        );
    }
}
