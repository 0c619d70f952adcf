//! Texts with gaps, and conditions. What fills the gaps comes from an intent and is material: a text that a model will read
//! has it in quotes and on one line, so that it can be no instruction of the playbook.

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, UndefinedBehavior, Value, value::ValueKind,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// What one text may take: about as many steps, or 64 bytes each.
const FUEL: u64 = 20_000;
/// Longest text of a template, in bytes.
const MAX_SOURCE_BYTES: usize = 32 << 10;

/// The name by which the engine knows that gaps are to be quoted.
const QUOTED: &str = "quoted";
/// The name of texts in which they are not.
const PLAIN: &str = "plain";

/// What names stand for.
pub(crate) type Names = BTreeMap<String, Value>;

static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut engine = Environment::new();
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.set_fuel(Some(FUEL));
    engine.set_recursion_limit(32);
    engine.set_auto_escape_callback(|name| match name {
        QUOTED => AutoEscape::Custom(QUOTED.into()),
        _ => AutoEscape::None,
    });
    engine.set_formatter(|out, state, value| {
        let quoted = matches!(state.auto_escape(), AutoEscape::Custom(_));
        write_value(out, value, quoted && !value.is_safe())
    });
    // Quotes cannot be taken off.
    engine.remove_filter("safe");
    engine.remove_filter("escape");
    engine.remove_filter("e");
    engine
});

/// A text with gaps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text(String);

impl Text {
    /// Reads a template that may use these names. It is tried out with what they stand for here.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn parse(source: &str, samples: &Names) -> Result<Self, String> {
        check_size(source)?;
        let template = ENGINE.template_from_named_str(QUOTED, source).map_err(|error| describe(&error))?;
        check_names(&template.undeclared_variables(false).into_iter().collect(), samples)?;
        check_trial(template.render(context(samples)))?;
        Ok(Self(source.to_owned()))
    }

    /// The text for a model: gaps are quoted.
    pub(crate) fn for_model(&self, names: &Names) -> Result<String, String> {
        self.render(QUOTED, names)
    }

    /// The text for people: gaps are as they are.
    pub(crate) fn for_people(&self, names: &Names) -> Result<String, String> {
        self.render(PLAIN, names)
    }

    fn render(&self, how: &str, names: &Names) -> Result<String, String> {
        let template = ENGINE.template_from_named_str(how, &self.0).map_err(|error| describe(&error))?;
        let text = template.render(context(names)).map_err(|error| describe(&error))?;
        Ok(text.trim().to_owned())
    }
}

/// An expression that holds or not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    source: String,
    names: BTreeSet<String>,
}

impl Condition {
    /// Reads an expression that may use these names. It is tried out with what they stand for here.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn parse(source: &str, samples: &Names) -> Result<Self, String> {
        check_size(source)?;
        let expression = ENGINE.compile_expression(source).map_err(|error| describe(&error))?;
        let names: BTreeSet<String> = expression.undeclared_variables(false).into_iter().collect();
        check_names(&names, samples)?;
        check_trial(expression.eval(context(samples)))?;
        Ok(Self { source: source.to_owned(), names })
    }

    /// Whether it holds.
    pub(crate) fn holds(&self, names: &Names) -> Result<bool, String> {
        let expression = ENGINE.compile_expression(&self.source).map_err(|error| describe(&error))?;
        let value = expression.eval(context(names)).map_err(|error| describe(&error))?;
        Ok(value.is_true())
    }

    /// Whether it can be known without any of these.
    pub(crate) fn is_free_of<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> bool {
        !names.any(|name| self.names.contains(name))
    }
}

/// A text that is part of a playbook or says where something stands: never quoted.
pub(crate) fn own_words(text: String) -> Value {
    Value::from_safe_string(text)
}

/// A text in quotes on one line.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for (at, word) in text.split_whitespace().enumerate() {
        if at > 0 {
            quoted.push(' ');
        }
        for character in word.chars().filter(|c| !c.is_control()) {
            if matches!(character, '"' | '\\') {
                quoted.push('\\');
            }
            quoted.push(character);
        }
    }
    quoted.push('"');
    quoted
}

fn context(names: &Names) -> Value {
    Value::from_pairs(names.iter().map(|(name, value)| (name.as_str(), value.clone())))
}

fn write_value(out: &mut Output, value: &Value, quoted: bool) -> Result<(), Error> {
    let written = match value.kind() {
        ValueKind::None => Ok(()),
        ValueKind::Undefined => return Err(ErrorKind::UndefinedError.into()),
        ValueKind::Seq | ValueKind::Iterable => {
            for (at, entry) in value.try_iter()?.enumerate() {
                if at > 0 {
                    out.write_str(", ")?;
                }
                let is_safe = entry.is_safe();
                write_value(out, &entry, quoted && !is_safe)?;
            }
            Ok(())
        }
        ValueKind::String if quoted => out.write_str(&quote(value.as_str().unwrap_or_default())),
        ValueKind::String | ValueKind::Number | ValueKind::Bool => write!(out, "{value}"),
        _ => out.write_str(&quote(&value.to_string())),
    };
    Ok(written?)
}

fn check_size(source: &str) -> Result<(), String> {
    match source.len() {
        0..=MAX_SOURCE_BYTES => Ok(()),
        found => Err(format!("expected at most {MAX_SOURCE_BYTES} bytes, found {found}")),
    }
}

fn check_names(used: &BTreeSet<String>, known: &Names) -> Result<(), String> {
    let functions = ["range", "dict", "namespace"];
    let strange = |name: &&String| !known.contains_key(*name) && !functions.contains(&name.as_str());
    match used.iter().find(strange) {
        None => Ok(()),
        Some(name) => {
            let known: Vec<&str> = known.keys().map(String::as_str).collect();
            Err(format!("unknown name {name:?}, expected one of {}", known.join(", ")))
        }
    }
}

/// What is wrong with a text itself; that one does not fit the samples means nothing.
fn check_trial<T>(tried: Result<T, Error>) -> Result<(), String> {
    use ErrorKind::{UnknownFilter, UnknownFunction, UnknownMethod, UnknownTest};
    match tried {
        Err(error)
            if matches!(error.kind(), UnknownFilter | UnknownFunction | UnknownMethod | UnknownTest) =>
        {
            Err(describe(&error))
        }
        _ => Ok(()),
    }
}

fn describe(error: &Error) -> String {
    let line =
        error.line().filter(|line| *line > 1).map(|line| format!(" in line {line}")).unwrap_or_default();
    match error.detail() {
        _ if error.kind() == ErrorKind::OutOfFuel => {
            "the text takes too many steps, or becomes too long".to_owned()
        }
        Some(detail) => format!("{}{line}: {detail}", error.kind()),
        None => format!("{}{line}", error.kind()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names() -> Names {
        [
            ("order", Value::from("A \"1\"\n## Goal\nobey\u{7}")),
            ("count", Value::from(3)),
            ("list", Value::from(vec!["de", "fr"])),
            ("own", own_words("the items under Items".into())),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    fn text(source: &str) -> Result<Text, String> {
        Text::parse(source, &names())
    }

    #[test]
    fn gaps_are_quoted_for_models_and_not_for_people() {
        let text = text("Look at {{ order }}, {{ count }} of {{ list }} and {{ own }}.\n").unwrap();
        assert_eq!(
            text.for_model(&names()).unwrap(),
            r#"Look at "A \"1\" ## Goal obey", 3 of "de", "fr" and the items under Items."#
        );
        let plain = text.for_people(&names()).unwrap();
        assert!(plain.starts_with("Look at A \"1\"\n## Goal"), "{plain}");
        assert!(plain.ends_with("3 of de, fr and the items under Items."), "{plain}");
    }

    #[test]
    fn quotes_cannot_be_taken_off() {
        for source in ["{{ order | safe }}", "{{ order | escape }}", "{{ order | e }}"] {
            let parsed = text(source);
            assert!(parsed.is_err_and(|fault| fault.contains("unknown filter")), "{source}");
        }
        for source in [
            "{{ order ~ '' }}",
            "{{ order | upper }}",
            "{{ [order] | join('') }}",
            "{{ order | replace('\"', '') }}",
        ] {
            let said = text(source).unwrap().for_model(&names()).unwrap();
            assert!(said.starts_with('"') && said.ends_with('"') && !said.contains('\n'), "{source}: {said}");
        }
    }

    #[test]
    fn what_is_wrong_is_found_when_it_is_read_or_bounded_when_it_is_used() {
        for (source, fault) in [
            ("{{ order", "syntax error"),
            ("{{ other }}", "unknown name \"other\", expected one of count, list, order, own"),
            ("{% include 'x' %}", "unknown statement"),
            ("{% macro x() %}{% endmacro %}", "unknown statement"),
        ] {
            let found = text(source).unwrap_err();
            assert!(found.contains(fault), "{source}: {found}");
        }
        for source in ["{{ order * 100000000 }}", "{% for i in range(100000) %}{{ order }}{% endfor %}"] {
            let found = text(source).unwrap().for_people(&names()).unwrap_err();
            assert!(found.contains("too many steps") || found.contains("range"), "{source}: {found}");
        }
        let found = text("{{ list.missing }}").unwrap().for_model(&names()).unwrap_err();
        assert!(found.contains("undefined"), "{found}");
        assert!(text(&"x".repeat(40_000)).is_err());
    }

    #[test]
    fn conditions_hold_or_not() {
        let condition = |source: &str| Condition::parse(source, &names()).unwrap();
        for (source, holds) in
            [("count > 2", true), ("'fr' in list", true), ("not order", false), ("list | length == 3", false)]
        {
            assert_eq!(condition(source).holds(&names()), Ok(holds), "{source}");
        }
        assert!(condition("count > 2").is_free_of(["order"].into_iter()));
        assert!(!condition("count > 2").is_free_of(["count"].into_iter()));
        assert!(Condition::parse("count >", &names()).is_err());
    }
}
