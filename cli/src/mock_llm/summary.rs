//! What a rehearsal came to, in a line.

use serde_json::{Value, json};
use starling_llm::mock::MockStats;
use std::collections::BTreeMap;

/// One line for people, or one JSON object.
#[must_use]
pub fn summary(stats: &MockStats, marks: &BTreeMap<&'static str, u64>, as_json: bool) -> String {
    if as_json {
        let mut all = json!({"marks": marks});
        if let (Value::Object(all), Ok(Value::Object(counts))) = (&mut all, serde_json::to_value(stats)) {
            all.extend(counts);
        }
        return all.to_string();
    }
    let of = stats.by_purpose;
    let mut line = format!(
        "{} calls: {} plan, {} work, {} judge, {} synthesize; {} repeated, {} refused (429), {} closed by the client, \
         {} open; at most {} at once",
        stats.calls,
        of.plan,
        of.work,
        of.judge,
        of.synthesize,
        stats.repeated,
        stats.refused,
        stats.closed_by_client,
        stats.open,
        stats.max_open,
    );
    if !marks.is_empty() {
        let marks: Vec<String> = marks.iter().map(|(mark, count)| format!("{count} {mark}")).collect();
        line.push_str(&format!("; gone wrong: {}", marks.join(", ")));
    }
    line
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_line_says_what_came_and_what_was_done_to_it() {
        let mut stats = MockStats { calls: 7, refused: 2, ..MockStats::default() };
        stats.by_purpose.work = 7;
        let marks = BTreeMap::from([("cut", 1), ("html", 2)]);
        let line = summary(&stats, &marks, false);
        assert!(line.starts_with("7 calls: 0 plan, 7 work,"), "{line}");
        assert!(line.contains("2 refused (429)") && line.ends_with("gone wrong: 1 cut, 2 html"), "{line}");
        assert!(!summary(&stats, &BTreeMap::new(), false).contains("wrong"));
        let told: Value = serde_json::from_str(&summary(&stats, &marks, true)).unwrap();
        assert_eq!((&told["calls"], &told["marks"]["html"]), (&json!(7), &json!(2)));
    }
}
