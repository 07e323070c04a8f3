//! Sizes in bytes in the format of Kubernetes quantities: `128Mi`, `1G`, `4096`.

const SUFFIXES: &[(&str, u64)] =
    &[("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10), ("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000)];

/// Parses a whole number of bytes, or of a multiple of bytes.
///
/// # Errors
/// The message contains the expected format.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let mistake = || format!("{text:?} is no size: want bytes, or a number with Ki, Mi, Gi, k, M or G, such as 128Mi");
    let (digits, factor) =
        SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor))).unwrap_or((text, 1));
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(mistake());
    }
    digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(mistake)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("128Mi", 128 << 20), ("1G", 1_000_000_000), ("2Gi", 2 << 30)] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn refuses_what_it_would_have_to_guess() {
        for text in ["", "Mi", "1.5Gi", "-1", "+1", "1 Mi", "1mi", "1KB", "99999999999Gi"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
