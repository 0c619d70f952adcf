//! All agents of a process: those that are built in, and those of a directory over them.

use crate::{Agent, AgentPurpose};
use std::{collections::BTreeMap, fmt, fs, io, path::Path};

/// The agent that makes plans.
pub const PLANNER: &str = "planner";
/// The agent that does a task for which no other is named.
pub const DEFAULT_WORKER: &str = "worker";
/// The agent that scores results.
pub const CRITIC: &str = "critic";
/// The agent that makes the answer.
pub const SYNTHESIZER: &str = "synthesizer";

/// The agent that condenses results which are too many for one prompt.
pub const REDUCER: &str = "reducer";

/// What must be there whatever a user edits, and what each is used for.
const REQUIRED: [(&str, AgentPurpose); 5] = [
    (PLANNER, AgentPurpose::Plan),
    (DEFAULT_WORKER, AgentPurpose::Work),
    (CRITIC, AgentPurpose::Judge),
    (SYNTHESIZER, AgentPurpose::Synthesize),
    (REDUCER, AgentPurpose::Synthesize),
];

const BUILT_IN: [(&str, &str); 8] = [
    ("agents/planner.md", include_str!("../../../agents/planner.md")),
    ("agents/worker.md", include_str!("../../../agents/worker.md")),
    ("agents/critic.md", include_str!("../../../agents/critic.md")),
    ("agents/synthesizer.md", include_str!("../../../agents/synthesizer.md")),
    ("agents/reducer.md", include_str!("../../../agents/reducer.md")),
    ("agents/researcher.md", include_str!("../../../agents/researcher.md")),
    ("agents/analyst.md", include_str!("../../../agents/analyst.md")),
    ("agents/writer.md", include_str!("../../../agents/writer.md")),
];

/// A file larger than this is no agent.
const MAX_FILE_BYTES: u64 = 256 * 1024;
/// More agents than this would fill the planner's prompt.
const MAX_AGENTS: usize = 200;

/// All agents, by name.
#[derive(Clone, Debug)]
pub struct AgentCatalogue {
    agents: BTreeMap<String, Agent>,
}

/// The agents cannot be used; names everything that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct CatalogueError {
    /// Everything that is wrong, file by file.
    pub faults: Vec<Fault>,
}

/// Something is wrong with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file or directory.
    pub file: String,
    /// What is wrong and what was expected.
    pub message: String,
}

impl fmt::Display for CatalogueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the agents cannot be used:")?;
        for Fault { file, message } in &self.faults {
            write!(f, "\n  {file}: {message}")?;
        }
        Ok(())
    }
}

impl AgentCatalogue {
    /// The agents that are built in, overridden and extended by the `*.md` files of `dir` (a `README.md`
    /// there is left alone). A file takes the place of the built-in agent of the same name.
    ///
    /// # Errors
    /// All faults of all files at once.
    pub fn load(dir: Option<&Path>) -> Result<Self, CatalogueError> {
        let mut faults = Vec::new();
        let mut agents = BTreeMap::new();
        for (file, text) in BUILT_IN {
            add(&mut agents, &mut faults, file, text);
        }
        if let Some(dir) = dir {
            let mut own = BTreeMap::new();
            match read_dir(dir) {
                Ok(files) => {
                    for (file, text) in files {
                        match text {
                            Ok(text) => add(&mut own, &mut faults, &file, &text),
                            Err(message) => faults.push(Fault { file, message }),
                        }
                    }
                }
                Err(error) => {
                    faults.push(Fault { file: dir.display().to_string(), message: error.to_string() });
                }
            }
            agents.append(&mut own);
        }
        for (name, purpose) in REQUIRED {
            if let Some(agent) = agents.get(name)
                && agent.purpose != purpose
            {
                faults.push(Fault {
                    file: format!("{name}.md"),
                    message: format!("purpose: the agent {name} must have the purpose {purpose:?}"),
                });
            }
        }
        if agents.len() > MAX_AGENTS {
            faults.push(Fault {
                file: dir.map(|dir| dir.display().to_string()).unwrap_or_default(),
                message: format!("{} agents, at most {MAX_AGENTS} are possible", agents.len()),
            });
        }
        if faults.is_empty() { Ok(Self { agents }) } else { Err(CatalogueError { faults }) }
    }

    /// The agent of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Agent> {
        self.agents.get(name)
    }

    /// The agents that a plan may name, in the order of their names.
    pub fn workers(&self) -> impl Iterator<Item = &Agent> {
        self.agents.values().filter(|agent| agent.purpose == AgentPurpose::Work)
    }

    /// Whether a plan may name it.
    #[must_use]
    pub fn is_worker(&self, name: &str) -> bool {
        self.get(name).is_some_and(|agent| agent.purpose == AgentPurpose::Work)
    }

    /// The agent that makes plans.
    #[must_use]
    pub fn planner(&self) -> &Agent {
        self.required(PLANNER)
    }

    /// The agent that scores results.
    #[must_use]
    pub fn critic(&self) -> &Agent {
        self.required(CRITIC)
    }

    /// The agent that makes the answer.
    #[must_use]
    pub fn synthesizer(&self) -> &Agent {
        self.required(SYNTHESIZER)
    }

    /// The agent that condenses results.
    #[must_use]
    pub fn reducer(&self) -> &Agent {
        self.required(REDUCER)
    }

    #[allow(clippy::expect_used)] // the built-in agents are always there: load() only replaces them
    fn required(&self, name: &str) -> &Agent {
        self.agents.get(name).expect("a built-in agent")
    }
}

fn add(agents: &mut BTreeMap<String, Agent>, faults: &mut Vec<Fault>, file: &str, text: &str) {
    match Agent::parse(text) {
        Ok(agent) if agents.contains_key(&agent.name) => faults.push(Fault {
            file: file.to_owned(),
            message: format!("name: another file has an agent {} too", agent.name),
        }),
        Ok(agent) => {
            agents.insert(agent.name.clone(), agent);
        }
        Err(messages) => {
            faults.extend(messages.into_iter().map(|message| Fault { file: file.to_owned(), message }))
        }
    }
}

type NamedText = (String, Result<String, String>);

fn read_dir(dir: &Path) -> io::Result<Vec<NamedText>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_agent = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("md"))
            && path.file_stem().is_some_and(|stem| !stem.eq_ignore_ascii_case("readme"))
            && path.is_file();
        if is_agent {
            paths.push(path);
        }
    }
    paths.sort(); // so that faults come in the same order everywhere
    Ok(paths.iter().map(|path| (path.display().to_string(), read_file(path))).collect())
}

fn read_file(path: &Path) -> Result<String, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > MAX_FILE_BYTES {
        return Err(format!("{size} bytes, at most {MAX_FILE_BYTES} are possible"));
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn file(name: &str, purpose: &str, prompt: &str) -> String {
        format!("+++\nname = \"{name}\"\ndescription = \"d\"\npurpose = \"{purpose}\"\n+++\n{prompt}\n")
    }

    #[test]
    fn the_built_in_agents_are_complete() {
        let catalogue = AgentCatalogue::load(None).unwrap();
        for (name, purpose) in REQUIRED {
            assert_eq!(catalogue.get(name).unwrap().purpose, purpose);
        }
        let workers: Vec<_> = catalogue.workers().map(|agent| agent.name.as_str()).collect();
        assert_eq!(workers, ["analyst", "researcher", "worker", "writer"]);
        assert!(!catalogue.is_worker("planner"));
    }

    #[test]
    fn a_directory_overrides_and_extends() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("critic.md"), file("critic", "judge", "Be strict.")).unwrap();
        fs::write(dir.path().join("poet.md"), file("poet", "work", "Rhyme.")).unwrap();
        fs::write(dir.path().join("README.md"), "About these agents.").unwrap();
        let catalogue = AgentCatalogue::load(Some(dir.path())).unwrap();
        assert_eq!(catalogue.critic().prompt, "Be strict.");
        assert!(catalogue.is_worker("poet"));
        assert!(catalogue.is_worker("worker"), "the built-in ones are still there");
    }

    #[test]
    fn all_faults_come_at_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.md"), "nothing").unwrap();
        fs::write(dir.path().join("b.md"), file("poet", "dance", "x")).unwrap();
        fs::write(dir.path().join("c.md"), file("critic", "work", "x")).unwrap();
        fs::write(dir.path().join("d.md"), file("critic", "judge", "x")).unwrap();
        let error = AgentCatalogue::load(Some(dir.path())).unwrap_err();
        assert_eq!(error.faults.len(), 4, "{error}");
        assert!(error.to_string().contains("a.md"));

        let missing = AgentCatalogue::load(Some(Path::new("/nowhere/at/all"))).unwrap_err();
        assert_eq!(missing.faults[0].file, "/nowhere/at/all");
    }
}
