//! Mistakes in the configuration, each with its origin.

use std::fmt;
use std::path::PathBuf;

/// The most bytes of a name that is compared with all known ones.
const LONGEST_NAME: usize = 64;
/// Only for so many mistakes, the name is searched that may be meant: thousands of them could take seconds.
pub(super) const MOST_SUGGESTED: usize = 10;
/// The most characters of a key in a mistake.
const LONGEST_KEY: usize = 64;
/// A longer message keeps this many characters at its start and at its end, because the value is quoted before the error.
const MOST_OF_VALUE: usize = 100;
const MOST_OF_REST: usize = 300;

/// Where the text of a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `--listen`
    Flag(String),
    /// `INFORMERD_LISTEN`
    Variable(String),
    /// The configuration file, with the line and the nested key.
    File { path: PathBuf, line: u64, key: String },
    /// The setting was not set.
    Default { key: &'static str },
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub origin: Origin,
    pub message: String,
}

/// All mistakes. They are displayed one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

/// The known name that is closest to a mistyped one, if it is close enough.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST_NAME {
        return None;
    }
    let folded = name.to_lowercase();
    let (len, most) = (folded.chars().count(), |candidate: &str| (candidate.len() / 3).max(1));
    known
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(len) <= most(candidate))
        .map(|candidate| (distance(&folded, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= most(candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The edit distance: the number of characters to insert, delete, replace or swap with a neighbour.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![(0..=to.len()).collect::<Vec<usize>>()];
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let mut best = (rows[i][j] + usize::from(a != b)).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

/// A text without its middle, if it has more than `first` and `last` characters.
fn shortened(text: String, first: usize, last: usize) -> String {
    let count = text.chars().count();
    if count <= first + last {
        return text;
    }
    let (begin, end) = (text.chars().take(first), text.chars().skip(count - last));
    begin.chain(['…']).chain(end).collect()
}

// === impl Origin ===

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => f.write_str(flag),
            Self::Variable(name) => f.write_str(name),
            Self::File { path, line: 0, key } if key.is_empty() => write!(f, "{}", path.display()),
            Self::File { path, line, key } if key.is_empty() => write!(f, "{}:{line}", path.display()),
            Self::File { path, line, key } => write!(f, "{}:{line}: {key}", path.display()),
            Self::Default { key } => write!(f, "default of {key}"),
        }
    }
}

// === impl Mistake ===

impl Mistake {
    /// What is quoted of a long key or value is short: anybody may have written it.
    pub fn new(mut origin: Origin, message: impl Into<String>) -> Self {
        if let Origin::File { key, .. } = &mut origin {
            *key = shortened(std::mem::take(key), LONGEST_KEY, 0);
        }
        Self { origin, message: shortened(message.into(), MOST_OF_VALUE, MOST_OF_REST) }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.message)
    }
}

// === impl Mistakes ===

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Mistakes {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_is_short() {
        let at = |key: &str| Origin::File { path: "/f".into(), line: 1, key: key.to_owned() };
        let told = |key: &str, message: &str| Mistake::new(at(key), message).to_string();
        let (key, message) = ("k".repeat(LONGEST_KEY), "é".repeat(MOST_OF_VALUE + MOST_OF_REST));
        assert_eq!(told(&key, &message), format!("/f:1: {key}: {message}"));
        assert_eq!(told(&format!("{key}k"), "no"), format!("/f:1: {key}…: no"));
        let (first, last) = ("é".repeat(MOST_OF_VALUE), "é".repeat(MOST_OF_REST - 4));
        assert_eq!(told("k", &format!("{message}é is")), format!("/f:1: k: {first}…{last}é is"));
    }

    #[test]
    fn long_names_are_not_compared() {
        let known = "x".repeat(LONGEST_NAME);
        assert_eq!(nearest(&known, [&*known]), Some(&*known));
        assert_eq!(nearest(&format!("{known}x"), [&*known]), None);
    }

    #[test]
    fn suggests_only_what_may_be_meant() {
        let known = ["listen", "kubeconfig", "notSynced", "idleTimeout"];
        assert_eq!(nearest("lisent", known), Some("listen"));
        assert_eq!(nearest("notsynced", known), Some("notSynced"));
        assert_eq!(nearest("kubconfg", known), Some("kubeconfig"));
        assert_eq!(nearest("colour", known), None);
    }
}
