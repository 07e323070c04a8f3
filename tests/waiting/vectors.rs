//! What is read and written here, byte for byte against what the apiserver's own code makes of random objects of every type
//! that it can serve (`judge vectors`): its storages, conversions, encoders, watches and discovery, on objects instead of etcd.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use informerd::apiserver::discovery::read_aggregated;
use informerd::codec::json::{ListMeta, Style, WatchFrame, parse_item};
use informerd::codec::table::{Columns, Include, Printed, TableShape, Unprintable};
use informerd::codec::{CodecError, Form, ListDecoder, ListMetaOut, Shape, Slices, WatchDecoder, has_owner};
use informerd::meta::{Encoding, EventType, FieldTable, Gvr, Moment, Object, Origin, Resource, ResourceVersion, Verbs};
use informerd::selector::{FieldSelector, field_table, types_with_fields};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::process::{judge, run, tied};

/// What the apiserver serves, and no cache can hold: the resource, the name as JSON has it, the error, and why.
const REFUSED: [(&str, &str, CodecError, &str); 1] = [(
    "roles",
    "a\u{fffd}b",
    CodecError::Invalid("metadata.name"),
    "in JSON, U+FFFD may stand for any byte: two objects could have the same key",
)];

pub(super) const JSON: &str = "application/json";
pub(super) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(super) const SHAPES: [Shape; 3] = [Shape::Full, Shape::PartialObjectMetadata, Shape::PartialObjectMetadataV1beta1];

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Answer {
        path: String,
        accept: String,
        status: u16,
        len: usize,
    },
    Type {
        group: String,
        version: String,
        resource: String,
        kind: String,
        namespaced: bool,
        /// By label: the value in each object, in base64.
        fields: BTreeMap<String, Vec<String>>,
        /// By label that selects nothing: the error.
        refused: BTreeMap<String, String>,
        triggers: Vec<String>,
    },
}

pub(super) type Answers = BTreeMap<(String, String), Vec<Bytes>>;

/// One version of a type, and all answers about it.
pub(super) struct Type {
    pub(super) resource: Resource,
    table: FieldTable,
    pub(super) collection: String,
    fields: BTreeMap<String, Vec<String>>,
    refused: BTreeMap<String, String>,
    triggers: Vec<String>,
    answers: Answers,
}

/// One encoding of one type.
struct Encoded<'t> {
    of: &'t Type,
    encoding: Encoding,
    form: Form,
}

/// The types, and the answers about none. A failure is repeated with `INFORMERD_SEED`.
pub(super) async fn vectors() -> &'static (Vec<Type>, Answers) {
    static VECTORS: OnceCell<(Vec<Type>, Answers)> = OnceCell::const_new();
    VECTORS.get_or_init(|| read_vectors(crate::seed(1))).await
}

async fn read_vectors(seed: u64) -> (Vec<Type>, Answers) {
    let mut command = tied::command(judge().await);
    command.args(["vectors", "--seed", &seed.to_string()]);
    let output = run(command, "").await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (mut types, mut general) = (Vec::<Type>::new(), Answers::new());
    let mut rest = Bytes::from(output.stdout);
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = serde_json::from_slice(&rest[..end]).unwrap();
        rest.advance(end + 1);
        match line {
            Line::Answer { path, accept, status, len } => {
                let body = rest.split_to(len);
                assert_eq!(status, 200, "{path} {accept}: {}", String::from_utf8_lossy(&body));
                let of_type = types.last_mut().filter(|found| path.contains(&*found.resource.gvr.resource));
                let answers = of_type.map_or(&mut general, |of| &mut of.answers);
                answers.entry((path, accept)).or_default().push(body);
            }
            Line::Type { group, version, resource, kind, namespaced, fields, refused, triggers } => {
                let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
                let collection = format!("{root}/{version}/{resource}");
                let gvr = Gvr::new(&group, &version, &resource);
                let (kind, verbs, origin) = (kind.as_str().into(), Verbs::default(), Origin::BuiltIn);
                let resource = Resource { gvr, kind, namespaced, verbs, origin };
                let (table, answers) = (field_table(&resource), Answers::new());
                types.push(Type { resource, table, collection, fields, refused, triggers, answers });
            }
        }
    }
    assert!(rest.is_empty());
    (types, general)
}

/// Bytes as Go writes them in JSON: each one of no character is U+FFFD.
fn lossy(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out += chunk.valid();
        out.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
    }
    out
}

#[track_caller]
pub(super) fn assert_same(what: &str, ours: &[u8], theirs: &[u8]) {
    let at = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let around = |bytes: &[u8]| bytes[at.saturating_sub(80)..bytes.len().min(at + 80)].escape_ascii().to_string();
    assert!(ours == theirs, "{what} at byte {at}:\nours   {}\ntheirs {}", around(ours), around(theirs));
}

pub(super) fn media(encoding: Encoding) -> &'static str {
    if encoding == Encoding::Json { JSON } else { PROTOBUF }
}

pub(super) fn accept(encoding: Encoding, shape: Shape, kind: &str) -> String {
    let version = match shape {
        Shape::PartialObjectMetadata => "v1",
        Shape::PartialObjectMetadataV1beta1 => "v1beta1",
        Shape::Full | Shape::Table(_) => return media(encoding).to_owned(),
    };
    format!("{};g=meta.k8s.io;v={version};as=PartialObjectMetadata{kind}", media(encoding))
}

impl Type {
    pub(super) fn answer(&self, path: &str, accept: &str) -> &Bytes {
        let answers = self.answers.get(&(path.to_owned(), accept.to_owned()));
        &answers.unwrap_or_else(|| panic!("no answer to {path} {accept}"))[0]
    }

    pub(super) fn decode(&self, encoding: Encoding, body: &Bytes) -> Result<(Vec<Object>, ListMeta), CodecError> {
        let mut decoder = ListDecoder::new(encoding, usize::MAX, self.table.clone());
        decoder.push(body.clone());
        let mut objects = Vec::new();
        while let Some((object, _)) = decoder.next()? {
            objects.push(object);
        }
        Ok((objects, decoder.finish()?))
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> String {
        let (version, resource) = self.collection.rsplit_once('/').unwrap();
        format!("{version}/namespaces/{namespace}/{resource}")
    }

    /// The labels that select, those that do not, and the values of each object.
    fn check_fields(&self, objects: &[Object]) {
        for (label, values) in &self.fields {
            let what = format!("{} {label}", self.collection);
            let values: Vec<_> = values.iter().map(|value| lossy(&STANDARD.decode(value).unwrap())).collect();
            assert_eq!(values.len(), objects.len(), "{what}");
            for value in values.iter().chain(["some other value".to_owned()].iter()) {
                let fields = FieldSelector::equals(label, value).compile(&self.resource, &self.table);
                if value.contains('\u{fffd}') {
                    // Forwarded: what is compared would be the bytes.
                    fields.expect_err(&what);
                    continue;
                }
                let fields = fields.unwrap_or_else(|error| panic!("{what}: {error}"));
                for (object, own) in objects.iter().zip(&values) {
                    let matches = !fields.matches_nothing() && fields.matches(&object.key, &object.attributes);
                    assert_eq!(matches, own == value, "{what} of {} is {own:?}, not {value:?}", object.key);
                }
            }
            if let Some(index) = self.table.index_of(label) {
                let ours: Vec<_> = objects.iter().map(|object| object.attributes.field(index)).collect();
                assert_eq!(ours, values, "{what}");
            }
        }
        for (label, error) in &self.refused {
            let compiled = FieldSelector::equals(label, "value").compile(&self.resource, &self.table);
            assert_eq!(compiled.as_ref().err(), Some(error), "{} {label}", self.collection);
        }
        let trigger = self.table.trigger.map(|index| self.table.labels[index].label.to_string());
        let triggers: Vec<_> = self.triggers.iter().filter(|label| *label != "metadata.name").cloned().collect();
        assert_eq!(Vec::from_iter(trigger), triggers, "{}", self.collection);
        let known: BTreeSet<_> = self.table.labels.iter().map(|field| field.label.to_string()).collect();
        let served = self.fields.keys().cloned().collect();
        assert!(known.is_subset(&served), "{}: {known:?} of {served:?}", self.collection);
    }
}

impl Encoded<'_> {
    fn list(&self, objects: &[Object], meta: &ListMeta, shape: Shape) -> Bytes {
        let out = ListMetaOut {
            rv: meta.rv,
            continue_token: Some(meta.continue_token.clone()).filter(|token| !token.is_empty()),
            remaining: meta.remaining_item_count,
            items_len: objects.iter().map(|object| self.form.item_len(object, shape).unwrap()).sum(),
            ..ListMetaOut::default()
        };
        let mut written = self.form.list_head(shape, &out, objects.is_empty());
        for (n, object) in objects.iter().enumerate() {
            written.append(self.form.list_item(object, shape, n + 1 == objects.len()).unwrap());
        }
        written.append(self.form.list_tail(shape, &out, objects.is_empty()));
        written.into_bytes()
    }

    fn check_list(&self, path: &str, objects: &[Object], meta: &ListMeta) {
        for shape in SHAPES {
            let theirs = self.of.answer(path, &accept(self.encoding, shape, "List"));
            assert_same(&format!("{path} {shape:?}"), &self.list(objects, meta, shape), theirs);
        }
    }

    fn check_lists(&self, objects: &[Object], meta: &ListMeta) {
        self.check_list(&self.of.collection, objects, meta);
        let path = format!("{}?limit=2", self.of.collection);
        let (page, of_page) = self.of.decode(self.encoding, self.of.answer(&path, media(self.encoding))).unwrap();
        assert_eq!(
            (&*of_page.continue_token, of_page.remaining_item_count),
            ("the<next>", Some(objects.len() as i64 - 2))
        );
        self.check_list(&path, &page, &of_page);
        if self.of.resource.namespaced {
            self.check_list(&self.of.in_namespace("nobody"), &[], meta);
        }
    }

    fn check_object(&self, object: &Object) {
        let (version, name) = self.of.collection.rsplit_once('/').unwrap();
        let path = match object.key.namespace() {
            "" => format!("{version}/{name}/{}", object.key.name()),
            namespace => format!("{version}/namespaces/{namespace}/{name}/{}", object.key.name()),
        };
        for shape in [Shape::Full, Shape::PartialObjectMetadata] {
            let theirs = self.of.answer(&path, &accept(self.encoding, shape, ""));
            assert_same(&path, &self.form.object_body(object, shape).unwrap().into_bytes(), theirs);
        }
    }

    fn frames(&self, stream: &Bytes) -> Vec<WatchFrame> {
        let mut decoder = WatchDecoder::new(self.encoding, usize::MAX, self.of.table.clone());
        decoder.push(stream.clone());
        std::iter::from_fn(|| decoder.next().unwrap()).collect()
    }

    fn stream(&self, frames: &[WatchFrame], shape: Shape) -> Bytes {
        let mut written = Slices::new();
        for (n, frame) in frames.iter().enumerate() {
            let shape = if n == 0 { shape } else { shape.after_first() };
            match frame {
                WatchFrame::Event { kind, object, .. } => {
                    written.append(self.form.event_frame(*kind, object, None, shape).unwrap());
                }
                WatchFrame::Bookmark { rv, initial_events_end, object, .. } => {
                    written.push(self.form.bookmark_frame(Some(object), *rv, *initial_events_end, shape));
                }
                WatchFrame::Error(status) => written.push(self.form.error_frame(status)),
            }
        }
        written.into_bytes()
    }

    fn check_watch(&self, listed: &[Object]) {
        let path = format!("{}?watch=1", self.of.collection);
        let frames = self.frames(self.of.answer(&path, media(self.encoding)));
        let events = frames.iter().filter_map(|frame| match frame {
            WatchFrame::Event { object, .. } => Some((&object.key, object.rv, &object.attributes)),
            WatchFrame::Bookmark { .. } | WatchFrame::Error(_) => None,
        });
        let all = listed.iter().map(|object| (&object.key, object.rv, &object.attributes));
        assert_eq!(events.collect::<Vec<_>>(), all.collect::<Vec<_>>(), "{path}");
        listed.iter().for_each(|object| self.check_leaving(object));
        for shape in SHAPES {
            let theirs = self.of.answer(&path, &accept(self.encoding, shape, ""));
            assert_same(&format!("{path} {shape:?}"), &self.stream(&frames, shape), theirs);
        }
    }

    /// An object with another revision is the same but for that.
    fn check_leaving(&self, object: &Object) {
        let write = |object: &Object, rv| self.form.event_frame(EventType::Deleted, object, rv, Shape::Full).unwrap();
        for rv in [7, 123_456_789_012] {
            let mut decoder = WatchDecoder::new(self.encoding, usize::MAX, self.of.table.clone());
            decoder.push(write(object, Some(ResourceVersion(rv))).into_bytes());
            let Ok(Some(WatchFrame::Event { object: left, .. })) = decoder.next() else { panic!("{}", object.key) };
            assert_eq!((&left.key, left.rv.get(), &left.attributes), (&object.key, rv, &object.attributes));
            assert_same(
                object.key.as_str(),
                &write(&left, Some(object.rv)).into_bytes(),
                &write(object, None).into_bytes(),
            );
        }
    }
}

/// The key, the revision, the uid and the labels of each object, as serde_json reads them.
fn check_attributes(objects: &[Object], list: &Bytes) {
    let list: Value = serde_json::from_str(&lossy(list)).unwrap();
    let items = list["items"].as_array().unwrap();
    assert_eq!(objects.len(), items.len());
    for (object, item) in objects.iter().zip(items) {
        let metadata = &item["metadata"];
        let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
        assert_eq!((object.key.namespace(), object.key.name()), (&*text("namespace"), &*text("name")));
        assert_eq!((object.rv.to_string(), object.attributes.uid()), (text("resourceVersion"), &*text("uid")));
        let mut owners = Vec::new();
        has_owner(object, |uid| {
            owners.push(uid.to_owned());
            false
        });
        let uids = metadata["ownerReferences"].as_array().into_iter().flatten();
        assert_eq!(owners, uids.map(|owner| owner["uid"].as_str().unwrap().to_owned()).collect::<Vec<_>>());
        let labels: BTreeMap<String, String> = serde_json::from_value(
            metadata.get("labels").cloned().unwrap_or_else(|| Value::Object(Default::default())),
        )
        .unwrap();
        assert!(object.attributes.labels().eq(labels.iter().map(|(key, value)| (&**key, &**value))), "{}", object.key);
    }
}

fn check(of: &Type, met: &mut BTreeSet<usize>) {
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let (objects, meta) = of.decode(encoding, of.answer(&of.collection, media(encoding))).unwrap();
        check_attributes(&objects, of.answer(&of.collection, JSON));
        of.check_fields(&objects);
        let form = Form::new(encoding, meta.style, &meta.api_version, &of.resource.kind, &meta.list_kind);
        assert_eq!((meta.style, &*meta.api_version), (Style::Stripped, &*of.resource.gvr.api_version()));
        let encoded = Encoded { of, encoding, form };
        encoded.check_lists(&objects, &meta);
        encoded.check_object(&objects[0]);
        encoded.check_watch(&objects);
        let refused = (of.in_namespace("refused"), media(encoding).to_owned());
        for list in of.answers.get(&refused).into_iter().flatten() {
            let error = of.decode(encoding, list).unwrap_err();
            let is_listed = |(resource, name, listed, _): &(&str, &str, CodecError, &str)| {
                *resource == &*of.resource.gvr.resource && lossy(list).contains(name) && *listed == error
            };
            let listed = REFUSED.iter().position(is_listed);
            met.insert(listed.unwrap_or_else(|| panic!("{refused:?}: {error}, for no reason that is listed")));
        }
    }
}

/// The printer of the first fails for objects that are not valid, and in the second a time that is missing is now.
const UNPRINTED: [&str; 2] = ["podgroups.scheduling.k8s.io", "devicetaintrules.resource.k8s.io"];

/// Rows of tables, in which ages are printed again. False if they are forwarded.
fn check_tables(of: &Type) -> bool {
    let answer = |watch: &str, include: Include| {
        let path = format!("{}?{watch}includeObject={include:?}", of.collection);
        of.answer(&path, &format!("{JSON};g=meta.k8s.io;v=v1;as=Table"))
    };
    let (mut objects, meta) = of.decode(Encoding::Table, answer("", Include::Object)).unwrap();
    let columns = Columns::new(&of.resource, meta.columns.as_ref().unwrap()).unwrap();
    // Ages are of years, so what was printed some minutes ago says the same now.
    let now = Moment::now();
    let resolve = |object: &mut Object| columns.resolve(object, Printed { earliest: now.plus(-600), latest: now });
    for object in &mut objects {
        match resolve(object) {
            Ok(()) => {}
            // With escapes in the cell, a part of it is not looked for: such tables are forwarded.
            Err(Unprintable::Cell { cell, .. }) if cell.ends_with("(<invalid> ago)") => return false,
            Err(error) => panic!("{}: {error}", of.collection),
        }
    }
    let form =
        Form::new(Encoding::Table, meta.style, &of.resource.gvr.api_version(), &of.resource.kind, &meta.list_kind);
    let form = form.with_columns(Arc::new(columns.clone()));
    let encoded = Encoded { of, encoding: Encoding::Table, form };
    let mut frames = encoded.frames(answer("watch=1&", Include::Object));
    for frame in &mut frames {
        if let WatchFrame::Event { object, .. } = frame {
            resolve(object).unwrap();
        }
    }
    for include in [Include::None, Include::Metadata, Include::Object] {
        let shape = Shape::Table(TableShape { include, now, ..TableShape::default() });
        let what = format!("{} {include:?}", of.collection);
        assert_same(&what, &encoded.list(&objects, &meta, shape), answer("", include));
        assert_same(&what, &encoded.stream(&frames, shape), answer("watch=1&", include));
    }
    true
}

/// Values that are all the same would not tell one field from another.
fn assert_discriminating(types: &[Type]) {
    let mut poor: BTreeSet<_> =
        types_with_fields().map(|(group, resource)| format!("{resource}.{group} is not served")).collect();
    let mut seen: BTreeMap<(String, String), BTreeSet<&String>> = BTreeMap::new();
    for of in types {
        let name = of.resource.gvr.group_resource();
        poor.remove(&format!("{}.{} is not served", of.resource.gvr.resource, of.resource.gvr.group));
        for field in of.table.labels.iter() {
            seen.entry((name.clone(), field.label.to_string())).or_default().extend(&of.fields[&*field.label]);
        }
    }
    poor.extend(seen.iter().filter(|(_, values)| values.len() < 2).map(|(of, values)| format!("{of:?}: {values:?}")));
    assert!(poor.is_empty(), "{poor:?}");
}

#[tokio::test]
async fn objects_are_read_and_written_as_the_apiserver_writes_them() {
    let (types, _) = vectors().await;
    let mut refusals = BTreeSet::new();
    types.iter().for_each(|of| check(of, &mut refusals));
    assert_eq!(refusals.len(), REFUSED.len(), "each refusal that is listed is met: {refusals:?}");
    assert!(types.len() >= 80, "{} types", types.len());
    assert_discriminating(types);
}

#[tokio::test]
async fn tables_are_written_as_the_apiserver_writes_them() {
    let (types, mut compared) = (&vectors().await.0, 0);
    let is = |of: &Type, unprinted: &&str| of.resource.gvr.group_resource() == **unprinted;
    let mut tried = |of: &Type| compared += usize::from(check_tables(of));
    let wrong = types.iter().filter(|of| !UNPRINTED.iter().any(|name| is(of, name)));
    let wrong = wrong.filter(|of| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tried(of))).is_err());
    assert_eq!(wrong.map(|of| &*of.collection).collect::<Vec<_>>(), [""; 0]);
    assert!(compared >= 75 && UNPRINTED.iter().all(|name| types.iter().any(|of| is(of, name))), "{compared} types");
}

#[tokio::test]
async fn discovery_is_read_as_client_go_reads_it() {
    let (_, general) = vectors().await;
    let of = |root: &str, accept: &str| &general[&(root.to_owned(), accept.to_owned())][0];
    for root in ["/api", "/apis"] {
        let theirs: Value = serde_json::from_slice(of(root, "client-go")).unwrap();
        let mut expected = Vec::new();
        for version in theirs.as_array().unwrap() {
            for resource in version["resources"].as_array().into_iter().flatten() {
                let text = |name: &str| resource[name].as_str().unwrap_or_default().to_owned();
                let has = |verb: &str| resource["verbs"].as_array().into_iter().flatten().any(|known| known == verb);
                let (name, kind) = (text("name"), text("kind"));
                if name.contains('/') || kind.is_empty() {
                    continue;
                }
                let short = serde_json::from_value::<Option<Vec<String>>>(resource["shortNames"].clone()).unwrap();
                expected.push((
                    format!(
                        "{} {name} {kind} {} {}",
                        version["groupVersion"].as_str().unwrap(),
                        text("singularName"),
                        resource["namespaced"]
                    ),
                    Verbs { get: has("get"), list: has("list"), watch: has("watch") },
                    short.unwrap_or_default(),
                ));
            }
        }
        let document = of(root, &format!("{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"));
        let ours = read_aggregated(document).unwrap().into_iter().map(|found| {
            let name = format!("{} {} {}", found.gvr.api_version(), found.gvr.resource, found.kind);
            (format!("{name} {} {}", found.singular, found.namespaced), found.verbs, found.short_names)
        });
        assert_eq!(ours.collect::<Vec<_>>(), expected, "{root}");
        assert_eq!(String::from_utf8_lossy(document).contains("\"verbs\":null"), root == "/apis", "verbs of null");
    }
}

/// What is left of custom resources, whose metadata is put in the order of the struct, or encoded in protobuf.
#[tokio::test]
async fn metadata_of_custom_resources_is_written_as_the_apiserver_writes_it() {
    let (_, general) = vectors().await;
    let of = |accept: &str| &general[&("/crontab".to_owned(), accept.to_owned())];
    let form = Arc::new(Form::new(Encoding::Json, Style::Inline, "stable.example.com/v1", "CronTab", "CronTabList"));
    for (n, json) in of(JSON).iter().enumerate() {
        let (object, type_meta) = parse_item(json, &FieldTable::default()).unwrap();
        assert_eq!((type_meta.style, &*type_meta.kind), (Style::Inline, "CronTab"));
        assert_same("crontab", &form.object_body(&object, Shape::Full).unwrap().into_bytes(), json);
        for (shape, version) in [(Shape::PartialObjectMetadata, "v1"), (Shape::PartialObjectMetadataV1beta1, "v1beta1")]
        {
            let ours = form.object_body(&object, shape).unwrap().into_bytes();
            assert_same("crontab", &ours, &of(&format!("{JSON};v={version}"))[n]);
            let ours = form.metadata_in_protobuf().object_body(&object, shape).unwrap().into_bytes();
            assert_same("crontab in protobuf", &ours, &of(&format!("{PROTOBUF};v={version}"))[n]);
        }
    }
}
