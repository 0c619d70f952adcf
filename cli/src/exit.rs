//! How a command ends: exit codes are part of the contract with scripts.

use crate::scan::ScanError;
use starling_protocol::{Outcome, OutcomeStatus};
use starling_runtime::{node::NodeError, registry::RegistryError};
use starling_service::NoModel;
use std::process::ExitCode;

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Wrong usage or settings: 64.
    #[error("{0}")]
    Usage(String),
    /// Broker or model unreachable: 69.
    #[error("{0}")]
    Unavailable(String),
    /// Anything else: 1.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C: 130.
    #[error("interrupted")]
    Interrupted,
}

impl CliError {
    /// The process's exit code.
    #[must_use]
    pub fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            CliError::Usage(_) => 64,
            CliError::Unavailable(_) => 69,
            CliError::Failed(_) => 1,
            CliError::Interrupted => 130,
        })
    }
}

impl From<starling_bus::BusError> for CliError {
    fn from(error: starling_bus::BusError) -> Self {
        match error {
            starling_bus::BusError::Unreachable { .. } => Self::Unavailable(format!(
                "{error}; start a broker (`scripts/kafka start`) or name another with --brokers"
            )),
            starling_bus::BusError::NoSuchTopic { .. } => Self::Usage(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<ScanError> for CliError {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Bus(error) => error.into(),
            ScanError::Silent { .. } => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<NoModel> for CliError {
    fn from(error: NoModel) -> Self {
        if error.unreachable { Self::Unavailable(error.to_string()) } else { Self::Usage(error.to_string()) }
    }
}

impl From<RegistryError> for CliError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Unreachable { .. } => Self::Unavailable(error.to_string()),
            other => Self::Usage(other.to_string()),
        }
    }
}

impl From<NodeError> for CliError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Bus(error) => error.into(),
            NodeError::Limits(error) => Self::Failed(error.to_string()),
            NodeError::Registry(error) => error.into(),
        }
    }
}

/// The exit code that tells how an intent ended.
#[must_use]
pub fn of_outcome(outcome: &Outcome) -> ExitCode {
    ExitCode::from(match outcome.status {
        OutcomeStatus::Succeeded => 0,
        OutcomeStatus::Partial => 2,
        // There is an answer, and work was left out.
        OutcomeStatus::OverBudget if !outcome.answer.is_empty() => 2,
        OutcomeStatus::Failed
        | OutcomeStatus::Cancelled
        | OutcomeStatus::Expired
        | OutcomeStatus::OverBudget
        | OutcomeStatus::Rejected => 1,
    })
}
