//! The resource whose objects the decoders read, and its selectable fields.

use std::sync::LazyLock;

use informerd::meta::{FieldTable, Gvr, Object, Origin, Resource, Verbs};
use informerd::selector::field_table;

static RESOURCE: LazyLock<Resource> = LazyLock::new(|| Resource {
    gvr: Gvr::new("", "v1", "pods"),
    kind: "Pod".into(),
    namespaced: true,
    verbs: Verbs::default(),
    origin: Origin::BuiltIn,
});

static TABLE: LazyLock<FieldTable> = LazyLock::new(|| field_table(&RESOURCE));

pub fn resource() -> &'static Resource {
    &RESOURCE
}

pub fn table() -> &'static FieldTable {
    &TABLE
}

/// The value of a selectable field of an object that was read with this table.
pub fn field<'o>(object: &'o Object, label: &str) -> &'o str {
    object.attributes.field(table().index_of(label).expect("a label of pods"))
}
