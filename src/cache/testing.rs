//! Objects for the tests of this module, built without a codec.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::dispatcher::Dispatcher;
use super::{CacheConfig, CacheWatcher, WatchCache, WatchSpec, WatchStart, WatcherEvent, Writer};
use crate::meta::{
    AttributesBuilder, FieldLabel, FieldTable, FieldValue, Gvr, Object, ObjectKey, Origin, Raw, Resource,
    ResourceVersion, Scope, Verbs,
};
use crate::selector::{FieldSelector, LabelSelector, Predicate};

/// An object with labels sorted by key and one selectable field (index 0), such as a pod's node.
pub(super) fn object(namespace: &str, name: &str, rv: u64, labels: &[(&str, &str)], field: &str) -> Object {
    object_with("", &format!("uid-{namespace}-{name}"), namespace, name, rv, labels, field)
}

/// The same of this uid, with more members in its bytes: `,"spec":{}`.
pub(super) fn object_with(
    members: &str,
    uid: &str,
    namespace: &str,
    name: &str,
    rv: u64,
    labels: &[(&str, &str)],
    field: &str,
) -> Object {
    let mut builder = AttributesBuilder::new(uid);
    for (key, value) in labels {
        builder.label(key, value);
    }
    builder.field(field);
    let head = r#"{"metadata":"#;
    let metadata = format!(r#"{{"name":"{name}","resourceVersion":"{rv}"}}"#);
    let rv_at = head.len() + metadata.len() - 2 - rv.to_string().len();
    let text = format!("{head}{metadata}{members}}},");
    let range = |from: usize, to: usize| u32::try_from(from).unwrap()..u32::try_from(to).unwrap();
    let raw = Raw::new(
        Bytes::from(text),
        range(head.len(), head.len() + metadata.len()),
        range(rv_at, rv_at + rv.to_string().len()),
    );
    Object::new(ObjectKey::new(namespace, name), ResourceVersion(rv), builder.build(), raw)
}

/// An object without labels.
pub(super) fn plain(namespace: &str, name: &str, rv: u64) -> Object {
    object(namespace, name, rv, &[], "")
}

/// `namespace/name@rv` of each object, the form tests compare.
pub(super) fn names<'a>(objects: impl Iterator<Item = &'a Arc<Object>>) -> Vec<String> {
    objects.map(|object| format!("{}@{}", object.key, object.rv)).collect()
}

/// The table with the field of [`object`], which is a trigger.
pub(super) fn table() -> FieldTable {
    let value = FieldValue { path: ["spec".into(), "nodeName".into()].into(), ..Default::default() };
    FieldTable { labels: [FieldLabel { label: "spec.nodeName".into(), value }].into(), trigger: Some(0) }
}

pub(super) fn predicate(scope: Scope, labels: &str, fields: &str) -> Predicate {
    let resource = Resource {
        gvr: Gvr::new("", "v1", "pods"),
        kind: "Pod".into(),
        namespaced: true,
        verbs: Verbs::default(),
        origin: Origin::BuiltIn,
    };
    let labels = LabelSelector::parse(labels).unwrap();
    let fields = FieldSelector::parse(fields).unwrap().compile(&resource, &table()).unwrap();
    Predicate::new(scope, labels, fields)
}

/// A cache for objects with the table above, and a dispatcher that the test runs by hand.
pub(super) fn cache(change: impl FnOnce(&mut CacheConfig)) -> (Writer, WatchCache, Dispatcher) {
    let mut config = CacheConfig::new(Gvr::new("", "v1", "pods"));
    config.trigger = table().trigger;
    change(&mut config);
    let (writer, cache) = crate::cache::new(config);
    let dispatcher = Dispatcher::new(cache.shared());
    (writer, cache, dispatcher)
}

pub(super) fn after(rv: u64) -> WatchStart {
    WatchStart::After(ResourceVersion(rv))
}

/// A watch of everything, with bookmarks, that ends in half an hour.
pub(super) fn spec(start: WatchStart) -> WatchSpec {
    let deadline = Instant::now() + Duration::from_secs(1800);
    WatchSpec { predicate: Predicate::everything(), start, bookmarks: true, initial_end: true, deadline }
}

/// A short form of one item: `ADDED a/b@5`, `DELETED a/b@5 as 7` with an overriding revision, `BOOKMARK 7`, `BOOKMARK 7
/// initial`.
pub(super) fn short(event: &WatcherEvent) -> String {
    match event {
        WatcherEvent::Event { kind, object, rv: None } => format!("{} {}@{}", kind.as_str(), object.key, object.rv),
        WatcherEvent::Event { kind, object, rv: Some(rv) } => {
            format!("{} {}@{} as {rv}", kind.as_str(), object.key, object.rv)
        }
        WatcherEvent::Bookmark { rv, initial_end } => {
            format!("BOOKMARK {rv}{}", if *initial_end { " initial" } else { "" })
        }
        WatcherEvent::Error(status) => format!("ERROR {}", status.message),
    }
}

/// The items that a watcher has now, without waiting; `END reason` if it ended.
pub(super) fn take(watcher: &mut CacheWatcher) -> Vec<String> {
    let mut taken = Vec::new();
    loop {
        match poll(watcher) {
            Poll::Ready(Some(event)) => taken.push(short(&event)),
            Poll::Ready(None) => {
                taken.push(format!("END {}", watcher.end_reason().unwrap().as_str()));
                return taken;
            }
            Poll::Pending => return taken,
        }
    }
}

pub(super) fn poll(watcher: &mut CacheWatcher) -> Poll<Option<WatcherEvent>> {
    watcher.poll_next(&mut Context::from_waker(Waker::noop()))
}

/// Dispatches all pending events.
pub(super) fn dispatch(dispatcher: &mut Dispatcher) {
    while dispatcher.step(usize::MAX) {}
}

/// Drops everything that is older than the window.
pub(super) fn sweep(dispatcher: &mut Dispatcher) {
    let mut sweep = dispatcher.begin_sweep();
    while sweep.step() {}
}

/// The cases of a property, unless the environment asks for another number.
pub(super) fn cases(usual: u32) -> u32 {
    std::env::var_os("PROPTEST_CASES").map_or(usual, |_| proptest::test_runner::Config::default().cases)
}
