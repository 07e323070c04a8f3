use serde_json::{Value, json};

use super::*;

fn document(value: &Value) -> Document {
    serde_json::from_str(&value.to_string()).unwrap()
}

/// As an apiserver answers for a built-in group, a group of a definition, and one of an aggregated server.
pub(in crate::discovery) fn aggregated() -> Value {
    let version =
        |name: &str, resources: Value| json!({"version": name, "freshness": "Current", "resources": resources});
    let resource = |name: &str, kind: &str| {
        json!({"resource": name, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": "Namespaced",
            "singularResource": kind.to_lowercase(), "shortNames": ["x"], "categories": ["all"],
            "verbs": ["create", "get", "list", "watch"],
            "subresources": [{"subresource": "status", "responseKind": {"kind": kind}, "verbs": ["get"]}]})
    };
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [
        {"metadata": {"name": "apps", "creationTimestamp": null}, "versions": [
            version("v1", json!([resource("deployments", "Deployment"), resource("daemonsets", "DaemonSet")]))]},
        {"metadata": {"name": "foreign.io", "creationTimestamp": null}, "versions": [
            version("v2", json!([resource("things", "Thing"),
                {"resource": "onlysub", "responseKind": {"kind": ""}, "scope": "Namespaced", "verbs": null}])),
            version("v1", json!([resource("things", "Thing")]))]},
        {"metadata": {"name": "example.com"}, "versions": [version("v1", json!([resource("widgets", "Widget")]))]},
    ]})
}

fn names(document: Document) -> Vec<String> {
    let all = document.group_versions().into_iter().filter_map(|version| version.resources).flatten();
    all.map(|found| format!("{} {} {} {:?}", found.gvr, found.kind, found.namespaced, found.verbs)).collect()
}

fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(elements) => elements.iter().enumerate().map(|(n, value)| (n.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (name, value) in children {
        let at = format!("{at}/{name}");
        pointers(value, &at, all);
        all.push(at);
    }
}

/// The document with each of its members below `root` as `null`, missing, or of another type.
pub(in crate::discovery) fn damaged(whole: &Value, root: &str) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    pointers(whole.pointer(root).unwrap(), root, &mut all);
    let mut documents = Vec::new();
    for at in all {
        for odd in [Value::Null, json!(7), json!("odd"), json!([]), json!([null]), json!({}), json!({"odd": null})] {
            let mut document = whole.clone();
            *document.pointer_mut(&at).unwrap() = odd.clone();
            documents.push((format!("{at} is {odd}"), document));
        }
        let mut document = whole.clone();
        let (parent, name) = at.rsplit_once('/').unwrap();
        match document.pointer_mut(parent).unwrap() {
            Value::Object(members) => _ = members.remove(name),
            Value::Array(elements) => _ = elements.remove(name.parse().unwrap()),
            _ => unreachable!(),
        }
        documents.push((format!("{at} is missing"), document));
    }
    documents
}

#[test]
fn reads_the_aggregated_form() {
    let document = document(&aggregated());
    assert!(document.is_aggregated());
    let all: Vec<_> = document.group_versions();
    let versions: Vec<_> = all.iter().map(|read| format!("{}/{}", read.group, read.version)).collect();
    assert_eq!(versions, ["apps/v1", "foreign.io/v2", "foreign.io/v1", "example.com/v1"]);
    let things = all[1].resources.as_ref().unwrap();
    assert_eq!(things.len(), 1, "a parent without a kind has only subresources");
    assert_eq!(things[0].gvr, Gvr::new("foreign.io", "v2", "things"));
    assert_eq!(things[0].verbs, Verbs { get: true, list: true, watch: true });
    assert!(things[0].namespaced);
}

/// What the document as a whole says is `null` or missing: it is read all the same.
#[test]
fn members_of_the_whole_document_may_be_missing() {
    for member in ["kind", "apiVersion", "metadata", "items"] {
        for odd in [Some(Value::Null), None] {
            let mut whole = aggregated();
            match &odd {
                Some(odd) => whole[member] = odd.clone(),
                None => _ = whole.as_object_mut().unwrap().remove(member),
            }
            let document = document(&whole);
            assert!(document.is_aggregated(), "{member}");
            assert_eq!(names(document).len(), if member == "items" { 0 } else { 5 }, "{member}");
        }
    }
}

/// A missing name must not give resources to the core group, nor may a foreign one name those of others.
#[test]
fn resources_belong_to_the_group_that_was_asked_for() {
    let mut whole = aggregated();
    whole["items"][1]["metadata"] = json!({});
    let mut all = document(&whole);
    all.keep(false);
    assert_eq!(names(all).len(), 3);
    let mut core = document(&whole);
    core.keep(true);
    assert_eq!(names(core).len(), 2);
    let list: LegacyVersion =
        serde_json::from_value(json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
        {"name": "pods", "namespaced": true, "kind": "Pod", "verbs": ["get"]}]}))
        .unwrap();
    let found = list.resources(&"foreign.io".into(), &"v1".into());
    assert_eq!(found[0].gvr, Gvr::new("foreign.io", "v1", "pods"));
}

#[test]
fn a_stale_group_version_without_resources_was_not_read() {
    let mut whole = aggregated();
    whole["items"][1]["versions"][0] = json!({"version": "v2", "freshness": "Stale", "resources": null});
    let all = document(&whole).group_versions();
    assert_eq!(all.iter().map(|read| read.resources.is_some()).collect::<Vec<_>>(), [true, false, true, true]);
}

#[test]
fn reads_the_older_forms() {
    let core = document(&json!({"kind": "APIVersions", "versions": ["v1", null, ""]}));
    assert!(!core.is_aggregated());
    assert_eq!(core.named_versions(), [("".into(), "v1".into())]);
    let groups = json!({"kind": "APIGroupList", "groups": [
        {"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}], "preferredVersion": {}},
        {"name": "foreign.io", "versions": [{"groupVersion": "foreign.io/v2", "version": "v2"}]},
        {"name": "example.com", "versions": [{"groupVersion": "example.com/v1", "version": "v1"}]}]});
    let others = |document: Document| -> Vec<(Arc<str>, Arc<str>)> {
        document
            .named_versions()
            .into_iter()
            .filter(|(group, _)| &**group != "foreign.io" && &**group != "odd")
            .collect()
    };
    assert_eq!(document(&groups).named_versions()[1], ("foreign.io".into(), "v2".into()));
    let expected = [("apps".into(), "v1".into()), ("example.com".into(), "v1".into())];
    for (what, odd) in damaged(&groups, "/groups/1") {
        assert_eq!(others(document(&odd)), expected, "{what}");
    }
    let list = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
        {"name": "pods", "singularName": "pod", "shortNames": ["po"], "namespaced": true, "kind": "Pod", "verbs": ["get", "list", "watch"]},
        {"name": "pods/log", "kind": "Pod", "verbs": ["get"]},
        {"name": "nodes", "namespaced": false, "kind": "Node", "verbs": ["list"]}]});
    let read = |list: &Value| -> Vec<ApiResource> {
        serde_json::from_str::<LegacyVersion>(&list.to_string()).unwrap().resources(&"".into(), &"v1".into())
    };
    let all = read(&list);
    assert_eq!(all.len(), 2);
    assert_eq!((&all[0].gvr, all[0].namespaced), (&Gvr::new("", "v1", "pods"), true));
    for (what, odd) in damaged(&list, "/resources/0") {
        assert_eq!(read(&odd).last(), all.last(), "{what}");
    }
    for odd in [json!({}), json!({"groupVersion": null, "resources": null})] {
        assert!(read(&odd).is_empty());
    }
}
