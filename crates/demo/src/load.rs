//! The load of the apiserver without informerd and with it, and what the difference is in words.

use std::time::Duration;

use informerd_sim::Counts;
use informerd_status::{Grouped, InUnits};

/// In place of a saving that is not known.
pub(super) const UNKNOWN: &str = "–";
/// The least CPU time that is not shown as zero, in ms.
const SHOWN: u64 = 100;

/// What an apiserver had to do since the start, except for `watches`, which is the current number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) requests: u64,
    /// Watches that are open now.
    pub(super) watches: u64,
    /// Changes sent to watches.
    pub(super) events: u64,
    /// Bytes of bodies.
    pub(super) bytes: u64,
    /// The time for which its thread ran. `None` if the system does not report it.
    pub(super) cpu: Option<Duration>,
}

/// The two sides of the demo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Loads {
    /// The apiserver that the clients read directly.
    pub(super) without: Load,
    /// The apiserver behind informerd.
    pub(super) with: Load,
}

/// One kind of load, as displayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) without: String,
    pub(super) with: String,
    pub(super) saved: String,
}

// === impl Load ===

impl From<&Counts> for Load {
    fn from(counts: &Counts) -> Self {
        Self {
            requests: counts.all_requests(),
            watches: counts.all_open_watches(),
            events: counts.sent_events,
            bytes: counts.sent_bytes,
            cpu: None,
        }
    }
}

// === impl Loads ===

impl Loads {
    pub(super) fn rows(&self) -> Vec<Row> {
        let Self { without, with } = *self;
        let mut rows = vec![
            Row::new("requests", grouped, without.requests, with.requests),
            Row::new("open watches", grouped, without.watches, with.watches),
            Row::new("events", grouped, without.events, with.events),
            Row::new("bytes", in_units, without.bytes, with.bytes),
        ];
        if let (Some(without), Some(with)) = (without.cpu, with.cpu) {
            let [without, with] = [without, with].map(|cpu| u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX));
            let row = Row::new("CPU time", in_seconds, without, with);
            // A part of two values that are both shown as 0.0 s tells nothing.
            let is_measured = without.max(with) >= SHOWN;
            rows.push(if is_measured { row } else { Row { saved: UNKNOWN.to_owned(), ..row } });
        }
        rows
    }
}

// === impl Row ===

impl Row {
    fn new(name: &'static str, show: fn(u64) -> String, without: u64, with: u64) -> Self {
        Self { name, without: show(without), with: show(with), saved: saved(without, with) }
    }
}

/// The saved part in words. It is never negative. Where informerd has nothing, it is not connected: that is no saving.
fn saved(without: u64, with: u64) -> String {
    if with == 0 && without > 0 {
        return UNKNOWN.to_owned();
    }
    let Some(saved) = without.checked_sub(with).filter(|saved| *saved > 0) else {
        return "nothing yet".to_owned();
    };
    match u128::from(saved) * 100 / u128::from(without) {
        0 => "under 1 %".to_owned(),
        percent => format!("{percent} %"),
    }
}

pub(super) fn grouped(number: u64) -> String {
    Grouped(i64::try_from(number).unwrap_or(i64::MAX)).to_string()
}

pub(super) fn in_units(bytes: u64) -> String {
    InUnits(i64::try_from(bytes).unwrap_or(i64::MAX)).to_string()
}

/// In seconds, with one decimal.
fn in_seconds(millis: u64) -> String {
    format!("{}.{} s", grouped(millis / 1000), millis % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_saved_and_never_less_than_nothing() {
        for (without, with, words) in [
            (0, 0, "nothing yet"),
            (0, 12, "nothing yet"),
            (7, 7, "nothing yet"),
            (1_000, 999, "under 1 %"),
            (26_237, 41, "99 %"),
            (51, 0, "–"),
            (u64::MAX, 1, "99 %"),
            (3, 2, "33 %"),
        ] {
            assert_eq!(saved(without, with), words, "{without} {with}");
        }
    }

    #[test]
    fn rows() {
        let cpu = |millis| Some(Duration::from_millis(millis));
        let without = Load { requests: 1_234, watches: 51, events: 26_237, bytes: 97 << 20, cpu: cpu(1_234_560) };
        let with = Load { requests: 2_000, watches: 8, events: 612, bytes: 2_000_000, cpu: cpu(250) };
        let text = |loads: Loads| -> Vec<_> {
            let rows = loads.rows();
            rows.iter().map(|row| format!("{}|{}|{}|{}", row.name, row.without, row.with, row.saved)).collect()
        };
        let known = [
            "requests|1,234|2,000|nothing yet",
            "open watches|51|8|84 %",
            "events|26,237|612|97 %",
            "bytes|97.0 MiB|1.9 MiB|98 %",
            "CPU time|1,234.5 s|0.2 s|99 %",
        ];
        assert_eq!(text(Loads { without, with }), known);
        assert_eq!(text(Loads { without, with: Load { cpu: None, ..with } }), known[..4]);
        let time = |without, with| {
            let [without, with] = [without, with].map(|millis| Load { cpu: cpu(millis), ..Load::default() });
            text(Loads { without, with }).remove(4)
        };
        assert_eq!(time(99, 20), "CPU time|0.0 s|0.0 s|–");
        assert_eq!(time(100, 20), "CPU time|0.1 s|0.0 s|80 %");
        assert_eq!(time(0, 0), "CPU time|0.0 s|0.0 s|–");
    }
}
