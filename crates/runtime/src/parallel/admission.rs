//! How much a processor may take in: for the intake, as much as the coordinators have room for.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};
use tokio::sync::Notify;

/// Permission to take records in. Cheap to clone. What is not allowed yet waits, first in the processor's bounded
/// queue, then in the topic.
#[derive(Clone, Debug, Default)]
pub struct Admission(Arc<Allowed>);

#[derive(Debug)]
struct Allowed {
    records: AtomicU32,
    changed: Notify,
}

impl Default for Allowed {
    fn default() -> Self {
        Self { records: AtomicU32::new(u32::MAX), changed: Notify::new() }
    }
}

/// From so many on, nobody counts.
const UNLIMITED: u32 = u32::MAX;

impl Admission {
    /// From now on so many records may be taken in; `None` is any number.
    pub fn allow(&self, records: Option<u32>) {
        self.0.records.store(records.unwrap_or(UNLIMITED), Ordering::Release);
        self.0.changed.notify_one();
    }

    /// No more than so many records may be taken in.
    pub fn restrict(&self, records: Option<u32>) {
        self.0.records.fetch_min(records.unwrap_or(UNLIMITED), Ordering::AcqRel);
    }

    /// Takes one record in, if that is allowed.
    pub(super) fn take(&self) -> bool {
        let taken =
            self.0.records.fetch_update(Ordering::AcqRel, Ordering::Acquire, |records| match records {
                UNLIMITED => Some(UNLIMITED),
                records => records.checked_sub(1),
            });
        taken.is_ok()
    }

    /// Waits until more may have been allowed. Can be dropped without loss.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_is_allowed() {
        let admission = Admission::default();
        assert!(admission.take(), "anything goes at first");
        admission.allow(Some(2));
        assert!(admission.take() && admission.take());
        assert!(!admission.take());
        admission.allow(None);
        assert!(admission.take());
        admission.restrict(Some(1));
        admission.restrict(None);
        assert!(admission.take());
        assert!(!admission.take());
    }
}
