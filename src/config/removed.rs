//! Settings that earlier versions had. Whoever still sets one gets an error that says what became of it.

use super::setting::{flag_of, variable_of};
use super::{Mistake, Origin, Source};

/// A setting that is gone.
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    /// The key that it had in the file.
    pub key: &'static str,
    /// What became of it, and what to write instead, in one line.
    pub message: &'static str,
}

/// All settings that are gone.
pub const REMOVED: &[Removed] = &[Removed {
    key: "snapshots.maxServedAge",
    message: "this setting is gone, and nothing need be written instead: no snapshot is served before the apiserver has confirmed it",
}];

// === impl Removed ===

impl Removed {
    pub(super) fn find(key: &str) -> Option<&'static Self> {
        REMOVED.iter().find(|removed| removed.key == key)
    }

    /// The setting that had this flag, with its leading dashes.
    pub fn of_flag(flag: &str) -> Option<&'static Self> {
        let name = flag.strip_prefix("--")?;
        REMOVED.iter().find(|removed| flag_of(removed.key) == name)
    }

    fn variable(&self) -> String {
        variable_of(self.key)
    }
}

/// The variables of such settings that are set. An empty one counts as missing.
pub(super) fn removed_variables(source: &dyn Source) -> Vec<Mistake> {
    let is_set = |name: &str| source.variable(name) != Ok(None) && source.variable(name) != Ok(Some(String::new()));
    let set = REMOVED.iter().filter(|removed| is_set(&removed.variable()));
    set.map(|removed| Mistake::new(Origin::Variable(removed.variable()), removed.message)).collect()
}
