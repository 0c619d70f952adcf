//! What the operating system says of this process, under the names that all exporters use.

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};
use std::fmt;

/// Reads `/proc` when somebody asks; tells nothing on systems without it.
#[derive(Debug)]
pub(crate) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let Some(bytes) = resident_bytes(&status) else { return Ok(()) };
        let name = "process_resident_memory_bytes";
        let metric = encoder.encode_descriptor(name, "Resident memory in bytes", None, MetricType::Gauge)?;
        ConstGauge::new(bytes).encode(metric)
    }
}

/// Resident memory as `/proc/<pid>/status` gives it, in KiB there.
fn resident_bytes(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<i64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::resident_bytes;

    #[test]
    fn resident_memory_is_found_where_there_is_any() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t   12 kB\nThreads:\t1\n"), Some(12 * 1024));
        assert_eq!(resident_bytes("Name:\tkthread\n"), None, "as of a thread of the kernel");
    }
}
