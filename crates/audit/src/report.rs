//! Many accounts together.

use crate::account::{Account, Counts, Purpose, Standing, Status};
use crate::ledger::{Ledger, Terms};
use crate::stray::Stray;
use serde::Serialize;

/// The accounts of a range of intents. Of those that are clean only the figures are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Intents looked at.
    pub intents: usize,
    /// Of them: everything is accounted for.
    pub clean: usize,
    /// Of them: they go on, and what is not accounted for is under way.
    pub live: usize,
    /// Of them: something is not accounted for.
    pub unaccounted: usize,
    /// Of them: a promise is broken.
    pub violated: usize,
    /// How many records became what, of all intents.
    pub counts: Counts,
    /// Model calls that are known to have been repeated.
    pub repeated_calls: Repeated,
    /// Tasks of which a first call may have gone unheard.
    pub moved: usize,
    /// Records that belong to no intent, and how many of them are not in the dead letters.
    pub strays: usize,
    /// Records in which coordinators lease budgets of tenants to each other. They belong to no intent either.
    pub leases: usize,
    /// Those that are not, as far as there is room.
    pub lost_strays: Vec<Stray>,
    /// What was not looked at, and what cannot be believed.
    pub notes: Vec<String>,
    /// The accounts that are not clean, as far as there is room.
    pub accounts: Vec<Account>,
    #[serde(skip)]
    room: usize,
    #[serde(skip)]
    incomplete: bool,
}

/// Repeated calls by their purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Repeated {
    /// For plans.
    pub plan: usize,
    /// For tasks.
    pub work: usize,
    /// For verdicts.
    pub judge: usize,
}

impl Report {
    /// An empty report, which keeps so many accounts that are not clean.
    #[must_use]
    pub fn keeping(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    /// Takes in everything that stands in a ledger.
    pub fn add(&mut self, ledger: &Ledger, terms: Terms) {
        for account in ledger.accounts(terms) {
            self.add_account(account);
        }
        for stray in ledger.strays(terms) {
            self.strays += 1;
            if stray.status >= Status::Pending {
                self.lost_strays.push(stray);
            }
        }
        let (leases, undecided) = ledger.leases();
        self.leases += leases;
        if terms.ended && !undecided.is_empty() {
            self.is_incomplete(format!(
                "what coordinators said to each other is not decided in coordinator{undecided:?}"
            ));
        }
        for fault in ledger.state_faults() {
            self.is_incomplete(fault);
        }
        if ledger.strays_left_out() > 0 {
            self.is_incomplete(format!(
                "{} records of no intent are beyond the limit and not looked at",
                ledger.strays_left_out()
            ));
        }
        if ledger.crowded_out() > 0 {
            self.is_incomplete(format!(
                "more intents than the limit lets in: {} records of others are not looked at",
                ledger.crowded_out()
            ));
        }
    }

    /// Takes an account in.
    pub fn add_account(&mut self, account: Account) {
        self.intents += 1;
        match account.standing {
            Standing::Clean => self.clean += 1,
            Standing::Live => self.live += 1,
            Standing::Unaccounted => self.unaccounted += 1,
            Standing::Violated => self.violated += 1,
        }
        for status in Status::ALL {
            let count = account.counts.of(status);
            if count > 0 {
                self.counts.add(status, count);
            }
        }
        self.repeated_calls.plan += account.repetitions(Purpose::Plan);
        self.repeated_calls.work += account.repetitions(Purpose::Work);
        self.repeated_calls.judge += account.repetitions(Purpose::Judge);
        self.moved += account.moved.len();
        if account.standing != Standing::Clean && self.accounts.len() < self.room {
            self.accounts.push(account);
        }
    }

    /// Notes that something was not looked at: then the report vouches for nothing.
    pub fn is_incomplete(&mut self, why: String) {
        self.incomplete = true;
        self.notes.push(why);
    }

    /// Whether nothing is left to be explained.
    #[must_use]
    pub fn is_fine(&self) -> bool {
        let lost = self.lost_strays.iter().any(|stray| stray.status > Status::Pending);
        self.unaccounted == 0 && self.violated == 0 && !self.incomplete && !lost
    }
}
