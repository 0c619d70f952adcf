//! What is looked at in a result before a model judges it: plain functions from a text to what is wrong with it.

use crate::front_matter::Fields;
use whatlang::Lang;

/// Most words in a list of a check.
const MAX_WORDS: usize = 100;
/// So many of the words, or of the citations, that are wrong are named.
const MAX_NAMED: usize = 5;

/// What a result must be, whatever it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Fewest characters.
    pub min_chars: Option<usize>,
    /// Most characters.
    pub max_chars: Option<usize>,
    /// Fewest words.
    pub min_words: Option<usize>,
    /// Most words.
    pub max_words: Option<usize>,
    /// The language that it is written in.
    pub language: Option<Language>,
    /// What must stand in it, in any case.
    pub required: Vec<String>,
    /// What must not stand in it, in any case.
    pub forbidden: Vec<String>,
    /// Whether each `[n]` must be the number of a result that it was given, and at least one of them be there if there
    /// are any.
    pub citations: bool,
}

/// A language, by its ISO 639 code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Language(Lang);

/// The two letters of ISO 639-1 for the languages of which people know only these.
const TWO_LETTERS: [(&str, Lang); 40] = [
    ("ar", Lang::Ara),
    ("bg", Lang::Bul),
    ("bn", Lang::Ben),
    ("ca", Lang::Cat),
    ("cs", Lang::Ces),
    ("da", Lang::Dan),
    ("de", Lang::Deu),
    ("el", Lang::Ell),
    ("en", Lang::Eng),
    ("eo", Lang::Epo),
    ("es", Lang::Spa),
    ("et", Lang::Est),
    ("fa", Lang::Pes),
    ("fi", Lang::Fin),
    ("fr", Lang::Fra),
    ("he", Lang::Heb),
    ("hi", Lang::Hin),
    ("hr", Lang::Hrv),
    ("hu", Lang::Hun),
    ("id", Lang::Ind),
    ("it", Lang::Ita),
    ("ja", Lang::Jpn),
    ("ko", Lang::Kor),
    ("la", Lang::Lat),
    ("lt", Lang::Lit),
    ("lv", Lang::Lav),
    ("nb", Lang::Nob),
    ("nl", Lang::Nld),
    ("pl", Lang::Pol),
    ("pt", Lang::Por),
    ("ro", Lang::Ron),
    ("ru", Lang::Rus),
    ("sk", Lang::Slk),
    ("sl", Lang::Slv),
    ("sv", Lang::Swe),
    ("th", Lang::Tha),
    ("tr", Lang::Tur),
    ("uk", Lang::Ukr),
    ("vi", Lang::Vie),
    ("zh", Lang::Cmn),
];

impl Language {
    /// The language with this code: two letters of ISO 639-1, or three of ISO 639-3.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        let short = TWO_LETTERS.iter().find(|(short, _)| *short == code).map(|(_, lang)| *lang);
        short.or_else(|| Lang::from_code(code)).map(Self)
    }
}

impl Checks {
    /// Reads the table `checks` of a front matter.
    pub(crate) fn read(fields: &mut Fields) -> Self {
        let mut count = |name: &str| {
            fields.integer(name, 1..=i64::MAX).map(|count| usize::try_from(count).unwrap_or(usize::MAX))
        };
        let (min_chars, max_chars) = (count("min_chars"), count("max_chars"));
        let (min_words, max_words) = (count("min_words"), count("max_words"));
        for (name, least, most) in [("max_chars", min_chars, max_chars), ("max_words", min_words, max_words)]
        {
            if let (Some(least), Some(most)) = (least, most)
                && most < least
            {
                fields.complain(name, &format!("expected at least the minimum {least}, found {most}"));
            }
        }
        let language = fields.text("language").and_then(|code| {
            let language = Language::from_code(&code);
            if language.is_none() {
                let expected = "a language that can be told by its text, such as \"en\" or \"eng\"";
                fields.complain("language", &format!("expected {expected}, found {code:?}"));
            }
            language
        });
        let required = fields.texts("required", MAX_WORDS);
        let forbidden = fields.texts("forbidden", MAX_WORDS);
        let both =
            required.iter().find(|word| forbidden.iter().any(|no| no.to_lowercase() == word.to_lowercase()));
        if let Some(word) = both {
            fields.complain("forbidden", &format!("{word:?} is required as well"));
        }
        let citations = fields.flag("citations").unwrap_or_default();
        Self { min_chars, max_chars, min_words, max_words, language, required, forbidden, citations }
    }

    /// Whether there is nothing to check.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Everything that is wrong with a text that could cite `sources` numbered results, in sentences for its author.
    #[must_use]
    pub fn faults(&self, text: &str, sources: usize) -> Vec<String> {
        let mut faults = Vec::new();
        self.lengths(text, &mut faults);
        faults.extend(self.language.and_then(|language| other_language(text, language)));
        let lower = text.to_lowercase();
        let named = |words: Vec<&String>| {
            let names: Vec<String> = words.iter().take(MAX_NAMED).map(|word| format!("{word:?}")).collect();
            names.join(", ")
        };
        let stands = |word: &&String| contains(&lower, &word.to_lowercase());
        let missing: Vec<&String> = self.required.iter().filter(|word| !stands(word)).collect();
        if !missing.is_empty() {
            faults.push(format!("This is missing and must be in it: {}.", named(missing)));
        }
        let unwanted: Vec<&String> = self.forbidden.iter().filter(stands).collect();
        if !unwanted.is_empty() {
            faults.push(format!("This must not be in it: {}.", named(unwanted)));
        }
        if self.citations {
            faults.extend(wrong_citations(text, sources));
        }
        faults
    }

    fn lengths(&self, text: &str, faults: &mut Vec<String>) {
        let of = |unit: &str, count: usize, least: Option<usize>, most: Option<usize>| {
            let too_short = least.filter(|least| count < *least);
            let too_long = most.filter(|most| count > *most);
            let told = |limit, word: &str| format!("It has {count} {unit}, and must have at {word} {limit}.");
            too_short.map(|limit| told(limit, "least")).or_else(|| too_long.map(|limit| told(limit, "most")))
        };
        if self.min_chars.or(self.max_chars).is_some() {
            faults.extend(of("characters", text.trim().chars().count(), self.min_chars, self.max_chars));
        }
        if self.min_words.or(self.max_words).is_some() {
            faults.extend(of("words", text.split_whitespace().count(), self.min_words, self.max_words));
        }
    }
}

/// Only where it is certain: short texts, and those that are mostly names and numbers, are nobody's language.
fn other_language(text: &str, wanted: Language) -> Option<String> {
    let found = whatlang::detect(text)?;
    (found.is_reliable() && found.lang() != wanted.0).then(|| {
        let (wanted, found) = (wanted.0.eng_name(), found.lang().eng_name());
        format!("It is written in {found}, and must be in {wanted}.")
    })
}

/// Whether a word or several stand in a text, not as a part of longer words.
fn contains(text: &str, words: &str) -> bool {
    let inner = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text.match_indices(words).any(|(at, found)| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let after = text.get(at + found.len()..).and_then(|after| after.chars().next());
        let joins = |edge: Option<char>, beyond: Option<char>| inner(edge) && inner(beyond);
        !joins(found.chars().next(), before) && !joins(found.chars().next_back(), after)
    })
}

fn wrong_citations(text: &str, sources: usize) -> Option<String> {
    let cited = citations(text);
    let mut wrong: Vec<&str> =
        cited.iter().filter(|(_, n)| !(1..=sources).contains(n)).map(|(text, _)| *text).collect();
    wrong.dedup();
    if !wrong.is_empty() {
        let wrong: Vec<String> = wrong.iter().take(MAX_NAMED).map(|number| format!("[{number}]")).collect();
        let there = match sources {
            0 => "there are no results to cite".to_owned(),
            1 => "the only result is [1]".to_owned(),
            more => format!("the results are [1] to [{more}]"),
        };
        return Some(format!("It cites {}, but {there}.", wrong.join(", ")));
    }
    (cited.is_empty() && sources > 0).then(|| {
        "It cites none of the results; put the number of one behind what is taken from it, like [1]."
            .to_owned()
    })
}

/// The numbers in square brackets, several in one included: `[1]`, `[2, 3]`.
fn citations(text: &str) -> Vec<(&str, usize)> {
    let mut cited = Vec::new();
    for (_, rest) in text.match_indices('[').filter_map(|(at, _)| Some(((), text.get(at + 1..)?))) {
        let Some(inside) = rest.find(']').and_then(|end| rest.get(..end)) else { continue };
        let numbers: Option<Vec<(&str, usize)>> = inside
            .split(',')
            .map(str::trim)
            .map(|number| {
                let digits = (1..=6).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
                Some((number, number.parse().ok().filter(|_| digits)?))
            })
            .collect();
        cited.extend(numbers.into_iter().flatten());
    }
    cited
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn told(checks: &Checks, text: &str, sources: usize) -> String {
        checks.faults(text, sources).join(" ")
    }

    #[test]
    fn lengths_are_counted_as_people_count() {
        let checks = Checks { min_words: Some(2), max_chars: Some(9), ..Checks::default() };
        for (text, expected) in [
            ("grün ist\n", ""),
            ("grün", "It has 1 words, and must have at least 2."),
            ("zehn Zeichen", "It has 12 characters, and must have at most 9."),
            ("", "It has 0 words, and must have at least 2."),
        ] {
            assert_eq!(told(&checks, text, 0), expected, "{text:?}");
        }
    }

    #[test]
    fn words_are_found_as_words_in_any_case() {
        let checks = Checks {
            required: words(&["Sources:", "price"]),
            forbidden: words(&["as an AI", "cheap"]),
            ..Checks::default()
        };
        for (text, expected) in [
            ("The PRICE. Sources: none", ""),
            ("cheaper prices, sources:", "This is missing and must be in it: \"price\"."),
            ("As an AI, price. SOURCES:", "This must not be in it: \"as an AI\"."),
            ("price sources: ÄCHEAP Cheap!", "This must not be in it: \"cheap\"."),
        ] {
            assert_eq!(told(&checks, text, 0), expected, "{text:?}");
        }
    }

    #[test]
    fn citations_lead_somewhere() {
        let checks = Checks { citations: true, ..Checks::default() };
        for (text, sources, expected) in [
            ("A is cheap [1], B is not [2, 3].", 3, ""),
            ("No source, no citation.", 0, ""),
            ("A list [a] and a box [ ] and x[i].", 0, ""),
            ("See [4] and [4] and [0].", 3, "It cites [4], [0], but the results are [1] to [3]."),
            ("See [1].", 0, "It cites [1], but there are no results to cite."),
            ("See [2].", 1, "It cites [2], but the only result is [1]."),
            (
                "Trust me.",
                2,
                "It cites none of the results; put the number of one behind what is taken from it, like [1].",
            ),
            ("[99999999999999999999999] [[1]] [", 1, ""),
        ] {
            assert_eq!(told(&checks, text, sources), expected, "{text:?}");
        }
    }

    #[test]
    fn a_language_is_wrong_only_if_that_is_certain() {
        let german = Language::from_code("de");
        assert_eq!(german, Language::from_code("deu"));
        assert!(Language::from_code("klingon").is_none());
        let checks = Checks { language: german, ..Checks::default() };
        let english = "The four-day week keeps most of the output and costs the company hardly anything at all, as several \
                       trials in different countries have shown over the last years.";
        let found = "Die Viertagewoche erhält den größten Teil der Leistung und kostet das Unternehmen kaum etwas, wie \
                     mehrere Versuche in verschiedenen Ländern in den letzten Jahren gezeigt haben.";
        assert_eq!(told(&checks, english, 0), "It is written in English, and must be in German.");
        for text in [found, "", "42", "OK"] {
            assert_eq!(told(&checks, text, 0), "", "{text}");
        }
    }
}
