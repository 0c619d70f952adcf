//! `config/presets.toml`: names of providers that stand for settings.

use super::{
    Fault,
    layers::{Leaf, Node, Raw, Tree, single, toml},
};
use std::collections::BTreeMap;

const PRESETS: &str = include_str!("../../../../config/presets.toml");
const ORIGIN: &str = "the built-in presets";

/// Whose settings stand below those of the user.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// By section.
    sections: BTreeMap<Vec<String>, (String, Tree)>,
}

impl Wanted {
    /// Whether the first endpoint is OpenAI's, or one that is set in its place.
    pub(super) fn model_is_openai(&self) -> bool {
        self.sections.get(["model".to_owned()].as_slice()).is_none_or(|(name, _)| name == "openai")
    }

    /// What the presets say.
    pub(super) fn layers(self) -> impl Iterator<Item = Tree> {
        self.sections.into_iter().map(|(section, (_, preset))| {
            section.into_iter().rev().fold(preset, |inner, name| Tree::from([(name, Node::Table(inner))]))
        })
    }
}

/// The presets that `layers` name, the last of them winning.
pub(super) fn wanted<'t>(layers: impl Iterator<Item = &'t Tree>, faults: &mut Vec<Fault>) -> Wanted {
    let mut named: BTreeMap<Vec<String>, &Leaf> = BTreeMap::new();
    for layer in layers {
        if let Some(leaf) = leaf(layer, "model", "preset") {
            named.insert(vec!["model".to_owned()], leaf);
        }
        let Some(Node::Table(providers)) = layer.get("providers") else { continue };
        for provider in providers.keys() {
            if let Some(leaf) = leaf(providers, provider, "preset") {
                named.insert(vec!["providers".to_owned(), provider.clone()], leaf);
            }
        }
    }
    let presets = toml(PRESETS, ORIGIN).unwrap_or_else(|fault| {
        faults.push(fault);
        Tree::new()
    });
    let mut wanted = Wanted::default();
    for (section, leaf) in named {
        match &leaf.value {
            Raw::Text(name) if name.is_empty() => {}
            Raw::Text(name) if let Some(Node::Table(preset)) = presets.get(name) => {
                wanted.sections.insert(section, (name.clone(), preset.clone()));
            }
            other => faults.push(Fault {
                path: format!("{}.preset", section.join(".")),
                expected: format!("one of {}", presets.keys().cloned().collect::<Vec<_>>().join(", ")),
                found: other.describe(),
                origin: leaf.origin.clone(),
            }),
        }
    }
    wanted
}

/// Puts the keys in whose environment variables are named (`api_key_env`), where none is set.
pub(super) fn take_keys<'e>(tree: &mut Tree, variable: impl Fn(&str) -> Option<&'e str>) {
    let take = |section: &mut Tree| {
        let text = |name: &str| match section.get(name) {
            Some(Node::Leaf(Leaf { value: Raw::Text(text), .. })) => text.clone(),
            _ => String::new(),
        };
        let named = text("api_key_env");
        if named.is_empty() || !text("api_key").is_empty() || !text("api_key_file").is_empty() {
            return;
        }
        if let Some(key) = variable(&named) {
            section.extend(single(["api_key"].into_iter(), key, format!("environment variable {named}")));
        }
    };
    if let Some(Node::Table(model)) = tree.get_mut("model") {
        take(model);
    }
    if let Some(Node::Table(providers)) = tree.get_mut("providers") {
        for provider in providers.values_mut() {
            if let Node::Table(provider) = provider {
                take(provider);
            }
        }
    }
}

fn leaf<'t>(tree: &'t Tree, section: &str, name: &str) -> Option<&'t Leaf> {
    match tree.get(section)? {
        Node::Table(section) => match section.get(name)? {
            Node::Leaf(leaf) => Some(leaf),
            Node::Table(_) => None,
        },
        Node::Leaf(_) => None,
    }
}
