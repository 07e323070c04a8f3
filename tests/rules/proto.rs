//! The published API: names by the rules, and nothing that a client may already use ever changes.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use informerd::grpc::pb::DESCRIPTORS;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
};

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
        if file.package() != "informerd.v1" || file.syntax() != "proto3" {
            wrong.push(format!("{}: package informerd.v1 in proto3", file.name()));
        }
        file.message_type.iter().for_each(|message| lint_message(message, &mut wrong));
        file.enum_type.iter().for_each(|of| lint_enum(of, &mut wrong));
        file.service.iter().for_each(|service| lint_service(service, &mut wrong));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
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

fn lint_message(message: &DescriptorProto, wrong: &mut Vec<String>) {
    pascal(message.name(), wrong);
    for field in &message.field {
        snake(field.name(), wrong);
    }
    message.oneof_decl.iter().for_each(|oneof| snake(oneof.name(), wrong));
    message.enum_type.iter().for_each(|of| lint_enum(of, wrong));
    // The entries of maps are named by the compiler.
    let own = message
        .nested_type
        .iter()
        .filter(|nested| !nested.options.as_ref().is_some_and(prost_types::MessageOptions::map_entry));
    own.for_each(|nested| lint_message(nested, wrong));
}

fn lint_enum(of: &EnumDescriptorProto, wrong: &mut Vec<String>) {
    pascal(of.name(), wrong);
    let mut prefix = String::new();
    for (index, c) in of.name().chars().enumerate() {
        if index > 0 && c.is_ascii_uppercase() {
            prefix.push('_');
        }
        prefix.push(c.to_ascii_uppercase());
    }
    for value in &of.value {
        if !value.name().starts_with(&format!("{prefix}_")) {
            wrong.push(format!("{} does not begin with {prefix}_", value.name()));
        }
    }
    let zero = of.value.first().map(|value| (value.name().to_owned(), value.number()));
    if zero != Some((format!("{prefix}_UNSPECIFIED"), 0)) {
        wrong.push(format!("{} does not begin with an unspecified zero", of.name()));
    }
}

fn lint_service(service: &ServiceDescriptorProto, wrong: &mut Vec<String>) {
    pascal(service.name(), wrong);
    for method in &service.method {
        pascal(method.name(), wrong);
        for (of, end) in [(method.input_type(), "Request"), (method.output_type(), "Response")] {
            if of != format!(".informerd.v1.{}{end}", method.name()) {
                wrong.push(format!("{} takes or returns {of}", method.name()));
            }
        }
    }
}

fn pascal(name: &str, wrong: &mut Vec<String>) {
    if !(name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric())) {
        wrong.push(format!("{name} is not in PascalCase"));
    }
}

fn snake(name: &str, wrong: &mut Vec<String>) {
    let parts = |name: &str| name.split('_').all(|part| !part.is_empty());
    if !(parts(name) && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')) {
        wrong.push(format!("{name} is not in snake_case"));
    }
}
