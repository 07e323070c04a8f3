//! The elements of a list or a watch: objects, or the rows of tables.

use crate::table;
use informerd_meta::{FieldTable, Object};

use super::form::TypeMeta;
use super::item::scan_item;
use super::scan::{Result, Scanner};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Items {
    Objects,
    Rows,
}

// === impl Items ===

impl Items {
    /// The name of the list member that holds the elements.
    pub(super) fn member(self) -> &'static str {
        match self {
            Self::Objects => "items",
            Self::Rows => "rows",
        }
    }

    /// Parses the element at the scanner's position and moves the scanner past it.
    pub(super) fn scan(self, scanner: &mut Scanner<'_>, fields: &FieldTable) -> Result<(Object, TypeMeta)> {
        match self {
            Self::Objects => scan_item(scanner, fields),
            Self::Rows => table::scan_row(scanner, fields),
        }
    }

    /// Parses bytes that are exactly one element, possibly with spaces around it.
    pub(super) fn parse(self, bytes: &[u8], fields: &FieldTable) -> Result<(Object, TypeMeta)> {
        Scanner::whole(bytes, |scanner| self.scan(scanner, fields))
    }
}
