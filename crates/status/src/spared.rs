//! The load that the apiserver was spared: the figure that the status page, the terminal and the metrics show.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What clients received since the start, and what the apiserver was asked for in the same time, both for clients and
/// for informerd itself: its informers, its probes, its reviews.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// Requests that were answered from caches or forwarded.
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

/// The difference. A negative number is what informerd has cost the apiserver: right after its start, it has listed
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

/// Why something was not spared yet: right after a start, for example, the caches were filled and nobody has asked.
const WHY: &str = "because the caches follow more than clients have read";

/// A number with a separator between thousands.
pub struct Grouped(pub i64);

/// Bytes in a unit that needs few digits.
pub struct InUnits(pub i64);

// === impl Spared ===

impl From<Traffic> for Spared {
    fn from(traffic: Traffic) -> Self {
        let difference = |more: u64, less: u64| {
            let by = i64::try_from(more.abs_diff(less)).unwrap_or(i64::MAX);
            if more < less { -by } else { by }
        };
        let Traffic { answered, asked, sent_bytes, received_bytes, sent_events, received_events } = traffic;
        Self {
            requests: difference(answered, asked),
            bytes: difference(sent_bytes, received_bytes),
            events: difference(sent_events, received_events),
            deliveries_per_event: if received_events == 0 { 0.0 } else { sent_events as f64 / received_events as f64 },
        }
    }
}

impl fmt::Display for Spared {
    /// What was not spared yet is told as a cost, not as a negative saving.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, bytes, events, deliveries_per_event } = *self;
        let parts = |sign: i64| {
            let requests = (requests, format!("{} requests", Grouped(requests.saturating_mul(sign))));
            let bytes = (bytes, InUnits(bytes.saturating_mul(sign)).to_string());
            let events = (events, format!("{} events", Grouped(events.saturating_mul(sign))));
            let of_sign = |(number, text)| ((number < 0) == (sign < 0)).then_some(text);
            [requests, bytes, events].into_iter().filter_map(of_sign).collect::<Vec<_>>().join(", ")
        };
        let (spared, spent) = (parts(1), parts(-1));
        f.write_str(if spared.is_empty() { "nothing" } else { spared.as_str() })?;
        if deliveries_per_event > 0.0 {
            write!(f, " ({deliveries_per_event:.1} deliveries per event received)")?;
        }
        if !spent.is_empty() {
            write!(f, "; net cost so far: {spent}, {WHY}")?;
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
        let traffic = Traffic {
            answered: 1_050,
            asked: 50,
            sent_bytes: 3 << 30,
            received_bytes: 1 << 20,
            sent_events: 51_000,
            received_events: 1_000,
        };
        let text = Spared::from(traffic).to_string();
        assert_eq!(text, "1,000 requests, 3.0 GiB, 50,000 events (51.0 deliveries per event received)");
        let fresh = Traffic { asked: 20, received_bytes: 2_500, received_events: 1_234, ..Traffic::default() };
        let text = Spared::from(fresh).to_string();
        assert_eq!(text, format!("nothing; net cost so far: 20 requests, 2.4 KiB, 1,234 events, {WHY}"));
        let mixed = Spared::from(Traffic { answered: 50, sent_events: 1_334, ..fresh });
        let text = "30 requests, 100 events (1.1 deliveries per event received); net cost so far: 2.4 KiB";
        assert_eq!(mixed.to_string(), format!("{text}, {WHY}"));
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
