//! The resource whose objects the decoders read, its selectable fields, and the bytes of its objects.

use std::sync::LazyLock;

use bytes::Bytes;
use informerd::codec::Slices;
use informerd::meta::{Damaged, FieldTable, Gvr, Object, Origin, Raw, Resource, Verbs};
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

pub fn raw(object: &Object) -> Raw {
    object.raw().expect("its bytes")
}

/// What is written of an object.
pub fn bytes(written: Result<Slices, Damaged>) -> Bytes {
    written.expect("its bytes").into_bytes()
}

/// The value of a selectable field of an object that was read with this table.
pub fn field<'o>(object: &'o Object, label: &str) -> &'o str {
    object.attributes.field(table().index_of(label).expect("a label of pods"))
}
