//! Where settings come from, behind a trait, so that no test has to touch the process's environment.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// What the command line said: a setting's key and its texts, in order.
pub type Flags = BTreeMap<&'static str, Vec<String>>;

/// The world outside the command line.
pub trait Source {
    /// An environment variable; `None` where it is unset.
    ///
    /// # Errors
    /// It is set, but no UTF-8.
    fn variable(&self, name: &str) -> Result<Option<String>, String>;

    /// The names of all environment variables.
    fn variable_names(&self) -> Vec<String>;

    /// The text of a file.
    ///
    /// # Errors
    /// As reading a file does, no UTF-8 included.
    fn read(&self, path: &Path) -> io::Result<String>;
}

/// The process's own environment and file system.
#[derive(Debug, Default, Clone, Copy)]
pub struct Environment;

/// A made-up world: what a test, or the demo, says it is.
#[cfg(test)]
#[derive(Debug, Default, Clone)]
pub(super) struct MadeUp {
    pub variables: BTreeMap<String, String>,
    pub files: BTreeMap<std::path::PathBuf, String>,
}

// === impl Environment ===

impl Source for Environment {
    fn variable(&self, name: &str) -> Result<Option<String>, String> {
        match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err("is no UTF-8".to_owned()),
        }
    }

    fn variable_names(&self) -> Vec<String> {
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }
}

// === impl MadeUp ===

#[cfg(test)]
impl MadeUp {
    pub(super) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(super) fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), text.to_owned());
        self
    }
}

#[cfg(test)]
impl Source for MadeUp {
    fn variable(&self, name: &str) -> Result<Option<String>, String> {
        Ok(self.variables.get(name).cloned())
    }

    fn variable_names(&self) -> Vec<String> {
        self.variables.keys().cloned().collect()
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
