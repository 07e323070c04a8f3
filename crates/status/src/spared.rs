//! The load that the apiserver was spared: the figure that the status page, the terminal and the metrics show.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What clients received since the start, and what the apiserver was asked for in the same time, both for clients and
/// for informerd itself: its informers, its probes, its reviews.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// Requests and calls that were answered.
    pub answered: u64,
    /// Requests to the apiserver.
    pub asked: u64,
    /// Bytes of the bodies that clients were sent, and bytes that the apiserver sent.
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Events and bookmarks that client watches were sent from caches, and those that informers received.
    pub sent_events: u64,
    pub received_events: u64,
}

/// What the apiserver was spared. A negative number is what informerd has cost it: right after its start, it has listed
/// objects that no client has asked for yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spared {
    pub requests: i64,
    pub bytes: i64,
    pub events: i64,
    /// Events sent per event received; 0 before the first.
    pub deliveries_per_event: f64,
}

/// A number with a separator between thousands.
pub struct Grouped(pub i64);

/// Bytes in a unit that needs few digits.
pub struct InUnits(pub i64);

// === impl Traffic ===

impl Traffic {
    /// Events that clients were sent, less those that were received for them.
    pub fn spared_events(&self) -> i64 {
        self.sent_events.wrapping_sub(self.received_events).cast_signed()
    }

    /// Events sent per event received; 0 before the first.
    pub fn deliveries_per_event(&self) -> f64 {
        if self.received_events == 0 { 0.0 } else { self.sent_events as f64 / self.received_events as f64 }
    }
}

// === impl Spared ===

impl fmt::Display for Spared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, bytes, events, deliveries_per_event } = *self;
        write!(f, "{} requests, {}, {} events", Grouped(requests), InUnits(bytes), Grouped(events))?;
        if deliveries_per_event > 0.0 {
            write!(f, " ({deliveries_per_event:.1} deliveries per event received)")?;
        }
        Ok(())
    }
}

// === impl Grouped ===

impl fmt::Display for Grouped {
    /// `-1234567` as `-1,234,567`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.unsigned_abs().to_string();
        let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad_integral(self.0 >= 0, "", &text)
    }
}

// === impl InUnits ===

impl fmt::Display for InUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut size = self.0 as f64;
        let mut unit = 0;
        while size.abs() >= 1024.0 && unit + 1 < UNITS.len() {
            size /= 1024.0;
            unit += 1;
        }
        let digits = usize::from(unit > 0 && size.abs() < 100.0);
        write!(f, "{size:.digits$} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_was_spared_and_what_it_cost() {
        let traffic = Traffic { sent_events: 51_000, received_events: 1_000, ..Traffic::default() };
        let (events, deliveries_per_event) = (traffic.spared_events(), traffic.deliveries_per_event());
        let spared = Spared { requests: 1_000, bytes: 3 << 30, events, deliveries_per_event };
        let text = "1,000 requests, 3.0 GiB, 50,000 events (51.0 deliveries per event received)";
        assert_eq!(spared.to_string(), text);
        let fresh = Traffic { received_events: 1_234, ..Traffic::default() };
        assert_eq!((fresh.spared_events(), fresh.deliveries_per_event()), (-1_234, 0.0));
        let spent = Spared { requests: -20, bytes: -2_500, events: -1_234, deliveries_per_event: 0.0 };
        assert_eq!(spent.to_string(), "-20 requests, -2.4 KiB, -1,234 events");
        assert_eq!(Spared::default().to_string(), "0 requests, 0 B, 0 events");
    }

    #[test]
    fn numbers() {
        let grouped = [0, 999, 1_000, -1_234_567].map(|number| Grouped(number).to_string());
        assert_eq!(grouped, ["0", "999", "1,000", "-1,234,567"]);
        let units = [0, 1_023, 1_024, 150 << 20, -(5 << 29)].map(|bytes| InUnits(bytes).to_string());
        assert_eq!(units, ["0 B", "1023 B", "1.0 KiB", "150 MiB", "-2.5 GiB"]);
    }
}
