//! Decodes tables of the apiserver.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::CodecError;
use crate::error::once;
use crate::json::{Scanner, TypeMeta, compact, parse_item};
use informerd_meta::{FieldTable, Object, Row};

type Result<T> = std::result::Result<T, CodecError>;

/// The positions of the parts of a row.
struct Parts {
    cells: std::ops::Range<usize>,
    object: std::ops::Range<usize>,
    len: usize,
    spaced: bool,
}

/// Parses the row at the scanner's position and moves the scanner past it. The row must contain its object.
pub(crate) fn scan_row(scanner: &mut Scanner<'_>, table: &FieldTable) -> Result<(Object, TypeMeta)> {
    let start = scanner.position();
    let mut inner = scanner.clone_here();
    let parts = Parts::scan(&mut inner)?;
    scanner.rewind(start + parts.len);
    let bytes = inner.since(0);
    if parts.spaced {
        let bytes = compact(bytes);
        let parts = Parts::scan(&mut Scanner::new(&bytes))?;
        return build(&bytes, &parts, table);
    }
    build(bytes, &parts, table)
}

/// Splits a row into the bytes before its object, the object, and the bytes after it.
pub(crate) fn split(row: &Bytes) -> Result<(Bytes, Bytes, Bytes)> {
    let parts = Parts::scan(&mut Scanner::new(row))?;
    Ok((row.slice(..parts.object.start), row.slice(parts.object.clone()), row.slice(parts.object.end..)))
}

/// The object of a row, without the rest.
pub(crate) fn object_of(row: &Bytes) -> Option<Bytes> {
    split(row).ok().map(|(_, object, _)| object)
}

/// The only row of a table, and the column definitions if the table has any.
pub(crate) fn only_row<'a>(table: &'a [u8]) -> Result<(Option<&'a [u8]>, &'a [u8])> {
    let mut scanner = Scanner::new(table);
    let (mut columns, mut rows) = (None, SmallVec::<[&[u8]; 1]>::new());
    scanner.object(|scanner, key| {
        if key.is("rows") && scanner.peek()? == b'[' {
            return scanner.array(|scanner, _| {
                let start = scanner.position();
                scanner.skip_value()?;
                rows.push(scanner.since(start));
                Ok(())
            });
        }
        let start = scanner.position();
        scanner.skip_value()?;
        if key.is("columnDefinitions") {
            columns = Some(scanner.since(start)).filter(|columns: &&'a [u8]| columns.first() == Some(&b'['));
        }
        Ok(())
    })?;
    scanner.end()?;
    match *rows {
        [row] => Ok((columns, row)),
        _ => Err(CodecError::Invalid("rows of a watch event")),
    }
}

fn build(bytes: &[u8], parts: &Parts, table: &FieldTable) -> Result<(Object, TypeMeta)> {
    let part = |range: std::ops::Range<usize>| bytes.get(range).unwrap_or_default();
    let (object, type_meta) = parse_item(part(parts.object.clone()), table)?;
    let (head, tail) = (part(0..parts.object.start), part(parts.object.end..bytes.len()));
    let position = |at: usize| u32::try_from(at).map_err(|_| CodecError::Invalid("cells"));
    // Put both into one allocation.
    let text = Bytes::from([head, tail].concat());
    let row = Row {
        head: text.slice(..head.len()),
        tail: text.slice(head.len()..),
        cells: position(parts.cells.start)?..position(parts.cells.end)?,
        holes: SmallVec::new(),
    };
    Ok((object.with_row(row), type_meta))
}

// === impl Parts ===

impl Parts {
    fn scan(scanner: &mut Scanner<'_>) -> Result<Self> {
        let (mut cells, mut object) = (None, None);
        scanner.object(|scanner, key| {
            let start = scanner.position();
            scanner.skip_value()?;
            let slot = match () {
                () if key.is("cells") => &mut cells,
                () if key.is("object") => &mut object,
                () => return Ok(()),
            };
            once(slot, start..scanner.position(), "a member of a row")
        })?;
        let cells = cells.ok_or(CodecError::Missing("cells"))?;
        let object = object.ok_or(CodecError::Missing("object"))?;
        if cells.start > object.start {
            return Err(CodecError::Invalid("cells"));
        }
        Ok(Self { cells, object, len: scanner.position(), spaced: scanner.saw_spaces() })
    }
}
