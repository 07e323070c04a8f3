//! The kernel's data about this process, with the metric names that every Prometheus client library uses.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Clock ticks per second in `/proc`. For decades the kernel has reported 100 to programs on every architecture.
const TICKS: f64 = 100.0;
const PAGE: f64 = 4096.0;

/// Reads `/proc` at each scrape. Without `/proc`, these metrics do not exist.
#[derive(Debug)]
pub(super) struct ProcessCollector {
    /// In seconds since 1970.
    started: f64,
}

#[derive(Debug, Default, PartialEq)]
struct Sample {
    cpu_seconds: f64,
    threads: f64,
    resident_bytes: f64,
}

// === impl ProcessCollector ===

impl ProcessCollector {
    pub(super) fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self { started: now.map_or(0.0, |since| since.as_secs_f64().floor()) }
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        gauge(
            &mut encoder,
            "process_start_time_seconds",
            "When the process started, in seconds since 1970",
            self.started,
        )?;
        let Some(sample) = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| parse_stat(&stat)) else {
            return Ok(());
        };
        let help = "Processor time spent, user and system";
        let metric = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
        ConstCounter::new(sample.cpu_seconds).encode(metric)?;
        gauge(&mut encoder, "process_threads", "Threads of the process", sample.threads)?;
        gauge(&mut encoder, "process_resident_memory_bytes", "Resident memory", sample.resident_bytes)?;
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // The directory itself is open while it is read.
            let open = u32::try_from(open.count().saturating_sub(1)).unwrap_or(u32::MAX);
            gauge(&mut encoder, "process_open_fds", "Open file descriptors", f64::from(open))?;
        }
        Ok(())
    }
}

/// The resident memory of this process, if the kernel provides it.
pub fn resident_bytes() -> Option<u64> {
    let sample = parse_stat(&fs::read_to_string("/proc/self/stat").ok()?)?;
    Some(sample.resident_bytes as u64)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> Result<(), fmt::Error> {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value).encode(metric)
}

/// Parses fields 14 and 15 (CPU time), 20 (threads) and 24 (resident pages) of `/proc/self/stat`. Field 2 is the name
/// of the program in parentheses; it may contain spaces and parentheses.
fn parse_stat(stat: &str) -> Option<Sample> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    Some(Sample {
        cpu_seconds: (field(14)? + field(15)?) / TICKS,
        threads: field(20)?,
        resident_bytes: field(24)? * PAGE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_line() {
        let stat =
            "7 (a) b (c) S 1 7 7 0 -1 4194560 99 0 0 0 150 50 0 0 20 0 12 0 3000 9999999 300 18446744073709551615";
        let sample = Sample { cpu_seconds: 2.0, threads: 12.0, resident_bytes: 300.0 * 4096.0 };
        assert_eq!(parse_stat(stat), Some(sample));
        assert_eq!(parse_stat("7 (a"), None);
    }
}
