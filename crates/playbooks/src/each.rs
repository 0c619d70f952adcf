//! One task for each of something, or for each group of them.

use crate::fault::excerpt;
use crate::file::ForEachFile;
use crate::parameter::{Kind, Parameter, RESERVED};
use std::collections::BTreeMap;
use std::fmt;

/// Where the things come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The items of the intent.
    Items,
    /// The inputs of the intent.
    Inputs,
    /// The parts of the inputs of the intent.
    Chunks,
    /// The entries of a parameter that is a list.
    List(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Items => f.write_str("items"),
            Source::Inputs => f.write_str("inputs"),
            Source::Chunks => f.write_str("chunks"),
            Source::List(name) => f.write_str(name),
        }
    }
}

/// `variable in source`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loop {
    pub(crate) variable: String,
    pub(crate) source: Source,
}

/// What a task template is repeated for. With two loops, for each pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForEach {
    pub(crate) first: Loop,
    pub(crate) second: Option<Loop>,
    /// How many of the first are treated by one task, before `max_tasks` asks for more.
    pub(crate) each: usize,
}

impl ForEach {
    pub(crate) fn read(
        file: &ForEachFile,
        each: Option<u32>,
        parameters: &BTreeMap<String, Parameter>,
    ) -> Result<Self, String> {
        let texts = match file {
            ForEachFile::One(text) => std::slice::from_ref(text),
            ForEachFile::Several(texts) => texts.as_slice(),
        };
        let mut loops = texts.iter().map(|text| one_loop(text, parameters));
        let (first, second, more) = (loops.next(), loops.next(), loops.next());
        let (Some(first), None) = (first, more) else {
            return Err(format!("expected one or two loops, found {}", texts.len()));
        };
        let (first, second) = (first?, second.transpose()?);
        if second
            .as_ref()
            .is_some_and(|second| second.variable == first.variable || second.source == first.source)
        {
            return Err("expected two loops over different things with different names".to_owned());
        }
        let each = usize::try_from(each.unwrap_or(1)).unwrap_or(usize::MAX);
        if each == 0 {
            return Err("each: expected at least 1, found 0".to_owned());
        }
        Ok(Self { first, second, each })
    }

    pub(crate) fn loops(&self) -> impl Iterator<Item = &Loop> {
        std::iter::once(&self.first).chain(&self.second)
    }

    /// Whether both cut the first of their loops in the same way, so that their tasks can be told to belong together.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        let second = |of: &Self| of.second.as_ref().map(|second| second.source.clone());
        let same_second = match (second(self), second(other)) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        self.first.source == other.first.source && self.each == other.each && same_second
    }
}

fn one_loop(text: &str, parameters: &BTreeMap<String, Parameter>) -> Result<Loop, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [variable, "in", source] = words[..] else {
        return Err(format!("expected such as \"item in items\", found {}", excerpt(text)));
    };
    let plain = variable.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    let begins = variable.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if !plain || !begins || RESERVED.contains(&variable) || parameters.contains_key(variable) {
        return Err(format!("expected a name that nothing else has, found {}", excerpt(variable)));
    }
    let source = match (source, parameters.get(source)) {
        ("items", _) => Source::Items,
        ("inputs", _) => Source::Inputs,
        ("chunks", _) => Source::Chunks,
        (name, Some(parameter)) if parameter.kind == Kind::List => Source::List(name.to_owned()),
        (name, _) => {
            return Err(format!(
                "expected items, inputs, chunks or a parameter that is a list, found {}",
                excerpt(name)
            ));
        }
    };
    Ok(Loop { variable: variable.to_owned(), source })
}

/// How many groups of about `each` there are of `count` things, where the groups have to be `factor` times as large.
pub(crate) fn groups(count: usize, each: usize, factor: usize) -> usize {
    count.div_ceil(each.saturating_mul(factor).max(1))
}

/// The things of group `at` of `groups`: each thing is in one group, and no group has two more than another.
pub(crate) fn group(count: usize, groups: usize, at: usize) -> std::ops::Range<usize> {
    let bound = |at: usize| count * at / groups.max(1);
    bound(at)..bound(at + 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_thing_is_in_one_group_and_groups_are_even(count in 0_usize..3_000, each in 1_usize..50, factor in 1_usize..50) {
            let groups = groups(count, each, factor);
            let parts: Vec<_> = (0..groups).map(|at| group(count, groups, at)).collect();
            let all: Vec<usize> = parts.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..count).collect::<Vec<_>>());
            let sizes: Vec<usize> = parts.iter().map(ExactSizeIterator::len).collect();
            let (least, most) = (sizes.iter().min().copied().unwrap_or(0), sizes.iter().max().copied().unwrap_or(0));
            prop_assert!(most - least <= 1 && most <= each * factor, "{:?}", sizes);
            prop_assert!(count == 0 || least > 0);
        }
    }

    #[test]
    fn loops_are_read() {
        let list = Parameter { kind: Kind::List, required: true, default: None, description: String::new() };
        let parameters = BTreeMap::from([("languages".to_owned(), list)]);
        let read = |texts: &[&str]| {
            ForEach::read(&ForEachFile::Several(texts.iter().map(|&t| t.into()).collect()), None, &parameters)
        };
        let both = read(&["item in items", "language in languages"]).unwrap();
        assert_eq!(both.second.unwrap().source, Source::List("languages".into()));
        for (wrong, fault) in [
            (&["items"][..], "expected such as"),
            (&["item in goods"], "expected items, inputs, chunks or a parameter"),
            (&["items in items"], "expected a name that nothing else has"),
            (&["languages in items"], "expected a name that nothing else has"),
            (&["a in items", "b in items"], "two loops over different things"),
            (&["a in items", "b in inputs", "c in languages"], "expected one or two loops, found 3"),
            (&[], "expected one or two loops, found 0"),
        ] {
            let found = read(wrong).unwrap_err();
            assert!(found.contains(fault), "{wrong:?}: {found}");
        }
    }
}
