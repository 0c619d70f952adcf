//! Endpoints that take, pass over and refuse parts of the protocol, tried out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use serde_json::{Value, json};
use starling_llm::mock::chaos::{Expected, Form, Kind};
use starling_llm::mock::{
    Abilities, Formats, MockAction, MockCall, MockOptions, MockServer, Rehearsal, Script, Streams, Tools,
};
use starling_llm::{
    CachedModel, Feature, Hedge, HedgedModel, JsonForm, Model, OfflineModel, OpenAiModel, OpenAiOptions,
    Preflight, PreflightOptions, Price, Purpose, Verdict,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{KEY, mock, options};
use tokio::time::Instant;

use Feature::{Json, Stream, StreamCounts, UnknownName};
use JsonForm::{Object, Prompt, Schema};
use Verdict::{Ignored, Refused, Unknown, Works};

fn asked() -> PreflightOptions {
    PreflightOptions {
        purpose: Purpose::Work,
        unknown_name: true,
        trial_timeout: Duration::from_secs(5),
        deadline: Instant::now() + Duration::from_secs(20),
        max_tokens: 256,
    }
}

async fn preflight(options: OpenAiOptions) -> Preflight {
    OpenAiModel::new(options).unwrap().preflight(asked()).await.expect("an endpoint speaks the protocol")
}

fn script(abilities: Abilities) -> Script {
    abilities.play(Rehearsal::new(0).script().unwrap())
}

fn endpoint(abilities: Abilities) -> MockServer {
    MockServer::start(MockOptions {
        models: Some(vec!["small".to_owned()]),
        ..MockOptions::new(script(abilities))
    })
    .unwrap()
}

fn verdicts(preflight: &Preflight) -> Vec<(Feature, Verdict)> {
    preflight.trials.iter().map(|trial| (trial.feature, trial.verdict)).collect()
}

#[tokio::test]
async fn a_good_endpoint_does_everything_and_what_it_took_is_told() {
    let server = endpoint(Abilities { tools: Tools::Called, ..Abilities::default() });
    let mut options = options(&server.base_url());
    options.prices.insert("small".to_owned(), Price { input: 1.0, output: 2.0, ..Price::default() });
    let all = preflight(options).await;
    let expected =
        [UnknownName, Json(Schema), Stream, StreamCounts, Feature::Tools].map(|feature| (feature, Works));
    assert_eq!(verdicts(&all), expected, "{all:#?}");
    // A model that nobody has is not counted as a call by the endpoint.
    assert_eq!((all.report.calls, server.stats().calls), (4, 3));
    assert!(all.report.usage.prompt_tokens > 0 && all.report.usage.completion_tokens > 0, "{:?}", all.report);
    assert!(all.report.cost_usd > 0.0 && all.report.unpriced_calls == 0, "{:?}", all.report);
    assert_eq!(all.report.model, "small");
}

#[tokio::test]
async fn what_an_endpoint_passes_over_or_refuses_is_told_apart() {
    let formats = |formats| Abilities { formats, ..Abilities::default() };
    let streams = |streams| Abilities { streams, ..Abilities::default() };
    let tools = |tools| Abilities { tools, ..Abilities::default() };
    for (abilities, expected) in [
        (formats(Formats::NoSchema), &[(Json(Schema), Refused), (Json(Object), Works)][..]),
        (
            formats(Formats::Refused),
            &[(Json(Schema), Refused), (Json(Object), Refused), (Json(Prompt), Works)],
        ),
        (formats(Formats::Ignored), &[(Json(Schema), Ignored), (Json(Object), Works)]),
        (streams(Streams::OnePiece), &[(Stream, Ignored), (StreamCounts, Works)]),
        (streams(Streams::Ignored), &[(Stream, Ignored)]),
        (streams(Streams::Refused), &[(Stream, Refused), (StreamCounts, Unknown)]),
        (tools(Tools::Ignored), &[(Feature::Tools, Ignored)]),
        (tools(Tools::Refused), &[(Feature::Tools, Refused)]),
    ] {
        let server = endpoint(abilities);
        let all = preflight(options(&server.base_url())).await;
        for told in expected {
            assert!(verdicts(&all).contains(told), "{abilities:?}: {told:?} is missing: {all:#?}");
        }
        let forms = all.trials.iter().filter(|trial| matches!(trial.feature, Json(_))).count();
        let tried = expected.iter().filter(|(feature, _)| matches!(feature, Json(_))).count();
        assert_eq!(forms, tried.max(1), "{abilities:?}: simpler terms are for who needs them: {all:#?}");
    }
}

#[tokio::test]
async fn an_endpoint_that_answers_to_any_name_is_noticed() {
    let server = MockServer::start(MockOptions::new(script(Abilities::default()))).unwrap();
    let all = preflight(options(&server.base_url())).await;
    assert_eq!(all.trials[0].feature, UnknownName);
    assert_eq!(all.trials[0].verdict, Ignored);
    assert!(all.trials[0].seen.contains("no-such-model"), "its reply names the model: {:?}", all.trials[0]);
}

#[tokio::test]
async fn json_is_tried_in_the_form_of_the_settings() {
    let bodies: Arc<Mutex<Vec<Value>>> = Arc::default();
    let seen = bodies.clone();
    let inner = script(Abilities::default());
    let server = mock(move |call: &MockCall| {
        seen.lock().unwrap().push(call.body.clone());
        inner(call)
    });
    for (json, kind) in [(Schema, Some("json_schema")), (Object, Some("json_object")), (Prompt, None)] {
        bodies.lock().unwrap().clear();
        let all = preflight(OpenAiOptions { json, ..options(&server.base_url()) }).await;
        assert!(verdicts(&all).contains(&(Json(json), Works)), "{all:#?}");
        let bodies = bodies.lock().unwrap();
        let [name, json, stream, tools] = bodies.as_slice() else { panic!("{bodies:#?}") };
        assert_eq!(name["max_tokens"], 1);
        assert_eq!(json.pointer("/response_format/type").and_then(Value::as_str), kind);
        // What a reply cannot hit by chance is not in the prompt where it is in the schema.
        let told = json["messages"].to_string().contains("quillwarbler");
        assert_eq!(told, kind != Some("json_schema"));
        assert_eq!(
            (&stream["stream"], &stream["stream_options"]["include_usage"]),
            (&json!(true), &json!(true))
        );
        assert_eq!(tools["tools"][0]["function"]["name"], "note_bird");
        assert!(bodies.iter().all(|body| body["max_tokens"].as_u64().unwrap() <= 256));
    }
}

#[tokio::test]
async fn what_a_trial_is_not_about_may_be_refused_and_is_left_out() {
    let inner = script(Abilities { tools: Tools::Called, ..Abilities::default() });
    let server = mock(move |call: &MockCall| {
        if call.body.get("max_tokens").is_some() {
            return MockAction::error(400, "'max_tokens' is not supported, use 'max_completion_tokens'");
        }
        if call.body.get("stream_options").is_some() {
            return MockAction::error(400, "unknown field stream_options");
        }
        inner(call)
    });
    let all = preflight(options(&server.base_url())).await;
    let expected = [(Json(Schema), Works), (Stream, Works), (StreamCounts, Refused), (Feature::Tools, Works)];
    assert_eq!(verdicts(&all)[1..], expected, "{all:#?}");
    assert_eq!(all.report.calls, 6, "two of them were asked again in simpler terms");
}

#[tokio::test]
async fn what_the_settings_decide_themselves_is_not_tried() {
    let server = endpoint(Abilities::default());
    let mut options = options(&server.base_url());
    options.extra_body.insert("model".to_owned(), json!("small"));
    options.omit = vec!["response_format".to_owned(), "stream".to_owned()];
    let all = preflight(options).await;
    for feature in [UnknownName, Json(Schema), Stream, StreamCounts] {
        assert!(verdicts(&all).contains(&(feature, Unknown)), "{feature:?}: {all:#?}");
    }
    assert_eq!(all.report.calls, 1, "{all:#?}");
}

#[tokio::test]
async fn silence_and_failures_end_in_time_and_tell_nothing() {
    let hold = mock(|_: &MockCall| MockAction::hold_then_reply("too late"));
    let began = Instant::now();
    let model = OpenAiModel::new(options(&hold.base_url())).unwrap();
    let hurried = PreflightOptions {
        trial_timeout: Duration::from_millis(100),
        deadline: Instant::now() + Duration::from_millis(250),
        ..asked()
    };
    let all = model.preflight(hurried).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(all.trials.iter().all(|trial| trial.verdict == Unknown), "{all:#?}");
    assert!(all.trials.iter().any(|trial| trial.seen.contains("took all the time")), "{all:#?}");
    assert!((1..=3).contains(&all.report.calls), "{}", all.report.calls);

    for (status, message) in [(429, "slow down"), (500, "out of order")] {
        let server = mock(move |_: &MockCall| MockAction::error(status, message));
        let all = preflight(options(&server.base_url())).await;
        assert!(all.trials.iter().all(|trial| trial.verdict == Unknown), "{all:#?}");
    }
}

#[tokio::test]
async fn no_secret_is_told() {
    let server = mock(|_: &MockCall| MockAction::error(400, &format!("your key {KEY} may not do that")));
    let all = preflight(options(&server.base_url())).await;
    assert!(all.trials.iter().any(|trial| trial.seen.contains("[secret]")), "{all:#?}");
    assert!(!format!("{all:?}").contains(KEY), "{all:#?}");
}

#[tokio::test]
async fn whatever_an_endpoint_sends_all_trials_come_to_an_end_and_no_secret_is_told() {
    for kind in Kind::ALL {
        let rehearsal = Rehearsal { malformed: 1.0, kinds: vec![*kind], ..Rehearsal::new(1) };
        let script =
            Abilities { tools: Tools::Called, ..Abilities::default() }.play(rehearsal.script().unwrap());
        let server = MockServer::start(MockOptions::new(script)).unwrap();
        let began = Instant::now();
        let all = preflight(options(&server.base_url())).await;
        assert!(began.elapsed() < Duration::from_secs(10), "{kind:?} took {:?}", began.elapsed());
        let features: Vec<Feature> = all.trials.iter().map(|trial| trial.feature).collect();
        for feature in [UnknownName, Json(Schema), Stream, StreamCounts, Feature::Tools] {
            assert!(features.contains(&feature), "{kind:?}: {feature:?} is missing: {all:#?}");
        }
        assert!(all.trials.iter().all(|trial| trial.seen.len() < 1_000), "{kind:?}: {all:#?}");
        assert!(!format!("{all:?}").contains(KEY), "{kind:?}: {all:#?}");
        // What is read all the same is not held against the endpoint.
        let json = all.trials.iter().find(|trial| trial.feature == Json(Schema)).unwrap();
        if kind.expected(Form { streams: false, json: true }) == Expected::Answer {
            assert_eq!(json.verdict, Works, "{kind:?}: {all:#?}");
        }
    }
}

#[tokio::test]
async fn models_that_stand_in_front_of_others_pass_it_on_and_the_offline_one_speaks_no_protocol() {
    assert_eq!(OfflineModel::new().preflight(asked()).await, None);
    let server = endpoint(Abilities::default());
    let model: Arc<dyn Model> = Arc::new(OpenAiModel::new(options(&server.base_url())).unwrap());
    let hedged: Arc<dyn Model> = Arc::new(HedgedModel::new(model, Hedge { share: 0.1, quantile: 0.9 }));
    let memory = starling_llm::CacheBounds { bytes: 1 << 20, entries: 10 };
    let cached = CachedModel::new(
        hedged,
        starling_llm::CacheOptions {
            purposes: starling_llm::Purposes::ALL,
            ttl: Duration::from_secs(60),
            memory,
            disk: None,
        },
    )
    .unwrap();
    let all = cached.preflight(PreflightOptions { unknown_name: false, ..asked() }).await.unwrap();
    assert!(verdicts(&all).contains(&(Json(Schema), Works)), "{all:#?}");
    assert!(verdicts(&all).iter().all(|(feature, _)| *feature != UnknownName), "{all:#?}");
}
