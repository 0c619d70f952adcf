//! How often attempts failed, by model and sort of failure.

use super::options::ModelNames;
use crate::{FailedAttempts, ModelErrorKind};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One count for each model that may be asked and each sort of failure.
#[derive(Debug)]
pub(super) struct Failures(BTreeMap<String, [AtomicU64; ModelErrorKind::ALL.len()]>);

impl Failures {
    pub(super) fn of(models: &ModelNames) -> Self {
        Self(models.all().map(|name| (name.to_owned(), Default::default())).collect())
    }

    pub(super) fn count(&self, model: &str, kind: ModelErrorKind) {
        let at = ModelErrorKind::ALL.iter().position(|other| *other == kind);
        let count = self.0.get(model).zip(at).and_then(|(counts, at)| counts.get(at));
        if let Some(count) = count {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn all(&self) -> Vec<FailedAttempts> {
        let of_model = |(model, counts): (&String, &[AtomicU64; ModelErrorKind::ALL.len()])| {
            ModelErrorKind::ALL
                .iter()
                .zip(counts)
                .map(|(kind, count)| FailedAttempts {
                    model: model.clone(),
                    kind: *kind,
                    count: count.load(Relaxed),
                })
                .collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of_model).collect()
    }
}
