//! All playbooks of a process: those that are built in, and those of a directory over them.

use crate::{Fault, Plan, Playbook, Wish, map};
use starling_protocol::PlanStrategy;
use std::{collections::BTreeMap, fmt, fs, io, path::Path};

const BUILT_IN: [(&str, &str); 6] = [
    ("playbooks/compare.toml", include_str!("../../../playbooks/compare.toml")),
    ("playbooks/document-review.toml", include_str!("../../../playbooks/document-review.toml")),
    ("playbooks/order-inquiry.toml", include_str!("../../../playbooks/order-inquiry.toml")),
    ("playbooks/product-copy.toml", include_str!("../../../playbooks/product-copy.toml")),
    ("playbooks/product-recommendation.toml", include_str!("../../../playbooks/product-recommendation.toml")),
    ("playbooks/research.toml", include_str!("../../../playbooks/research.toml")),
];

/// A file larger than this is no playbook.
const MAX_FILE_BYTES: u64 = 256 * 1024;
/// Most playbooks.
const MAX_PLAYBOOKS: usize = 500;

/// All playbooks, by name.
#[derive(Clone, Debug, Default)]
pub struct Playbooks {
    playbooks: BTreeMap<String, Playbook>,
}

/// The playbooks cannot be used; names everything that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PlaybooksError {
    /// File and fault.
    pub faults: Vec<(String, Fault)>,
}

impl fmt::Display for PlaybooksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the playbooks cannot be used:")?;
        for (file, fault) in &self.faults {
            write!(f, "\n  {file}: {fault}")?;
        }
        Ok(())
    }
}

impl Playbooks {
    /// The playbooks that are built in, overridden and extended by the `*.toml` files of `dir`. A file takes the place of
    /// the built-in playbook of the same name. `is_worker` tells which agents can do tasks.
    ///
    /// # Errors
    /// All faults of all files at once.
    pub fn load(dir: Option<&Path>, is_worker: impl Fn(&str) -> bool) -> Result<Self, PlaybooksError> {
        let mut faults = Vec::new();
        let mut playbooks = BTreeMap::new();
        for (file, text) in BUILT_IN {
            add(&mut playbooks, &mut faults, file, text, &is_worker);
        }
        let mut own = BTreeMap::new();
        for (file, text) in dir.map(read_dir).unwrap_or_default() {
            match text {
                Ok(text) => add(&mut own, &mut faults, &file, &text, &is_worker),
                Err(message) => faults.push((file, Fault { path: String::new(), message })),
            }
        }
        playbooks.append(&mut own);
        if playbooks.len() > MAX_PLAYBOOKS {
            let message = format!("{} playbooks, at most {MAX_PLAYBOOKS} are possible", playbooks.len());
            let file = dir.map(|dir| dir.display().to_string()).unwrap_or_default();
            faults.push((file, Fault { path: String::new(), message }));
        }
        if faults.is_empty() { Ok(Self { playbooks }) } else { Err(PlaybooksError { faults }) }
    }

    /// The playbook of that name.
    ///
    /// # Errors
    /// There is none; names those that there are.
    pub fn get(&self, name: &str) -> Result<&Playbook, Fault> {
        self.playbooks.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.playbooks.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Fault {
                path: "strategy".to_owned(),
                message: format!("there is no playbook {name:?}, there are {known}"),
            }
        })
    }

    /// The plan of a strategy that needs no model for it; nothing for the others.
    ///
    /// # Errors
    /// There is no such playbook, or what the intent lacks or has wrong for it.
    #[must_use]
    pub fn plan(&self, strategy: &PlanStrategy, wish: &Wish<'_>) -> Option<Result<Plan, Vec<Fault>>> {
        match strategy {
            PlanStrategy::Map => Some(map(wish)),
            PlanStrategy::Playbook(name) => {
                Some(self.get(name).map_err(|fault| vec![fault]).and_then(|playbook| playbook.expand(wish)))
            }
            PlanStrategy::Llm | PlanStrategy::Single | PlanStrategy::Auto => None,
        }
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Playbook> {
        self.playbooks.values()
    }
}

fn add(
    playbooks: &mut BTreeMap<String, Playbook>,
    faults: &mut Vec<(String, Fault)>,
    file: &str,
    text: &str,
    is_worker: &impl Fn(&str) -> bool,
) {
    match Playbook::parse(text, is_worker) {
        Err(found) => faults.extend(found.into_iter().map(|fault| (file.to_owned(), fault))),
        Ok(playbook) => {
            let name = playbook.name().to_owned();
            if playbooks.insert(name.clone(), playbook).is_some() {
                let message = format!("another file has the playbook {name}");
                faults.push((file.to_owned(), Fault { path: "name".to_owned(), message }));
            }
        }
    }
}

/// Path and text, or what is wrong, of each playbook's file in a directory, in the order of their names.
fn read_dir(dir: &Path) -> Vec<(String, Result<String, String>)> {
    let paths: io::Result<Vec<_>> =
        fs::read_dir(dir).and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect());
    let mut paths = match paths {
        Ok(paths) => paths,
        Err(error) => return vec![(dir.display().to_string(), Err(error.to_string()))],
    };
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let read = |path: &Path| match fs::metadata(path) {
        Ok(about) if about.len() > MAX_FILE_BYTES => {
            Err(format!("{} bytes, at most {MAX_FILE_BYTES} are read", about.len()))
        }
        Ok(_) => fs::read_to_string(path).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    paths.iter().map(|path| (path.display().to_string(), read(path))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_built_in_under_its_name() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../playbooks");
        let mut files: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "README.md")
            .collect();
        files.sort();
        let built_in: Vec<String> = BUILT_IN.iter().map(|(file, _)| file.replace("playbooks/", "")).collect();
        assert_eq!(files, built_in);
        let playbooks = Playbooks::load(None, |_| true).unwrap();
        let names: Vec<String> =
            playbooks.iter().map(|playbook| format!("{}.toml", playbook.name())).collect();
        assert_eq!(names, built_in);
    }
}
