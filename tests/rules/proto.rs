//! The published API: names by the rules, and nothing that a client may already use ever changes.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use informerd::grpc::pb::DESCRIPTORS;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};

/// One line for each thing a client may rely on. Lines are added, and never changed or taken out.
const LOCK: &str = include_str!("../../proto/informerd/v1/api.lock");
/// The files whose services are published.
const PUBLISHED: &[&str] = &["informerd/v1/objects.proto", "informerd/v1/queue.proto", "informerd/v1/cache.proto"];

#[test]
fn the_api_only_grows() {
    let now: BTreeSet<String> = files().iter().flat_map(surface).collect();
    let promised: BTreeSet<String> = LOCK.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    let broken: Vec<_> = promised.difference(&now).collect();
    assert!(broken.is_empty(), "clients rely on what is gone or has changed:\n{broken:#?}");
    let new: Vec<_> = now.difference(&promised).map(String::as_str).collect();
    assert!(new.is_empty(), "new in the API, to be promised in proto/informerd/v1/api.lock:\n{}", new.join("\n"));
}

#[test]
fn a_change_would_be_noticed() {
    let mut files = files();
    let before: BTreeSet<String> = files.iter().flat_map(surface).collect();
    let mut messages = files.iter_mut().flat_map(|file| &mut file.message_type);
    let message = messages.find(|message| message.name() == "Event").expect("Event is there");
    let field = message.field.iter_mut().find(|field| field.name() == "key").expect("with a key");
    field.number = Some(9);
    let after: BTreeSet<String> = files.iter().flat_map(surface).collect();
    assert_eq!(before.difference(&after).collect::<Vec<_>>(), ["field informerd.v1.Event.key = 2 .informerd.v1.Key"]);
    assert!(before.len() > 100, "{}", before.len());
}

#[test]
fn names_follow_the_rules() {
    let mut wrong = Vec::new();
    for file in files() {
        assert_eq!((file.package(), file.syntax()), ("informerd.v1", "proto3"), "{}", file.name());
        wrong.extend(surface(&file).into_iter().filter(|line| !is_named_well(line)));
    }
    assert!(wrong.is_empty(), "against the rules of names: {wrong:#?}");
}

/// Types and methods are in PascalCase, fields in snake_case. Values begin with their type, and zero is unspecified. A method
/// has messages of its own.
fn is_named_well(line: &str) -> bool {
    let words: Vec<&str> = line.split([' ', '(', ')']).filter(|word| !word.is_empty()).collect();
    let names: Vec<&str> = words[1].split('.').skip(2).collect();
    let Some((name, parents)) = names.split_last() else { return false };
    let is_right = match words[0] {
        "message" => is_pascal(name),
        "field" => is_snake(name) && words.iter().skip_while(|word| **word != "in").skip(1).all(|of| is_snake(of)),
        "value" => {
            let prefix = parents.last().map_or(String::new(), |of| shouted(of));
            let rest = name.strip_prefix(&prefix).unwrap_or_default();
            rest.starts_with('_') && (rest == "_UNSPECIFIED") == (words.last() == Some(&"0"))
        }
        _ => {
            let [request, response] = ["Request", "Response"].map(|end| format!(".informerd.v1.{name}{end}"));
            is_pascal(name) && words.contains(&request.as_str()) && words.last() == Some(&response.as_str())
        }
    };
    is_right && parents.iter().all(|name| is_pascal(name))
}

fn files() -> Vec<FileDescriptorProto> {
    let set = FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors");
    let files: Vec<_> = set.file.into_iter().filter(|file| !file.package().starts_with("google.")).collect();
    assert_eq!(
        files.iter().map(FileDescriptorProto::name).collect::<BTreeSet<_>>(),
        PUBLISHED.iter().copied().collect()
    );
    files
}

/// What clients may rely on, a line each.
fn surface(file: &FileDescriptorProto) -> Vec<String> {
    let mut lines = Vec::new();
    for message in &file.message_type {
        of_message(file.package(), message, &mut lines);
    }
    for of in &file.enum_type {
        of_enum(file.package(), of, &mut lines);
    }
    for service in &file.service {
        for method in &service.method {
            let stream = |streams: bool| if streams { "stream " } else { "" };
            lines.push(format!(
                "rpc {}.{}.{} ({}{}) returns ({}{})",
                file.package(),
                service.name(),
                method.name(),
                stream(method.client_streaming()),
                method.input_type(),
                stream(method.server_streaming()),
                method.output_type(),
            ));
        }
    }
    lines
}

fn of_message(parent: &str, message: &DescriptorProto, lines: &mut Vec<String>) {
    let name = format!("{parent}.{}", message.name());
    lines.push(format!("message {name}"));
    for field in &message.field {
        lines.push(of_field(&name, message, field));
    }
    message.nested_type.iter().for_each(|nested| of_message(&name, nested, lines));
    message.enum_type.iter().for_each(|nested| of_enum(&name, nested, lines));
}

fn of_field(name: &str, message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let repeated = if field.label() == Label::Repeated { "repeated " } else { "" };
    let of = match field.r#type() {
        Type::Message | Type::Enum => field.type_name().to_owned(),
        plain => plain.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    };
    let index = field.oneof_index.and_then(|index| usize::try_from(index).ok());
    let oneof = index.map_or(String::new(), |index| format!(" in {}", message.oneof_decl[index].name()));
    format!("field {name}.{} = {} {repeated}{of}{oneof}", field.name(), field.number())
}

fn of_enum(parent: &str, of: &EnumDescriptorProto, lines: &mut Vec<String>) {
    for value in &of.value {
        lines.push(format!("value {parent}.{}.{} = {}", of.name(), value.name(), value.number()));
    }
}

/// `EventType` as `EVENT_TYPE`.
fn shouted(name: &str) -> String {
    let parts = name
        .char_indices()
        .flat_map(|(at, c)| [Some('_').filter(|_| at > 0 && c.is_ascii_uppercase()), Some(c.to_ascii_uppercase())]);
    parts.flatten().collect()
}

fn is_pascal(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric())
}

fn is_snake(name: &str) -> bool {
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.split('_').all(|part| !part.is_empty() && part.chars().all(is_lower))
}
