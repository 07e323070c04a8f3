use serde_json::{Value, json};

use super::lead::{CLUSTER_CA, HOST, PORT};
use super::pod::Change;
use super::*;

const EXAMPLE: &str = include_str!("../../../manifests/examples/drop-in/workload.yaml");
const NODE_EXAMPLE: &str = include_str!("../../../manifests/examples/drop-in-node/kustomization.yaml");
const SIDECAR_EXAMPLE: &str = include_str!("../../../manifests/examples/drop-in-sidecar/patch.yaml");
const COMPONENT: &str = include_str!("../../../manifests/components/sidecar/patch.yaml");

/// With the defaults of the settings.
pub(super) fn injector() -> Injector {
    let config = InjectionConfig {
        image: "informerd:v0".to_owned(),
        tier: ("informerd.informerd-tier.svc".to_owned(), 443),
        node_port: 8643,
        excluded: ["informerd-injector", "informerd-tier", "informerd-node-agent"].map(str::to_owned).to_vec(),
    };
    let check = |config: &str, _: &[(String, String)]| {
        if config.contains("wrong") { Err("line 1: wrong".to_owned()) } else { Ok(()) }
    };
    Injector::new(config, check).unwrap()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// The volume that the apiserver adds to pods.
pub(super) fn kubelets_volume() -> Value {
    json!({"name": "kube-api-access-x2v9k", "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": CLUSTER_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}})
}

pub(super) fn kubelets_mount() -> Value {
    json!({"name": "kube-api-access-x2v9k", "mountPath": ACCOUNT, "readOnly": true})
}

/// As the apiserver sends it.
fn admitted() -> Value {
    json!({"metadata": {"generateName": "web-"}, "spec": {
        "containers": [{"name": "web", "image": "web", "volumeMounts": [kubelets_mount()]}],
        "volumes": [kubelets_volume()],
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
    }})
}

fn ask(pod: &Value, mode: Option<Mode>, admitted: bool) -> Result<Option<Change>, String> {
    let origin = Origin { namespace: "apps", default: mode, admitted };
    let meta: Option<Meta> = serde_json::from_value(pod["metadata"].clone()).unwrap();
    match wanted(&meta.unwrap_or_default(), &origin)? {
        Some(wanted) => {
            injector().check(&wanted)?;
            inject(pod.clone(), &wanted, &origin, &injector()).map(Some)
        }
        None => Ok(None),
    }
}

fn changed(pod: &Value, mode: Mode) -> Value {
    ask(pod, Some(mode), true).unwrap().expect("a change").pod
}

fn refused(pod: &Value, mode: Mode) -> String {
    ask(pod, Some(mode), true).unwrap_err()
}

#[test]
fn a_manifest_becomes_what_the_examples_are() {
    let example = yaml(EXAMPLE)["spec"]["template"].take();
    let mut plain = example.clone();
    for key in ["volumes", "automountServiceAccountToken"] {
        plain["spec"].as_object_mut().unwrap().remove(key);
    }
    for key in ["env", "volumeMounts"] {
        plain["spec"]["containers"][0].as_object_mut().unwrap().remove(key);
    }
    let renamed = |mut pod: Value| {
        let spec = &mut pod["spec"];
        spec["volumes"][0]["name"] = "account".into();
        spec["containers"][0]["volumeMounts"][0]["name"] = "account".into();
        spec.clone()
    };
    let mut expected = example["spec"].clone();
    expected.as_object_mut().unwrap().remove("automountServiceAccountToken");
    let tier = ask(&plain, Some(Mode::Tier), false).unwrap().unwrap().pod;
    assert_eq!(renamed(tier), expected);

    // The node agent's example is a change of that one.
    let kustomization = yaml(NODE_EXAMPLE);
    let patch = yaml(kustomization["patches"][0]["patch"].as_str().unwrap());
    let of =
        |path: &str| patch.as_array().unwrap().iter().find(|change| change["path"] == path).unwrap()["value"].clone();
    let prefix = "/spec/template/spec";
    expected["containers"][0]["env"][0] = of(&format!("{prefix}/containers/0/env/0"));
    expected["containers"][0]["env"][1]["value"] = of(&format!("{prefix}/containers/0/env/1/value"));
    expected["volumes"][0]["projected"]["sources"][1]["configMap"]["name"] =
        of(&format!("{prefix}/volumes/0/projected/sources/1/configMap/name"));
    let node = ask(&plain, Some(Mode::NodeAgent), false).unwrap().unwrap().pod;
    assert_eq!(renamed(node), expected);
}

#[test]
fn a_sidecar_is_that_of_the_manifests() {
    let pod = changed(&admitted(), Mode::Sidecar);
    let container = &pod["spec"]["initContainers"][0];
    let component = yaml(COMPONENT)["spec"]["template"]["spec"]["initContainers"][0].take();
    for (key, value) in component.as_object().unwrap() {
        if !["env", "volumeMounts", "image"].contains(&key.as_str()) {
            assert_eq!(container[key], *value, "{key}");
        }
    }
    assert_eq!(container["image"], injector().config.image);
    let example = yaml(SIDECAR_EXAMPLE)["spec"]["template"]["spec"].take();
    let mut env = component["env"].as_array().unwrap().clone();
    env.extend(example["initContainers"][0]["env"].as_array().unwrap().clone());
    assert_eq!(container["env"], json!(env));
    let mounts = container["volumeMounts"].as_array().unwrap();
    let names: Vec<_> = mounts.iter().map(|mount| mount["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["informerd", "informerd-state", "informerd-account", "kube-api-access-x2v9k"]);
    // The program uses it, and keeps nothing of the files of the kubelet.
    let web = &pod["spec"]["containers"][0];
    assert_eq!(web["env"], example["containers"][0]["env"]);
    assert_eq!(web["volumeMounts"], json!([{"name": "informerd-account", "mountPath": ACCOUNT, "readOnly": true}]));
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 60);
    assert_eq!(pod["metadata"]["labels"], json!({"informerd.io/probes": "true"}));
    // Its configuration is the component's, without the comments.
    let text = pod["metadata"]["annotations"][SIDECAR_CONFIG].as_str().unwrap();
    assert_eq!(yaml(text), yaml(include_str!("../../../manifests/components/sidecar/informerd.yaml")));
    assert!(!text.contains('#') && text.len() < 600, "{text}");
}

#[test]
fn an_admitted_pod_keeps_its_volume_with_another_ca() {
    for (mode, map, host) in [
        (Mode::Tier, "informerd-ca", json!({"name": HOST, "value": "informerd.informerd-tier.svc"})),
        (
            Mode::NodeAgent,
            "informerd-node-ca",
            json!({"name": HOST, "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}),
        ),
    ] {
        let pod = changed(&admitted(), mode);
        let mut volume = kubelets_volume();
        volume["projected"]["sources"][1]["configMap"]["name"] = map.into();
        assert_eq!(pod["spec"]["volumes"], json!([volume]));
        let web = &pod["spec"]["containers"][0];
        assert_eq!((&web["volumeMounts"], &web["env"][0]), (&json!([kubelets_mount()]), &host));
        assert_eq!(pod["metadata"]["annotations"], json!({INJECTED: mode.as_str()}));
        assert_eq!(pod["spec"]["initContainers"], Value::Null);
    }
}

#[test]
fn labels_and_annotations_decide() {
    let with = |labels: Value, annotations: Value| {
        let mut pod = admitted();
        pod["metadata"]["labels"] = labels;
        pod["metadata"]["annotations"] = annotations;
        pod
    };
    let none = Value::Null;
    let tier = Some(Mode::Tier);
    // Nothing is asked for.
    assert_eq!(ask(&with(none.clone(), none.clone()), None, true), Ok(None));
    assert_eq!(ask(&with(json!({INJECT: "disabled"}), none.clone()), tier, true), Ok(None));
    assert_eq!(ask(&with(none.clone(), json!({INJECTED: "tier"})), tier, true), Ok(None));
    assert_eq!(ask(&with(none.clone(), json!({"kubernetes.io/config.mirror": "x"})), tier, true), Ok(None));
    // The label of a pod stands before that of its namespace.
    let pod = ask(&with(json!({INJECT: "node-agent"}), none.clone()), tier, true).unwrap().unwrap().pod;
    assert_eq!(pod["metadata"]["annotations"][INJECTED], "node-agent");
    // Mistakes.
    for (labels, annotations, words) in [
        (json!({INJECT: "sidcar"}), none.clone(), "the label informerd.io/inject is \"sidcar\": want sidecar,"),
        (none.clone(), json!({INJECT: "disabled"}), "is a label and not an annotation"),
        (none.clone(), json!({CONTAINERS: "web, wbe"}), "names \"wbe\", and there is no such container"),
        (none.clone(), json!({CONTAINERS: " ,"}), "names no container"),
        (none.clone(), json!({SIDECAR_MEMORY: "1Gi"}), "is for the mode sidecar; the mode is tier"),
        (json!({INJECT: "sidecar"}), json!({SIDECAR_MEMORY: "63Mi"}), "at least 64Mi"),
        (json!({INJECT: "sidecar"}), json!({SIDECAR_MEMORY: "1.5Gi"}), "a whole number of Mi or Gi"),
        (json!({INJECT: "sidecar"}), json!({SIDECAR_MEMORY: "99999999999999999999Gi"}), "a whole number"),
        (json!({INJECT: "sidecar"}), json!({SIDECAR_CONFIG: "wrong"}), "sidecar-config: line 1: wrong"),
    ] {
        let why = ask(&with(labels, annotations), tier, true).unwrap_err();
        assert!(why.contains(words), "{why}");
    }
    let pod =
        with(json!({INJECT: "sidecar"}), json!({SIDECAR_MEMORY: "256Mi", SIDECAR_CONFIG: "probes: 0.0.0.0:8003"}));
    let pod = ask(&pod, None, true).unwrap().unwrap().pod;
    let resources = &pod["spec"]["initContainers"][0]["resources"];
    assert_eq!((&resources["requests"]["memory"], &resources["limits"]["memory"]), (&json!("256Mi"), &json!("256Mi")));
    assert_eq!(pod["metadata"]["annotations"][SIDECAR_CONFIG], "probes: 0.0.0.0:8003");
}

#[test]
fn what_cannot_be_changed_safely_stays() {
    let with = |path: &str, value: Value| {
        let mut pod = admitted();
        let (parent, key) = path.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[key] = value;
        pod
    };
    for (mode, path, value, words) in [
        (Mode::Sidecar, "/spec/hostNetwork", json!(true), "in the network of its node"),
        (Mode::Tier, "/spec/hostNetwork", json!(true), "do not resolve"),
        (Mode::Tier, "/spec/dnsPolicy", json!("Default"), "do not resolve"),
        (Mode::NodeAgent, "/spec/os", json!({"name": "windows"}), "Windows"),
        (Mode::Sidecar, "/spec/initContainers", json!([{"name": "informerd"}]), "a container informerd already"),
        (Mode::Sidecar, "/spec/volumes/1", json!({"name": "informerd-state"}), "a volume informerd-state already"),
        (Mode::Sidecar, "/spec/containers/0/ports", json!([{"containerPort": 8443}]), "the port 8443"),
        (Mode::Sidecar, "/spec/containers/0/ports", json!([{"containerPort": 8002}]), "the port 8002"),
        (
            Mode::Tier,
            "/spec/containers/0/env",
            json!([{"name": PORT, "value": "1"}]),
            "it sets KUBERNETES_SERVICE_PORT",
        ),
        (Mode::Tier, "/spec/containers/0/volumeMounts", json!([]), "no container has a token"),
        (Mode::Tier, "/spec/volumes", json!([{"name": "kube-api-access-x2v9k", "emptyDir": {}}]), "files of its own"),
        (Mode::Tier, "/spec/containers/0/volumeMounts/0/subPath", json!("a"), "files of its own"),
        (Mode::Tier, "/spec/containers", json!({}), "is no list of mappings"),
        (Mode::Tier, "/spec", Value::Null, "there is no spec"),
        (Mode::Tier, "/metadata/annotations", json!({}), ""),
    ] {
        let pod = if path == "/spec/volumes/1" {
            with("/spec/volumes", json!([kubelets_volume(), value]))
        } else {
            with(path, value)
        };
        if words.is_empty() {
            changed(&pod, mode);
        } else {
            let why = refused(&pod, mode);
            assert!(why.contains(words), "{path}: {why}");
        }
    }
    // These can be.
    changed(&with("/spec/hostNetwork", json!(true)), Mode::NodeAgent);
    let mut pod = with("/spec/hostNetwork", json!(true));
    pod["spec"]["dnsPolicy"] = "ClusterFirstWithHostNet".into();
    changed(&pod, Mode::Tier);
    let sidecar = Some(Mode::Sidecar);
    for namespace in ["kube-system", "informerd-tier", "informerd-node-agent", "informerd-injector"] {
        let origin = Origin { namespace, default: sidecar, admitted: true };
        let asked = wanted(&Meta::default(), &origin).unwrap().unwrap();
        let why = inject(admitted(), &asked, &origin, &injector()).unwrap_err();
        assert!(why.contains("never changed"), "{why}");
    }
}

#[test]
fn large_pods_stay() {
    let mut pod = admitted();
    let container = |n: usize| json!({"name": format!("c{n}"), "image": "i", "volumeMounts": [kubelets_mount()]});
    pod["spec"]["containers"] = (0..257).map(container).collect();
    // Before each name is looked for among them.
    pod["metadata"]["annotations"] = json!({CONTAINERS: "c256,none"});
    assert!(refused(&pod, Mode::Tier).contains("257 containers"));
    pod["metadata"]["annotations"] = Value::Null;
    pod["spec"]["containers"].as_array_mut().unwrap().pop();
    changed(&pod, Mode::Tier);
    let mut pod = admitted();
    let config = |len: usize| json!({SIDECAR_CONFIG: format!("# {}", "x".repeat(len - 2))});
    pod["metadata"]["annotations"] = config((64 << 10) + 1);
    assert!(refused(&pod, Mode::Sidecar).contains("65537 bytes"));
    for name in [CONTAINERS, SIDECAR_MEMORY] {
        pod["metadata"]["annotations"] = json!({name: "\u{7f}".repeat((64 << 10) + 1)});
        assert_eq!(refused(&pod, Mode::Sidecar), format!("the annotation {name} has 65537 bytes, more than 65536"));
    }
    pod["metadata"]["labels"] = json!({INJECT: "é".repeat(1_000)});
    assert!(refused(&pod, Mode::Sidecar).contains(&format!(" is \"{}\": want ", "é".repeat(63))));
    pod["metadata"]["labels"] = Value::Null;
    pod["metadata"]["annotations"] = config(64 << 10);
    changed(&pod, Mode::Sidecar);
}

#[test]
fn only_chosen_containers_are_led() {
    let mut pod = admitted();
    let proxy = json!({"name": "proxy", "image": "p", "env": [{"name": HOST, "value": "x"}]});
    pod["spec"]["containers"].as_array_mut().unwrap().push(proxy.clone());
    let change = ask(&pod, Some(Mode::Tier), true).unwrap().unwrap();
    assert_eq!(change.warnings, ["the container proxy stays as it is: it sets KUBERNETES_SERVICE_HOST itself"]);
    assert_eq!(change.pod["spec"]["containers"][1], proxy);
    pod["metadata"]["annotations"] = json!({CONTAINERS: "web"});
    assert!(ask(&pod, Some(Mode::Tier), true).unwrap().unwrap().warnings.is_empty());
    // In front, so that what refers to them is led as well.
    let own = json!({"name": "API", "value": "https://$(KUBERNETES_SERVICE_HOST)"});
    pod["spec"]["containers"][0]["env"] = json!([own]);
    assert_eq!(changed(&pod, Mode::Tier)["spec"]["containers"][0]["env"][2], own);
}

#[test]
fn reviews_are_answered_as_the_apiserver_expects() {
    let review = |change: &dyn Fn(&mut Value)| {
        let mut review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "apps", "operation": "CREATE",
            "dryRun": true, "oldObject": null, "object": {"metadata": {"generateName": "web-", "labels": {"a": "b"}}, "spec": {}},
        }});
        change(&mut review);
        review.to_string()
    };
    let text = review(&|_| {});
    let parsed = Review::parse(text.as_bytes()).unwrap();
    let (meta, object) = parsed.pod.as_ref().unwrap();
    assert_eq!((&*parsed.uid, &*parsed.namespace, parsed.dry_run), ("u-1", "apps", true));
    assert_eq!((&*meta.generate_name, &*meta.labels["a"], object.get().starts_with('{')), ("web-", "b", true));
    for other in [
        review(&|review| review["request"]["operation"] = "UPDATE".into()),
        review(&|review| review["request"]["subResource"] = "binding".into()),
        review(&|review| review["request"]["kind"]["kind"] = "Service".into()),
        review(&|review| review["request"]["kind"]["group"] = "apps".into()),
        review(&|review| review["request"]["object"] = Value::Null),
    ] {
        assert!(Review::parse(other.as_bytes()).unwrap().pod.is_none(), "{other}");
    }
    for wrong in [
        "{}".to_owned(),
        "nothing".to_owned(),
        review(&|review| review["apiVersion"] = "admission.k8s.io/v1beta1".into()),
        review(&|review| review["request"] = Value::Null),
        review(&|review| review["request"]["object"]["metadata"]["labels"] = json!(["a"])),
    ] {
        assert!(Review::parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
    let nothing = Answer::default().render("u-1");
    assert_eq!(nothing["response"], json!({"uid": "u-1", "allowed": true}));
    let answer =
        Answer { patch: vec![json!({"op": "add"})], warnings: vec![format!("a\n{}", "b".repeat(300))] }.render("u-2");
    assert_eq!(answer["response"]["patchType"], "JSONPatch");
    assert_eq!(answer["response"]["patch"], "W3sib3AiOiJhZGQifV0=");
    let answer_of = |count: usize| Answer { warnings: vec!["w".to_owned(); count], ..Answer::default() }.render("u");
    let told = [8, 9].map(|count| answer_of(count)["response"]["warnings"].as_array().unwrap().len());
    assert_eq!(told, [8; 2]);
    let warning = answer["response"]["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("informerd: a b") && warning.len() == 256, "{warning}");
}
