//! The sources of settings, behind a trait so that tests do not change the environment of the process.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The command-line flags: the key of a setting and its texts, in order.
pub type Flags = BTreeMap<&'static str, Vec<String>>;

/// The sources other than the command line.
pub trait Source {
    /// An environment variable; `None` if it is unset.
    ///
    /// # Errors
    /// It is set but is not valid UTF-8.
    fn variable(&self, name: &str) -> Result<Option<String>, String>;

    /// The names of all environment variables.
    fn variable_names(&self) -> Vec<String>;

    /// The text of a file.
    ///
    /// # Errors
    /// The file cannot be read or is not valid UTF-8.
    fn read(&self, path: &Path) -> io::Result<String>;
}

/// The environment and the file system of the process.
#[derive(Debug, Default, Clone, Copy)]
pub struct Environment;

/// A fake environment for tests.
#[cfg(test)]
#[derive(Debug, Default, Clone)]
pub(crate) struct MadeUp {
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
