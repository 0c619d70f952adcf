//! What users publish, and what they are told when it is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod samples;

use proptest::prelude::*;
use serde_json::json;
use starling_protocol::*;

fn read(value: &[u8]) -> Result<ParsedIntent, InvalidIntent> {
    read_intent(&Codec::default(), &IntentLimits::default(), value, None)
}

/// All faults of a JSON intent, as text.
fn faults(json: &serde_json::Value) -> Vec<String> {
    faults_of_text(&json.to_string())
}

fn faults_of_text(json: &str) -> Vec<String> {
    read(json.as_bytes()).unwrap_err().faults.iter().map(ToString::to_string).collect()
}

#[test]
fn bare_text_is_the_goal() {
    for text in ["Compare laptops", "  Compare laptops\n", "\u{feff}Compare laptops"] {
        let parsed = read(text.as_bytes()).unwrap();
        let intent = Intent {
            goal: "Compare laptops".into(),
            strategy: "llm".into(),
            priority: 5,
            ..Intent::default()
        };
        assert_eq!(parsed, ParsedIntent { id: None, tenant: "default".into(), deadline_ms: None, intent });
    }
    let braces = read_intent(&Codec::default(), &IntentLimits::default(), b"{a} or {b}?", Some("text/plain"));
    assert_eq!(braces.unwrap().intent.goal, "{a} or {b}?");
}

#[test]
fn a_full_json_intent_is_read() {
    let json = json!({
        "id": "laptops:1", "goal": " Compare ", "strategy": "single", "tenant": "acme", "priority": 9,
        "deadline_ms": 60_000, "limits": {"degrade_after_ms": 9000, "max_tasks": 20, "max_attempts": 2, "min_score": 1, "max_calls": 50, "max_tokens": 200_000,
            "max_cost_usd": 0.25},
        "inputs": [{"name": "a.csv", "media_type": "text/csv; charset=utf-8", "content": "a,b\r\n\u{c}"}, {"name": "b", "content": ""}],
        "items": ["x", "y\tz"],
        "parameters": {"text": " as it is\n", "number": 1.5, "yes": true, "list": ["a", 2, null], "none": null, "of": {"a": [], "b": 1}}
    });
    let parsed = read(json.to_string().as_bytes()).unwrap();
    assert_eq!(parsed.id.unwrap().as_str(), "laptops:1");
    assert_eq!((parsed.tenant.as_str(), parsed.deadline_ms), ("acme", Some(60_000)));
    assert_eq!(parsed.intent.goal, "Compare");
    assert_eq!((parsed.intent.strategy.as_str(), parsed.intent.priority), ("single", 9));
    assert_eq!(
        parsed.intent.limits,
        Limits {
            max_tasks: Some(20),
            max_attempts: Some(2),
            min_score: Some(1.0),
            max_calls: Some(50),
            max_tokens: Some(200_000),
            max_cost_usd: Some(0.25),
            degrade_after_ms: Some(9_000),
        }
    );
    assert_eq!(parsed.intent.inputs[1].media_type, "text/plain");
    assert_eq!(parsed.intent.items, ["x", "y\tz"]);
    let parameters: Vec<_> = parsed.intent.parameters.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let expected = [
        ("list", r#"["a",2,null]"#),
        ("number", "1.5"),
        ("of", r#"{"a":[],"b":1}"#),
        ("text", " as it is\n"),
        ("yes", "true"),
    ];
    assert_eq!(parameters, expected);
}

#[test]
fn an_avro_intent_is_read_in_either_framing_and_checked_alike() {
    let plain = Codec::default();
    let confluent = Codec::default().writing_confluent(codec::RecordKind::Envelope, 3);
    let mut envelope = samples::envelope(samples::bodies().remove(0));
    for codec in [plain.clone(), confluent] {
        let value = codec.encode(&envelope).unwrap();
        let parsed = read_intent(&codec, &IntentLimits::default(), &value, None).unwrap();
        assert_eq!(parsed.id.as_ref(), Some(&envelope.intent_id));
        assert_eq!(parsed.deadline_ms, Some(299_877));
        assert_eq!(Body::Intent(parsed.intent), envelope.body);
    }
    envelope.tenant = "no tenant".into();
    let Body::Intent(intent) = &mut envelope.body else { unreachable!() };
    intent.priority = -1;
    intent.limits.min_score = Some(f64::NAN);
    let invalid = read(&plain.encode(&envelope).unwrap()).unwrap_err();
    assert_eq!(invalid.id, Some(envelope.intent_id.clone()));
    assert_eq!(invalid.faults.len(), 3, "{invalid}");

    envelope.body = Body::Cancel(Cancel { reason: String::new() });
    let invalid = read(&plain.encode(&envelope).unwrap()).unwrap_err().to_string();
    assert!(invalid.contains("body: expected an Intent, found a Cancel"), "{invalid}");
    assert!(!invalid.contains("goal"), "{invalid}");
    let broken = read(&[0xc3, 0x01, 7]).unwrap_err().to_string();
    assert!(broken.contains("the bytes end too early"), "{broken}");
}

#[test]
fn all_faults_are_named_at_once() {
    let found = faults_of_text(&json!({
        "gaol": "x", "id": "a b", "strategy": "fast", "tenant": 7, "priority": 12, "deadline_ms": 0,
        "limits": {"maxTasks": 3, "max_attempts": 2.5, "min_score": "high"},
        "inputs": [{"name": "a", "content": "1"}, {"name": "a", "content": "2\u{0}", "media_type": "csv"}, {"content": "3"}, "x"],
        "items": ["ok", 3, " "],
        "parameters": {"No name": 1, "nul": "x\u{0}", "twice": 1}
    }).to_string().replace("\"twice\":1", "\"twice\":1,\"twice\":2"));
    let expected = [
        "gaol: unknown field, expected perhaps \"goal\"",
        "inputs[2].name: missing, expected a text",
        "inputs[3]: expected an object, found the text \"x\"",
        "items[1]: expected a text, found the number 3",
        "limits.max_attempts: expected an integer, found the number 2.5",
        "limits.maxTasks: unknown field, expected perhaps \"max_tasks\"",
        "limits.min_score: expected a number, found the text \"high\"",
        "tenant: expected a text, found the number 7",
        "id: expected 1 to 128 characters of A-Z a-z 0-9 . _ : -, found \"a b\"",
        "goal: missing, expected a text that says what is wanted",
        "strategy: expected \"llm\", \"single\", \"map\", \"auto\" or \"playbook:<name>\" with a name of a-z 0-9 - _, found \"fast\"",
        "parameters: expected a name of 1 to 64 characters of a-z 0-9 - _, found \"No name\"",
        "parameters.twice: expected once, found again",
        "parameters.nul: expected text, found the control character U+0000 at byte 1",
        "priority: expected an integer from 0 to 9, found 12",
        "deadline_ms: expected an integer from 1 to 604800000, found 0",
        "inputs[1].name: expected a name that no other input has, found \"a\" again",
        "inputs[1].media_type: expected a media type such as text/csv, found \"csv\"",
        "inputs[1].content: expected text, found a NUL character at byte 1",
        "items[1]: expected a text that is not empty",
    ];
    for line in expected {
        assert!(found.iter().any(|fault| fault == line), "{line} is not in {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn single_faults_say_what_is_meant() {
    let of = |value: &[u8]| read(value).unwrap_err().to_string();
    assert!(of(b"").contains("goal: expected a text that is not empty"), "{}", of(b""));
    assert!(of(b"{}").contains("goal: missing"), "{}", of(b"{}"));
    let empty = of(br#"{"goal":"  "}"#);
    assert!(empty.contains("goal: expected a text that is not empty"), "{empty}");
    let syntax = of(b"{\"goal\": \"x\"\n \"id\": 1}");
    assert!(syntax.contains("not valid JSON") && syntax.contains("line 2 column 2"), "{syntax}");
    let trailing = of(br#"{"goal":"x"} {"goal":"y"}"#);
    assert!(trailing.contains("trailing characters at line 1 column 14"), "{trailing}");
    let twice = of(br#"{"goal":"x","goal":"y"}"#);
    assert!(twice.contains("goal: expected once, found again"), "{twice}");
    let bytes = of(b"abc\xff");
    assert!(bytes.contains("goal: expected UTF-8 text, found other bytes from byte 3 on"), "{bytes}");
    let control = of(b"abc\x1b[0m");
    assert!(
        control.contains("goal: expected text, found the control character U+001B at byte 3"),
        "{control}"
    );
    let far = of(br#"{"goal":"x","colour":1}"#);
    assert!(far.contains("colour: unknown field, expected one of id, goal,"), "{far}");
    let deep = format!("{{\"goal\":{}1{}}}", "[".repeat(500), "]".repeat(500));
    assert!(of(deep.as_bytes()).contains("recursion limit"), "{}", of(deep.as_bytes()));
    let array = read_intent(&Codec::default(), &IntentLimits::default(), b"[1]", Some("application/json"));
    assert!(array.unwrap_err().to_string().contains("expected a JSON object, found an array"));
}

#[test]
fn strategies_say_what_they_need() {
    for strategy in ["llm", "single", "auto", "playbook:order-inquiry"] {
        let read = read(json!({"goal": "x", "strategy": strategy}).to_string().as_bytes()).unwrap();
        assert_eq!(read.intent.strategy, strategy);
    }
    for none in [json!({}), json!({"goal": " "})] {
        let mut intent = none;
        intent["strategy"] = "playbook:order-inquiry".into();
        assert_eq!(read(intent.to_string().as_bytes()).unwrap().intent.goal, "", "the playbook may have one");
    }
    let missing = "items: missing, the strategy \"map\" treats items one by one";
    assert_eq!(faults(&json!({"goal": "x", "strategy": "map"})), [missing]);
    assert!(read(br#"{"goal":"x","strategy":"map","items":["a"]}"#).is_ok());
    let found = faults(&json!({"goal": "x", "strategy": "playbook:../etc"}));
    assert!(found[0].starts_with("strategy: expected \"llm\", \"single\""), "{found:?}");
    let found = faults(&json!({"goal": "x", "parameters": ["a"]}));
    assert_eq!(found, ["parameters: expected an object, found an array"]);
}

#[test]
fn a_budget_of_nothing_or_of_no_number_is_no_budget() {
    for (limits, expected) in [
        (json!({"max_calls": 0}), "limits.max_calls: expected an integer of at least 1, found 0"),
        (json!({"max_calls": 1.5}), "limits.max_calls: expected an integer, found the number 1.5"),
        (json!({"max_tokens": -7}), "limits.max_tokens: expected an integer of at least 1, found -7"),
        (json!({"max_cost_usd": 0}), "limits.max_cost_usd: expected a number of US dollars above 0, found 0"),
        (
            json!({"max_cost_usd": -0.5}),
            "limits.max_cost_usd: expected a number of US dollars above 0, found -0.5",
        ),
        (json!({"max_cost": 1}), "limits.max_cost: unknown field, expected perhaps \"max_cost_usd\""),
    ] {
        assert_eq!(faults(&json!({"goal": "x", "limits": limits})), [expected]);
    }
    let mut envelope = samples::envelope(samples::bodies().remove(0));
    for cost in [f64::NAN, f64::INFINITY] {
        let Body::Intent(intent) = &mut envelope.body else { unreachable!() };
        intent.limits.max_cost_usd = Some(cost);
        let invalid = read(&Codec::default().encode(&envelope).unwrap()).unwrap_err().to_string();
        assert!(
            invalid.contains("limits.max_cost_usd: expected a number of US dollars above 0"),
            "{invalid}"
        );
    }
}

#[test]
fn sizes_are_limited() {
    let limits = IntentLimits {
        max_bytes: 1_000,
        max_goal_bytes: 10,
        max_items: 2,
        max_inputs: 1,
        max_parts: 2,
        max_parameters: 1,
        max_parameter_bytes: 3,
    };
    let of = |json: serde_json::Value| {
        read_intent(&Codec::default(), &limits, json.to_string().as_bytes(), None).unwrap_err()
    };
    let input = |name: &str| json!({"name": name, "content": ""});
    let many =
        of(json!({"goal": "x".repeat(11), "items": ["a", "b", "c"], "inputs": [input("a"), input("b")],
            "parameters": {"a": "1234", "b": 1}}));
    assert_eq!(many.faults.len(), 5, "{many}");
    assert!(many.to_string().contains("parameters.a: expected at most 3 bytes, found 4"), "{many}");
    let huge = of(json!({"a": [[1]], "goal": "x".repeat(2_000), "id": "mine", "tenant": "acme"}));
    assert_eq!((huge.id.unwrap().as_str(), huge.tenant.as_deref()), ("mine", Some("acme")));
    assert!(huge.faults[0].message.contains("expected at most 1000 bytes"), "{:?}", huge.faults);
    let wrong = of(json!({"goal": "x", "items": vec![1; 300]}));
    assert_eq!(wrong.faults.len(), 21);
    assert_eq!(wrong.faults[20].message, "and 280 more faults");
}

#[test]
fn the_answer_to_a_broken_intent_finds_its_user() {
    let broken = read(br#"{"id":"mine","tenant":"acme","goal":"x", oops"#).unwrap_err();
    assert_eq!((broken.id.unwrap().as_str(), broken.tenant.as_deref()), ("mine", Some("acme")));
    let faulty = read(br#"{"id":"mine","tenant":"not one","priority":"high"}"#).unwrap_err();
    assert_eq!((faulty.id.unwrap().as_str(), faulty.tenant), ("mine", None));
    let no_id = read(br#"{"id":"not one","goal":"x"}"#).unwrap_err();
    assert_eq!(no_id.id, None);
}

proptest! {
    #[test]
    fn nothing_panics(value in proptest::collection::vec(any::<u8>(), 0..200), content_type in proptest::option::of(
        proptest::sample::select(vec!["application/json", "text/plain", "application/avro", "x"])
    )) {
        let _ = read_intent(&Codec::default(), &IntentLimits::default(), &value, content_type);
    }

    #[test]
    fn nothing_that_looks_like_json_panics(text in r#"\{("(id|goal|limits|inputs|items|x)": ?(1|"a"|\[|\{|\}|\]|null|-0|1e9),?){0,8}\}?"#) {
        if let Err(invalid) = read(text.as_bytes()) {
            prop_assert!(!invalid.faults.is_empty());
        }
    }
}
