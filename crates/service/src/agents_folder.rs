//! A folder of agents that people edit while a process runs.

use crate::load_agents;
use starling_agents::{AgentCatalogue, CatalogueError};
use starling_runtime::Settings;
use std::{collections::BTreeMap, ffi::OsString, fs, sync::Arc, time::Duration, time::SystemTime};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

/// More files than this are not looked at: a folder that has them is no folder of agents.
const MAX_FILES: usize = 10_000;

/// Names, sizes and times of the files of a folder.
type Look = BTreeMap<OsString, (u64, Option<SystemTime>)>;

/// The folder that the settings name.
#[derive(Debug)]
pub struct AgentsFolder {
    settings: Arc<Settings>,
    seen: Look,
}

impl AgentsFolder {
    /// The folder as it is now. To be made before its agents are read, so that no change goes unseen.
    #[must_use]
    pub fn of(settings: Arc<Settings>) -> Self {
        let seen = look(&settings);
        Self { settings, seen }
    }

    /// The agents that are there, if something has changed since the last look.
    pub fn changed(&mut self) -> Option<Result<AgentCatalogue, CatalogueError>> {
        let now = look(&self.settings);
        if now == self.seen {
            return None;
        }
        self.seen = now;
        Some(load_agents(&self.settings))
    }

    /// Looks every `every` until `stop`. Sound agents are told to `agents`; others are refused, and those of before stay.
    pub async fn follow(
        mut self,
        every: Duration,
        agents: watch::Sender<Arc<AgentCatalogue>>,
        stop: CancellationToken,
    ) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let looked = tokio::task::spawn_blocking(move || {
                let changed = self.changed();
                (self, changed)
            });
            let Ok((folder, changed)) = looked.await else { return };
            self = folder;
            tell(changed, &agents);
        }
    }
}

/// Puts sound agents in the place of those before.
fn tell(
    changed: Option<Result<AgentCatalogue, CatalogueError>>,
    agents: &watch::Sender<Arc<AgentCatalogue>>,
) {
    match changed {
        None => {}
        Some(Ok(catalogue)) => {
            let is_new = agents.send_if_modified(|agents| {
                let is_new = **agents != catalogue;
                if is_new {
                    *agents = Arc::new(catalogue);
                }
                is_new
            });
            if is_new {
                tracing::info!("the agents have changed; what begins from now on goes by them");
            }
        }
        Some(Err(error)) => {
            tracing::warn!(%error, "the agents have changed and are refused; those of before go on")
        }
    }
}

/// Nothing if the folder cannot be read: reading the agents says why.
fn look(settings: &Settings) -> Look {
    let entries = settings.agents_dir.as_deref().and_then(|dir| fs::read_dir(dir).ok());
    let entries = entries.into_iter().flatten().take(MAX_FILES).filter_map(Result::ok);
    entries
        .filter_map(|entry| {
            // Of what a link leads to, not of the link: that is how Kubernetes swaps mounted files.
            let file = fs::metadata(entry.path()).ok()?;
            Some((entry.file_name(), (file.len(), file.modified().ok())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use starling_runtime::settings::Sources;
    use std::path::Path;

    fn write(dir: &Path, name: &str, prompt: &str, more: &str) {
        let agent =
            format!("name = {name:?}\ndescription = \"d\"\npurpose = \"work\"\nprompt = {prompt:?}\n{more}");
        fs::write(dir.join(format!("{name}.toml")), agent).unwrap();
    }

    fn settings(dir: &Path) -> Arc<Settings> {
        let overrides = vec![("agents.dir".to_owned(), dir.display().to_string())];
        Arc::new(Settings::load(&Sources { overrides, ..Sources::default() }).unwrap())
    }

    #[test]
    fn a_change_is_seen_once_and_what_is_faulty_leaves_the_agents_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "scout", "Look.", "");
        let settings = settings(dir.path());
        let mut folder = AgentsFolder::of(settings.clone());
        let sender = watch::Sender::new(Arc::new(load_agents(&settings).unwrap()));
        let prompt = || sender.borrow().get("scout").unwrap().prompt.clone();
        assert!(folder.changed().is_none(), "nothing has happened");

        write(dir.path(), "scout", "Look twice.", "");
        tell(folder.changed(), &sender);
        assert_eq!(prompt(), "Look twice.");
        assert!(folder.changed().is_none(), "it was seen");

        for faulty in ["tools = [\"browser\"]\n", "pool = \"nowhere\"\n"] {
            write(dir.path(), "scout", "Look away.", faulty);
            let changed = folder.changed();
            assert!(changed.as_ref().unwrap().is_err());
            tell(changed, &sender);
            assert_eq!(prompt(), "Look twice.");
            assert!(folder.changed().is_none(), "its faults are told once");
        }

        write(dir.path(), "clerk", "Write.", "");
        fs::remove_file(dir.path().join("scout.toml")).unwrap();
        tell(folder.changed(), &sender);
        assert!(sender.borrow().get("scout").is_none() && sender.borrow().is_worker("clerk"));
    }

    #[tokio::test(start_paused = true)]
    async fn who_follows_hears_of_it_and_ends_when_told() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let folder = AgentsFolder::of(settings.clone());
        let (sender, mut agents) = watch::channel(Arc::new(load_agents(&settings).unwrap()));
        let stop = CancellationToken::new();
        let following = tokio::spawn(folder.follow(Duration::from_secs(60), sender, stop.clone()));
        write(dir.path(), "scout", "Look.", "");
        agents.changed().await.unwrap(); // the clock jumps to the next look
        assert!(agents.borrow_and_update().is_worker("scout"));
        stop.cancel();
        following.await.unwrap();
    }
}
