use crate::json::Style;
use crate::{Form, ListMetaOut, Shape};
use informerd_meta::{Encoding, FieldTable, Moment, Origin, Resource};

use super::super::columns::Printed;
use super::super::decode::scan_row;
use super::*;
use crate::json::Scanner;

const COLUMNS: &str = r#"[{"name":"Name","type":"string"},{"name":"Age","type":"date"}]"#;
const CREATED: &str = "2024-01-01T00:00:00Z";

fn form(origin: Origin) -> Form {
    let style = if origin == Origin::BuiltIn { Style::Stripped } else { Style::Inline };
    let resource = Resource { origin, ..Resource::simple("", "leases", "Lease") };
    let columns = Columns::new(&resource, &COLUMNS.into()).unwrap();
    Form::new(Encoding::Table, style, "v1", "Lease", "LeaseList").with_columns(Arc::new(columns))
}

/// A row that was printed five minutes after the object was created. Its relative times are resolved.
fn row(form: &Form, text: &str) -> Object {
    let mut object = scan_row(&mut Scanner::new(text.as_bytes()), &FieldTable::default()).unwrap().0;
    let at = now(300);
    form.columns().unwrap().resolve(&mut object, Printed { earliest: at, latest: at }).unwrap();
    object
}

fn now(after: i64) -> Moment {
    Moment::parse(CREATED).unwrap().plus(after)
}

fn shape(include: Include, after: i64) -> Shape {
    Shape::Table(TableShape { include, now: now(after), ..TableShape::default() })
}

fn text(slices: Slices) -> String {
    String::from_utf8(slices.into_bytes().to_vec()).unwrap()
}

const BUILTIN: &str = r#"{"cells":["l","5m"],"conditions":[{"type":"Completed"}],"object":{"kind":"Lease","apiVersion":"v1","metadata":{"name":"l","resourceVersion":"7","creationTimestamp":"2024-01-01T00:00:00Z"},"spec":{"x":1}}}"#;
const CUSTOM: &str = r#"{"cells":["l","5m"],"object":{"apiVersion":"v1","kind":"Lease","metadata":{"creationTimestamp":"2024-01-01T00:00:00Z","name":"l","resourceVersion":"7"},"spec":{"x":1}}}"#;

fn custom() -> Origin {
    Origin::Custom { selectable: [].into(), columns: [].into(), definition: "".into() }
}

#[test]
fn metadata_of_custom_resources_is_put_into_order() {
    let form = form(custom());
    let object = row(&form, CUSTOM);
    assert_eq!(text(form.list_item(&object, shape(Include::Object, 300), true).unwrap()), CUSTOM);
    let partial = r#"{"cells":["l","5m"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","metadata":{"name":"l","resourceVersion":"7","creationTimestamp":"2024-01-01T00:00:00Z"}}}"#;
    let shape = TableShape { v1beta1: true, now: now(300), ..TableShape::default() };
    assert_eq!(text(form.list_item(&object, Shape::Table(shape), true).unwrap()), partial);
}

#[test]
fn the_objects_of_rows_are_written_as_those_of_a_list() {
    let form = Arc::new(form(Origin::BuiltIn));
    let (object, objects) = (row(&form, BUILTIN), form.objects());
    let plain = Form::new(Encoding::Json, Style::Stripped, "v1", "Lease", "LeaseList");
    let listed = json::parse_item(
        br#"{"metadata":{"name":"l","resourceVersion":"7","creationTimestamp":"2024-01-01T00:00:00Z"},"spec":{"x":1}}"#,
        &FieldTable::default(),
    );
    let listed = listed.unwrap().0;
    let meta = ListMetaOut { rv: ResourceVersion(9), ..ListMetaOut::default() };
    for shape in [Shape::Full, Shape::PartialObjectMetadata] {
        assert_eq!(text(objects.list_head(shape, &meta, false)), text(plain.list_head(shape, &meta, false)));
        assert_eq!(
            text(objects.list_item(&object, shape, true).unwrap()),
            text(plain.list_item(&listed, shape, true).unwrap())
        );
        assert_eq!(
            text(objects.object_body(&object, shape).unwrap()),
            text(plain.object_body(&listed, shape).unwrap())
        );
        let event = |form: &Form, object| text(form.event_frame(EventType::Added, object, None, shape).unwrap());
        assert_eq!(event(&objects, &object), event(&plain, &listed));
        let template = br#"{"kind":"Lease","apiVersion":"v1","metadata":{"resourceVersion":"3"},"spec":{}}"#;
        let in_row = [&b"{\"cells\":[\"\"],\"object\":"[..], template, b"}"].concat().into();
        let bookmark = |form: &Form, template| form.bookmark_frame(Some(template), ResourceVersion(9), true, shape);
        assert_eq!(bookmark(&objects, &in_row), bookmark(&plain, &Bytes::from_static(template)));
    }
}

#[test]
fn the_parameter_is_read_as_the_apiserver_reads_it() {
    for (text, include) in [("None", Include::None), ("Metadata", Include::Metadata), ("Object", Include::Object)] {
        assert_eq!(Include::parse(text), Some(include));
    }
    assert_eq!((Include::parse(""), Include::parse("object")), (Some(Include::Metadata), None));
}
