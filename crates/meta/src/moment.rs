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

    /// Parses a text as Go's `time.Parse(time.RFC3339, …)` does, which is how the apiserver reads dates of custom
    /// resources. Go takes a little more than RFC 3339: an hour of one digit, a comma before the fraction, any number of
    /// digits after it, and offsets up to 24 hours and 60 minutes. Returns `None` where Go returns an error.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = Rest(text.as_bytes());
        let year = rest.number(4)?;
        rest.mark(b"-")?;
        let month = rest.number(2)?;
        rest.mark(b"-")?;
        let day = rest.number(2)?;
        rest.mark(b"T")?;
        let hour = rest.number(2).or_else(|| rest.number(1))?;
        rest.mark(b":")?;
        let minute = rest.number(2)?;
        rest.mark(b":")?;
        let second = rest.number(2)?;
        let nanos = rest.fraction();
        let east = rest.offset()?;
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            4 | 6 | 9 | 11 => 30,
            2 => 28 + i64::from(leap),
            1..=12 => 31,
            _ => return None,
        };
        if !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 59 || !rest.0.is_empty() {
            return None;
        }
        let secs = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - east;
        Some(Self { secs, nanos })
    }

    /// The whole seconds since 1970-01-01 UTC, rounded down.
    pub fn seconds(self) -> i64 {
        self.secs
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

// === impl Rest ===

/// The part of a text that is not parsed yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    /// A number of exactly this many digits.
    fn number(&mut self, len: usize) -> Option<i64> {
        let (digits, rest) =
            self.0.split_at_checked(len).filter(|(digits, _)| digits.iter().all(u8::is_ascii_digit))?;
        self.0 = rest;
        Some(digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
    }

    /// One byte, of those given.
    fn mark(&mut self, marks: &[u8]) -> Option<u8> {
        let (&mark, rest) = self.0.split_first().filter(|(mark, _)| marks.contains(mark))?;
        self.0 = rest;
        Some(mark)
    }

    /// The nanoseconds of the fraction, if there is one. Digits after the ninth have no effect.
    fn fraction(&mut self) -> u32 {
        let mut rest = Rest(self.0);
        let (mut nanos, mut unit) = (0, 100_000_000);
        if rest.mark(b".,").is_some() {
            while let Some(digit) = rest.mark(b"0123456789") {
                nanos += u32::from(digit - b'0') * unit;
                unit /= 10;
                self.0 = rest.0;
            }
        }
        nanos
    }

    /// How many seconds the clock is ahead of UTC.
    fn offset(&mut self) -> Option<i64> {
        let sign = match self.mark(b"Z+-")? {
            b'Z' => return Some(0),
            b'-' => -1,
            _ => 1,
        };
        let hours = self.number(2)?;
        self.mark(b":")?;
        let minutes = self.number(2)?;
        (hours <= 24 && minutes <= 60).then_some(sign * (hours * 3600 + minutes * 60))
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
    fn reads_what_the_apiserver_reads() {
        for (text, secs, nanos) in [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("2026-11-22T02:38:54Z", 1_795_315_134, 0),
            ("2024-02-29T23:59:59.25Z", 1_709_251_199, 250_000_000),
            ("2024-01-01T02:00:00.000001+02:00", 1_704_067_200, 1_000),
            ("1969-12-31T23:59:59-00:30", 1_799, 0),
            ("0001-01-01T00:00:00Z", GO_ZERO.secs, 0),
            ("0001-01-01T01:00:00+01:00", GO_ZERO.secs, 0),
            ("0000-01-01T00:00:00Z", -62_167_219_200, 0),
            ("1800-01-01T00:00:00Z", -5_364_662_400, 0),
            // What only Go takes; the numbers are those of Go 1.26.
            ("2026-01-01T00:00:00,5Z", 1_767_225_600, 500_000_000),
            ("2026-01-01T1:00:00Z", 1_767_229_200, 0),
            ("2026-01-01T1:00:00.25+01:00", 1_767_225_600, 250_000_000),
            ("2026-01-01T00:00:00.1234567891234Z", 1_767_225_600, 123_456_789),
            ("2026-01-01T00:00:00,1234567899Z", 1_767_225_600, 123_456_789),
            ("2026-01-01T00:00:00+24:00", 1_767_139_200, 0),
            ("2026-01-01T00:00:00-24:60", 1_767_315_600, 0),
            ("2026-01-01T00:00:00.5+24:60", 1_767_135_600, 500_000_000),
            ("9999-12-31T23:59:59-24:60", 253_402_390_799, 0),
            ("0000-01-01T00:00:00+24:00", -62_167_305_600, 0),
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
            "null",
            "10000-01-01T00:00:00Z",
            "2026-1-01T00:00:00Z",
            "2026-01-1T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01t00:00:00Z",
            "2026-01-01T001:00:00Z",
            "2026-01-01T:00:00Z",
            "2026-01-01T1:0:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:00.5.5Z",
            "2026-01-01T00:00:00Z ",
            "2026-01-01T00:00:00+24:61",
            "2026-01-01T00:00:00+25:00",
            "2026-01-01T00:00:00+0100",
            "2026-01-01T00:00:00+01",
            "2026-01-01T00:00:00+01:000",
            "2026-01-01T00:00:00*01:00",
            "2026-01-01T00:00:00é1:00",
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
