//! A broker of a test's own that asks every client who it is.

use anyhow::{Context, Result, ensure};
use std::{
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// With a password, over TLS.
    Password,
    /// With a certificate.
    Certificate,
}

/// A running broker; it is stopped when this is dropped.
#[derive(Debug)]
pub struct SecureBroker {
    /// Where those connect who may do anything.
    pub admin: String,
    folder: TempDir,
}

impl SecureBroker {
    /// Starts it. Its users may do nothing yet.
    ///
    /// # Errors
    /// It does not start.
    pub fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let at = folder.path().join("broker").display().to_string();
        let admin = script("kafka", &["start", "--port", "0", "--dir", &at, "--ephemeral", "--secure"])?;
        Ok(Self { admin, folder })
    }

    /// A file that was made for its clients, such as `worker.password`.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("broker/secure").join(name)
    }

    /// The environment of a process that is to be `user`.
    ///
    /// # Errors
    /// What was made for the clients cannot be read.
    pub fn environment(&self, user: &str, proof: Proof) -> Result<Vec<(String, String)>> {
        let protocol = match proof {
            Proof::Password => "sasl_ssl",
            Proof::Certificate => "ssl",
        };
        let brokers = std::fs::read_to_string(self.file(protocol))?.trim().to_owned();
        let file = |name: &str| self.file(name).display().to_string();
        let mut settings = vec![
            ("BROKERS", brokers),
            ("SECURITY__PROTOCOL", protocol.to_owned()),
            ("SECURITY__CA_FILE", file("ca.pem")),
        ];
        match proof {
            Proof::Password => settings.extend([
                ("SECURITY__USERNAME", user.to_owned()),
                ("SECURITY__PASSWORD_FILE", file(&format!("{user}.password"))),
            ]),
            Proof::Certificate => settings.extend([
                ("SECURITY__CERTIFICATE_FILE", file(&format!("{user}.pem"))),
                ("SECURITY__KEY_FILE", file(&format!("{user}.key"))),
            ]),
        }
        Ok(settings.into_iter().map(|(name, value)| (format!("STARLING__KAFKA__{name}"), value)).collect())
    }

    /// Lets each service do what it needs in the topics with this prefix.
    ///
    /// # Errors
    /// Kafka's tool fails.
    pub fn grant(&self, prefix: &str) -> Result<()> {
        ["planner", "worker", "critic", "cli"].iter().try_for_each(|name| self.grant_to(name, name, prefix))
    }

    /// Lets a user do what a service needs in the topics with this prefix.
    ///
    /// # Errors
    /// Kafka's tool fails.
    pub fn grant_to(&self, user: &str, service: &str, prefix: &str) -> Result<()> {
        let words = ["grant", service, user, "--prefix", prefix, "--brokers", &self.admin];
        script("kafka-rights", &words).map(drop)
    }

    /// Takes one right on a topic back.
    ///
    /// # Errors
    /// Kafka's tool fails.
    pub fn revoke(&self, right: &str, topic: &str, user: &str) -> Result<()> {
        script("kafka-rights", &["revoke", right, topic, user, "--brokers", &self.admin]).map(drop)
    }
}

impl Drop for SecureBroker {
    fn drop(&mut self) {
        let at = self.folder.path().join("broker").display().to_string();
        let _ = script("kafka", &["stop", "--dir", &at]); // nothing more can be done
    }
}

/// Runs a script of the project; gives what it prints.
pub(crate) fn script(name: &str, words: &[&str]) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name);
    let output = Command::new(&path).args(words).output().with_context(|| path.display().to_string())?;
    ensure!(output.status.success(), "{name} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
