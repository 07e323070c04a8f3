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
const RV: u64 = 1000;

pub fn check(data: &[u8]) {
    let Some(([limit, scope, labels], data)) = data.split_first_chunk::<3>() else { return };
    let mut objects = BTreeMap::new();
    for byte in data.iter().take(256) {
        let key = format!("{}/{}", NAMESPACES[usize::from(byte % 4)], NAMES[usize::from(byte >> 2 & 7)]);
        objects.insert(key, byte >> 5);
    }
    let limit = usize::from(limit % 9) + 1;
    let namespace = NAMESPACES.get(usize::from(scope % 8)).copied();
    let selector = LabelSelector::parse(["", "x=1", "x!=1", "x in (1,2)", "x=9"][usize::from(labels % 5)]);
    let selector = selector.expect("a selector");
    let scope = namespace.map_or_else(Scope::all, Scope::namespace);
    let predicate = Predicate::new(scope, selector, CompiledFields::default());
    let selected: Vec<&String> = objects
        .iter()
        .filter(|(key, _)| namespace.is_none_or(|namespace| key.split_once('/').is_some_and(|(of, _)| of == namespace)))
        .filter(|(_, label)| [true, **label == 1, **label != 1, matches!(label, 1 | 2), false][usize::from(labels % 5)])
        .map(|(key, _)| key)
        .collect();
    let snapshot = snapshot(&objects);
    let (mut listed, mut token, mut pages) = (Vec::new(), None, 0);
    loop {
        let after = token.as_deref().map(|token| key_of(token, namespace));
        let walk = Walk::new(snapshot.clone(), predicate.clone(), after);
        let left = block_on(walk.clone().count());
        assert_eq!(left as usize, selected.len() - listed.len(), "what is left is known");
        let (page, next) = page(walk, limit, namespace);
        assert!(page.len() == limit || next.is_none() && page.len() < limit);
        listed.extend(page);
        pages += 1;
        assert!(pages <= objects.len() + 1, "it has no end");
        token = next;
        if token.is_none() {
            break;
        }
    }
    assert_eq!(listed.iter().collect::<Vec<_>>(), selected);
}

/// A page stops after `limit` objects, and goes on if any object follows, selected or not.
fn page(mut walk: Walk, limit: usize, namespace: Option<&str>) -> (Vec<String>, Option<String>) {
    let (mut page, mut more) = (Vec::new(), true);
    while more && page.len() < limit {
        more = walk.step(limit - page.len(), |object| page.push(object.key.as_str().to_owned()));
    }
    let last = walk.into_after().filter(|_| more);
    let token = last.map(|last| {
        let start = if namespace.is_some() { last.name() } else { last.as_str() };
        ContinueToken { rv: RV as i64, start: format!("/{start}") }.encode()
    });
    (page, token)
}

fn key_of(token: &str, namespace: Option<&str>) -> ObjectKey {
    let token = ContinueToken::decode(token).expect("our own token");
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
