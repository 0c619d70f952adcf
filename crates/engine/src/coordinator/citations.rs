//! Which tasks an answer rests on, by its own word: it cites them as `[3]`, `[3, 7]` or `[3-5]`.

use starling_protocol::state::TaskEntity;
use std::collections::BTreeSet;

/// More digits are no number of a task.
const MAX_DIGITS: usize = 3;

/// By which a task of the plan is cited.
pub(super) fn number_of(task: &TaskEntity) -> i32 {
    task.ordinal.saturating_add(1)
}

/// The numbers that a text cites. What stands in brackets before a parenthesis is a link, and a JSON object cites nothing.
pub(super) fn cited(text: &str) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let trimmed = text.trim();
    if trimmed.starts_with('{') && trimmed.ends_with('}') {
        return found;
    }
    let mut rest = text;
    while let Some(open) = rest.find('[') {
        rest = rest.get(open + 1..).unwrap_or_default();
        let Some(close) = rest.find(']') else { break };
        let (inner, after) =
            (rest.get(..close).unwrap_or_default(), rest.get(close + 1..).unwrap_or_default());
        if !after.starts_with('(')
            && let Some(numbers) = numbers(inner)
        {
            found.extend(numbers);
            rest = after;
        }
    }
    found
}

/// `3`, `3, 7` or `3-5`; nothing if it says anything else.
fn numbers(inner: &str) -> Option<Vec<i32>> {
    let mut all = Vec::new();
    for part in inner.split([',', ';']) {
        let (from, to) = part.split_once(['-', '–']).unwrap_or((part, part));
        let (from, to) = (number(from)?, number(to)?);
        all.extend(from..=to);
    }
    Some(all)
}

fn number(text: &str) -> Option<i32> {
    let digits = text.trim();
    let is_number = (1..=MAX_DIGITS).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    if is_number { digits.parse().ok().filter(|number| *number > 0) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_brackets_are_citations_and_nothing_else_is() {
        for (text, expected) in [
            ("Buy the first [3]. It lasts [1, 7], and is light [2][9].", &[1, 2, 3, 7, 9][..]),
            ("All agree [4-6] [8–9].", &[4, 5, 6, 8, 9]),
            ("See [1](https://example.org) and [x] and [0] and [2024] and [1a] and [].", &[]),
            ("an open [1 and [2] behind it", &[2]),
            ("{\"list\": [1, 2]}", &[]),
            ("[1] alone", &[1]),
            ("[7-3]", &[]),
            ("", &[]),
        ] {
            assert_eq!(cited(text), expected.iter().copied().collect::<BTreeSet<i32>>(), "{text}");
        }
    }
}
