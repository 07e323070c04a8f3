//! Where a pod comes from.

use super::Mode;

/// Where a pod comes from, which decides what it is expected to have already.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Empty if a manifest names none.
    pub namespace: &'a str,
    /// What the namespace's label or the command line asks for.
    pub default: Option<Mode>,
    /// The apiserver has already mounted the files of the ServiceAccount into every container that gets them.
    pub admitted: bool,
}
