//! All agents of a process: those that are built in, and those of a directory over them.

use crate::{Agent, AgentForm, AgentPurpose};
use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

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
#[derive(Clone, Debug, PartialEq)]
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
    /// The agents that are built in, overridden and extended by the `*.md` and `*.toml` files of `dir` (a `README.md`
    /// there is left alone). A file takes the place of the built-in agent of the same name.
    ///
    /// # Errors
    /// All faults of all files at once.
    pub fn load(dir: Option<&Path>) -> Result<Self, CatalogueError> {
        let mut faults = Vec::new();
        let mut agents = BTreeMap::new();
        for (file, text) in BUILT_IN {
            let none = |file: &str| Err(format!("there is no file {file}"));
            add(&mut agents, &mut faults, file, Agent::parse(AgentForm::Markdown, text, &none));
        }
        if let Some(dir) = dir {
            let mut own = BTreeMap::new();
            match agent_files(dir) {
                Ok(files) => {
                    for (path, form) in files {
                        let agent = read_file(&path).map_err(|fault| vec![fault]);
                        let agent =
                            agent.and_then(|text| Agent::parse(form, &text, &|name| read_beside(dir, name)));
                        add(&mut own, &mut faults, &path.display().to_string(), agent);
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

    /// All agents, in the order of their names.
    pub fn all(&self) -> impl Iterator<Item = &Agent> {
        self.agents.values()
    }

    /// Agents whose tasks belong to a pool that is not among `pools`: nobody would do them.
    #[must_use]
    pub fn outside_of<'p>(&self, pools: impl Iterator<Item = &'p str> + Clone) -> Vec<Fault> {
        let lost = |agent: &&Agent| {
            agent.pool.as_deref().is_some_and(|pool| !pools.clone().any(|known| known == pool))
        };
        let fault = |agent: &Agent| Fault {
            file: agent.name.clone(),
            message: format!(
                "pool: {:?} is none of the pools in the setting topics.pools",
                agent.pool.as_deref().unwrap_or_default()
            ),
        };
        self.agents.values().filter(lost).map(fault).collect()
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

fn add(
    agents: &mut BTreeMap<String, Agent>,
    faults: &mut Vec<Fault>,
    file: &str,
    agent: Result<Agent, Vec<String>>,
) {
    match agent {
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

/// The files of a folder that are agents, in the order of their names, so that faults come in the same order everywhere.
fn agent_files(dir: &Path) -> io::Result<Vec<(PathBuf, AgentForm)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is = |extension: &str| path.extension().is_some_and(|e| e.eq_ignore_ascii_case(extension));
        let is_readme = path.file_stem().is_some_and(|stem| stem.eq_ignore_ascii_case("readme"));
        let form = match () {
            () if is("md") && !is_readme => AgentForm::Markdown,
            () if is("toml") => AgentForm::Toml,
            () => continue,
        };
        if path.is_file() {
            files.push((path, form));
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(files)
}

/// Another file of the folder; none beyond it, because all services need the same.
fn read_beside(dir: &Path, name: &str) -> Result<String, String> {
    let path = Path::new(name);
    if path.file_name() != Some(path.as_os_str()) {
        return Err(format!("expected the name of a file in the same folder, found {name:?}"));
    }
    read_file(&dir.join(path)).map_err(|fault| format!("{name}: {fault}"))
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
    fn files_of_either_form_and_schemas_beside_them_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let scout = "name = \"scout\"\ndescription = \"d\"\npurpose = \"work\"\nprompt = \"Look.\"\npool = \"far\"\n\
                     output_schema = ";
        write("scout.toml", &format!("{scout}\"scout.schema.json\""));
        write("scout.schema.json", "{\"type\": \"object\", \"required\": [\"found\"]}");
        let catalogue = AgentCatalogue::load(Some(dir.path())).unwrap();
        let agent = catalogue.get("scout").unwrap();
        assert!(agent.output_schema.as_ref().unwrap().check("{}").is_err());
        assert!(catalogue.outside_of(["near", "far"].into_iter()).is_empty());
        assert_eq!(catalogue.outside_of(["near"].into_iter())[0].file, "scout");

        for (name, part) in [("../x.json", "same folder"), ("", "same folder"), ("gone.json", "gone.json: ")]
        {
            write("scout.toml", &format!("{scout}{name:?}"));
            let error = AgentCatalogue::load(Some(dir.path())).unwrap_err();
            assert!(error.faults[0].message.contains(part), "{error}");
        }
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
