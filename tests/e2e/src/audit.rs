//! The auditor, as a judge of what a test has done to a swarm.

use crate::Swarm;
use anyhow::{Result, bail};
use starling::audit::Auditor;
use starling_audit::{Account, Report, Status, Terms, tree_of};
use starling_protocol::{Codec, IntentId};
use starling_runtime::Clock;
use std::time::{Duration, Instant};

/// How long after its deadline an intent may take to end, on a busy machine.
const OVERDUE_MS: i64 = 60_000;

impl Swarm {
    /// Accounts for intents of this installation.
    #[must_use]
    pub fn auditor(&self) -> Auditor {
        Auditor::of(self.bus.clone(), Codec::default(), self.names.clone())
    }

    /// The account of an intent that has ended, once nothing of it is under way any more.
    ///
    /// # Errors
    /// The topics cannot be read; or something is not accounted for: then the error tells the whole account.
    pub async fn audited(&self, id: &IntentId, within: Duration) -> Result<Account> {
        let until = Instant::now() + within;
        loop {
            let account = self.auditor().intent(id, ended()).await?;
            if account.is_fine() {
                return Ok(account);
            }
            let settled = account.findings().any(|entry| entry.status > Status::Pending);
            if settled || Instant::now() > until {
                bail!("{id} is not accounted for:\n{}", tree_of(&account));
            }
            tokio::time::sleep(Duration::from_millis(200)).await; // commits come when they come
        }
    }

    /// The accounts of all intents of this installation, which all have ended, once nothing is under way any more.
    ///
    /// # Errors
    /// As for [`Swarm::audited`].
    pub async fn all_audited(&self, within: Duration) -> Result<Report> {
        let until = Instant::now() + within;
        loop {
            let report = self.auditor().range(None, None, ended()).await?;
            if report.is_fine() {
                return Ok(report);
            }
            if report.violated > 0 || Instant::now() > until {
                bail!("not everything is accounted for:\n{}", report.text());
            }
            tokio::time::sleep(Duration::from_millis(200)).await; // as above
        }
    }
}

fn ended() -> Terms {
    Terms { now: Clock::system().now(), ended: true, overdue_ms: OVERDUE_MS }
}
