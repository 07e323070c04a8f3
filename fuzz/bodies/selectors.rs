//! Label and field selectors: what is understood can be written and read again as the same, and selects what its
//! requirements say. Lines: a label selector, a field selector, labels as `key=value` apart by blanks, the object's namespace, name and node.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use informerd::codec::json::parse_item;
use informerd::meta::{Object, Scope};
use informerd::selector::{FieldOperator, FieldSelector, LabelSelector, Predicate};

use super::pods::{resource, table};

pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.split('\n');
    let mut line = || lines.next().unwrap_or_default();
    let (by_labels, by_fields) = (line(), line());
    let labels: BTreeMap<&str, &str> = line().split(' ').take(32).filter_map(|pair| pair.split_once('=')).collect();
    let place = [line(), line(), line()];
    let object = object(&labels, place);
    let labelled = LabelSelector::parse(by_labels).ok();
    if let (Some(selector), Some(object)) = (&labelled, &object) {
        check_labels(selector, &labels, object);
    }
    let fields = FieldSelector::parse(by_fields);
    if let Ok(selector) = &fields {
        let again = FieldSelector::parse(&selector.to_string());
        assert_eq!(again.as_ref(), Ok(selector), "{selector}");
        assert!(by_fields.split(',').count() >= selector.terms().len());
    }
    // Operators and commas make up a selector, so that what has neither is none.
    if !by_fields.contains('=') {
        assert!(fields.is_err() || by_fields.bytes().all(|byte| byte == b','), "{by_fields:?}");
    }
    let (Ok(fields), Some(object)) = (fields, object) else { return };
    let Ok(compiled) = fields.compile(resource(), table()) else { return };
    let met = fields.terms().iter().all(|term| {
        let value = match &*term.field {
            "metadata.namespace" => object.key.namespace(),
            "metadata.name" => object.key.name(),
            "spec.nodeName" | "spec.host" => place[2],
            "spec.hostNetwork" => "false",
            _ => "",
        };
        (value == &*term.value) == (term.operator == FieldOperator::Equals)
    });
    let met = met && labelled.as_ref().is_none_or(|selector| selector.matches(&object.attributes));
    let predicate = Predicate::new(Scope::all(), labelled.unwrap_or_default(), compiled);
    assert!(predicate.implies(&predicate) && predicate.implies(&Predicate::everything()));
    assert_eq!(predicate.matches(&object), met, "{fields} of {:?}", object.key);
}

fn check_labels(selector: &LabelSelector, labels: &BTreeMap<&str, &str>, object: &Object) {
    let written = selector.to_string();
    let again = LabelSelector::parse(&written).expect("what was written can be read");
    assert_eq!((&again, again.to_string()), (selector, written.clone()));
    assert!(selector.implies(&again) && again.implies(selector));
    let hashes = RandomState::new();
    assert_eq!(hashes.hash_one(&again), hashes.hash_one(selector));
    let mut compares = false;
    let mut met = written.split(',').all(|part| {
        // Keys and values have no such character, so it is an operator.
        let Some((key, bound)) = part.split_once(['<', '>']) else { return true };
        compares = true;
        let (value, bound) = (labels.get(key).and_then(|value| value.parse::<i64>().ok()), bound.parse::<i64>());
        let bound = bound.expect("only numbers are compared");
        value.is_some_and(|value| if part.contains('<') { value < bound } else { value > bound })
    });
    assert!(selector.requirements().all(|(key, ..)| !key.is_empty()), "{written}");
    met &= selector.requirements().all(|(key, operator, values)| {
        let value = labels.get(key);
        let is_listed = value.is_some_and(|value| values.iter().any(|listed| **listed == **value));
        match operator {
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "In" => is_listed,
            "NotIn" => !is_listed,
            other => panic!("an operator {other}"),
        }
    });
    assert_eq!(selector.matches(&object.attributes), met, "{written}, compared: {compares}");
}

/// A pod with these labels, in a namespace and of a name and a node; `None` where it could not be one.
fn object(labels: &BTreeMap<&str, &str>, [namespace, name, node]: [&str; 3]) -> Option<Object> {
    if [namespace, name].iter().any(|part| matches!(*part, "" | "." | "..") || part.contains(['/', '%'])) {
        return None;
    }
    let json = serde_json::json!({
        "metadata": { "name": name, "namespace": namespace, "resourceVersion": "1", "labels": labels },
        "spec": { "nodeName": node },
    });
    parse_item(json.to_string().as_bytes(), table()).ok().map(|(object, _)| object)
}
