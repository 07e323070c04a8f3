//! How much memory the process may use, and how it keeps to that limit.
//!
//! The limit is the smallest of these: the limits of the cgroup and of its ancestors, as the kernel applies them; half
//! of the process's data size limit; the machine's memory. Caches account for their memory ([`Budget`]), and so do the
//! bodies in flight ([`Ledger`]). Memory outside of both (connections, the allocator's overhead) is seen by measuring
//! the process ([`Pressure`]). If memory is tight, nothing new is read, shared or kept. If it is short, requests are
//! refused, and caches are dropped one after another.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;

use crate::apiserver::client::UpstreamConfig;
use crate::cache::Budget;
use crate::config::{Config, Loaded, MemoryConfig, MemoryLimit};
use crate::lifecycle::drain::DrainWatch;
use crate::memory::{self, Ledger, Level, Pressure, StallGuards};
use crate::packing::{Packing, PackingConfig};
use crate::passthrough::{Forward, ForwardConfig};

/// The memory of this process. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) budget: Budget,
    pub(super) packing: Packing,
    pub(super) ledger: Ledger,
    pressure: Pressure,
}

/// The part of the limit that all bodies in flight may hold together (one sixth).
const BODIES: u64 = 6;
/// Memory that the process needs in addition to caches and bodies: code, threads, connections.
const ITSELF: u64 = 24 << 20;
/// The part of the limit that one answer in flight may hold on each side of informerd, and the least and the most.
const WINDOWS: u64 = 8192;
const LEAST_WINDOW: u64 = 64 << 10;
const LARGEST_WINDOW: u64 = 1 << 20;
/// How often the kernel's own memory is measured. This costs more than measuring the process.
const ASK: Duration = Duration::from_millis(100);
/// With at least this limit, kernel buffers matter little.
const PLENTY: u64 = 2 << 30;
/// The pause between dropping two caches.
const GOING: Duration = Duration::from_secs(2);
/// The part of the limit for answers that are kept for later requests, for each kind of answer.
const KEPT: u64 = 32;
/// The memory of a connection with a watch over HTTP/1.1, as measured: see docs/performance.md.
const CONNECTION: u64 = 40 << 10;
/// The memory of an idle watch over HTTP/2 with what checks its right, rounded up, and the part of the limit that those of one
/// user may take.
const STREAM: u64 = 8 << 10;
const OF_A_USER: u64 = 4;
/// So many streams of one user are no sign of anything.
const LEAST_STREAMS: usize = 4096;

// === impl Memory ===

impl Memory {
    pub(super) fn of(config: &MemoryConfig) -> Self {
        let limit = limit(Path::new("/"));
        let bytes = match (&config.limit, limit) {
            (MemoryLimit::Bytes(bytes), _) => *bytes,
            (MemoryLimit::Percent(percent), Some(limit)) => {
                // A small limit leaves less for caches than the configured percentage.
                let room = limit.saturating_sub(ITSELF + limit / BODIES);
                size((limit / 100 * u64::from(*percent)).min(room))
            }
            (MemoryLimit::Percent(_), None) => {
                tracing::warn!("neither the cgroup nor the machine reports a memory limit: caches are unbounded");
                usize::MAX
            }
        };
        let bodies = limit.map_or(usize::MAX, |limit| size(limit / BODIES));
        tracing::info!(limit, caches = bytes, bodies, "memory");
        memory::purge(false);
        let pressure = Pressure::new(limit);
        let (budget, ledger) = (Budget::under(bytes, pressure.clone()), Ledger::new(bodies, pressure.clone()));
        let packing = Packing::new(PackingConfig::of(config.form, config.hot_bytes, bytes));
        Self { budget, packing, ledger, pressure }
    }

    /// The settings that limit how much of an answer of the apiserver is read ahead.
    pub(super) fn upstream(&self, informers: usize) -> UpstreamConfig {
        let mut config = UpstreamConfig { ledger: self.ledger.clone(), ..UpstreamConfig::default() };
        // Their watches must not take the places of other requests. Connections are opened when they are needed.
        config.informers = informers;
        config.max_connections += informers.div_ceil(config.streams_per_connection);
        if let Some(window) = self.window() {
            (config.stream_window, config.http1_buffer) = (u32::try_from(window).unwrap_or(u32::MAX), window);
            config.recv_buffer = self.pressure.limit().and_then(kernel_buffer);
        }
        config
    }

    /// The settings that limit what forwarded answers may hold.
    pub(super) fn forward(&self) -> ForwardConfig {
        let config = ForwardConfig { ledger: self.ledger.clone(), window: self.window(), ..ForwardConfig::default() };
        let limit = self.pressure.limit().unwrap_or(u64::MAX);
        ForwardConfig { documents: config.documents.min(limit / KEPT), ..config }
    }

    /// The most open streams of one user whose credentials are checked.
    pub(super) fn streams_of_a_user(&self) -> usize {
        self.pressure.limit().map_or(usize::MAX, |limit| size(limit / OF_A_USER / STREAM).max(LEAST_STREAMS))
    }

    fn window(&self) -> Option<usize> {
        self.pressure.limit().map(|limit| size((limit / WINDOWS).clamp(LEAST_WINDOW, LARGEST_WINDOW)))
    }

    /// Drops caches and slow clients before the kernel kills the process. Runs until the drain.
    pub(super) async fn watch(self, forward: Forward, drain: DrainWatch) {
        if self.pressure.limit().is_none() {
            return;
        }
        let mut changes = self.pressure.changes();
        let (mut last, mut asked) = (None, None::<Instant>);
        loop {
            if asked.is_none_or(|asked| asked.elapsed() >= ASK) {
                asked = Some(Instant::now());
                self.pressure.set_kernel(kernel_bytes(Path::new("/")));
            }
            tokio::select! {
                () = tokio::time::sleep(self.pressure.wait()) => {}
                // The sender lives as long as `self`.
                _ = changes.changed() => {}
                () = drain.draining() => return,
            }
            let level = self.pressure.look();
            if level == Level::Short {
                forward.hurry();
            }
            self.relieve(level, &mut last);
        }
    }

    /// When something was refused for want of memory, ends the answers whose clients take nothing. `count` receives the
    /// number of those that were not forwarded. Runs forever.
    pub(super) async fn make_room(self, forward: Forward, stall_guards: StallGuards, count: impl Fn(u64)) {
        loop {
            self.ledger.refusal().await;
            forward.hurry();
            count(stall_guards.hurry());
            tokio::time::sleep(ASK).await;
        }
    }

    /// Acts on the measured level. `last` is the time when a cache was last dropped.
    fn relieve(&self, level: Level, last: &mut Option<Instant>) {
        let waits = last.is_some_and(|last| last.elapsed() < GOING);
        if level == Level::Short && !waits && self.budget.recall() {
            let (used, limit) = (self.pressure.used(), self.pressure.limit());
            tracing::warn!(used, limit, "memory is nearly exhausted, dropping the largest cache");
            *last = Some(Instant::now());
        }
    }
}

impl Collector for Memory {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let bound = |limit: usize| (limit != usize::MAX).then_some(limit as f64);
        let limit = self.pressure.limit().map(|limit| limit as f64);
        let level = f64::from(self.pressure.level() as u8);
        for (name, help, value) in [
            ("informerd_memory_limit_bytes", "Memory that the process may use", limit),
            (
                "informerd_memory_used_bytes",
                "Memory that the process uses, without files",
                Some(self.pressure.used() as f64),
            ),
            ("informerd_memory_level", "Memory pressure level: 0 none, 1 low on memory, 2 critical", Some(level)),
            ("informerd_caches_limit_bytes", "Memory that all caches may use together", bound(self.budget.limit())),
            ("informerd_caches_bytes", "Memory that all caches use", Some(self.budget.used() as f64)),
            ("informerd_bodies_limit_bytes", "Memory that answers in progress may use", bound(self.ledger.limit())),
            ("informerd_bodies_bytes", "Memory reserved for answers in progress", Some(self.ledger.used() as f64)),
        ] {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value.unwrap_or(f64::INFINITY)).encode(gauge)?;
        }
        for (name, help, value) in [
            ("informerd_caches_recalled", "Caches dropped because memory was low", self.budget.recalls()),
            (
                "informerd_bodies_refused",
                "Requests refused because there was no memory for them",
                self.ledger.refused(),
            ),
            (
                "informerd_memory_purges",
                "Times that freed memory was returned to the system at once",
                self.pressure.purges(),
            ),
        ] {
            let counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(counter)?;
        }
        Ok(())
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The configuration, with the limits that are not set reduced to what this process may use.
pub(super) fn fitted(loaded: &Loaded) -> Config {
    let mut config = loaded.config.clone();
    let Some(limit) = limit(Path::new("/")) else { return config };
    let is_set = |key: &str| loaded.effective.iter().any(|effective| effective.key == key);
    let http = &mut config.http;
    http.send_buffer = kernel_buffer(limit);
    http.gzip_bytes = http.gzip_bytes.min(limit / KEPT);
    if !is_set("limits.maxConnections") {
        http.max_connections = http.max_connections.min(size(limit / 4 / CONNECTION).max(100));
    }
    config
}

/// The kernel buffer of a connection. If the limit is small, the kernel must not choose it, because its choice can be
/// megabytes.
fn kernel_buffer(limit: u64) -> Option<usize> {
    (limit < PLENTY).then(|| size((limit / 1024).max(LEAST_WINDOW)))
}

/// The memory that the kernel uses for this process and charges to it, but not as pages of the process. In bytes; zero
/// if the system does not report it.
fn kernel_bytes(root: &Path) -> u64 {
    let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let Some(path) = cgroups.lines().find_map(|line| line.strip_prefix("0::")) else { return 0 };
    let mount = root.join("sys/fs/cgroup");
    // A container may see its own cgroup as the root.
    let mut places = vec![mount.join(path.trim_start_matches('/')), mount];
    // The root cgroup of the machine has no limit, and what it counts is not ours.
    places.retain(|place| place.join("memory.max").exists());
    let stat = places.iter().find_map(|place| fs::read_to_string(place.join("memory.stat")).ok()).unwrap_or_default();
    let counted = ["sock", "kernel_stack", "pagetables", "slab_unreclaimable"];
    let numbers = stat.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| counted.contains(name));
    numbers.filter_map(|(_, number)| number.parse::<u64>().ok()).sum()
}

/// The memory that the process may use, in bytes.
fn limit(root: &Path) -> Option<u64> {
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = fs::read_to_string(root.join("proc/self/limits")).unwrap_or_default();
    cgroups.lines().filter_map(|line| of_cgroup(root, line)).chain(machine).chain(of_data(&limits)).min()
}

/// Half of what `ulimit -d` allows, because that limit counts both the memory that the allocator and the threads have
/// reserved and the memory that they use.
fn of_data(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max data size"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|bytes| bytes / 2)
}

/// The smallest limit from a cgroup up to the visible root. `line` is from `/proc/self/cgroup`.
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
    // A container may see its own cgroup as the root, whatever its path is on the host. Then only the last step exists.
    loop {
        // `max` means no limit. So does, in cgroup v1, a number that is larger than any machine's memory.
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

    /// Their paths and texts.
    type Files<'f> = &'f [(&'f str, &'f str)];

    fn machine(files: Files<'_>) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_smallest_limit_counts() {
        let limits = "Limit   Soft Limit  Hard Limit  Units\nMax data size             8000   unlimited   bytes\nMax stack size  1 2 bytes\n";
        let cases: &[(&str, Files<'_>, Option<u64>)] = &[
            (
                "the hierarchy",
                &[
                    ("proc/meminfo", "MemFree: 1 kB\nMemTotal:       16 kB\n"),
                    ("proc/self/cgroup", "0::/kubepods/pod1/c1\n"),
                    ("sys/fs/cgroup/memory.max", "9000\n"),
                    ("sys/fs/cgroup/kubepods/memory.max", "max\n"),
                    ("sys/fs/cgroup/kubepods/pod1/memory.max", "4000\n"),
                    ("sys/fs/cgroup/kubepods/pod1/c1/memory.max", "5000\n"),
                ],
                Some(4000),
            ),
            (
                "a container that sees its own cgroup as the root",
                &[("proc/self/cgroup", "0::/../../elsewhere\n"), ("sys/fs/cgroup/memory.max", "134217728\n")],
                Some(128 << 20),
            ),
            (
                "the first version of cgroups",
                &[
                    ("proc/meminfo", "MemTotal: 1000000 kB\n"),
                    ("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n"),
                    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                    ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
                    ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "99999744\n"),
                ],
                Some(99_999_744),
            ),
            (
                "half of the limit of the data",
                &[("proc/meminfo", "MemTotal: 1000 kB\n"), ("proc/self/limits", limits)],
                Some(4000),
            ),
            (
                "the memory of the machine",
                &[("proc/meminfo", "MemTotal: 1000 kB\n"), ("proc/self/cgroup", "0::/\n")],
                Some(1000 << 10),
            ),
            ("nothing", &[], None),
        ];
        for (what, files, expected) in cases {
            assert_eq!(limit(machine(files).path()), *expected, "{what}");
        }
        assert_eq!(of_data("Max data size             unlimited            unlimited            bytes"), None);
    }

    #[test]
    fn what_the_kernel_holds_is_counted() {
        let stat = "anon 5000\nfile 7000\nkernel_stack 10\npagetables 20\nsock 300\nslab_reclaimable 9\nslab_unreclaimable 4\n";
        let of = |files: &[(&str, &str)]| kernel_bytes(machine(files).path());
        let limited = |cgroup: &str, place: &str| {
            let (stat_file, max) = (format!("{place}/memory.stat"), format!("{place}/memory.max"));
            of(&[("proc/self/cgroup", cgroup), (&stat_file, stat), (&max, "max\n")])
        };
        assert_eq!(limited("0::/a\n", "sys/fs/cgroup/a"), 334);
        assert_eq!(limited("0::/../b\n", "sys/fs/cgroup"), 334);
        let of_the_machine = [("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.stat", stat)];
        assert_eq!(of(&of_the_machine), 0);
        assert_eq!(of(&[("proc/self/cgroup", "4:memory:/a\n0::/\n")]), 0);
    }

    #[test]
    fn a_small_limit_bounds_the_kernels_buffers() {
        assert_eq!(kernel_buffer(64 << 20), Some(64 << 10));
        assert_eq!(kernel_buffer(1 << 30), Some(1 << 20));
        assert_eq!(kernel_buffer(8 << 30), None);
    }

    #[tokio::test(start_paused = true)]
    async fn near_the_limit_caches_are_given_up_one_after_another() {
        let pressure = Pressure::default();
        let memory = Memory {
            budget: Budget::under(1000, pressure.clone()),
            packing: Packing::default(),
            ledger: Ledger::default(),
            pressure,
        };
        let (mut first, _cache) = crate::cache::new(cache_config(&memory, false));
        let (second, _cache) = crate::cache::new(cache_config(&memory, true));
        first.account().load(100).unwrap();
        second.account().load(200).unwrap();
        let mut last = None;
        memory.pressure.set(Level::Tight);
        memory.relieve(Level::Tight, &mut last);
        assert!(second.account().load(201).is_err() && !first.account().is_recalled(), "nothing new is read");
        memory.relieve(Level::Short, &mut last);
        assert!(first.account().is_recalled() && !second.account().is_recalled());
        first.not_ready("given up");
        memory.relieve(Level::Short, &mut last);
        assert!(!second.account().is_recalled(), "it is given time to go");
        tokio::time::advance(GOING).await;
        memory.relieve(Level::Short, &mut last);
        assert!(second.account().is_recalled());
    }

    fn cache_config(memory: &Memory, pinned: bool) -> crate::cache::CacheConfig {
        let resource = crate::meta::Gvr::new("", "v1", "pods");
        crate::cache::CacheConfig { budget: memory.budget.clone(), pinned, ..crate::cache::CacheConfig::new(resource) }
    }
}
