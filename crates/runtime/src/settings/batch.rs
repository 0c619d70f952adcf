//! How `starling batch` works through a file of rows.

use super::reader::Reader;
use std::time::Duration;

/// `[batch]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSettings {
    /// Rows under way at once.
    pub concurrency: usize,
    /// Largest row in bytes.
    pub max_row: usize,
    /// With `--in-order`: most rows between the first one without a line and the last one that was submitted.
    pub reorder: usize,
    /// And most bytes of lines that wait for it.
    pub reorder_bytes: usize,
    /// How often lines are given to the disk.
    pub fsync: Duration,
    /// How often it is told how far it is, where there is no terminal.
    pub report: Duration,
    /// How long rows under way are waited for after Ctrl-C.
    pub drain: Duration,
    /// How long after its deadline the outcome of a row is waited for.
    pub overdue: Duration,
    /// How long a broker that does not answer is asked again.
    pub patience: Duration,
}

pub(super) fn read(r: &mut Reader) -> BatchSettings {
    const MS: Duration = Duration::from_millis(1);
    const DAY: Duration = Duration::from_secs(24 * 3600);
    BatchSettings {
        concurrency: r.integer("batch.concurrency", 1..=100_000),
        max_row: r.size("batch.max_row", 1024..=64 << 20),
        reorder: r.integer("batch.reorder", 1..=1_000_000),
        reorder_bytes: r.size("batch.reorder_bytes", 64 << 10..=64 << 30),
        fsync: r.duration("batch.fsync", MS..=DAY),
        report: r.duration("batch.report", MS..=DAY),
        drain: r.duration("batch.drain", Duration::ZERO..=DAY),
        overdue: r.duration("batch.overdue", MS..=DAY),
        patience: r.duration("batch.patience", Duration::ZERO..=DAY),
    }
}
