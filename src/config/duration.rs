//! Durations in the format of Go and Kubernetes: `75s`, `1m30s`, `500ms`.

use std::time::Duration;

const UNITS: &[(&str, u128)] = &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
/// A limit in milliseconds. It is longer than any sensible timeout and far below the range of the clocks.
const LONGEST: u128 = 366 * 24 * 3_600_000;

/// Parses whole numbers with the units `h`, `m`, `s` and `ms`, largest first.
///
/// # Errors
/// The message contains the expected format. A number without a unit is rejected, because its unit would be a guess.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let mistake = || format!("{text:?} is no duration: want a number and a unit (h, m, s or ms), such as 75s or 1m30s");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut total, mut last) = (text, 0u128, u128::MAX);
    if rest.is_empty() {
        return Err(mistake());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(mistake)?;
        let number: u128 = rest[..digits].parse::<u64>().map_err(|_| mistake())?.into();
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = UNITS.iter().find(|(unit, _)| *unit == &rest[..letters]).map(|(_, millis)| *millis);
        let unit = unit.filter(|unit| *unit < last).ok_or_else(mistake)?;
        rest = &rest[letters..];
        total += number * unit;
        last = unit;
    }
    if total > LONGEST {
        return Err(format!("{text:?} is longer than a year"));
    }
    u64::try_from(total).map(Duration::from_millis).map_err(|_| mistake())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads() {
        for (text, millis) in [("75s", 75_000), ("1m30s", 90_000), ("500ms", 500), ("1h2m3s4ms", 3_723_004), ("0s", 0)]
        {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(text).unwrap(), duration, "{text}");
        }
        assert_eq!(parse_duration("0").unwrap(), Duration::ZERO);
    }

    #[test]
    fn refuses_what_it_would_have_to_guess() {
        let far = "99999999999999999999s";
        for text in ["", "75", "s", "1.5s", "-1s", "1s1m", "1s1s", "5 s", "1d", "5S", far, "9000h", "1ß"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
