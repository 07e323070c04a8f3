//! Extracts the values of a field table from an object while it is scanned.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::CodecError;
use informerd_meta::FieldTable;

use super::scan::{Result, Scanner};
use super::text::{Text, sprint_number};

/// The indexes of the paths that lead through the value being scanned.
pub(super) type Active = SmallVec<[u16; 16]>;

/// The paths of a table, and the values found so far at their ends.
pub(super) struct Fields<'t, 'a> {
    table: &'t FieldTable,
    /// The path of each label, followed by the fallback paths of the labels that have one.
    paths: SmallVec<[&'t [Arc<str>]; 16]>,
    found: SmallVec<[Option<Cow<'a, str>>; 16]>,
}

// === impl Fields ===

impl<'t, 'a> Fields<'t, 'a> {
    pub(super) fn new(table: &'t FieldTable) -> Self {
        let primary = table.labels.iter().map(|field| &*field.value.path);
        let fallback = table.labels.iter().filter_map(|field| field.value.fallback.as_deref());
        let paths: SmallVec<_> = primary.chain(fallback).collect();
        let found = paths.iter().map(|_| None).collect();
        Self { table, paths, found }
    }

    /// Selects every path that begins with this member of the object.
    pub(super) fn enter(&self, key: &Text<'_>) -> Active {
        self.deeper((0..).take(self.paths.len()), 0, |segment| key.is(segment))
    }

    /// Consumes the value at the end of the first `level` segments of the active paths. If a member name occurs
    /// again, its later value replaces the earlier one, as in every JSON decoder.
    pub(super) fn value(&mut self, scanner: &mut Scanner<'a>, level: usize, active: &Active) -> Result<()> {
        for &path in active {
            if let Some(found) = self.found.get_mut(usize::from(path)) {
                *found = None;
            }
        }
        if active.is_empty() {
            return scanner.skip_value();
        }
        let scalar = match scanner.peek()? {
            b'{' => {
                return scanner.object(|scanner, key| {
                    let active = self.deeper(active.iter().copied(), level, |segment| key.is(segment));
                    self.value(scanner, level + 1, &active)
                });
            }
            b'[' => {
                return scanner.array(|scanner, index| {
                    let active = self.deeper(active.iter().copied(), level, |segment| segment.parse() == Ok(index));
                    self.value(scanner, level + 1, &active)
                });
            }
            b'"' => Some(scanner.string()?.get()),
            b't' => scanner.literal(b"true").map(|()| Some("true".into()))?,
            b'f' => scanner.literal(b"false").map(|()| Some("false".into()))?,
            b'-' | b'0'..=b'9' => {
                Some(sprint_number(std::str::from_utf8(scanner.number()?).map_err(|_| CodecError::NotUtf8)?))
            }
            // null, or bytes that are not a JSON value (the scanner reports these as an error).
            _ => scanner.skip_value().map(|()| None)?,
        };
        for &path in active {
            let path = usize::from(path);
            if let (Some(segments), Some(found)) = (self.paths.get(path), self.found.get_mut(path))
                && segments.len() == level
            {
                found.clone_from(&scalar);
            }
        }
        Ok(())
    }

    /// Returns the values in the order of the table.
    pub(super) fn finish(&self) -> impl Iterator<Item = &str> {
        let mut fallbacks = self.found.iter().skip(self.table.labels.len());
        self.table.labels.iter().zip(&self.found).map(move |(field, found)| {
            let fallback = if field.value.fallback.is_some() { fallbacks.next() } else { None };
            match (found.as_deref(), fallback.and_then(Option::as_deref)) {
                (None | Some(""), Some(second)) => second,
                (Some(first), _) => first,
                (None, None) => field.value.missing,
            }
        })
    }

    fn deeper(&self, of: impl Iterator<Item = u16>, level: usize, mut matches: impl FnMut(&str) -> bool) -> Active {
        of.filter(|&path| {
            self.paths.get(usize::from(path)).and_then(|path| path.get(level)).is_some_and(|segment| matches(segment))
        })
        .collect()
    }
}
