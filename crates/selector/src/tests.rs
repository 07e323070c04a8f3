use std::collections::BTreeMap;

use super::*;
use bytes::Bytes;
use informerd_meta::{Attributes, AttributesBuilder, Object, ObjectKey, Origin, Raw, Resource, ResourceVersion, Scope};

pub(super) fn pods() -> Resource {
    Resource::simple("", "pods", "Pod")
}

fn widgets(namespaced: bool) -> Resource {
    let selectable = ["spec.color".into(), "spec.size".into()].into();
    let origin = Origin::Custom { selectable, columns: [].into(), definition: "".into() };
    Resource { namespaced, origin, ..Resource::simple("example.com", "widgets", "Widget") }
}

fn compile(resource: &Resource, text: &str) -> Result<CompiledFields, String> {
    FieldSelector::parse(text).unwrap().compile(resource, &field_table(resource))
}

pub(super) fn predicate(resource: &Resource, scope: Scope, labels: &str, fields: &str) -> Predicate {
    Predicate::new(scope, LabelSelector::parse(labels).unwrap(), compile(resource, fields).unwrap())
}

pub(super) fn attributes<'a>(labels: &BTreeMap<&str, &str>, fields: impl IntoIterator<Item = &'a str>) -> Attributes {
    let mut builder = AttributesBuilder::new("uid");
    for (key, value) in labels {
        builder.label(key, value);
    }
    for value in fields {
        builder.field(value);
    }
    builder.build()
}

pub(super) fn object(namespace: &str, name: &str, attributes: Attributes) -> Object {
    let raw = Raw::new(Bytes::from_static(b"{},"), 0..0, 0..0);
    Object::new(ObjectKey::new(namespace, name), ResourceVersion(1), attributes, raw)
}

// === the recorded vectors ===

/// Runs every line of the file. A line of an unknown kind fails.
#[test]
fn vectors() {
    let (mut labels, mut fields) = (0, 0);
    for line in include_str!("../../../tests/data/selectors.txt").lines() {
        let (kind, rest) = line.split_once(' ').unwrap();
        let mut strings = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let input = strings.next().unwrap().unwrap();
        let outcome = rest[strings.byte_offset()..].trim_start();
        let want = match outcome.split_at(4) {
            ("OK  ", shown) => Ok(shown.to_owned()),
            ("ERR ", message) => Err(message.to_owned()),
            _ => panic!("not understood: {line}"),
        };
        match kind {
            "L" => {
                assert_eq!(LabelSelector::parse(&input).map(|selector| selector.to_string()), want, "{line}");
                labels += 1;
            }
            "F" => {
                let shown = |selector: FieldSelector| format!("{selector}  empty={}", selector.is_empty());
                assert_eq!(FieldSelector::parse(&input).map(shown), want, "{line}");
                fields += 1;
            }
            _ => panic!("not understood: {line}"),
        }
    }
    assert_eq!((labels, fields), (78, 30), "the file has changed");
}

// === labels ===

#[test]
fn sets_of_nothing_and_numbers_that_are_none() {
    let selects = |selector, value| {
        LabelSelector::parse(selector).unwrap().matches(&attributes(&BTreeMap::from([("x", value)]), []))
    };
    assert!(selects("x in ()", "") && !selects("x in ()", "a") && selects("x in (a,)", ""));
    assert_eq!(
        LabelSelector::parse("x>-1").unwrap_err().split(": a valid").next(),
        Some("unable to parse requirement: values[0][x]: Invalid value: \"-1\"")
    );
    assert!(LabelSelector::parse("x>-a").unwrap_err().starts_with("unable to parse requirement: [values[0]: "));
}

#[test]
fn equal_by_meaning() {
    for (a, b) in [("x=a,y", "y,x==a"), ("x in (a)", "x=a"), ("x notin (b)", "x!=b"), ("x,x", "x"), ("a>1", "a>01")] {
        assert_eq!(LabelSelector::parse(a), LabelSelector::parse(b), "{a} {b}");
    }
    for (a, b) in [("x=a", "x!=a"), ("x", "!x"), ("x>1", "x<1"), ("x in (a,b)", "x=a"), ("", "x")] {
        assert_ne!(LabelSelector::parse(a), LabelSelector::parse(b), "{a} {b}");
    }
}

// === fields ===

#[test]
fn labels_that_a_definition_does_not_select_by_are_named() {
    for (resource, label, message) in [
        (widgets(true), "spec.foo", "field label not supported: spec.foo"),
        (widgets(false), "metadata.namespace", "field label not supported: metadata.namespace"),
    ] {
        assert_eq!(compile(&resource, &format!("{label}=x")), Err(message.into()), "{label}");
    }
    assert!(compile(&widgets(true), "spec.color=red,spec.size!=5").is_ok());
    // Terms are checked in the order of their text.
    assert_eq!(compile(&pods(), "z=1,b=2"), Err("field label not supported: b".into()));
}

#[test]
fn field_selectors_are_equal_by_meaning() {
    let parse = |text| FieldSelector::parse(text).unwrap();
    assert_eq!(parse("b=1,a==2,b=1"), parse("a=2,b=1"));
    assert_ne!(parse("a=1"), parse("a!=1"));
    assert_eq!(parse("metadata.name=b,metadata.name=a").requires_exact_match("metadata.name"), Some("a"));
    assert_eq!(parse("metadata.name!=a").requires_exact_match("metadata.name"), None);
    // A term without a label and a value has no effect.
    assert!(parse("=,!=").is_empty() && !parse("=b").is_empty());
    assert_eq!(FieldSelector::equals("a", "b,c"), parse("a=b\\,c"));
}

// === predicates ===

pub(super) fn scope(namespace: Option<&str>, name: Option<&str>) -> Scope {
    Scope { namespace: namespace.map(Into::into), name: name.map(Into::into) }
}

#[test]
fn exact_names_narrow_the_scope() {
    let p = predicate(&pods(), Scope::all(), "", "metadata.name=x,metadata.namespace=a,metadata.name!=y");
    assert_eq!(p.scope, scope(Some("a"), Some("x")));
    assert!(p.is_scope_only() && !p.is_everything() && !p.matches_nothing());
    assert_eq!(p, Predicate::scoped(scope(Some("a"), Some("x"))));

    let p = predicate(&pods(), Scope::namespace("a"), "", "metadata.namespace!=b,metadata.name!=x");
    assert_eq!((p.scope.clone(), p.is_scope_only()), (Scope::namespace("a"), false));
    assert_eq!(p, predicate(&pods(), Scope::namespace("a"), "", "metadata.name!=x"));

    assert!(Predicate::everything().is_everything());
    assert!(!predicate(&pods(), Scope::all(), "x", "").is_scope_only());
}

#[test]
fn what_can_not_be_matches_nothing() {
    for fields in [
        "metadata.name=a,metadata.name=b",
        "metadata.name=a,metadata.name!=a",
        "metadata.name=",
        "metadata.name=a/b",
        "metadata.name=..",
        "metadata.name=a%b",
        "metadata.namespace=",
        "metadata.namespace=other",
        "metadata.namespace!=here",
        "spec.nodeName=a,spec.nodeName=b",
        "spec.nodeName=a,spec.nodeName!=a",
        "status.podIPs!=",
    ] {
        let p = predicate(&pods(), Scope::namespace("here"), "", fields);
        assert!(p.matches_nothing(), "{fields}");
        assert!(!p.is_scope_only() && !p.is_everything(), "{fields}");
        assert!(!p.matches(&object("here", "a", attributes(&BTreeMap::new(), ["a"]))), "{fields}");
    }
    for fields in ["metadata.name!=", "spec.nodeName=", "metadata.namespace=here", "status.podIPs!=x"] {
        assert!(!predicate(&pods(), Scope::namespace("here"), "", fields).matches_nothing(), "{fields}");
    }
}

#[test]
fn triggers() {
    let p = predicate(&pods(), Scope::all(), "", "spec.nodeName=n1,status.phase!=Running");
    assert_eq!(p.trigger(), Some("n1"));
    assert_eq!(predicate(&pods(), Scope::all(), "", "spec.nodeName!=n1").trigger(), None);
    assert_eq!(predicate(&widgets(true), Scope::all(), "", "spec.color=red").trigger(), None);
}

#[test]
fn implication() {
    let p = |scope: Scope, labels: &str, fields: &str| predicate(&pods(), scope, labels, fields);
    let all = Scope::all;
    let here = || Scope::namespace("here");
    // That it implies no more is a property of `selector::model_tests`.
    for (inner, outer) in [
        (p(here(), "a=b,c", "spec.nodeName=n"), p(all(), "", "")),
        (p(here(), "a=b,c", "spec.nodeName=n"), p(all(), "", "spec.nodeName=n")),
        (p(here(), "a=b,c", "spec.nodeName=n"), p(all(), "c", "spec.nodeName!=m")),
        (p(here(), "", "metadata.name=x"), p(all(), "", "metadata.name!=y,metadata.namespace!=there")),
        (p(here(), "", "metadata.name=x,metadata.name=y"), p(Scope::namespace("there"), "", "")),
    ] {
        assert!(inner.implies(&outer), "{inner:?} => {outer:?}");
    }
}

#[test]
fn what_is_too_large_is_not_parsed_and_errors_are_few() {
    let set = |count: usize| format!("a in ({})", (0..count).map(|n| format!("-{n}")).collect::<Vec<_>>().join(","));
    let errors = |count| LabelSelector::parse(&set(count)).unwrap_err().matches("Invalid value").count();
    assert_eq!([1, 2, 16, 17, 1000].map(errors), [1, 2, 16, 16, 16]);
    assert_eq!(LabelSelector::parse(&set(1001)).unwrap_err(), informerd_meta::TOO_LARGE);
    let many = |part: &str, count: usize| vec![part; count].join(",");
    for count in [1000, 1001, 400_000] {
        let is_read =
            [LabelSelector::parse(&many("a", count)).is_ok(), FieldSelector::parse(&many("a=b", count)).is_ok()];
        assert_eq!(is_read, [count == 1000; 2], "{count}");
    }
    assert_eq!(FieldSelector::parse(&many("a=b", 1001)).unwrap_err(), informerd_meta::TOO_LARGE);
}

#[test]
fn some_selectors_depend_on_the_version_of_the_apiserver() {
    for (text, depends) in [
        ("x in (a,,)", true),
        ("x in (,,)", true),
        ("y,x notin ( a , , ),z", true),
        ("x in (a,,,,)", true),
        ("x in (a,)", false),
        ("x in (a,,,)", false),
        ("x in (a,,b)", false),
        ("x in (a,,b,)", false),
        ("x in (a,b)", false),
        ("a,b", false),
        ("", false),
    ] {
        assert_eq!(LabelSelector::depends_on_version(text), depends, "{text}");
    }
}

/// In a cache of JSON it stands for any byte, while the apiserver compares the bytes.
#[test]
fn a_value_that_may_stand_for_several_selects_nothing_here() {
    let (resource, table) = (pods(), field_table(&pods()));
    for (text, is_exact) in [
        ("spec.schedulerName=a\u{fffd}", false),
        ("spec.schedulerName!=\u{fffd}", false),
        ("metadata.name=a\u{fffd}", false),
        ("spec.schedulerName=\u{fffc}", true),
    ] {
        assert_eq!(FieldSelector::parse(text).unwrap().compile(&resource, &table).is_ok(), is_exact, "{text}");
    }
    let of = |value: &str| ValueSet::field(&resource, &table, "spec.schedulerName", ["b".to_owned(), value.to_owned()]);
    assert!(of("a").is_ok() && of("\u{fffd}").is_err());
}
