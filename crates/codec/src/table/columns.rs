//! The columns of one resource's tables, and the meaning of their cells.
//!
//! The apiserver prints every row. Cells with a relative time, such as an age, are correct only at the moment of
//! printing, so informerd prints them again whenever it serves a row. For built-in types, these columns are known.
//! For custom resources, the definition states them. Every row is checked: a received cell must equal what informerd
//! would have printed, and no cell of an unknown column may look like a relative time.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use smallvec::SmallVec;

use crate::json::Scanner;
use informerd_meta::{Gvr, Hole, Moment, Object, Origin, PrinterColumn, Resource};

use super::human::{looks_relative, push_human};
use super::path::Path;
use super::times::{CellTime, Time, is_static};

/// The columns of one resource.
#[derive(Clone, Debug)]
pub struct Columns {
    /// The whole member `columnDefinitions` as the apiserver writes it.
    definitions: Bytes,
    columns: Vec<Column>,
    /// A table without rows has `rows: null` rather than an empty array.
    pub(super) null_when_empty: bool,
    /// Every event of a watch carries the column definitions, not only the first event.
    pub(super) in_every_event: bool,
}

#[derive(Clone, Debug)]
struct Column {
    name: Box<str>,
    cell: Cell,
}

/// What the cells of one column contain.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cell {
    /// Nothing that depends on the current time.
    Static,
    /// The column is not known here.
    Unknown,
    Time(Time),
}

/// The period in which something was printed, by the local clock.
#[derive(Clone, Copy, Debug)]
pub struct Printed {
    pub earliest: Moment,
    pub latest: Moment,
}

/// A cell, or the column definitions, that informerd cannot print as the apiserver does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unprintable {
    #[error("column {column} of {object} says {cell}, which informerd cannot print again")]
    Cell { column: String, object: String, cell: String },
    #[error("the columns are not those of the definition")]
    Definition,
    #[error("the columns have changed")]
    Changed,
    #[error("not a row of {0} cells")]
    Row(usize),
}

#[derive(Deserialize)]
struct Definition<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

/// The number of seconds that are tried one by one to find the moment at which a cell was printed.
const TRIED: i64 = 900;

// === impl Columns ===

impl Columns {
    /// `definitions` is the `columnDefinitions` member of a table.
    ///
    /// # Errors
    /// When the definitions are invalid or do not match the definition of the resource, or when that definition has a
    /// date column with an unsupported path.
    pub fn new(resource: &Resource, definitions: &Bytes) -> Result<Self, Unprintable> {
        let columns: Vec<Definition<'_>> = serde_json::from_slice(definitions).map_err(|_| Unprintable::Definition)?;
        let default = matches!(&*columns, [name, created] if name.name == "Name" && created.name == "Created At");
        let (cells, null_when_empty) = match &resource.origin {
            Origin::Custom { columns: asked, .. } => (custom(asked, &columns)?, false),
            Origin::BuiltIn => {
                let cell = |column: &Definition<'_>| match Time::of(&resource.gvr, &column.name) {
                    Some(time) => Cell::Time(time),
                    None if is_static(&column.name) => Cell::Static,
                    None => Cell::Unknown,
                };
                // The printer of definitions has columns of its own from Kubernetes 1.37 on.
                let definitions = resource.gvr.group_resource() == "customresourcedefinitions.apiextensions.k8s.io";
                (columns.iter().map(cell).collect::<Vec<_>>(), default || definitions)
            }
            Origin::Unknown => return Err(Unprintable::Definition),
        };
        let named = columns.iter().zip(cells).map(|(column, cell)| Column { name: (&*column.name).into(), cell });
        let mut named: Vec<_> = named.collect();
        if is_missing_age(&resource.gvr, &named) {
            named.push(Column { name: "Age".into(), cell: Cell::Time(Time::Creation) });
        }
        // The printer of APIServices ignores the table options.
        let in_every_event = resource.gvr.group_resource() == "apiservices.apiregistration.k8s.io";
        Ok(Self { columns: named, null_when_empty, in_every_event, definitions: definitions.clone() })
    }

    pub fn definitions(&self) -> &Bytes {
        &self.definitions
    }

    /// Finds the relative times in the cells of a row that was just received.
    ///
    /// # Errors
    /// When a cell differs from what informerd would have printed at that moment.
    pub fn resolve(&self, object: &mut Object, printed: Printed) -> Result<(), Unprintable> {
        let holes = match object.row() {
            Some(row) => {
                let (start, end) = (row.cells.start as usize, row.cells.end as usize);
                let cells = row.head.get(start..end).unwrap_or_default();
                self.holes(object, cells, row.cells.start, printed)?
            }
            None => return Err(Unprintable::Row(self.columns.len())),
        };
        object.set_holes(holes);
        Ok(())
    }

    /// `offset` is the start of the cells in the row.
    fn holes(
        &self,
        object: &Object,
        cells: &[u8],
        offset: u32,
        printed: Printed,
    ) -> Result<SmallVec<[Hole; 2]>, Unprintable> {
        let mut holes = SmallVec::new();
        let mut whole: Option<Value> = None;
        let (mut seen, mut unprintable) = (0, None);
        let scanned = Scanner::new(cells).array(|scanner, index| {
            let start = scanner.position();
            scanner.skip_value()?;
            let text = scanner.since(start);
            seen = index + 1;
            let Some(Column { name, cell: kind }) = self.columns.get(index) else { return Ok(()) };
            if *kind == Cell::Static || unprintable.is_some() || text.first() != Some(&b'"') {
                return Ok(());
            }
            let cell = serde_json::from_slice::<String>(text).unwrap_or_default();
            let (told, part) = match kind {
                Cell::Static | Cell::Unknown => (CellTime::Nothing, None),
                Cell::Time(time) => match time.part(&cell) {
                    None => (CellTime::Nothing, None),
                    part if time.is_of_metadata() => (creation(object), part),
                    part => (time.find(whole.get_or_insert_with(|| parsed(object))), part),
                },
            };
            // A date column of a custom resource contains this for a value that is not a time.
            let no_time = cell == "<invalid>" && matches!(kind, Cell::Time(Time::At(_)));
            // A part can be located only in a cell without escapes. `<invalid>` has escapes, but it is always the
            // whole cell.
            let is_found = part.is_some_and(|part| part == cell || text.len() == cell.len() + 2);
            match (told, part) {
                (CellTime::At(moment), Some(part)) if is_found && printed.says(part, moment) => {
                    let within = if part == cell { 1..text.len() - 1 } else { place(&cell, part) };
                    let at = |place: usize| u32::try_from(start + place).unwrap_or(u32::MAX).saturating_add(offset);
                    holes.push(Hole { at: at(within.start)..at(within.end), moment });
                }
                (CellTime::Over, _) => {}
                (CellTime::Nothing, _) if no_time || !looks_relative(&cell) => {}
                (CellTime::At(_) | CellTime::Nothing, _) => {
                    let (column, object) = (name.to_string(), object.key.as_str().to_owned());
                    unprintable = Some(Unprintable::Cell { column, object, cell });
                }
            }
            Ok(())
        });
        match (scanned, unprintable) {
            (Ok(()), None) if seen == self.columns.len() => Ok(holes),
            (_, Some(unprintable)) => Err(unprintable),
            _ => Err(Unprintable::Row(self.columns.len())),
        }
    }
}

impl PartialEq for Columns {
    /// For one resource, the definitions determine everything else.
    fn eq(&self, other: &Self) -> bool {
        self.definitions == other.definitions
    }
}

impl Eq for Columns {}

/// For IPAddresses, the apiserver prints the age but omits its column definition.
fn is_missing_age(gvr: &Gvr, columns: &[Column]) -> bool {
    let is_age = |column: &Column| column.cell == Cell::Time(Time::Creation);
    (&*gvr.group, &*gvr.resource) == ("networking.k8s.io", "ipaddresses") && !columns.iter().any(is_age)
}

/// The name comes first. The columns of the definition follow; without any, the age follows.
fn custom(asked: &[PrinterColumn], columns: &[Definition<'_>]) -> Result<Vec<Cell>, Unprintable> {
    let age;
    let asked = if asked.is_empty() {
        age = [PrinterColumn {
            name: "Age".into(),
            kind: "date".into(),
            json_path: Arc::from(".metadata.creationTimestamp"),
        }];
        &age
    } else {
        asked
    };
    if columns.len() != asked.len() + 1 {
        return Err(Unprintable::Definition);
    }
    let mut cells = vec![Cell::Static];
    for (asked, column) in asked.iter().zip(columns.iter().skip(1)) {
        if *asked.name != *column.name || *asked.kind != *column.kind {
            return Err(Unprintable::Definition);
        }
        cells.push(match (&*asked.kind, &*asked.json_path) {
            ("date", ".metadata.creationTimestamp") => Cell::Time(Time::Creation),
            ("date", path) => Cell::Time(Time::At(Path::parse(path).ok_or(Unprintable::Definition)?)),
            // Their contents come only from the object.
            _ => Cell::Static,
        });
    }
    Ok(cells)
}

fn creation(object: &Object) -> CellTime {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata<'a> {
        #[serde(borrow, default)]
        creation_timestamp: Option<Cow<'a, str>>,
    }
    // It has just come, so its bytes are there.
    let metadata = object.raw_for_upkeep().map(|raw| raw.metadata()).unwrap_or_default();
    let metadata = serde_json::from_slice::<Metadata<'_>>(&metadata).ok();
    let text = metadata.and_then(|metadata| metadata.creation_timestamp);
    text.and_then(|text| Moment::parse(&text))
        .filter(|moment| !moment.is_zero())
        .map_or(CellTime::Nothing, CellTime::At)
}

fn parsed(object: &Object) -> Value {
    let item = object.raw_for_upkeep().map(|raw| raw.item()).unwrap_or_default();
    serde_json::from_slice(&item).unwrap_or_default()
}

/// The position of a part in the JSON of a cell without escapes.
fn place(cell: &str, part: &str) -> std::ops::Range<usize> {
    let start = part.as_ptr() as usize - cell.as_ptr() as usize;
    start + 1..start + 1 + part.len()
}

// === impl Printed ===

impl Printed {
    /// For something that arrived now, and was requested or sent no earlier than `asked`. A clock difference of two
    /// seconds is allowed, because the apiserver itself tolerates as much.
    pub fn after(asked: Moment) -> Self {
        Self { earliest: asked.plus(-2), latest: Moment::now().plus(2) }
    }

    /// Whether `part` is the text for `moment` at any time in the period.
    fn says(self, part: &str, moment: Moment) -> bool {
        let (mut said, wanted) = (String::new(), part.replace('<', "\\u003c").replace('>', "\\u003e"));
        let mut at = self.latest;
        for _ in 0..TRIED {
            said.clear();
            push_human(&mut said, at.since(moment));
            if said == wanted {
                return true;
            }
            if at < self.earliest {
                return false;
            }
            at = at.plus(-1);
        }
        false
    }
}

#[cfg(test)]
#[path = "columns_tests.rs"]
mod tests;
