//! Points in time as objects contain them.

use std::time::{SystemTime, UNIX_EPOCH};

/// A point in time, in nanoseconds since 1970-01-01 UTC. It can hold every time that RFC 3339 can express.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment {
    secs: i64,
    nanos: u32,
}

/// Go's zero time, 0001-01-01T00:00:00Z. It means that a time was never set.
const GO_ZERO: Moment = Moment { secs: -62_135_596_800, nanos: 0 };

const NANOS: i128 = 1_000_000_000;

// === impl Moment ===

impl Moment {
    /// The current time of the local clock.
    pub fn now() -> Self {
        // A clock before 1970 is not handled separately.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
    }

    /// Parses RFC 3339 as the apiserver writes it: with or without a fraction, in UTC or with an offset. Returns
    /// `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let number = |from: usize, len: usize| -> Option<i64> {
            let digits = bytes.get(from..from + len)?;
            digits.iter().all(u8::is_ascii_digit).then(|| text.get(from..from + len)?.parse().ok())?
        };
        let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
        if marks.iter().any(|&(at, mark)| bytes.get(at) != Some(&mark)) {
            return None;
        }
        let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
        let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            4 | 6 | 9 | 11 => 30,
            2 => 28 + i64::from(leap),
            1..=12 => 31,
            _ => return None,
        };
        if !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let mut at = 19;
        let mut nanos = 0;
        if bytes.get(at) == Some(&b'.') {
            let digits = bytes.get(at + 1..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=9).contains(&digits) {
                return None;
            }
            nanos = u32::try_from(number(at + 1, digits)?).ok()? * 10_u32.pow(9 - u32::try_from(digits).ok()?);
            at += 1 + digits;
        }
        let east = match (bytes.get(at)?, bytes.len() - at) {
            (b'Z', 1) => 0,
            (sign @ (b'+' | b'-'), 6) if bytes.get(at + 3) == Some(&b':') => {
                let (hours, minutes) = (number(at + 1, 2)?, number(at + 4, 2)?);
                if hours > 23 || minutes > 59 {
                    return None;
                }
                (hours * 3600 + minutes * 60) * if *sign == b'-' { -1 } else { 1 }
            }
            _ => return None,
        };
        let secs = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - east;
        Some(Self { secs, nanos })
    }

    /// Whether the time was never set, which Go expresses as its zero value.
    pub fn is_zero(self) -> bool {
        self == GO_ZERO
    }

    /// The nanoseconds from `earlier` to this time; negative if `earlier` is later. As in Go, durations are limited
    /// to 63 bits, which is about 292 years.
    pub fn since(self, earlier: Self) -> i64 {
        let (now, then) = (self.total(), earlier.total());
        i64::try_from(now - then).unwrap_or(if now > then { i64::MAX } else { i64::MIN })
    }

    /// This time plus a number of seconds.
    pub fn plus(self, secs: i64) -> Self {
        Self { secs: self.secs.saturating_add(secs), ..self }
    }

    fn total(self) -> i128 {
        i128::from(self.secs) * NANOS + i128::from(self.nanos)
    }
}

/// Days since 1970 in the Gregorian calendar, for years from 0.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so a leap day is the last day of the year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_the_apiserver_writes() {
        for (text, secs, nanos) in [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("2026-11-22T02:38:54Z", 1_795_315_134, 0),
            ("2024-02-29T23:59:59.25Z", 1_709_251_199, 250_000_000),
            ("2024-01-01T02:00:00.000001+02:00", 1_704_067_200, 1_000),
            ("1969-12-31T23:59:59-00:30", 1_799, 0),
            ("0001-01-01T00:00:00Z", GO_ZERO.secs, 0),
        ] {
            assert_eq!(Moment::parse(text), Some(Moment { secs, nanos }), "{text}");
        }
        assert!(Moment::parse("0001-01-01T00:00:00Z").unwrap().is_zero());
    }

    #[test]
    fn nothing_else_is_a_time() {
        for text in [
            "",
            "now",
            "2026-11-22",
            "2026-11-22 02:38:54Z",
            "2026-11-22T02:38:54",
            "2026-11-22T02:38:60Z",
            "2026-13-22T02:38:54Z",
            "2026-02-29T02:38:54Z",
            "2026-11-22T24:38:54Z",
            "2026-11-22T02:38:54.Z",
            "2026-11-22T02:38:54z",
            "2026-11-22T02:38:54+1:00",
            "2026-11-22T02:38:54Zx",
            "+026-11-22T02:38:54Z",
        ] {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_lies_between_is_bounded() {
        let (new, old) =
            (Moment::parse("9999-12-31T23:59:59Z").unwrap(), Moment::parse("0000-01-01T00:00:00Z").unwrap());
        assert_eq!((new.since(old), old.since(new), new.since(new)), (i64::MAX, i64::MIN, 0));
        assert_eq!(new.since(new.plus(-3)), 3_000_000_000);
    }

    proptest! {
        #[test]
        fn agrees_with_a_calendar(secs in -62_167_219_200_i64..253_402_300_799, nanos in 0u32..1_000_000_000) {
            let time = jiff::Timestamp::new(secs, 0).unwrap();
            let text = time.strftime("%Y-%m-%dT%H:%M:%S").to_string();
            let text = format!("{text:0>19}.{nanos:09}Z");
            prop_assert_eq!(Moment::parse(&text), Some(Moment { secs, nanos }));
        }
    }
}
