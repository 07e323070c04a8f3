//! Workloads and their pods. Each differs from the others in what real ones differ in.

use serde_json::{Map, Value, json};

use super::random::Random;

/// What pods of one controller have in common.
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) namespace: String,
    hash: String,
    uid: String,
    labels: Map<String, Value>,
    annotations: Value,
    volumes: Vec<Value>,
    pub(crate) containers: Vec<Value>,
}

pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) object: Value,
    /// What the kubelet says later.
    pub(crate) status: Value,
}

pub(crate) const NAMESPACES: [&str; 24] = [
    "auth",
    "payments",
    "search",
    "media",
    "mail",
    "streaming",
    "observability",
    "platform",
    "gateway",
    "edge",
    "users",
    "catalog",
    "orders",
    "shipping",
    "billing",
    "reporting",
    "batch",
    "ml-training",
    "ml-serving",
    "audit",
    "backup",
    "networking",
    "staging",
    "sandbox",
];

/// Nodes that pods run on.
pub(crate) const NODES: usize = 300;

// === impl Workload ===

impl Workload {
    pub(crate) fn new(number: usize) -> Self {
        let random = &mut Random::new(0x1000_0000 + number as u64);
        let name = format!("{}-{number}", random.name(3));
        let volumes: Vec<Value> = (0..random.within(0, 1)).map(|i| volume(i, random)).collect();
        let count = *random.pick(&[1, 1, 1, 1, 1, 1, 1, 2, 2, 3]);
        let containers = (0..count).map(|i| container(i, &volumes, random)).collect();
        let mut labels = Map::new();
        labels.insert("app.kubernetes.io/name".into(), name.clone().into());
        labels.insert("app.kubernetes.io/instance".into(), format!("{name}-prod").into());
        labels.insert("team".into(), random.word().into());
        labels.insert("version".into(), format!("v{}.{}", random.within(0, 9), random.within(0, 99)).into());
        let mut annotations = json!({});
        if random.chance(60) {
            annotations["prometheus.io/scrape"] = "true".into();
            annotations["checksum/config"] = random.hex(64).into();
        }
        Self {
            name,
            namespace: (*random.pick(&NAMESPACES)).to_owned(),
            hash: random.suffix(9),
            uid: random.uuid(),
            labels,
            annotations,
            volumes,
            containers,
        }
    }

    pub(crate) fn labels(&self) -> Value {
        self.labels.clone().into()
    }

    /// A pod without what differs from pod to pod.
    pub(crate) fn template(&self) -> Value {
        json!({
            "metadata": {"labels": self.labels, "annotations": self.annotations},
            "spec": {"containers": self.containers, "volumes": self.volumes},
        })
    }

    pub(crate) fn pod(&self, number: usize) -> Pod {
        let random = &mut Random::new(0x2000_0000 + number as u64);
        let owner = format!("{}-{}", self.name, self.hash);
        let name = format!("{owner}-{}", random.suffix(5));
        let token = format!("kube-api-access-{}", random.suffix(5));
        let mut labels = self.labels.clone();
        labels.insert("pod-template-hash".into(), self.hash.clone().into());
        let mut volumes = self.volumes.clone();
        volumes.push(token_volume(&token));
        let mut containers = self.containers.clone();
        for container in &mut containers {
            if let Some(mounts) = container["volumeMounts"].as_array_mut() {
                let path = "/var/run/secrets/kubernetes.io/serviceaccount";
                mounts.push(json!({"name": token, "readOnly": true, "mountPath": path}));
            }
        }
        let tolerate = |what: &str| json!({"key": format!("node.kubernetes.io/{what}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        let object = json!({
            "metadata": {
                "name": name,
                "generateName": format!("{owner}-"),
                "labels": labels,
                "annotations": self.annotations,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": self.uid, "controller": true, "blockOwnerDeletion": true}],
            },
            "spec": {
                "nodeName": node_name(random.within(0, NODES - 1)),
                "serviceAccountName": self.name,
                "containers": containers,
                "volumes": volumes,
                "tolerations": [tolerate("not-ready"), tolerate("unreachable")],
            },
        });
        let status = status(&self.containers, random);
        Pod { name, namespace: self.namespace.clone(), object, status }
    }
}

/// The number of the workload of a pod: the first ones have most pods.
pub(crate) fn workload_of(pod: usize, workloads: usize) -> usize {
    let part = Random::new(0x3000_0000 + pod as u64).within(0, 999_999) as f64 / 1e6;
    // The inverse of the integral of x^-0.7 from 1 on: the first workload of 400 has a twentieth of all pods.
    let most = (workloads as f64 + 1.0).powf(0.3) - 1.0;
    let number = (1.0 + part * most).powf(1.0 / 0.3) - 1.0;
    (number as usize).min(workloads - 1)
}

pub(crate) fn node_name(number: usize) -> String {
    let random = &mut Random::new(0x4000_0000 + number as u64);
    let [a, b] = [0; 2].map(|_| random.within(0, 255));
    format!("ip-10-{a}-{b}-{number}.eu-central-1.compute.internal")
}

fn volume(number: usize, random: &mut Random) -> Value {
    let name = format!("{}-{number}", random.word());
    match random.within(0, 2) {
        0 => json!({"name": name, "configMap": {"name": format!("{}-config", random.name(2))}}),
        1 => json!({"name": name, "secret": {"secretName": format!("{}-tls", random.name(2))}}),
        _ => json!({"name": name, "emptyDir": {}}),
    }
}

fn token_volume(name: &str) -> Value {
    let namespace = json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    json!({"name": name, "projected": {"sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]}})
}

fn container(number: usize, volumes: &[Value], random: &mut Random) -> Value {
    let name = format!("{}-{number}", random.name(2));
    let port = random.within(1000, 9999);
    let (cpu, memory) = (random.within(10, 1000), random.within(16, 2048));
    let mounts: Vec<Value> = volumes
        .iter()
        .map(|volume| json!({"name": volume["name"], "mountPath": format!("/etc/{}", volume["name"].as_str().unwrap_or_default())}))
        .collect();
    let mut container = json!({
        "name": name,
        "image": random.image(&name),
        "ports": [{"name": "http", "containerPort": port}],
        "env": (0..random.within(0, 4)).map(|i| variable(i, random)).collect::<Vec<_>>(),
        "resources": {
            "requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")},
            "limits": {"cpu": format!("{}m", cpu * random.within(1, 4)), "memory": format!("{}Mi", memory * random.within(1, 3))},
        },
        "volumeMounts": mounts,
    });
    if random.chance(50) {
        let argument = |random: &mut Random| match random.chance(50) {
            true => format!("--{}={}", random.name(2), random.word()),
            false => format!("--{}={}", random.name(2), random.within(0, 9999)),
        };
        container["args"] = (0..random.within(1, 4)).map(|_| argument(random)).collect();
    }
    for (probe, percent) in [("livenessProbe", 50), ("readinessProbe", 40)] {
        if random.chance(percent) {
            let path = *random.pick(&["/healthz", "/readyz", "/livez", "/health/ready"]);
            container[probe] =
                json!({"httpGet": {"path": path, "port": port}, "initialDelaySeconds": random.within(1, 60)});
        }
    }
    container
}

fn variable(number: usize, random: &mut Random) -> Value {
    let name = format!("{}_{number}", random.name(3).to_uppercase().replace('-', "_"));
    match random.within(0, 9) {
        0..6 => {
            let value = match random.within(0, 3) {
                0 => random.within(1, 90_000).to_string(),
                1 => random.chance(50).to_string(),
                2 => {
                    let (service, namespace) = (random.name(2), random.pick(&NAMESPACES));
                    format!("http://{service}.{namespace}.svc.cluster.local:{}", random.within(1000, 9999))
                }
                _ => random.hex(24),
            };
            json!({"name": name, "value": value})
        }
        6..8 => {
            let secret = format!("{}-secret", random.word());
            json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": random.word()}}})
        }
        _ => {
            let field = *random.pick(&["metadata.name", "status.podIP", "spec.nodeName", "metadata.namespace"]);
            json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": field}}})
        }
    }
}

pub(crate) fn status(containers: &[Value], random: &mut Random) -> Value {
    const CONDITIONS: [&str; 5] =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let (started, ip, host) = (random.time(), random.ip(), random.ip());
    let conditions: Vec<Value> = CONDITIONS
        .iter()
        .map(|kind| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": random.time()}))
        .collect();
    let statuses: Vec<Value> = containers
        .iter()
        .map(|container| {
            let image = container["image"].as_str().unwrap_or_default();
            let repository = image.split(':').next().unwrap_or_default();
            json!({
                "name": container["name"],
                "state": {"running": {"startedAt": random.time()}},
                "lastState": {},
                "ready": true,
                "restartCount": *random.pick(&[0, 0, 0, 1, 7]),
                "image": image,
                "imageID": format!("{repository}@sha256:{}", random.hex(64)),
                "containerID": format!("containerd://{}", random.hex(64)),
                "started": true,
            })
        })
        .collect();
    json!({
        "phase": "Running",
        "conditions": conditions,
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": started,
        "containerStatuses": statuses,
    })
}
