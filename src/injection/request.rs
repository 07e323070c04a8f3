//! Where a pod comes from.

use super::Mode;

/// Where a pod comes from, which decides what it is expected to have already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    /// Empty if a manifest names none.
    pub(crate) namespace: &'a str,
    /// What the namespace's label or the command line asks for.
    pub(crate) default: Option<Mode>,
    /// The apiserver has already mounted the files of the ServiceAccount into every container that gets them.
    pub(crate) admitted: bool,
}
