//! What a list or a watch is made of: objects, or the rows of tables.

use crate::codec::table;
use crate::meta::{FieldTable, Object};

use super::form::TypeMeta;
use super::item::scan_item;
use super::scan::{Result, Scanner};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Items {
    Objects,
    Rows,
}

// === impl Items ===

impl Items {
    /// The member of a list that holds them.
    pub(super) fn member(self) -> &'static str {
        match self {
            Self::Objects => "items",
            Self::Rows => "rows",
        }
    }

    /// Reads the one the scanner stands at, and leaves the scanner behind it.
    pub(super) fn scan(self, scanner: &mut Scanner<'_>, fields: &FieldTable) -> Result<(Object, TypeMeta)> {
        match self {
            Self::Objects => scan_item(scanner, fields),
            Self::Rows => table::scan_row(scanner, fields),
        }
    }

    /// The same where the bytes are one, perhaps with spaces around it.
    pub(super) fn parse(self, bytes: &[u8], fields: &FieldTable) -> Result<(Object, TypeMeta)> {
        let mut scanner = Scanner::new(bytes);
        scanner.skip_spaces();
        let item = self.scan(&mut scanner, fields)?;
        scanner.end()?;
        Ok(item)
    }
}
