//! The bad replies are as bad as their names say; what the client makes of them is tested in `tests/openai_chaos.rs`.
#![allow(clippy::unwrap_used)]

use super::{Expected, Form, Kind, near_json};
use crate::json_text::{NoJson, extract};
use serde_json::Value;
use std::collections::BTreeSet;

const ANSWER: &str = r#"{"score":0.5,"ok":true,"none":null,"list":[1,["a\n\"b\"'c"],{}],"text":"it's"}"#;

#[test]
fn kinds_have_names_of_their_own_and_are_found_by_them() {
    let names: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), Kind::ALL.len());
    for kind in Kind::ALL {
        assert_eq!(Kind::named(kind.name()), Some(*kind));
        assert!(kind.about().ends_with('.'));
        // Nothing is recoverable that some other form could not have at least as well.
        let of = |streams, json| kind.expected(Form { streams, json });
        if matches!(of(false, true), Expected::GiveUp(_)) {
            assert_eq!(of(false, false), of(true, true), "{kind:?}");
        }
    }
    assert_eq!(Kind::named("nothing"), None);
}

#[test]
fn what_is_nearly_json_is_none_and_means_the_same() {
    let means: Value = serde_json::from_str(ANSWER).unwrap();
    for write in [
        near_json::trailing_commas,
        near_json::single_quotes,
        near_json::comments,
        near_json::raw_line_ends,
        near_json::not_a_number,
    ] {
        let text = write(ANSWER);
        assert!(serde_json::from_str::<Value>(&text).is_err(), "{text}");
        let mut mended: Value = serde_json::from_str(&extract(&text, '{').unwrap()).unwrap();
        let fields = mended.as_object_mut().unwrap();
        if let Some(note) = fields.remove("note") {
            assert_eq!(note, "first line\nsecond line");
        }
        if let Some(confidence) = fields.remove("confidence") {
            assert_eq!(confidence, Value::Null);
        }
        assert_eq!(mended, means, "{text}");
    }
    for write in [near_json::truncated, near_json::missing_bracket] {
        assert_eq!(extract(&write(ANSWER), '{'), Err(NoJson::Unfinished));
    }
    let bent: Value = serde_json::from_str(&near_json::wrong_types(ANSWER)).unwrap();
    assert_eq!(bent["score"], "0.5");
    assert!(bent["list"].is_object());
    assert_eq!(near_json::trailing_commas("prose"), "{\"answer\": \"prose\",\n}");
}
