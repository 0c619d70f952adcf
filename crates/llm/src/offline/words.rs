//! Words and sentences.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// In alphabetical order.
const COMMON: &[&str] = &[
    "about", "after", "all", "also", "and", "any", "are", "because", "been", "before", "but", "can", "could",
    "did", "does", "each", "every", "for", "from", "give", "given", "had", "has", "have", "her", "his",
    "how", "into", "its", "just", "more", "most", "not", "now", "one", "only", "our", "out", "over", "per",
    "please", "say", "she", "should", "some", "than", "that", "the", "their", "them", "then", "there",
    "these", "they", "this", "those", "three", "two", "use", "was", "were", "what", "when", "where", "which",
    "who", "why", "will", "with", "would", "you", "your",
];

/// The telling words of a text, lower case, in order of appearance, each once.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut seen: HashSet<Cow<'_, str>> = HashSet::new();
    for word in text.split(|c: char| !c.is_alphanumeric()) {
        if word.len() < 3 {
            continue;
        }
        let word = lower(word);
        if seen.contains(&word) {
            continue;
        }
        if word.chars().nth(2).is_some() && COMMON.binary_search(&word.as_ref()).is_err() {
            found.push(word.clone().into_owned());
        }
        seen.insert(word);
    }
    found
}

/// Most words are in lower case already.
fn lower(word: &str) -> Cow<'_, str> {
    if word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        Cow::Borrowed(word)
    } else {
        Cow::Owned(word.to_lowercase())
    }
}

/// Whether a word is among others, plural or not.
pub(super) fn mentions(words: &[String], wanted: &str) -> bool {
    let wanted = wanted.to_lowercase();
    let stem = wanted.trim_end_matches('s');
    stem.len() >= 3 && words.iter().any(|word| word.trim_end_matches('s') == stem)
}

/// Puts lines together that were wrapped: a long line goes on in the next, unless a list, a
/// header such as `Subject:` or an empty line begins there.
pub(super) fn unwrapped(text: &str) -> String {
    const LONG: usize = 60;
    let mut whole = String::with_capacity(text.len());
    let mut last = 0;
    for line in text.lines() {
        let line = line.trim_end();
        let begins = line.trim_start();
        let is_header = begins
            .split_whitespace()
            .next()
            .is_some_and(|word| word.ends_with(':') && word.starts_with(char::is_uppercase));
        let goes_on = last >= LONG && begins.starts_with(char::is_alphanumeric) && !is_header;
        if !whole.is_empty() {
            whole.push(if goes_on { ' ' } else { '\n' });
        }
        whole.push_str(if goes_on { begins } else { line });
        last = line.chars().count();
    }
    whole
}

/// The sentences and lines of a text.
pub(super) fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut rest = line;
        while let Some(at) = rest
            .char_indices()
            .find(|(at, c)| {
                matches!(c, '.' | '!' | '?') && rest.get(at + 1..).is_some_and(|after| after.starts_with(' '))
            })
            .map(|(at, _)| at)
        {
            found.push(rest.get(..=at).unwrap_or_default());
            rest = rest.get(at + 1..).unwrap_or_default();
        }
        found.push(rest);
    }
    found
        .into_iter()
        .map(|s| s.trim().trim_start_matches(['-', '*', '#', '>', ' ']))
        .filter(|s| s.chars().any(char::is_alphanumeric) && !s.starts_with(super::table::LEFT_OUT))
        .collect()
}

/// The sentences that say most, in the order of the text: those whose words are frequent in the text
/// or asked for.
pub(super) fn key_sentences<'a>(text: &'a str, asked: &[String], most: usize) -> Vec<&'a str> {
    let all = sentences(text);
    let mut frequency: BTreeMap<String, f64> = BTreeMap::new();
    for sentence in &all {
        for word in words(sentence) {
            *frequency.entry(word).or_default() += 1.0;
        }
    }
    let mut weighed: Vec<(f64, usize)> = all
        .iter()
        .enumerate()
        .map(|(at, sentence)| {
            let own = words(sentence);
            let weight: f64 = own
                .iter()
                .map(|word| {
                    let bonus = if mentions(asked, word) { 3.0 } else { 0.0 };
                    frequency.get(word).copied().unwrap_or(0.0) + bonus
                })
                .sum();
            // Long sentences have more words without saying more.
            let length = f64::from(u32::try_from(own.len()).unwrap_or(u32::MAX));
            (weight / (length + 3.0).sqrt(), at)
        })
        .collect();
    weighed.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut chosen: Vec<usize> = weighed.into_iter().take(most).map(|(_, at)| at).collect();
    chosen.sort_unstable();
    chosen.into_iter().filter_map(|at| all.get(at).copied()).collect()
}

/// A text of at most so many characters, cut at a word.
pub(super) fn shorten(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut chars = 0;
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
            chars += 1;
        }
        line.push_str(word);
        chars += word.chars().count();
        if chars > most {
            return cut(&line, most);
        }
    }
    line
}

fn cut(line: &str, most: usize) -> String {
    let cut: String = line.chars().take(most).collect();
    let cut = cut.rsplit_once(' ').map_or(cut.as_str(), |(head, _)| head);
    format!("{cut}…")
}

/// How many of something a goal asks for: "recommend three", "top 5".
pub(super) fn wanted_count(goal: &str) -> Option<usize> {
    const NAMES: [&str; 10] = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    let words: Vec<String> = goal
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let count = |word: &String| {
        NAMES
            .iter()
            .position(|name| name == word)
            .map(|at| at + 1)
            .or_else(|| word.parse().ok())
            .filter(|n| (1..=20).contains(n))
    };
    const ASKING: [&str; 9] =
        ["recommend", "top", "best", "pick", "choose", "select", "suggest", "find", "shortlist"];
    words
        .iter()
        .enumerate()
        .filter(|(_, word)| ASKING.contains(&word.as_str()))
        .find_map(|(at, _)| words.iter().skip(at + 1).take(2).find_map(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telling_words_come_once_in_lower_case_and_in_their_order() {
        assert!(COMMON.is_sorted());
        assert_eq!(
            words("The Zebra's über-Café: 3x zebra, ab, GPU2 and über ß"),
            ["zebra", "über", "café", "gpu2"]
        );
        assert!(words("a an The THIS your").is_empty());
    }

    #[test]
    fn what_is_too_long_is_cut_at_a_word() {
        assert_eq!(shorten(" one\n two  three ", 13), "one two three");
        assert_eq!(shorten("one two three", 12), "one two…");
        assert_eq!(shorten("üüüüü", 3), "üüü…");
        assert_eq!(shorten("", 3), "");
    }

    #[test]
    fn counts_in_goals() {
        for (goal, expected) in [
            ("Compare the laptops and recommend three", Some(3)),
            ("Give me the top 5 phones", Some(5)),
            ("Find the two best", Some(2)),
            ("Compare 40 laptops", None),
            ("", None),
        ] {
            assert_eq!(wanted_count(goal), expected, "{goal}");
        }
    }

    #[test]
    fn sentences_of_prose_and_lists() {
        assert_eq!(
            sentences("It broke. Version 2.1 is bad!\n- an item\n\n---\nDone?"),
            ["It broke.", "Version 2.1 is bad!", "an item", "Done?"]
        );
    }
}
