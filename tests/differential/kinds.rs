//! What there is to ask for: the kinds of objects, with some of each.

use serde_json::{Value, json};

use super::world::{A, NAMESPACES};

pub(crate) const GROUP: &str = "differential.example.com";

/// Objects with the namespaces they are in.
pub(crate) type Objects = Vec<(Option<&'static str>, Value)>;

/// One collection.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// What reports call it.
    pub row: &'static str,
    pub root: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
    /// Names that are there, in [`A`] for namespaced kinds.
    pub names: &'static [&'static str],
    /// Field selectors of its own, each of which selects some of its objects and not all.
    pub some: &'static [&'static str],
    /// Others, which select all or none, or are refused.
    pub odd: &'static [&'static str],
    pub objects: fn() -> Objects,
}

const fn kind(row: &'static str, root: &'static str, plural: &'static str, namespaced: bool) -> Kind {
    Kind { row, root, plural, namespaced, names: &["one", "two", "missing"], some: &[], odd: &[], objects: Vec::new }
}

pub(crate) const PODS: Kind = Kind {
    some: &[
        "spec.nodeName=node-x",
        "spec.nodeName!=node-x",
        "spec.nodeName=",
        "status.phase=Running",
        "status.phase!=Running",
        "spec.restartPolicy=Always",
        "spec.schedulerName=default-scheduler",
        "spec.serviceAccountName=other",
        "spec.hostNetwork=false",
        "spec.hostNetwork=true",
        "status.podIP=",
        "status.podIP=10.1.2.3",
        "status.nominatedNodeName=node-z",
        "spec.host=node-x",
        "spec.nodeName=node-x,metadata.name!=two",
    ],
    odd: &["spec.hostNetwork=", "status.podIPs=", "metadata.name=one,spec.nodeName=node-x"],
    objects: pods,
    ..kind("pods", "/api/v1", "pods", true)
};
pub(crate) const CONFIG_MAPS: Kind = Kind { objects: config_maps, ..kind("configmaps", "/api/v1", "configmaps", true) };
pub(crate) const WIDGETS_V1: Kind = Kind {
    some: &["spec.color=red", "spec.color!=red", "spec.color="],
    odd: &["spec.size=5"],
    objects: widget_objects,
    ..kind("widgets-v1", "/apis/differential.example.com/v1", "widgets", true)
};
pub(crate) const WIDGETS_V2: Kind = Kind {
    some: &["spec.size=5", "spec.size!=5", "spec.ready=true", "spec.ready="],
    odd: &["spec.color=red"],
    ..kind("widgets-v2", "/apis/differential.example.com/v2", "widgets", true)
};
pub(crate) const GADGETS: Kind = Kind {
    objects: || named(&["one", "two"]).into_iter().map(|(_, object)| (None, custom("Gadget", object))).collect(),
    ..kind("gadgets", "/apis/differential.example.com/v1", "gadgets", false)
};

/// Every kind that exists.
pub(crate) const KINDS: &[Kind] = &[
    PODS,
    CONFIG_MAPS,
    Kind {
        names: &["diff-a", "diff-foo", "missing"],
        some: &["status.phase=Active", "status.phase=Terminating"],
        odd: &["name=diff-a"],
        ..kind("namespaces", "/api/v1", "namespaces", false)
    },
    Kind {
        names: &["node-x", "missing"],
        some: &["spec.unschedulable=true", "spec.unschedulable=false"],
        odd: &["spec.unschedulable="],
        objects: nodes,
        ..kind("nodes", "/api/v1", "nodes", false)
    },
    Kind {
        some: &[
            "involvedObject.kind=Pod",
            "involvedObject.name=one",
            "involvedObject.uid=uid-one",
            "involvedObject.apiVersion=v1",
            "involvedObject.resourceVersion=11",
            "involvedObject.fieldPath=spec.one",
            "reason=Because",
            "reportingComponent=reporter",
            "source=harness",
            "source=reporter",
            "type=Normal",
        ],
        odd: &["source=", "involvedObject.namespace=diff-a"],
        objects: events,
        ..kind("events", "/api/v1", "events", true)
    },
    Kind {
        some: &[
            "regarding.kind=Pod",
            "regarding.name=one",
            "regarding.uid=uid-one",
            "regarding.apiVersion=v1",
            "regarding.resourceVersion=11",
            "regarding.fieldPath=spec.one",
            "reason=Because",
            "reportingController=reporter",
            "reportingController=",
            "type=Normal",
        ],
        odd: &["source=x", "regarding.namespace=diff-a"],
        ..kind("events.events.k8s.io", "/apis/events.k8s.io/v1", "events", true)
    },
    Kind { objects: deployments, ..kind("deployments", "/apis/apps/v1", "deployments", true) },
    Kind { objects: daemon_sets, ..kind("daemonsets", "/apis/apps/v1", "daemonsets", true) },
    Kind {
        objects: autoscalers,
        ..kind("horizontalpodautoscalers", "/apis/autoscaling/v2", "horizontalpodautoscalers", true)
    },
    kind("horizontalpodautoscalers-v1", "/apis/autoscaling/v1", "horizontalpodautoscalers", true),
    Kind { objects: || in_a(&["one", "two"]), ..kind("leases", "/apis/coordination.k8s.io/v1", "leases", true) },
    Kind {
        some: &["spec.type=ClusterIP", "spec.clusterIP=None", "spec.clusterIP="],
        objects: services,
        ..kind("services", "/api/v1", "services", true)
    },
    Kind { objects: slices, ..kind("endpointslices", "/apis/discovery.k8s.io/v1", "endpointslices", true) },
    // Deprecated, so that every answer carries a warning.
    Kind { objects: || in_a(&["one", "two"]), ..kind("endpoints", "/api/v1", "endpoints", true) },
    // Never cached by default.
    Kind { some: &["type=Opaque"], objects: secrets, ..kind("secrets", "/api/v1", "secrets", true) },
    Kind {
        some: &["status.replicas=0", "status.replicas!=0"],
        odd: &["status.replicas="],
        objects: controllers,
        ..kind("replicationcontrollers", "/api/v1", "replicationcontrollers", true)
    },
    Kind {
        some: &["status.successful=0", "status.successful=1"],
        odd: &["status.successful="],
        objects: jobs,
        ..kind("jobs", "/apis/batch/v1", "jobs", true)
    },
    Kind {
        names: &["widgets.differential.example.com", "missing"],
        ..kind("customresourcedefinitions", "/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", false)
    },
    WIDGETS_V1,
    WIDGETS_V2,
    // Deprecated as well.
    kind("widgets-v1beta1", "/apis/differential.example.com/v1beta1", "widgets", true),
    GADGETS,
];

/// Collections that do not exist, or cannot be listed.
pub(crate) const NOT_KINDS: &[Kind] = &[
    kind("unknown-resource", "/api/v1", "nopes", true),
    kind("unknown-group", "/apis/nope.example.com/v1", "things", true),
    kind("unknown-version", "/apis/apps/v9", "deployments", true),
    kind("unserved-version", "/apis/differential.example.com/v3", "widgets", true),
    kind("unknown-custom", "/apis/differential.example.com/v1", "nopes", true),
    kind("not-listable", "/apis/authentication.k8s.io/v1", "tokenreviews", false),
];

// === impl Kind ===

impl Kind {
    /// Everywhere without a namespace.
    pub(crate) fn collection(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{}/namespaces/{namespace}/{}", self.root, self.plural),
            None => format!("{}/{}", self.root, self.plural),
        }
    }
}

fn named(names: &[&str]) -> Vec<(String, Value)> {
    let objects = names.iter().enumerate().map(|(n, name)| {
        let label = ["x", "y", "z"][n % 3];
        ((*name).to_owned(), json!({"metadata": {"name": name, "labels": {"app": label, "n": (n * 7).to_string()}}}))
    });
    objects.collect()
}

fn in_a(names: &[&str]) -> Objects {
    named(names).into_iter().map(|(_, object)| (Some(A), object)).collect()
}

/// Two in [`A`] that have these members.
fn two(members: &Value) -> Objects {
    in_a(&["one", "two"]).into_iter().map(|(namespace, object)| (namespace, with(object, members))).collect()
}

/// Of pods.
fn template() -> Value {
    json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "main", "image": "image"}]}})
}

fn with(mut object: Value, members: &Value) -> Value {
    for (key, value) in members.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

fn config_maps() -> Objects {
    let mut objects: Objects = in_a(&["four", "one", "three", "two"]);
    for (n, (_, object)) in objects.iter_mut().enumerate() {
        object["data"] = json!({"text": format!("<{n}> & \u{2028} é \u{1F600} \" \\ \t"), "empty": ""});
    }
    objects[3].1["metadata"]["labels"] = json!({"empty": "", "app": "x", "n": "abc"});
    for namespace in NAMESPACES.into_iter().skip(1) {
        objects.push((Some(namespace), json!({"metadata": {"name": "one", "labels": {"app": "y"}}})));
    }
    objects
}

fn pods() -> Objects {
    let mut objects = in_a(&["one", "two", "three"]);
    objects.push((Some(NAMESPACES[1]), json!({"metadata": {"name": "one"}})));
    let container = json!([{"name": "main", "image": "image", "args": ["<&>"]}]);
    for (n, (_, object)) in objects.iter_mut().enumerate() {
        let spec = match n {
            0 => json!({"containers": container, "nodeName": "node-x"}),
            1 => json!({"containers": container, "nodeName": "node-y", "hostNetwork": true}),
            _ => json!({
                "containers": container, "restartPolicy": "Never", "schedulerName": "other", "serviceAccountName": "other",
            }),
        };
        object["spec"] = spec;
    }
    objects[2].1["status"] = json!({"nominatedNodeName": "node-z"});
    objects[0].1["status"] = json!({"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]});
    objects
}

fn nodes() -> Objects {
    let mut nodes = named(&["node-x", "node-y"]);
    nodes[1].1["spec"] = json!({"unschedulable": true});
    nodes.into_iter().map(|(_, node)| (None, node)).collect()
}

/// Two that differ in every field there is a selector for, but for the namespace.
fn events() -> Objects {
    let of = [
        json!({
            "involvedObject": {
                "kind": "Pod", "name": "one", "namespace": A, "uid": "uid-one", "apiVersion": "v1",
                "resourceVersion": "11", "fieldPath": "spec.one",
            },
            "reason": "Because", "type": "Normal", "message": "something", "source": {"component": "harness"},
        }),
        json!({
            "involvedObject": {
                "kind": "Widget", "name": "two", "namespace": A, "uid": "uid-two", "apiVersion": format!("{GROUP}/v1"),
                "resourceVersion": "22", "fieldPath": "spec.two",
            },
            "reason": "Why", "type": "Warning", "message": "something else", "reportingComponent": "reporter",
        }),
    ];
    in_a(&["one", "two"]).into_iter().zip(of).map(|((space, object), of)| (space, with(object, &of))).collect()
}

/// Of two types.
fn secrets() -> Objects {
    let mut objects = in_a(&["one", "two"]);
    objects[1].1["type"] = json!("example.com/other");
    objects
}

fn deployments() -> Objects {
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template()});
    let mut objects = two(&json!({"spec": spec}));
    objects[1].1["metadata"]["annotations"] = json!({"deprecated.deployment.rollback.to": "7", "a": "<"});
    objects
}

fn daemon_sets() -> Objects {
    let mut objects = two(&json!({"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template()}}));
    objects[1].1["metadata"]["annotations"] = json!({"a": "1", "z": "<"});
    objects
}

/// Of one `autoscaling/v1` has all fields, of the other it needs annotations.
fn autoscalers() -> Objects {
    let spec = |metric: &str, behavior: Value| {
        json!({"spec": {
            "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "one"},
            "metrics": [{"type": "Resource", "resource": {"name": metric, "target": {"type": "Utilization", "averageUtilization": 50}}}],
            "behavior": behavior,
        }})
    };
    let specs = [spec("cpu", Value::Null), spec("memory", json!({"scaleDown": {"stabilizationWindowSeconds": 60}}))];
    let objects = in_a(&["one", "two"]).into_iter().zip(specs);
    objects.map(|((namespace, object), spec)| (namespace, with(object, &spec))).collect()
}

fn services() -> Objects {
    let mut objects = in_a(&["one", "two"]);
    objects[0].1["spec"] = json!({"clusterIP": "None", "ports": [{"port": 80}]});
    objects[1].1["spec"] = json!({"type": "ExternalName", "externalName": "example.com"});
    objects
}

fn slices() -> Objects {
    two(&json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": [{"port": 80}]}))
}

fn controllers() -> Objects {
    let mut objects = two(&json!({"spec": {"replicas": 1, "selector": {"app": "x"}, "template": template()}}));
    objects[0].1["status"] = json!({"replicas": 1});
    objects
}

fn jobs() -> Objects {
    let mut template = template();
    template["spec"]["restartPolicy"] = json!("Never");
    let mut objects = two(&json!({"spec": {"template": template}}));
    objects[0].1["status"] = json!({"succeeded": 1});
    objects
}

pub(crate) fn custom(kind: &str, object: Value) -> Value {
    with(object, &json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind}))
}

/// The `n`th of objects of which half are even.
pub(crate) fn parted(name: &str, n: usize) -> Value {
    json!({"metadata": {"name": name, "labels": {"even": n.is_multiple_of(2).to_string()}}})
}

fn widget_objects() -> Objects {
    let mut objects: Objects = in_a(&["one", "three", "two"]);
    let specs = [
        json!({"color": "red", "size": 5, "ready": true, "ratio": 1.0, "text": "<&> é"}),
        json!({"size": 7, "ready": false}),
        json!({"color": "blue", "nested": {"z": 1, "a": [null, 1e3, "x"]}}),
    ];
    for ((_, object), spec) in objects.iter_mut().zip(specs) {
        *object = custom("Widget", with(object.clone(), &json!({"spec": spec})));
    }
    objects
}

fn schema(version: &str) -> Value {
    // Versions that differ in what can be selected have to differ in their schemas.
    json!({"openAPIV3Schema": {"type": "object", "description": version, "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "color": {"type": "string"}, "size": {"type": "integer"}, "ready": {"type": "boolean"},
        }},
    }}})
}

/// Three versions: one with a column of its own, one that selects by other fields, one that is deprecated.
pub(crate) fn widgets() -> Value {
    json!({
        "metadata": {"name": format!("widgets.{GROUP}"), "labels": {"app": "x", "n": "0"}},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetCollection"},
            "versions": [
                {
                    "name": "v1", "served": true, "storage": true, "schema": schema("one"),
                    "selectableFields": [{"jsonPath": ".spec.color"}],
                    "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
                },
                {
                    "name": "v2", "served": true, "storage": false, "schema": schema("two"),
                    "selectableFields": [{"jsonPath": ".spec.size"}, {"jsonPath": ".spec.ready"}],
                },
                {
                    "name": "v1beta1", "served": true, "storage": false, "schema": schema("beta"),
                    "deprecated": true,
                },
                {"name": "v3", "served": false, "storage": false, "schema": schema("three")},
            ],
        },
    })
}

/// Cluster-scoped.
pub(crate) fn gadgets() -> Value {
    json!({
        "metadata": {"name": format!("gadgets.{GROUP}"), "labels": {"app": "y", "n": "7"}},
        "spec": {
            "group": GROUP, "scope": "Cluster",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema("one")}],
        },
    })
}
