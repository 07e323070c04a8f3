//! That the answers that were compared came from the caches: who forwards everything is equal to the apiserver, too.

use std::sync::Arc;

use informerd::reads::ReadMetrics;

use super::args::{Mode, Phase};

/// The least of a phase's reads that have to be answered from the caches, in hundredths. What is forwarded for good
/// reasons (what cannot be parsed, Tables, YAML, Secrets; with the defaults gets and lists of the newest state) is the
/// same in every run of a seed, up to requests that are forwarded because of what came shortly before.
const LEAST: &[(Phase, Mode, u64)] = &[
    (Phase::Curated, Mode::Defaults, 40),
    (Phase::Curated, Mode::Probe, 40),
    (Phase::Generated, Mode::Defaults, 12),
    (Phase::Generated, Mode::Probe, 24),
    (Phase::Scripts, Mode::Defaults, 60),
    (Phase::Scripts, Mode::Probe, 60),
    (Phase::Watches, Mode::Defaults, 85),
    (Phase::Watches, Mode::Probe, 85),
    (Phase::Pages, Mode::Defaults, 85),
    (Phase::Pages, Mode::Probe, 85),
    (Phase::Shards, Mode::Defaults, 70),
    (Phase::Shards, Mode::Probe, 70),
    (Phase::Tables, Mode::Defaults, 65),
    (Phase::Tables, Mode::Probe, 65),
];

/// The reads of a daemon of this process.
pub(crate) struct Served {
    metrics: Arc<ReadMetrics>,
    mode: Mode,
    /// Those before the phase: from the caches, and all.
    before: (u64, u64),
}

// === impl Served ===

impl Served {
    pub(crate) fn new(metrics: &Arc<ReadMetrics>, mode: Mode) -> Self {
        Self { metrics: Arc::clone(metrics), mode, before: (0, 0) }
    }

    /// A phase begins.
    pub(crate) fn begin(&mut self) {
        self.before = self.count();
    }

    /// How many hundredths of the phase's reads came from the caches, and what is wrong with that.
    pub(crate) fn share(&self, phase: Phase) -> (u64, Option<String>) {
        let (local, all) = self.count();
        let (local, all) = (local - self.before.0, all - self.before.1);
        let share = local * 100 / all.max(1);
        let least = LEAST.iter().find(|(of, mode, _)| *of == phase && *mode == self.mode).map_or(0, |row| row.2);
        let wrong = (share < least).then(|| {
            format!("only {local} of {all} reads came from the caches, {share} % and not {least} %: {}", self.reasons())
        });
        (share, wrong)
    }

    fn count(&self) -> (u64, u64) {
        (self.metrics.local(), self.metrics.series().iter().map(|(.., count)| count).sum())
    }

    /// What became of the reads since the daemon was started.
    fn reasons(&self) -> String {
        let series = self.metrics.series();
        let told = series.iter().filter(|(.., count)| *count > 0);
        told.map(|(plan, reason, count)| format!("{plan} {reason} {count}")).collect::<Vec<_>>().join(", ")
    }
}
