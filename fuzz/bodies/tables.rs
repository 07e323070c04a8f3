//! A table that arrives in chunks, against the same table as serde_json reads it. At the time at which its rows were
//! printed they say what came; at any other time they differ in nothing but the times.
//!
//! Deliberate differences from Go's decoder are those of one object and of a list (see `json_item` and `json_list`), and that a
//! row has cells and an object once each, the cells first, as the apiserver writes them.

use std::sync::{Arc, LazyLock};

use informerd::codec::json::{ListMeta, Style, TypeMeta};
use informerd::codec::table::{Columns, Include, Printed, TableShape};
use informerd::codec::{CodecError, Form, ListDecoder, Shape};
use informerd::meta::{Encoding, Moment, Object};

use super::durations::length;
use super::input::{Input, all};
use super::json::{Json, is_beyond, is_valid};
use super::json_item::Expected;
use super::json_list::Head;
use super::pods::{resource, table};

const COLUMNS: &str = r#"[{"name":"Name","type":"string"},{"name":"Ready","type":"string"},{"name":"Restarts","type":"string"},{"name":"Age","type":"string"},{"name":"New","type":"string"}]"#;

static FORM: LazyLock<Arc<Form>> = LazyLock::new(|| {
    let columns = Columns::new(resource(), &COLUMNS.into()).expect("columns");
    let form = Form::new(Encoding::Table, Style::Stripped, "v1", "Pod", "PodList");
    Arc::new(form.with_columns(Arc::new(columns)))
});

static NOW: LazyLock<Moment> = LazyLock::new(|| Moment::parse("2026-01-01T00:00:00Z").expect("a moment"));

pub fn check(data: &[u8]) {
    let Some(input) = Input::of(data) else { return };
    let (rows, end) = input.decoded(decode);
    if is_beyond(&end, input.bytes) {
        return;
    }
    assert!(end.is_err() || is_valid(input.bytes), "a table that is no JSON");
    let Some(json) = Json::read(input.bytes) else { return };
    match (&end, Head::of(&json, "rows", row)) {
        (Ok(end), Ok(expected)) => {
            assert_eq!(rows.len(), expected.items.len());
            expected.compare(end);
        }
        (Err(_), Err(_)) => {}
        (end, expected) => panic!("{end:?}, but {expected:?}"),
    }
    // The rows before one that is refused are read.
    let Ok(Some(Json::Array(expected))) = json.once("rows") else { return };
    for ((object, type_meta), json) in rows.into_iter().zip(expected) {
        let (Ok(Some(cells)), Ok(Some(inner))) = (json.once("cells"), json.once("object")) else { panic!("no row") };
        Expected::of(inner).expect("an object").compare(&object, &type_meta);
        printed(object, json, cells);
    }
}

fn row(json: &Json) -> Result<Expected<'_>, &'static str> {
    let (Ok(Some(_)), Ok(Some(object))) = (json.once("cells"), json.once("object")) else { return Err("no row") };
    let first = json.members().unwrap_or_default().iter().find(|(name, _)| matches!(&**name, "cells" | "object"));
    if first.is_some_and(|(name, _)| name == "cells") { Expected::of(object) } else { Err("cells behind an object") }
}

type Decoded = (Vec<(Object, TypeMeta)>, Result<ListMeta, CodecError>);

fn decode(chunks: &[bytes::Bytes], limit: usize) -> Decoded {
    let mut decoder = ListDecoder::new(Encoding::Table, limit, table().clone());
    let (rows, end) = all(chunks, |chunk| {
        chunk.into_iter().for_each(|chunk| decoder.push(chunk));
        decoder.next()
    });
    (rows, end.and_then(|()| decoder.finish()))
}

fn printed(mut object: Object, json: &Json, cells: &Json) {
    let Some(columns) = FORM.columns() else { panic!("no columns") };
    if columns.resolve(&mut object, Printed { earliest: *NOW, latest: *NOW }).is_err() {
        return;
    }
    // Whoever asks a second before gets the same cells, or younger ones.
    let at = |seconds: i64, include| {
        let shape = TableShape { include, now: NOW.plus(seconds), ..TableShape::default() };
        let row = FORM.list_item(&object, Shape::Table(shape), true).expect("its bytes").into_bytes();
        Json::read(&row).unwrap_or_else(|| panic!("a row that is no JSON: {:?}", String::from_utf8_lossy(&row)))
    };
    let Json::Array(cells) = cells else { panic!("cells of another kind") };
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
    let inner = |text: &str| match text
        .split_once(" (")
        .and_then(|(count, rest)| Some((count.to_owned(), rest.strip_suffix(" ago)")?.to_owned())))
    {
        Some((count, duration)) => (count, duration),
        None => (String::new(), text.to_owned()),
    };
    let ((count, came), (later_count, later)) = (inner(came), inner(later));
    assert_eq!(count, later_count);
    let (came, later) = (length(&came), length(&later));
    assert!(later.is_some() && came.is_some(), "{came:?} became {later:?}");
}
