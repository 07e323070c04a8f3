//! Writes: the changes that the registry applies to an object before it is stored.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::encode;
use super::registry::Kind;
use super::store::{Change, Inner, Store};
use super::stored::Stored;
use crate::types::{EventType, ObjectKey, Status, StatusDetails};

type Result<T> = std::result::Result<T, Box<Status>>;

// === impl Store ===

impl Store {
    /// Creates an object. Its `apiVersion` and `kind` determine the resource.
    pub fn create(&self, object: Value) -> Result<Arc<Stored>> {
        let kind = self.kind_of(&object)?;
        self.create_in(&kind, None, object, false)
    }

    /// Replaces an object. If it has a `metadata.resourceVersion`, this must be the current one (409 otherwise).
    pub fn update(&self, object: Value) -> Result<Arc<Stored>> {
        let kind = self.kind_of(&object)?;
        let key = key_of(&kind, &object);
        self.modify(&kind.id, &key, |current| {
            *current = object;
            Ok(())
        })
    }

    /// Changes an object in place, atomically.
    pub fn modify(
        &self,
        resource: &str,
        key: &ObjectKey,
        change: impl FnOnce(&mut Value) -> Result<()>,
    ) -> Result<Arc<Stored>> {
        self.inner.write().modify(resource, key, false, change)
    }

    /// Removes an object immediately, even if it has finalizers. Returns the last state with the resourceVersion of
    /// the deletion.
    pub fn delete(&self, resource: &str, key: &ObjectKey) -> Result<Arc<Stored>> {
        self.inner.write().remove(resource, key)
    }

    /// Deletes as the API does: an object with finalizers, or a pod with a grace period, is only marked.
    pub(super) fn request_delete(&self, kind: &Kind, key: &ObjectKey, grace: Option<i64>) -> Result<Arc<Stored>> {
        let mut inner = self.inner.write();
        let state = inner.kinds.get(&kind.id).ok_or_else(|| not_found(kind, key.name()))?;
        let current = state.objects.get(key).ok_or_else(|| not_found(kind, key.name()))?.value();
        let seconds = grace.or_else(|| current["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
        let graceful = inner.graceful_pods
            && &*kind.id == "pods"
            && seconds > 0
            && current["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
        let finalizers = current["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        if !graceful && !finalizers {
            return inner.remove(&kind.id, key);
        }
        inner.modify(&kind.id, key, false, |object| {
            if object["metadata"]["deletionTimestamp"].is_null() {
                object["metadata"]["deletionTimestamp"] = json!(now());
                object["metadata"]["deletionGracePeriodSeconds"] = json!(if graceful { seconds } else { 0 });
            }
            Ok(())
        })
    }

    /// `namespace` comes from the path, for objects without their own. With `dry`, nothing is stored.
    pub(super) fn create_in(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        mut object: Value,
        dry: bool,
    ) -> Result<Arc<Stored>> {
        let Value::Object(root) = &mut object else { return Err(bad_request("the object is not a JSON object")) };
        root.insert("kind".into(), json!(&*kind.kind));
        root.insert("apiVersion".into(), json!(kind.api_version()));
        check_members(root)?;
        let metadata = members(root, "metadata");
        if kind.namespaced {
            let given = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
            let namespace = namespace.unwrap_or(if given.is_empty() { "default" } else { given });
            if !given.is_empty() && given != namespace {
                return Err(bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            metadata.insert("namespace".into(), json!(namespace));
        } else {
            metadata.remove("namespace");
        }
        let mut inner = self.inner.write();
        if metadata.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
            let Some(prefix) = metadata.get("generateName").and_then(Value::as_str) else {
                return Err(bad_request("name or generateName is required"));
            };
            let name = format!("{prefix}{}", suffix(inner.revision));
            metadata.insert("name".into(), json!(name));
        }
        for (name, value) in [("uid", json!(uid(inner.revision + 1))), ("creationTimestamp", json!(now()))] {
            if metadata.get(name).is_none_or(Value::is_null) {
                metadata.insert(name.into(), value);
            }
        }
        metadata.remove("deletionTimestamp");
        if &*kind.id == "services" {
            let spec = members(root, "spec");
            spec.entry("type").or_insert(json!("ClusterIP"));
            let ip = json!(format!("10.97.{}.{}", inner.revision / 250 % 250, 1 + inner.revision % 250));
            if spec["type"] != "ExternalName" {
                spec.entry("clusterIP").or_insert(ip);
            }
        }
        if &*kind.id == "secrets" {
            root.entry("type").or_insert(json!("Opaque"));
        }
        if root.contains_key("spec") && &*kind.id != "namespaces" {
            members(root, "metadata").entry("generation").or_insert(json!(1));
        }
        let phase = match &*kind.id {
            "namespaces" => Some("Active"),
            "pods" => Some("Pending"),
            _ => None,
        };
        if let Some(phase) = phase {
            members(root, "status").entry("phase").or_insert(json!(phase));
        }
        let key = key_of(kind, &object);
        let state = inner.kinds.get(&kind.id).ok_or_else(|| not_found(kind, ""))?;
        if state.objects.contains_key(&key) {
            let message = format!("{} \"{}\" already exists", kind.id, key.name());
            return Err(status(409, "AlreadyExists", message, kind, key.name()));
        }
        if dry { parsed(kind, inner.revision, object) } else { inner.put(&kind.id, object) }
    }

    /// Stores an object that is already in its stored form, without history, as if it existed before the server
    /// started. `render` gets the resourceVersion and returns the bytes of a GET.
    pub(super) fn load(&self, resource: &str, render: impl FnOnce(u64) -> String) -> Option<()> {
        let mut inner = self.inner.write();
        let kind = inner.kind(resource)?.kind.clone();
        let rv = inner.revision + 1;
        let stored = Stored::parse(&kind, render(rv).into())?;
        inner.started_at(rv);
        let state = inner.kinds.get_mut(&kind.id)?;
        state.progress = rv;
        state.floor = rv;
        state.objects.insert(stored.key.clone(), Arc::new(stored));
        Some(())
    }

    fn kind_of(&self, object: &Value) -> Result<Arc<Kind>> {
        let (version, name) = (object["apiVersion"].as_str(), object["kind"].as_str());
        let found = self.kinds().into_iter().find(|k| version == Some(&k.api_version()) && name == Some(&*k.kind));
        found.ok_or_else(|| bad_request(&format!("no resource for {version:?} {name:?}")))
    }
}

// === impl Inner ===

impl Inner {
    /// Assigns the next revision to the object and records the change.
    fn put(&mut self, id: &str, object: Value) -> Result<Arc<Stored>> {
        let kind = self.kind(id).ok_or_else(no_such_resource)?.kind.clone();
        let rv = self.advance();
        if &*kind.id == "customresourcedefinitions.apiextensions.k8s.io" {
            self.define(&object);
        }
        let stored = parsed(&kind, rv, object)?;
        self.store(&kind, stored.clone());
        Ok(stored)
    }

    /// With `dry`, nothing is stored.
    pub(super) fn modify(
        &mut self,
        resource: &str,
        key: &ObjectKey,
        dry: bool,
        change: impl FnOnce(&mut Value) -> Result<()>,
    ) -> Result<Arc<Stored>> {
        let state = self.kind(resource).ok_or_else(no_such_resource)?;
        let kind = state.kind.clone();
        let before = state.objects.get(key).cloned().ok_or_else(|| not_found(&kind, key.name()))?;
        let old = before.value();
        let mut new = old.clone();
        change(&mut new)?;
        let Value::Object(root) = &mut new else { return Err(bad_request("the object is not a JSON object")) };
        root.insert("kind".into(), json!(&*kind.kind));
        root.insert("apiVersion".into(), json!(kind.api_version()));
        check_members(root)?;
        let metadata = members(root, "metadata");
        let given = metadata.get("resourceVersion").and_then(Value::as_str).unwrap_or_default();
        if !given.is_empty() && given != before.rv.to_string() {
            let message = format!(
                "Operation cannot be fulfilled on {} \"{}\": the object has been modified; please apply your changes to the latest version and try again",
                kind.id,
                key.name()
            );
            return Err(status(409, "Conflict", message, &kind, key.name()));
        }
        for name in ["name", "namespace", "uid", "creationTimestamp", "resourceVersion", "generation"] {
            match old["metadata"].get(name) {
                Some(value) => metadata.insert(name.into(), value.clone()),
                None => metadata.remove(name),
            };
        }
        for name in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            if let Some(value) = old["metadata"].get(name) {
                metadata.insert(name.into(), value.clone());
            }
        }
        for name in ["labels", "annotations", "finalizers"] {
            if metadata.get(name).is_some_and(|value| {
                value.is_null()
                    || value.as_object().is_some_and(Map::is_empty)
                    || value.as_array().is_some_and(Vec::is_empty)
            }) {
                metadata.remove(name);
            }
        }
        if new == old {
            return Ok(before);
        }
        if new["spec"] != old["spec"]
            && let Some(generation) = old["metadata"]["generation"].as_u64()
        {
            new["metadata"]["generation"] = json!(generation + 1);
        }
        if dry {
            return parsed(&kind, before.rv, new);
        }
        let released = !new["metadata"]["deletionTimestamp"].is_null()
            && new["metadata"]["finalizers"].is_null()
            && !old["metadata"]["finalizers"].is_null();
        let stored = self.put(&kind.id, new)?;
        if released { self.remove(&kind.id, key) } else { Ok(stored) }
    }

    fn remove(&mut self, resource: &str, key: &ObjectKey) -> Result<Arc<Stored>> {
        let state = self.kind(resource).ok_or_else(no_such_resource)?;
        let kind = state.kind.clone();
        let Some(prev) = state.objects.get(key).cloned() else { return Err(not_found(&kind, key.name())) };
        if &*kind.id == "customresourcedefinitions.apiextensions.k8s.io" {
            self.undefine(&prev.value());
        }
        if &*kind.id == "namespaces" {
            self.empty_namespace(key.name());
        }
        let rv = self.advance();
        let object = Arc::new(prev.with_rv(rv));
        if let Some(state) = self.kinds.get_mut(&kind.id) {
            state.objects.remove(key);
        }
        let change =
            Change { rv, at: Instant::now(), kind: EventType::Deleted, object: object.clone(), prev: Some(prev) };
        self.record(&kind.id, change);
        Ok(object)
    }

    /// Deletes the objects in a namespace before the namespace itself.
    fn empty_namespace(&mut self, namespace: &str) {
        let namespaced = self.kinds.values().filter(|state| state.served && state.kind.namespaced);
        let inside = namespaced.flat_map(|state| {
            let keys = state.objects.keys().filter(|key| key.namespace() == namespace);
            keys.map(|key| (state.kind.id.clone(), key.clone())).collect::<Vec<_>>()
        });
        for (id, key) in inside.collect::<Vec<_>>() {
            let _ = self.remove(&id, &key);
        }
    }

    /// Starts to serve the resource of a definition when the definition is first seen.
    fn define(&mut self, definition: &Value) {
        if let Some(kind) = Kind::from_definition(definition)
            && self.served(&kind.id).is_err()
        {
            self.register(kind);
        }
    }

    /// Deletes the objects of a definition one by one, then stops serving the resource. Its watches end.
    fn undefine(&mut self, definition: &Value) {
        let Some(kind) = Kind::from_definition(definition) else { return };
        let keys = self.kinds.get(&kind.id).map(|state| state.objects.keys().cloned().collect::<Vec<_>>());
        for key in keys.unwrap_or_default() {
            let _ = self.remove(&kind.id, &key);
        }
        if let Some(state) = self.kinds.get_mut(&kind.id) {
            state.served = false;
            state.tick.send_modify(|_| {});
        }
    }
}

/// Of a path that there is not, or of a resource whose definition is gone.
pub(super) fn no_such_resource() -> Box<Status> {
    let message = "the server could not find the requested resource";
    Box::new(Status::failure(404, "NotFound", message).with_details(StatusDetails::default()))
}

/// Members that other code indexes without a check must be objects.
fn check_members(root: &Map<String, Value>) -> Result<()> {
    for name in ["spec", "status"] {
        if root.get(name).is_some_and(|value| !value.is_object() && !value.is_null()) {
            return Err(bad_request(&format!("{name}: expected an object")));
        }
    }
    Ok(())
}

/// The object as it is stored at this revision.
fn parsed(kind: &Kind, rv: u64, mut object: Value) -> Result<Arc<Stored>> {
    object["metadata"]["resourceVersion"] = json!(rv.to_string());
    let stored = Stored::parse(kind, encode::object(kind, &object));
    stored.map(Arc::new).ok_or_else(|| bad_request("the object's metadata cannot be decoded"))
}

pub(super) fn key_of(kind: &Kind, object: &Value) -> ObjectKey {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    let namespace = match text("namespace") {
        _ if !kind.namespaced => "",
        "" => "default",
        namespace => namespace,
    };
    ObjectKey::new(namespace, text("name"))
}

/// The current time in the apiserver's format: in seconds, UTC.
pub(super) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A uid that depends only on a number, so that a seed always gives the same cluster.
pub(super) fn uid(seed: u64) -> String {
    let (a, b) = (mix(seed), mix(seed ^ 0x5eed));
    let (low, middle, high) = (a >> 32, (a >> 16) & 0xffff, a & 0xfff);
    format!("{low:08x}-{middle:04x}-4{high:03x}-a{:03x}-{:012x}", b >> 52, b & 0xffff_ffff_ffff)
}

/// Five characters in the style of `generateName`.
pub(super) fn suffix(seed: u64) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut bits = mix(seed.wrapping_add(0x9e37));
    let letter = |_| {
        let at = usize::try_from(bits % LETTERS.len() as u64).unwrap_or(0);
        bits /= LETTERS.len() as u64;
        char::from(LETTERS[at])
    };
    (0..5).map(letter).collect()
}

/// splitmix64
pub(super) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn members<'a>(root: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let value = root.entry(name).or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(members) => members,
        _ => unreachable!("made an object above"),
    }
}

pub(super) fn not_found(kind: &Kind, name: &str) -> Box<Status> {
    status(404, "NotFound", format!("{} \"{name}\" not found", kind.id), kind, name)
}

pub(super) fn bad_request(message: &str) -> Box<Status> {
    Box::new(Status::failure(400, "BadRequest", message))
}

fn status(code: u16, reason: &str, message: String, kind: &Kind, name: &str) -> Box<Status> {
    Box::new(Status::failure(code, reason, message).with_details(details(kind, name)))
}

pub(super) fn details(kind: &Kind, name: &str) -> StatusDetails {
    let (group, kind) = (kind.gvr.group.to_string(), kind.gvr.resource.to_string());
    StatusDetails { name: name.into(), group, kind, ..Default::default() }
}
