//! A broker of a test's own, which it may harm.

use crate::secure::script;
use anyhow::{Context as _, Result, ensure};
use std::{
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

/// A running broker, or several that form a cluster; stopped when this is dropped.
#[derive(Debug)]
pub struct OwnBroker {
    /// Where clients connect.
    pub address: String,
    folder: PathBuf,
    _place: Option<TempDir>,
}

impl OwnBroker {
    /// Starts one.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts it with more options of `scripts/kafka start`, such as `--brokers 3`.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_with(options: &[&str]) -> Result<Self> {
        let place = tempfile::tempdir()?;
        let folder = place.path().join("broker");
        let first = start(&folder, "0", options).await?;
        // Of a cluster clients know all members, or they would know none when the first one dies.
        let address = match std::fs::read_to_string(folder.join("cluster")) {
            Ok(cluster) => {
                let ports = cluster.lines().filter_map(|line| line.split(' ').nth(1));
                ports.map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
            }
            Err(_) => first,
        };
        Ok(Self { address, folder, _place: Some(place) })
    }

    /// Starts one whose data are to lie in this folder, which is there and empty.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_in(folder: &Path) -> Result<Self> {
        let folder = folder.to_owned();
        let address = start(&folder, "0", &[]).await?;
        Ok(Self { address, folder, _place: None })
    }

    /// Starts it again, with its data and its address, after it has ended.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_again(&self) -> Result<()> {
        let port = self.address.rsplit(':').next().unwrap_or_default();
        start(&self.folder, port, &[]).await.map(drop)
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// It does not end.
    pub async fn stop(&self) -> Result<()> {
        let folder = self.folder.display().to_string();
        // Without --ephemeral its data stay.
        spawn_blocking(move || script("kafka", &["stop", "--dir", &folder]).map(drop)).await?
    }

    /// Sends it a signal, such as `KILL`, `STOP` or `CONT`.
    ///
    /// # Errors
    /// It does not run.
    pub fn signal(&self, signal: &str) -> Result<()> {
        signal_to(&self.folder, signal)
    }

    /// Sends a signal to one broker of a cluster; they count from 1.
    ///
    /// # Errors
    /// It does not run.
    pub fn signal_one(&self, number: usize, signal: &str) -> Result<()> {
        let folder = if number == 1 { self.folder.clone() } else { self.folder.join(number.to_string()) };
        signal_to(&folder, signal)
    }

    /// Whether its process runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        signal_to(&self.folder, "0").is_ok()
    }

    /// The end of what it has printed.
    #[must_use]
    pub fn last_lines(&self) -> String {
        let log = std::fs::read_to_string(self.folder.join("service.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

async fn start(folder: &Path, port: &str, options: &[&str]) -> Result<String> {
    let mut words: Vec<String> = ["start", "--port", port, "--dir"].into_iter().map(str::to_owned).collect();
    words.push(folder.display().to_string());
    words.extend(options.iter().map(|option| (*option).to_owned()));
    spawn_blocking(move || {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        script("kafka", &words)
    })
    .await?
}

fn signal_to(folder: &Path, signal: &str) -> Result<()> {
    let pid = std::fs::read_to_string(folder.join("service.pid")).context("the broker does not run")?;
    let pid = pid.lines().next().unwrap_or_default();
    // The shell's own `kill`: not every machine has the program.
    let status = Command::new("sh").arg("-c").arg(format!("kill -s {signal} {pid} 2>/dev/null")).status()?;
    ensure!(status.success(), "the broker in {} is gone", folder.display());
    Ok(())
}

impl Drop for OwnBroker {
    fn drop(&mut self) {
        let folder = self.folder.display().to_string();
        let _ = script("kafka", &["stop", "--dir", &folder]); // nothing more can be done
    }
}
