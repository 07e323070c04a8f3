//! A collection walked in pages, each from the token of the one before, against a map of its objects: all pages together
//! are the whole list.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use informerd::cache::{self, CacheConfig, Snapshot, Walk};
use informerd::meta::{AttributesBuilder, ContinueToken, Gvr, Object, ObjectKey, Raw, ResourceVersion, Scope};
use informerd::selector::{CompiledFields, LabelSelector, Predicate};

use super::runtime::block_on;

/// One is the beginning of another, and a dash sorts before the slash.
const NAMESPACES: [&str; 4] = ["a", "a-b", "ab", "b"];
const NAMES: [&str; 8] = ["a", "a-", "a.b", "aa", "b", "b0", "z", "é"];
/// Each with the values of the label that it selects.
const SELECTORS: [(&str, &[u8]); 5] = [
    ("", &[0, 1, 2, 3, 4, 5, 6, 7]),
    ("x=1", &[1]),
    ("x!=1", &[0, 2, 3, 4, 5, 6, 7]),
    ("x in (1,2)", &[1, 2]),
    ("x=9", &[]),
];
const RV: u64 = 1000;

pub fn check(data: &[u8]) {
    let Some(([limit, scope, labels], data)) = data.split_first_chunk::<3>() else { return };
    let object = |byte: &u8| {
        let (namespace, name) = (NAMESPACES[usize::from(byte % 4)], NAMES[usize::from(byte >> 2 & 7)]);
        (format!("{namespace}/{name}"), byte >> 5)
    };
    let objects: BTreeMap<_, _> = data.iter().take(256).map(object).collect();
    let limit = usize::from(limit % 9) + 1;
    let namespace = NAMESPACES.get(usize::from(scope % 8)).copied();
    let (selector, values) = SELECTORS[usize::from(labels % 5)];
    let is_in =
        |key: &str| namespace.is_none_or(|namespace| key.split_once('/').is_some_and(|(of, _)| of == namespace));
    let selected = objects.iter().filter(|(key, value)| is_in(key) && values.contains(value));
    let selected: Vec<_> = selected.map(|(key, _)| key.clone()).collect();
    let scope = namespace.map_or_else(Scope::all, Scope::namespace);
    let selector = LabelSelector::parse(selector).expect("a selector");
    let predicate = Predicate::new(scope, selector, CompiledFields::default());
    let (snapshot, mut listed, mut after) = (snapshot(&objects), Vec::new(), None);
    loop {
        let mut walk = Walk::new(snapshot.clone(), predicate.clone(), after);
        let left = block_on(walk.clone().count()) as usize;
        assert_eq!(left + listed.len(), selected.len(), "what is left is known");
        // A page stops after so many objects, and goes on if any object follows, selected or not.
        let (full, mut more) = (listed.len() + limit, true);
        while more && listed.len() < full {
            more = walk.step(full - listed.len(), |object| listed.push(object.key.to_string()));
        }
        assert!(listed.len() == full || !more && listed.len() < full);
        let Some(last) = walk.into_after().filter(|_| more) else { break };
        after = Some(resumed(&last, namespace));
    }
    assert_eq!(listed, selected);
}

/// The key after which the next page begins, by its token.
fn resumed(last: &ObjectKey, namespace: Option<&str>) -> ObjectKey {
    let start = if namespace.is_some() { last.name() } else { last.as_str() };
    let token = ContinueToken { rv: RV as i64, start: format!("/{start}") }.encode();
    let token = ContinueToken::decode(&token).expect("our own token");
    assert_eq!(token.rv, RV as i64);
    ObjectKey::new(namespace.unwrap_or_default(), token.start.trim_start_matches('/'))
}

fn snapshot(objects: &BTreeMap<String, u8>) -> Snapshot {
    let (mut writer, cache) = cache::new(CacheConfig::new(Gvr::new("", "v1", "pods")));
    let object = |(n, (key, label)): (usize, (&String, &u8))| {
        let (namespace, name) = key.split_once('/').expect("a key");
        let mut attributes = AttributesBuilder::new("uid");
        attributes.label("x", &label.to_string());
        let raw = Raw::new(Bytes::from_static(b"{},"), 0..1, 0..1);
        let key = ObjectKey::new(namespace, name);
        Arc::new(Object::new(key, ResourceVersion(n as u64 + 1), attributes.build(), raw))
    };
    let objects = objects.iter().enumerate().map(object).collect();
    block_on(writer.replace(objects, ResourceVersion(RV))).expect("a list");
    cache.snapshot().expect("it was listed")
}
