//! How long something is, as the apiserver says it: two or three figures, with units from seconds to years.

use std::fmt::Write;

const SECOND: i64 = 1_000_000_000;

/// Appends the duration in the form of the cells of tables (the `HumanDuration` of apimachinery), in JSON. `nanos` of less
/// than minus two seconds are invalid; what is less than now by less is now.
pub(super) fn push_human(out: &mut String, nanos: i64) {
    let seconds = nanos / SECOND;
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    // Writing to a String cannot fail.
    let _ = match () {
        () if seconds < -1 => write!(out, "\\u003cinvalid\\u003e"),
        () if seconds < 0 => write!(out, "0s"),
        () if seconds < 120 => write!(out, "{seconds}s"),
        () if minutes < 10 => two(out, (minutes, "m"), (seconds % 60, "s")),
        () if minutes < 180 => write!(out, "{minutes}m"),
        () if hours < 8 => two(out, (hours, "h"), (minutes % 60, "m")),
        () if hours < 48 => write!(out, "{hours}h"),
        () if days < 8 => two(out, (days, "d"), (hours % 24, "h")),
        () if years < 2 => write!(out, "{days}d"),
        () if years < 8 => two(out, (years, "y"), (days % 365, "d")),
        () => write!(out, "{years}y"),
    };
}

/// The smaller unit is left out where it is zero.
fn two(out: &mut String, large: (i64, &str), small: (i64, &str)) -> std::fmt::Result {
    write!(out, "{}{}", large.0, large.1)?;
    if small.0 == 0 { Ok(()) } else { write!(out, "{}{}", small.0, small.1) }
}

/// Whether a cell says how long something is or was, or may do so: `5m`, `3 (2d1h ago)`, `<invalid>`.
pub(super) fn looks_relative(cell: &str) -> bool {
    cell == "<invalid>" || is_duration(cell) || cell.ends_with(" ago)") || cell.ends_with(" ago")
}

/// Numbers with units, and nothing else.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        if unit.len() == rest.len() || !unit.starts_with(['s', 'm', 'h', 'd', 'y']) {
            return false;
        }
        rest = &unit[1..];
    }
    !text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn human(nanos: i64) -> String {
        let mut out = String::new();
        push_human(&mut out, nanos);
        out
    }

    /// Made by the function of apimachinery itself: nanoseconds and what it says, at and around every change of its form.
    const VECTORS: &str = include_str!("human_vectors.txt");

    #[test]
    fn says_what_the_apiserver_says() {
        let mut seen = 0;
        for line in VECTORS.lines() {
            let (nanos, said) = line.split_once(' ').unwrap();
            let said = said.replace('<', "\\u003c").replace('>', "\\u003e");
            assert_eq!(human(nanos.parse().unwrap()), said, "{nanos}");
            seen += 1;
        }
        assert!(seen > 200, "{seen}");
    }

    #[test]
    fn durations_are_told_from_other_text() {
        for text in ["0s", "119s", "9m59s", "3h", "7d23h", "2y364d", "292y", "<invalid>", "3 (5m ago)", "5m ago"] {
            assert!(looks_relative(text), "{text}");
        }
        for text in ["", "5", "s", "m5", "5x", "5m5", "Running", "1/1", "<none>", "<unknown>", "10Gi", "80/TCP", "5 m"]
        {
            assert!(!looks_relative(text), "{text}");
        }
        for line in VECTORS.lines() {
            assert!(looks_relative(line.split_once(' ').unwrap().1), "{line}");
        }
    }
}
