//! What memory the process may use, and what becomes of it.
//!
//! The smallest limit of the cgroup and of those above it counts, as the kernel counts; without one, the machine's
//! memory. Caches account for themselves ([`Budget`]). Everything else (connections, answers under way, the allocator's
//! own) is not accounted, so the process looks at its memory as well: near the limit no new state is read, and nearer
//! still caches are given up, one after another.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::cache::Budget;
use crate::config::{Config, Loaded, MemoryConfig};
use crate::lifecycle::drain::DrainWatch;
use crate::telemetry;

/// The memory of this process. Cloning shares it.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    budget: Budget,
    /// The memory limit of the whole process, in bytes; `None` where neither the cgroup nor the machine has one.
    limit: Option<u64>,
}

/// How often the process looks at its memory. A state that is read accounts for itself meanwhile.
const EVERY: Duration = Duration::from_millis(500);
/// Percent of the limit at which no new state is read, and at which caches are given up.
const NEAR: u64 = 88;
const NEARER: u64 = 93;
/// The allocator gives memory back some seconds after it was freed; before that nothing more is given up.
const GIVEN_BACK: Duration = Duration::from_secs(15);
/// A connection with a watch over HTTP/1.1, as measured: see docs/performance.md.
const CONNECTION: u64 = 40 << 10;

// === impl Memory ===

impl Memory {
    pub(super) fn of(config: &MemoryConfig) -> Self {
        let limit = limit(Path::new("/"));
        let bytes = match (config, limit) {
            (MemoryConfig::Bytes(bytes), _) => *bytes,
            (MemoryConfig::Percent(percent), Some(limit)) => {
                usize::try_from(limit / 100 * u64::from(*percent)).unwrap_or(usize::MAX)
            }
            (MemoryConfig::Percent(_), None) => {
                tracing::warn!("neither cgroup nor machine tell how much memory there is: caches are not bounded");
                usize::MAX
            }
        };
        tracing::info!(limit, caches = bytes, "memory");
        Self { budget: Budget::new(bytes), limit }
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Gives caches up before the kernel ends the process; until the drain.
    pub(super) async fn watch(self, drain: DrainWatch) {
        let Some(limit) = self.limit else { return };
        let mut tick = interval(EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = None;
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = drain.draining() => return,
            }
            let Some(used) = telemetry::resident_bytes() else { return };
            self.look(used, limit, &mut last);
        }
    }

    /// One look; `last` is when a cache was given up last.
    fn look(&self, used: u64, limit: u64, last: &mut Option<Instant>) {
        self.budget.set_pressure(used >= limit / 100 * NEAR);
        let waits = last.is_some_and(|last| last.elapsed() < GIVEN_BACK);
        if used >= limit / 100 * NEARER && !waits && self.budget.recall() {
            tracing::warn!(used, limit, "memory is nearly used up, the largest cache is given up");
            *last = Some(Instant::now());
        }
    }
}

impl Collector for Memory {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let limit = (self.budget.limit() != usize::MAX).then(|| self.budget.limit() as f64);
        for (name, help, value) in [
            ("informerd_memory_limit_bytes", "Memory the process may use", self.limit.map(|limit| limit as f64)),
            ("informerd_caches_limit_bytes", "Memory that all caches may use together", limit),
            ("informerd_caches_bytes", "Memory that all caches use", Some(self.budget.used() as f64)),
        ] {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value.unwrap_or(f64::INFINITY)).encode(gauge)?;
        }
        let (name, help) = ("informerd_caches_recalled", "Caches given up because memory was short");
        let counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(self.budget.recalls()).encode(counter)
    }
}

/// The configuration with the bounds that nobody has set brought down to what this process may use.
pub(super) fn fitted(loaded: &Loaded) -> Config {
    let mut config = loaded.config.clone();
    let Some(limit) = limit(Path::new("/")) else { return config };
    let is_set = |key: &str| loaded.effective.iter().any(|effective| effective.key == key);
    let http = &mut config.http;
    if !is_set("limits.compressedBytes") {
        http.gzip.keep_bytes = http.gzip.keep_bytes.min(limit / 16);
    }
    if !is_set("limits.maxConnections") {
        let room = usize::try_from(limit / 4 / CONNECTION).unwrap_or(usize::MAX);
        http.max_connections = http.max_connections.min(room.max(100));
    }
    config
}

/// What the process may use, in bytes.
fn limit(root: &Path) -> Option<u64> {
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    cgroups.lines().filter_map(|line| of_cgroup(root, line)).chain(machine).min()
}

/// The smallest limit from a cgroup up to the root of what is visible; `line` is of `/proc/self/cgroup`.
fn of_cgroup(root: &Path, line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        v1 if v1.split(',').any(|controller| controller == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let mount = root.join(mount);
    let mut at: PathBuf = mount.join(path.trim_start_matches('/'));
    let mut smallest = None;
    // A container may see its own cgroup as the root, whatever its path is outside: then only the last step is there.
    loop {
        // `max`, and in the first version a number that no machine has, are no limit.
        let found = fs::read_to_string(at.join(file)).ok().and_then(|text| text.trim().parse::<u64>().ok());
        smallest = smallest.into_iter().chain(found.filter(|bytes| *bytes < 1 << 60)).min();
        if at == mount || !at.pop() {
            return smallest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_smallest_limit_up_the_hierarchy_counts() {
        let root = machine(&[
            ("proc/meminfo", "MemFree: 1 kB\nMemTotal:       16 kB\n"),
            ("proc/self/cgroup", "0::/kubepods/pod1/c1\n"),
            ("sys/fs/cgroup/memory.max", "9000\n"),
            ("sys/fs/cgroup/kubepods/memory.max", "max\n"),
            ("sys/fs/cgroup/kubepods/pod1/memory.max", "4000\n"),
            ("sys/fs/cgroup/kubepods/pod1/c1/memory.max", "5000\n"),
        ]);
        assert_eq!(limit(root.path()), Some(4000));
    }

    #[test]
    fn a_container_that_sees_its_own_cgroup_as_the_root() {
        let root =
            machine(&[("proc/self/cgroup", "0::/../../elsewhere\n"), ("sys/fs/cgroup/memory.max", "134217728\n")]);
        assert_eq!(limit(root.path()), Some(128 << 20));
    }

    #[test]
    fn the_first_version_of_cgroups() {
        let root = machine(&[
            ("proc/meminfo", "MemTotal: 1000000 kB\n"),
            ("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "99999744\n"),
        ]);
        assert_eq!(limit(root.path()), Some(99_999_744));
    }

    #[test]
    fn without_a_limit_it_is_the_machines_memory() {
        let root = machine(&[("proc/meminfo", "MemTotal: 1000 kB\n"), ("proc/self/cgroup", "0::/\n")]);
        assert_eq!(limit(root.path()), Some(1000 << 10));
        assert_eq!(limit(machine(&[]).path()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn near_the_limit_caches_are_given_up_one_after_another() {
        let memory = Memory { budget: Budget::new(1000), limit: Some(1000) };
        let (mut first, _cache) = crate::cache::new(cache_config(&memory, false));
        let (second, _cache) = crate::cache::new(cache_config(&memory, true));
        first.load(100).unwrap();
        second.load(200).unwrap();
        let mut last = None;
        memory.look(900, 1000, &mut last);
        assert!(second.load(201).is_err(), "nothing new is read");
        memory.look(940, 1000, &mut last);
        assert!(first.is_recalled() && !second.is_recalled());
        first.not_ready("given up");
        memory.look(940, 1000, &mut last);
        assert!(!second.is_recalled(), "the allocator is given time");
        tokio::time::advance(GIVEN_BACK).await;
        memory.look(940, 1000, &mut last);
        assert!(second.is_recalled());
    }

    fn cache_config(memory: &Memory, pinned: bool) -> crate::cache::CacheConfig {
        let resource = crate::meta::Gvr::new("", "v1", "pods");
        crate::cache::CacheConfig { budget: memory.budget.clone(), pinned, ..crate::cache::CacheConfig::new(resource) }
    }
}
