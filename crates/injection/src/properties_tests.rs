//! What holds for every pod.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::lead::{HOST, PORT};
use super::tests::{injector, kubelets_mount, kubelets_volume};
use super::*;

fn maybe(value: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    prop_oneof![Just(Value::Null), value]
}

fn env() -> impl Strategy<Value = Value> {
    let variable = prop_oneof![
        8 => Just(json!({"name": "A", "value": "1"})),
        8 => Just(json!({"name": "API", "value": "https://$(KUBERNETES_SERVICE_HOST)"})),
        1 => Just(json!({"name": HOST, "value": "own"})),
    ];
    prop::collection::vec(variable, 0..3).prop_map(|list| json!(list))
}

fn mounts() -> impl Strategy<Value = Value> {
    let account = prop_oneof![
        4 => Just(vec![]),
        6 => Just(vec![kubelets_mount()]),
        1 => Just(vec![json!({"name": "data", "mountPath": ACCOUNT})]),
    ];
    (account, any::<bool>()).prop_map(|(mut mounts, data)| {
        if data {
            mounts.insert(0, json!({"name": "data", "mountPath": "/data"}));
        }
        json!(mounts)
    })
}

fn container(name: String) -> impl Strategy<Value = Value> {
    let ports = prop_oneof![9 => Just(json!([{"containerPort": 8080}])), 1 => Just(json!([{"containerPort": 8443}]))];
    let security = Just(json!({"runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}}));
    (maybe(env()), maybe(mounts()), maybe(ports), maybe(security)).prop_map(move |(env, mounts, ports, security)| {
        let mut container = json!({"name": name, "image": "i", "unknown": {"kept": [1, null]}});
        for (key, value) in [("env", env), ("volumeMounts", mounts), ("ports", ports), ("securityContext", security)] {
            if !value.is_null() {
                container[key] = value;
            }
        }
        container
    })
}

fn containers(prefix: &'static str) -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        9 => (0..4_usize).prop_flat_map(move |count| {
            let all: Vec<_> = (0..count).map(|i| container(format!("{prefix}{i}"))).collect();
            all.prop_map(|list| json!(list))
        }),
    ]
}

fn pod() -> impl Strategy<Value = Value> {
    let volumes = prop::collection::vec(
        prop_oneof![
            6 => Just(json!({"name": "data", "emptyDir": {}})),
            1 => Just(json!({"name": "informerd", "emptyDir": {}})),
            1 => Just(json!({"name": "informerd-account", "emptyDir": {}})),
        ],
        0..2,
    );
    let metadata = prop_oneof![
        Just(Value::Null),
        Just(json!({"name": "a"})),
        Just(json!({"labels": {"app": "a"}, "annotations": {"b": "c"}})),
        Just(json!({"labels": {"informerd.io/probes": "mine"}, "annotations": null})),
    ];
    let grace = prop_oneof![Just(Value::Null), Just(json!(30)), Just(json!(5))];
    let flags = (prop::bool::weighted(0.1), maybe(Just(json!(false))), any::<bool>());
    (containers("init"), containers("c"), maybe(volumes.prop_map(|list| json!(list))), metadata, grace, flags).prop_map(
        |(init, containers, volumes, metadata, grace, (host_network, automount, restricted))| {
            let mut volumes = volumes;
            if [&init, &containers].iter().any(|list| list.to_string().contains("kube-api-access")) {
                match volumes.as_array_mut() {
                    Some(list) => list.push(kubelets_volume()),
                    None => volumes = json!([kubelets_volume()]),
                }
            }
            let mut spec = json!({"hostNetwork": host_network});
            if restricted {
                spec["securityContext"] = json!({"runAsUser": 1000, "fsGroup": 2000});
            }
            for (key, value) in [
                ("initContainers", init),
                ("containers", containers),
                ("volumes", volumes),
                ("terminationGracePeriodSeconds", grace),
                ("automountServiceAccountToken", automount),
            ] {
                if !value.is_null() {
                    spec[key] = value;
                }
            }
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        },
    )
}

/// Applies a JSON patch, as far as RFC 6902 is used here.
fn apply(mut value: Value, patch: &[Value]) -> Value {
    for operation in patch {
        let path = operation["path"].as_str().unwrap();
        let (parent, key) = path.rsplit_once('/').unwrap();
        let key = key.replace("~1", "/").replace("~0", "~");
        let new = operation["value"].clone();
        match (operation["op"].as_str().unwrap(), value.pointer_mut(parent).expect(path)) {
            ("add", Value::Object(map)) => _ = map.insert(key, new),
            ("add", Value::Array(list)) => list.insert(key.parse().unwrap(), new),
            ("replace", Value::Object(map)) => *map.get_mut(&key).expect(path) = new,
            ("replace", Value::Array(list)) => list[key.parse::<usize>().unwrap()] = new,
            _ => panic!("{operation}"),
        }
    }
    value
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn names(items: &[Value], key: &str) -> Vec<String> {
    items.iter().map(|item| item[key].as_str().unwrap().trim_end_matches('/').to_owned()).collect()
}

fn unique(names: &[String]) -> bool {
    names.iter().collect::<BTreeSet<_>>().len() == names.len()
}

/// Everything but the keys that are known to change.
fn rest(value: &Value, but: &[&str]) -> Value {
    let mut rest = value.clone();
    if let Some(map) = rest.as_object_mut() {
        map.retain(|key, value| !but.contains(&key.as_str()) && !value.is_null());
    }
    rest
}

/// Only what has to change has changed.
fn keeps(before: &Value, after: &Value, mode: Mode) {
    assert_eq!(rest(before, &["metadata", "spec"]), rest(after, &["metadata", "spec"]));
    let but = ["initContainers", "containers", "volumes", "terminationGracePeriodSeconds"];
    let (old, new) = (&before["spec"], &after["spec"]);
    assert_eq!(rest(old, &but), rest(new, &but));
    if mode != Mode::Sidecar || old["terminationGracePeriodSeconds"] == 5 {
        assert_eq!(old["terminationGracePeriodSeconds"], new["terminationGracePeriodSeconds"]);
    }
    for (kind, added) in [("initContainers", usize::from(mode == Mode::Sidecar)), ("containers", 0)] {
        let (old, new) = (list(old, kind), list(new, kind));
        assert_eq!(new.len(), old.len() + added, "{kind}");
        for (old, new) in old.iter().zip(&new[added..]) {
            assert_eq!(rest(old, &["env", "volumeMounts"]), rest(new, &["env", "volumeMounts"]));
            assert!(list(new, "env").ends_with(list(old, "env")));
            let others = |container: &Value| -> Vec<Value> {
                list(container, "volumeMounts").iter().filter(|mount| mount["mountPath"] != ACCOUNT).cloned().collect()
            };
            assert_eq!(others(old), others(new));
        }
    }
    for (old, new) in list(old, "volumes").iter().zip(list(new, "volumes")) {
        let mut new = new.clone();
        if old["projected"].is_object() {
            new["projected"]["sources"][1]["configMap"]["name"] = super::lead::CLUSTER_CA.into();
        }
        assert_eq!(*old, new);
    }
    for key in ["labels", "annotations"] {
        for (name, value) in before["metadata"][key].as_object().into_iter().flatten() {
            assert_eq!(after["metadata"][key][name], *value, "{name}");
        }
    }
}

/// What the apiserver would refuse is not made.
fn is_valid(pod: &Value) {
    let spec = &pod["spec"];
    assert!(unique(&names(list(spec, "volumes"), "name")), "{spec}");
    let all = ["initContainers", "containers"].map(|kind| list(spec, kind)).concat();
    assert!(unique(&names(&all, "name")), "{spec}");
    let volumes = names(list(spec, "volumes"), "name");
    for container in &all {
        let mounts = list(container, "volumeMounts");
        assert!(unique(&names(mounts, "mountPath")), "{container}");
        assert!(names(mounts, "name").iter().all(|name| volumes.contains(name) || name == "data"), "{container}");
        let env = names(list(container, "env"), "name");
        let led = env.iter().filter(|name| *name == HOST || *name == PORT).count();
        assert!(led <= 2, "{container}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_change_is_small_valid_and_made_once(
        pod in pod(),
        mode in prop::sample::select(&Mode::ALL[..]),
        admitted in any::<bool>(),
    ) {
        let injector = injector();
        let origin = Origin { namespace: "apps", default: Some(mode), admitted };
        let meta = |pod: &Value| serde_json::from_value::<Option<Meta>>(pod["metadata"].clone()).unwrap().unwrap_or_default();
        let asked = wanted(&meta(&pod), &origin).unwrap().unwrap();
        let outcome = inject(pod.clone(), &asked, &origin, &injector);
        match outcome {
            Ok(change) => {
                prop_assert_eq!(apply(pod.clone(), &change.patch), change.pod.clone());
                prop_assert_eq!(wanted(&meta(&change.pod), &origin), Ok(None), "it is not changed again");
                keeps(&pod, &change.pod, mode);
                if unique(&names(list(&pod["spec"], "volumes"), "name")) {
                    is_valid(&change.pod);
                }
            }
            Err(reason) => prop_assert!(!reason.is_empty() && !reason.contains('\n')),
        }
    }
}
