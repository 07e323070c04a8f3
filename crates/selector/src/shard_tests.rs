use std::sync::Arc;

use super::*;
use crate::{Predicate, tests};
use informerd_meta::AttributesBuilder;

const LOWER: &str = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";

fn object(namespace: &str, uid: &str) -> Object {
    tests::object(namespace, "x", AttributesBuilder::new(uid).build())
}

#[test]
fn the_hash_is_fnv_1a() {
    for (text, hash) in [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)] {
        assert_eq!(fnv1a(text.as_bytes()), hash, "{text}");
    }
}

#[test]
fn what_is_understood_is_repeated_in_one_form() {
    let both = format!("{LOWER} || shardRange(object.metadata.uid, '0xc000000000000000', '0x10000000000000000')");
    for (text, repeated) in [
        (LOWER, LOWER),
        (" shardRange( object.metadata.uid,\"0x0000000000000000\" ,'0x8000000000000000' )\n", LOWER),
        (&both, &both),
        (&both.replace(" || ", "||"), &both),
    ] {
        assert_eq!(ShardSelector::parse(text).map(|selector| selector.to_string()).as_deref(), Some(repeated));
    }
    assert!(ShardSelector::parse(&[LOWER; MOST_RANGES].join("||")).is_some());
}

#[test]
fn all_else_is_left_to_the_apiserver() {
    let term = |arguments: &str| format!("shardRange({arguments})");
    let uid = "object.metadata.uid";
    for text in [
        String::new(),
        " ".to_owned(),
        "x".to_owned(),
        "shardRange".to_owned(),
        term(""),
        term(uid),
        term(&format!("{uid}, '0x0000000000000000'")),
        term(&format!("{uid}, '0x0000000000000000', '0x8000000000000000', 'x'")),
        term(&format!("{uid}, '0x0000000000000000', '0x8000000000000000',")),
        term("object.metadata.name, '0x0000000000000000', '0x8000000000000000'"),
        term("object.metadata. uid, '0x0000000000000000', '0x8000000000000000'"),
        term(&format!("{uid}, '0x0', '0x8000000000000000'")),
        term(&format!("{uid}, '0000000000000000', '0x8000000000000000'")),
        term(&format!("{uid}, '0x000000000000000A', '0x8000000000000000'")),
        term(&format!("{uid}, '0x+000000000000001', '0x8000000000000000'")),
        term(&format!("{uid}, '0x0000000000000000', '0x10000000000000001'")),
        term(&format!("{uid}, '0x8000000000000000', '0x8000000000000000'")),
        term(&format!("{uid}, '0x10000000000000000', '0x10000000000000000'")),
        term(&format!("{uid}, '0x10000000000000000', '0x8000000000000000'")),
        term(&format!("{uid}, '0x0000000000000000\", '0x8000000000000000'")),
        term(&format!("{uid}, r'0x0000000000000000', '0x8000000000000000'")),
        format!("({LOWER})"),
        format!("{LOWER} && {LOWER}"),
        format!("{LOWER} ||"),
        format!("{LOWER} // a comment"),
        format!("{LOWER} || {}", LOWER.replace(".uid", ".namespace")),
        [LOWER; MOST_RANGES + 1].join("||"),
    ] {
        assert_eq!(ShardSelector::parse(&text), None, "{text}");
    }
}

#[test]
fn a_range_has_its_start_and_not_its_end() {
    let hash = fnv1a(b"u-1");
    let of = |field: &str, start: u128, end: u128| {
        ShardSelector::parse(&format!("shardRange(object.metadata.{field}, '0x{start:016x}', '0x{end:016x}')")).unwrap()
    };
    let at = u128::from(hash);
    assert!(of("uid", at, at + 1).matches(&object("a", "u-1")));
    assert!(!of("uid", at + 1, 1 << 64).matches(&object("a", "u-1")));
    assert!(!of("uid", 0, at).matches(&object("a", "u-1")));
    assert!(of("uid", 0, 1 << 64).matches(&object("a", "")));
    // Objects without a namespace have the hash of the empty string.
    assert!(of("namespace", 0xcbf2_9ce4_8422_2325, 0xcbf2_9ce4_8422_2326).matches(&object("", "u-1")));
    assert!(!of("namespace", 0xcbf2_9ce4_8422_2325, 0xcbf2_9ce4_8422_2326).matches(&object("a", "u-1")));
}

#[test]
fn a_shard_is_part_of_the_predicate() {
    let whole = Predicate::everything();
    let part = whole.clone().in_shard(Arc::new(ShardSelector::parse(LOWER).unwrap()));
    assert!(part.implies(&whole) && part.implies(&part) && !whole.implies(&part));
    assert!(!part.is_everything() && !part.is_scope_only());
    assert_ne!(part, whole);
    assert_eq!(part.in_all_shards(), whole);
}
