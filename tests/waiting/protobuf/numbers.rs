//! The numbers of selectable fields, against the definitions of the messages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use informerd::meta::{Gvr, Origin, Resource, Verbs};
use informerd::selector::{field_table, types_with_fields};

use crate::process::{run, stdout, tied};

/// Messages by their full name, and the fields of each by name.
type Messages = BTreeMap<String, BTreeMap<String, Field>>;

#[derive(Debug)]
struct Field {
    number: u32,
    /// The full name of a message, or the name of a scalar.
    of: String,
    repeated: bool,
}

/// The definitions in the modules of Kubernetes that the judge is built from.
async fn messages() -> Messages {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/protos.sh");
    let directories = stdout("tests/cluster/protos.sh", run(tied::command(&script), "").await);
    let mut files = Vec::new();
    directories.lines().for_each(|directory| find(Path::new(directory), &mut files));
    let mut messages = Messages::new();
    files.iter().for_each(|file| read(&fs::read_to_string(file).unwrap(), &mut messages));
    assert!(directories.lines().count() == 5 && messages.len() > 1000, "{directories}{} messages", messages.len());
    messages
}

fn find(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            find(&entry.path(), files);
        } else if entry.file_name() == "generated.proto" {
            files.push(entry.path());
        }
    }
}

/// These files have one declaration a line, and no messages within messages.
fn read(text: &str, messages: &mut Messages) {
    let mut package = String::new();
    let mut message = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        if let Some(name) = line.strip_prefix("package ") {
            package = name.trim_end_matches(';').to_owned();
        } else if let Some(name) = line.strip_prefix("message ") {
            message = format!("{package}.{}", name.trim_end_matches([' ', '{']));
            messages.entry(message.clone()).or_default();
        } else if let Some((declared, number)) = line.trim_end_matches(';').rsplit_once(" = ") {
            let Some((of, name)) = declared.rsplit_once(' ') else { continue };
            let Ok(number) = number.parse() else { continue };
            let repeated = of.starts_with("repeated ");
            let of = of.rsplit(' ').next().unwrap_or_default();
            let of = match of.strip_prefix('.') {
                Some(full) => full.to_owned(),
                None if of.starts_with(char::is_uppercase) => format!("{package}.{of}"),
                None => of.to_owned(),
            };
            messages.get_mut(&message).unwrap().insert(name.to_owned(), Field { number, of, repeated });
        }
    }
}

/// The resource of a kind.
fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.as_bytes() {
        [.., b's'] => format!("{kind}es"),
        [.., b'y'] => format!("{}ies", &kind[..kind.len() - 1]),
        _ => format!("{kind}s"),
    }
}

/// The group of a package such as `k8s.io.api.events.v1`, and its version.
fn group(package: &str) -> Option<(String, &str)> {
    let (before, version) = package.rsplit_once('.')?;
    let name = before.rsplit('.').next()?;
    let group = match name {
        "core" => "",
        "certificates" | "events" | "resource" => return Some((format!("{name}.k8s.io"), version)),
        name => name,
    };
    Some((group.to_owned(), version))
}

/// The scalar at the end of a path, if the numbers are those of the path.
fn scalar<'m>(messages: &'m Messages, message: &str, path: &[&str], numbers: &[u32]) -> Option<&'m str> {
    let ((name, path), (number, numbers)) = (path.split_first()?, numbers.split_first()?);
    let field = messages.get(message)?.get(*name)?;
    let path = match path.split_first() {
        Some((index, path)) if field.repeated && index.parse::<usize>() == Ok(0) => path,
        _ if field.repeated => return None,
        _ => path,
    };
    if field.number != *number {
        return None;
    }
    if path.is_empty() && numbers.is_empty() { Some(&field.of) } else { scalar(messages, &field.of, path, numbers) }
}

#[tokio::test]
async fn the_numbers_of_selectable_fields_are_those_of_the_messages() {
    let messages = messages().await;
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for name in messages.keys() {
        let (package, kind) = name.rsplit_once('.').unwrap();
        let Some((group, version)) = group(package) else { continue };
        let resource = Resource {
            gvr: Gvr::new(&group, version, &plural(kind)),
            kind: kind.into(),
            namespaced: true,
            verbs: Verbs::default(),
            origin: Origin::BuiltIn,
        };
        for field in field_table(&resource).labels.iter() {
            seen.insert((group.clone(), plural(kind)));
            let value = &field.value;
            let of = match value.missing {
                "" => "string",
                "false" => "bool",
                _ => "int32",
            };
            let places = [(Some(&value.path), &value.numbers), (value.fallback.as_ref(), &value.fallback_numbers)];
            for (path, numbers) in places {
                let path: Vec<&str> = path.iter().flat_map(|path| path.iter()).map(|name| &**name).collect();
                if path.is_empty() && numbers.is_empty() {
                    continue;
                }
                if scalar(&messages, name, &path, numbers) != Some(of) {
                    wrong.push(format!("{name}: {}: {} is not {numbers:?}, of {of}", field.label, path.join(".")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let known: BTreeSet<_> = types_with_fields().map(|(group, name)| (group.to_owned(), name.to_owned())).collect();
    assert_eq!(seen, known, "every type that has selectable fields of its own");
}

/// What decoders take for granted: an object begins with its metadata, and a list is metadata and items.
#[tokio::test]
async fn objects_and_lists_have_the_numbers_that_decoders_expect() {
    const META: &str = "k8s.io.apimachinery.pkg.apis.meta.v1";
    let messages = messages().await;
    let (mut objects, mut lists) = (0, 0);
    for (name, fields) in &messages {
        let Some(metadata) = fields.get("metadata") else { continue };
        if metadata.of == format!("{META}.ObjectMeta") {
            objects += 1;
            assert_eq!(metadata.number, 1, "{name}");
        }
        // It is written, and never read.
        let is_read = name != "k8s.io.apimachinery.pkg.apis.meta.v1beta1.PartialObjectMetadataList";
        if let (true, Some(items)) = (metadata.of == format!("{META}.ListMeta") && is_read, fields.get("items")) {
            lists += 1;
            assert_eq!((metadata.number, items.number, items.repeated), (1, 2, true), "{name}");
        }
    }
    assert!(objects > 150 && lists > 100, "{objects} objects, {lists} lists");
    for (message, expected) in [
        (
            "ObjectMeta",
            &[("name", 1), ("namespace", 3), ("uid", 5), ("resourceVersion", 6), ("labels", 11), ("annotations", 12)][..],
        ),
        ("ObjectMeta", &[("ownerReferences", 13), ("finalizers", 14), ("managedFields", 17)]),
        ("ObjectMeta", &[("generateName", 2), ("selfLink", 4), ("generation", 7), ("creationTimestamp", 8)]),
        ("ObjectMeta", &[("deletionTimestamp", 9), ("deletionGracePeriodSeconds", 10)]),
        ("OwnerReference", &[("kind", 1), ("name", 3), ("uid", 4), ("apiVersion", 5), ("controller", 6)]),
        ("OwnerReference", &[("blockOwnerDeletion", 7)]),
        ("ManagedFieldsEntry", &[("manager", 1), ("operation", 2), ("apiVersion", 3), ("time", 4), ("fieldsType", 6)]),
        ("ManagedFieldsEntry", &[("fieldsV1", 7), ("subresource", 8)]),
        ("FieldsV1", &[("Raw", 1)]),
        ("ListMeta", &[("resourceVersion", 2), ("continue", 3), ("remainingItemCount", 4)]),
        ("Status", &[("metadata", 1), ("status", 2), ("message", 3), ("reason", 4), ("details", 5), ("code", 6)]),
        (
            "StatusDetails",
            &[("name", 1), ("group", 2), ("kind", 3), ("causes", 4), ("retryAfterSeconds", 5), ("uid", 6)],
        ),
        ("StatusCause", &[("reason", 1), ("message", 2), ("field", 3)]),
        ("WatchEvent", &[("type", 1), ("object", 2)]),
    ] {
        for (field, number) in expected {
            assert_eq!(messages[&format!("{META}.{message}")][*field].number, *number, "{message}.{field}");
        }
    }
}
