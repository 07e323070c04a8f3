//! Durations in the notation of Go, as the apiserver reads them from a query.

/// The units and their nanoseconds. The sign of micro has two code points.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The absolute value of the least duration, in nanoseconds.
const MOST: u64 = 1 << 63;

/// Parses a duration (`6m16s`, `1.5h`, `-0`) as Go's `time.ParseDuration` does, step by step. Returns its nanoseconds, or
/// `None` where Go returns an error: for any other text, and for a duration that does not fit.
pub(in crate::http) fn parse(text: &str) -> Option<i64> {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let unit = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (name, next) = after.split_at(unit);
        let &(_, nanos) = UNITS.iter().find(|(unit, _)| *unit == name)?;
        let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
        let part = whole.checked_mul(nanos)?.checked_add(part_of(fraction, nanos)).filter(|&part| part <= MOST)?;
        // Go does not notice when two halves of its range add up to zero.
        sum = sum.wrapping_add(part);
        if sum > MOST {
            return None;
        }
        rest = next;
    }
    if text.starts_with('-') { Some(0_i64.wrapping_sub_unsigned(sum)) } else { i64::try_from(sum).ok() }
}

/// The digits at the beginning, and what follows them.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// The nanoseconds of a fraction of a unit, in the arithmetic of Go. Digits that do not fit have no effect.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Go rounds in the same way, and the result is less than the unit"
)]
fn part_of(digits: &str, nanos: u64) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0_f64);
    for digit in digits.bytes() {
        let Some(more) = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit - b'0'))) else {
            break;
        };
        if value > i64::MAX.unsigned_abs() / 10 || more > MOST {
            break;
        }
        (value, scale) = (more, scale * 10.0);
    }
    (value as f64 * (nanos as f64 / scale)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("0s", 0),
            ("32s", 32_000_000_000),
            ("6m16s", 376_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("+5ms", 5_000_000),
            ("-5ms", -5_000_000),
            ("10us", 10_000),
            ("10µs", 10_000),
            ("10μs", 10_000),
            ("1h2m3s4ms", 3_723_004_000_000),
            ("1.s.5s", 1_500_000_000),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("0.100000000000000000000h", 360_000_000_000),
            ("0.9223372036854775807h", 3_320_413_933_267),
            ("9007199254740993ns", 9_007_199_254_740_993),
            ("9223372036854775807ns", i64::MAX),
            ("9223372036854775.807us", i64::MAX),
            ("9223372036s854ms775us807ns", i64::MAX),
            ("2562047h47m16.854775807s", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("-2562047h47m16.854775808s", i64::MIN),
            ("9223372036854775808ns9223372036854775808ns", 0),
        ] {
            assert_eq!(parse(text), Some(nanos), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in ["", "-", "+", "5", "s", ".s", ".", "1.2.3s", "5 s", "5x", "5S", "1h5", "--1s", "1sm", "0 ", "é"] {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in [
            "9223372036854775808ns",
            "-9223372036854775809ns",
            "9223372036854775.808us",
            "9223372036s854ms775us808ns",
            "2562047h47m16.854775808s",
            "2562048h",
            "9999999999h",
            "99999999999999999999ns",
        ] {
            assert_eq!(parse(text), None, "{text} does not fit");
        }
    }
}
