use starling_inputs::items_of;

fn items(name: &str, text: &str, column: Option<&str>) -> Result<Vec<String>, String> {
    items_of(name, text.as_bytes(), column).map_err(|fault| fault.to_string())
}

#[test]
fn items_come_from_lines_columns_arrays_and_lines_of_json() {
    let table = "city,country\n\"Bern, old town\",CH\nOslo,NO\n";
    for (name, text, column, expected) in [
        ("list.txt", "one\n\n  two \r\nthree", None, vec!["one", "two", "three"]),
        ("list", "\u{feff}one\n", None, vec!["one"]),
        ("one.csv", "name\nx\ny\n", None, vec!["x", "y"]),
        ("two.csv", table, Some("city"), vec!["Bern, old town", "Oslo"]),
        ("two.tsv", "a\tb\n1\t2\n", Some("b"), vec!["2"]),
        ("a.json", r#"["x", {"a": 1}, 7]"#, None, vec!["x", r#"{"a":1}"#, "7"]),
        ("a.jsonl", "{\"id\": \"x\"}\n\n{\"id\": \"y\"}\n", Some("id"), vec!["x", "y"]),
    ] {
        assert_eq!(items(name, text, column).unwrap(), expected, "{name}");
    }
}

#[test]
fn what_cannot_be_an_item_is_named() {
    for (name, text, column, says) in [
        ("two.csv", "a,b\n1,2\n", None, "has the columns \"a\", \"b\": say which one has the items"),
        ("two.csv", "a,b\n1,2\n", Some("c"), "has no column \"c\", but \"a\", \"b\""),
        ("two.csv", "a,b\n1,2\n1,\n3\n", Some("b"), "line 3 has nothing in that column; "),
        ("a.json", "{}", None, "is no JSON array"),
        ("a.json", "[1, null, \"\"]", None, "entry 1 is null; entry 2 is empty"),
        ("a.jsonl", "{\"a\": 1}\nnot\n", Some("b"), "line 2 is no JSON"),
        ("a.jsonl", "{\"a\": 1}\nnot\n", Some("b"), "line 1 has no field \"b\""),
        ("list.txt", "\n \n", None, "has no text in it"),
        ("list.txt", "x\n", Some("c"), "is no table and no JSON"),
        ("page.html", "<p>x</p>", None, "is a web page"),
    ] {
        let why = items(name, text, column).unwrap_err();
        assert!(why.contains(says), "{name}: {why}");
    }
    let many = "a\n".to_owned() + &"\"\"\n".repeat(30);
    assert!(items("many.csv", &many, None).unwrap_err().ends_with("and 20 more"));
}
