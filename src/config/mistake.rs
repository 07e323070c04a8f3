//! Mistakes in the configuration, each with its origin.

use std::fmt;
use std::path::PathBuf;

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
    let folded = name.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (distance(&folded, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
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
    pub fn new(origin: Origin, message: impl Into<String>) -> Self {
        Self { origin, message: message.into() }
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
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            mistake.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_what_may_be_meant() {
        let known = ["listen", "kubeconfig", "notSynced", "idleTimeout"];
        assert_eq!(nearest("lisent", known), Some("listen"));
        assert_eq!(nearest("notsynced", known), Some("notSynced"));
        assert_eq!(nearest("kubconfg", known), Some("kubeconfig"));
        assert_eq!(nearest("colour", known), None);
    }
}
