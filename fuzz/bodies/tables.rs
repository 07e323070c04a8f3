//! A table that arrives in chunks, against the same table as serde_json reads it. At the time at which its rows were
//! printed they say what came; at any other time they differ in nothing but the times.
//!
//! The first byte chooses the columns. What may be refused, and why, is listed in `faults`.

use std::sync::{Arc, LazyLock};

use informerd::codec::table::{Include, Printed, TableShape};
use informerd::codec::{CodecError, Form, Shape};
use informerd::meta::{Encoding, Moment, Object};

use super::columns::form;
use super::faults::{Faults, Why};
use super::json::Json;
use super::json_item::Expected;
use super::json_list::check_items;
use super::pods::bytes;

static NOW: LazyLock<Moment> = LazyLock::new(|| Moment::parse("2026-01-01T00:00:00Z").expect("a moment"));

pub fn check(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    check_items(data, Encoding::Table, "rows", row, |object, json| printed(form(*first), object, json));
}

fn row(json: &Json) -> Result<Expected<'_>, Faults> {
    let mut faults = Faults::default();
    if !faults.is_object(json) {
        return Err(faults);
    }
    for name in ["cells", "object"] {
        match json.named(name).count() {
            0 => faults.push(CodecError::Missing(name), Why::Missing),
            1 => {}
            _ => faults.push(CodecError::Duplicate("a member of a row"), Why::Twice),
        }
    }
    let mut names = json.members().unwrap_or_default().iter().map(|(name, _)| name.as_str());
    if names.find(|name| matches!(*name, "cells" | "object")) == Some("object") {
        faults.push(CodecError::Invalid("cells"), Why::Order);
    }
    // The object is read behind the cells.
    faults.or(())?;
    Expected::of(json.get("object").unwrap_or(json))
}

fn printed(form: &Arc<Form>, mut object: Object, json: &Json) {
    let columns = form.columns().expect("columns");
    // What is deep is text, and it is less deep in a row than in its table.
    if columns.resolve(&mut object, Printed { earliest: *NOW, latest: *NOW }).is_err() || !json.is_whole() {
        return;
    }
    // Whoever asks a second before gets the same cells, or younger ones.
    let at = |seconds: i64, include| {
        let shape = TableShape { include, now: NOW.plus(seconds), ..TableShape::default() };
        let row = bytes(form.list_item(&object, Shape::Table(shape), true));
        Json::read(&row).unwrap_or_else(|| panic!("a row that is no JSON: {:?}", String::from_utf8_lossy(&row)))
    };
    let cells = cells_of(json);
    // What was printed within the last second was printed then.
    let candidates = [at(0, Include::None), at(-1, Include::None)];
    for (index, cell) in cells.iter().enumerate() {
        let says = |row: &Json| cells_of(row)[index].text() == cell.text() && same_kind(&cells_of(row)[index], cell);
        assert!(candidates.iter().any(says), "cell {index} of {candidates:?} is not {cell:?}");
    }
    let later = at(86_400 * 400, Include::Object);
    assert_eq!(cells_of(&later).len(), cells.len());
    for (came, later) in cells.iter().zip(cells_of(&later)) {
        if came != later {
            let (Some(came), Some(later)) = (came.text(), later.text()) else { panic!("{came:?} became {later:?}") };
            is_aged(came, later);
        }
    }
    let names =
        |json: &Json| json.members().unwrap_or_default().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&later), names(json));
    assert_eq!(
        later.get("object").and_then(|object| object.get("metadata")),
        json.get("object").and_then(|object| object.get("metadata"))
    );
}

fn cells_of(row: &Json) -> &[Json] {
    match row.get("cells") {
        Some(Json::Array(cells)) => cells,
        other => panic!("no cells: {other:?}"),
    }
}

fn same_kind(one: &Json, other: &Json) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

/// A cell differs from what it said earlier in one duration.
fn is_aged(came: &str, later: &str) {
    let ((count, ago), (later_count, later_ago)) = (parts(came), parts(later));
    assert_eq!(count, later_count);
    assert!(is_duration(ago) && is_duration(later_ago), "{came:?} became {later:?}");
}

/// A count, if there is one, and how long ago.
fn parts(cell: &str) -> (&str, &str) {
    let counted = cell.split_once(" (").and_then(|(count, rest)| Some((count, rest.strip_suffix(" ago)")?)));
    counted.unwrap_or(("", cell))
}

fn is_duration(text: &str) -> bool {
    let units = ['s', 'm', 'h', 'd', 'y'];
    let mut counts = text.split_inclusive(units).map(|part| part.strip_suffix(units).unwrap_or_default());
    let is_number = |count: &str| !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    text == "<invalid>" || !text.is_empty() && counts.all(is_number)
}
