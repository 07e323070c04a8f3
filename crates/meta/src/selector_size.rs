//! How large a selector may be that is read here. It is counted before anything is made of it: a requirement of two bytes
//! becomes hundreds of bytes, in the question to the authorizer and in the predicate.

/// The most requirements of one selector.
const MOST_REQUIREMENTS: usize = 1000;
/// The most values of all its sets together.
const MOST_VALUES: usize = 1000;

/// Why a selector is not read here. The apiserver has no such limit.
pub const TOO_LARGE: &str =
    "a selector has more than 1000 requirements or more than 1000 values in its sets, which informerd does not read";

/// Whether a label selector is within the limits. A text that is no selector is counted as if it were one.
pub fn labels_fit(text: &str) -> bool {
    let (mut requirements, mut values, mut in_set) = (1, 0, false);
    for byte in text.bytes() {
        match byte {
            b'(' => (values, in_set) = (values + 1, true),
            b')' => in_set = false,
            b',' if in_set => values += 1,
            b',' => requirements += 1,
            _ => {}
        }
    }
    requirements <= MOST_REQUIREMENTS && values <= MOST_VALUES
}

/// The same for a field selector, whose requirements have one value each. Escaped commas count, too, where the text is so
/// short that none of it can be large.
pub fn fields_fit(text: &str) -> bool {
    let mut is_escaped = false;
    let commas = text.bytes().filter(|byte| {
        let splits = *byte == b',' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        splits
    });
    commas.count() < MOST_REQUIREMENTS
}

/// The most memory that is made of two selectors within the limits, in bytes: their attributes, a review, and a predicate.
pub fn selectors_cost(labels: &str, fields: &str) -> usize {
    let pieces = |text: &str| if text.is_empty() { 0 } else { 1 + memchr::memchr_iter(b',', text.as_bytes()).count() };
    PIECE * (pieces(labels) + pieces(fields)) + 2 * (labels.len() + fields.len())
}

/// What is made of one requirement or value, without its text.
const PIECE: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_exact() {
        let joined = |part: &str, count: usize| vec![part; count].join(",");
        for part in ["a", "a=b", "a==b", "a!=b", "a in (b)", "!a", "a>1"] {
            assert!(labels_fit(&joined(part, 1000)), "{part}");
            assert!(!labels_fit(&joined(part, 1001)), "{part}");
        }
        for (open, close) in [("a in (", ")"), ("a notin (", "),b"), ("b=c,a in (", ")")] {
            for value in ["b", "", "-0"] {
                assert!(labels_fit(&format!("{open}{}{close}", joined(value, 1000))), "{open} {value}");
                assert!(!labels_fit(&format!("{open}{}{close}", joined(value, 1001))), "{open} {value}");
            }
        }
        assert!(!labels_fit(&format!("a in ({}),b in (x)", joined("b", 1000))), "all sets together");
        for part in ["a=b", "a!=b", "", "a=\\,\\,"] {
            assert!(fields_fit(&joined(part, 1000)), "{part}");
            assert!(!fields_fit(&joined(part, 1001)), "{part}");
        }
        assert!(labels_fit("") && fields_fit(""));
        assert!(TOO_LARGE.contains(&MOST_REQUIREMENTS.to_string()) && MOST_VALUES == MOST_REQUIREMENTS);
    }
}
