//! A child process that a test can end, stop and continue, and whose output is shown when a test fails.

use anyhow::{Context, Result};
use std::{
    collections::BTreeSet,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Lines of a process's output that a failing test shows.
const SHOWN_LINES: usize = 25;

/// Processes that run.
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn running() -> MutexGuard<'static, BTreeSet<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all processes that run, for a program that ends without dropping them.
pub(crate) fn kill_all() {
    for id in running().iter() {
        let _ = send("KILL", *id); // it may have ended
    }
}

fn send(signal: &str, id: u32) -> Result<ExitStatus> {
    // The shell's own `kill`: not every machine has the program.
    Ok(Command::new("sh").arg("-c").arg(format!("kill -s {signal} {id}")).status()?)
}

/// A running process; it is killed when this is dropped.
#[derive(Debug)]
pub struct Proc {
    child: Child,
    /// What it is, for messages.
    pub name: String,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// Where the workspace's binaries are: beside the test binary, in the target directory's profile folder.
fn binary(name: &str) -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let profile =
        test.parent().and_then(Path::parent).context("a test binary lies in target/<profile>/deps")?;
    let path = profile.join(name);
    anyhow::ensure!(path.exists(), "{} is not built; `make test` builds it first", path.display());
    Ok(path)
}

impl Proc {
    /// Starts a binary of the workspace with nothing in its environment but `env` and what every program
    /// needs; its output goes to files in `dir`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(
        binary_name: &str,
        name: &str,
        args: &[String],
        env: &[(String, String)],
        dir: &Path,
    ) -> Result<Self> {
        let stdout = dir.join(format!("{name}.out"));
        let stderr = dir.join(format!("{name}.err"));
        let inherited =
            ["PATH", "HOME", "TMPDIR"].into_iter().filter_map(|key| Some((key, std::env::var_os(key)?)));
        let child = Command::new(binary(binary_name)?)
            .args(args)
            .env_clear()
            .envs(inherited)
            .envs(env.iter().map(|(key, value)| (key.as_str(), value.as_str())))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        running().insert(child.id());
        Ok(Self { child, name: name.to_owned(), stdout, stderr })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, such as `INT`, `STOP`, `CONT` or `TERM`.
    ///
    /// # Errors
    /// The process is gone.
    pub fn signal(&self, signal: &str) -> Result<()> {
        let status = send(signal, self.id())?;
        anyhow::ensure!(status.success(), "{} is gone", self.name);
        Ok(())
    }

    /// Kills it with SIGKILL and waits for its end.
    ///
    /// # Errors
    /// It cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It does not end in time.
    pub async fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        let until = Instant::now() + within;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            anyhow::ensure!(
                Instant::now() < until,
                "{} did not end within {within:?}; it says:\n{}",
                self.name,
                self.last_lines()
            );
            tokio::time::sleep(Duration::from_millis(10)).await; // a child's end has no event to wait for here
        }
    }

    /// Resident memory in MiB.
    #[must_use]
    pub fn rss_mib(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib / 1024)
    }

    /// What it has printed to stdout so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        std::fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    /// What it has printed to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// The end of what it has printed.
    #[must_use]
    pub fn last_lines(&self) -> String {
        let output = self.stdout() + &self.stderr();
        let lines: Vec<&str> = output.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
        running().remove(&self.id());
        if std::thread::panicking() {
            eprintln!("--- {} (last lines)\n{}", self.name, self.last_lines());
        }
    }
}
