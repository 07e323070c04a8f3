//! Objects of other kinds than pods.

use serde_json::{Map, Value, json};

use super::random::Random;
use super::varied::{NAMESPACES, Workload, node_name};

/// A kind that informerd keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pods,
    Deployments,
    ConfigMaps,
    Services,
    Events,
    Nodes,
    Leases,
}

/// Where an object is written, and by whom.
pub(crate) struct Written {
    pub(crate) path: String,
    pub(crate) object: Value,
}

// === impl Kind ===

impl Kind {
    pub(crate) const ALL: [Self; 7] =
        [Self::Pods, Self::Deployments, Self::ConfigMaps, Self::Services, Self::Events, Self::Nodes, Self::Leases];

    /// Its name in rules.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Deployments => "deployments.apps",
            Self::ConfigMaps => "configmaps",
            Self::Services => "services",
            Self::Events => "events",
            Self::Nodes => "nodes",
            Self::Leases => "leases.coordination.k8s.io",
        }
    }

    fn group(self) -> &'static str {
        match self {
            Self::Deployments => "/apis/apps/v1",
            Self::Leases => "/apis/coordination.k8s.io/v1",
            _ => "/api/v1",
        }
    }

    fn plural(self) -> &'static str {
        self.resource().split('.').next().unwrap_or_default()
    }

    /// All of them.
    pub(crate) fn path(self) -> String {
        format!("{}/{}", self.group(), self.plural())
    }

    pub(crate) fn path_in(self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.group(), self.plural())
    }

    /// Pods are made by [`Workload::pod`].
    pub(crate) fn make(self, number: usize, workloads: &[Workload]) -> Written {
        let random = &mut Random::new(0x1_0000_0000 * (self as u64 + 1) + number as u64);
        let workload = &workloads[number % workloads.len()];
        // Numbers beyond the workloads need names of their own.
        let name = format!("{}-{}", workload.name, random.suffix(5));
        let (manager, object) = match self {
            Self::Pods => ("kube-controller-manager", workload.pod(number).object),
            Self::Deployments => ("helm", deployment(&name, workload, random)),
            Self::ConfigMaps => ("argocd-controller", config_map(&name, random)),
            Self::Services => ("helm", service(&name, workload, random)),
            Self::Events => ("kubelet", event(workload, number, random)),
            Self::Nodes => {
                return Written { path: format!("{}?fieldManager=kubelet", self.path()), object: node(number, random) };
            }
            Self::Leases => ("kubelet", lease(&name, random)),
        };
        let namespace = match self {
            Self::ConfigMaps | Self::Leases => random.pick(&NAMESPACES),
            _ => &*workload.namespace,
        };
        Written { path: format!("{}?fieldManager={manager}", self.path_in(namespace)), object }
    }
}

fn deployment(name: &str, workload: &Workload, random: &mut Random) -> Value {
    let annotations = json!({
        "deployment.kubernetes.io/revision": random.within(1, 90).to_string(),
        "meta.helm.sh/release-name": workload.name,
        "meta.helm.sh/release-namespace": workload.namespace,
    });
    json!({
        "metadata": {"name": name, "labels": workload.labels(), "annotations": annotations},
        "spec": {
            "replicas": random.within(1, 20),
            "selector": {"matchLabels": workload.labels()},
            "template": workload.template(),
        },
    })
}

/// A few values, a file, or a large file with certificates.
fn config_map(name: &str, random: &mut Random) -> Value {
    let mut data = Map::new();
    match random.within(0, 9) {
        0..5 => {
            for _ in 0..random.within(1, 6) {
                data.insert(random.name(2).to_uppercase(), random.name(3).into());
            }
        }
        5..9 => {
            data.insert("application.yaml".into(), settings(random.within(10, 150), random).into());
        }
        _ => {
            let lines: Vec<String> = (0..random.within(200, 700)).map(|_| random.base64(64)).collect();
            data.insert("ca-bundle.crt".into(), lines.join("\n").into());
        }
    }
    let labels = json!({"app.kubernetes.io/managed-by": "argocd", "team": random.word()});
    json!({"metadata": {"name": name, "labels": labels}, "data": data})
}

fn settings(lines: usize, random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..lines {
        let (indent, key) = ("  ".repeat(random.within(0, 3)), random.name(2));
        let value = match random.within(0, 3) {
            0 => random.within(0, 99_999).to_string(),
            1 => random.name(3),
            2 => format!("https://{}.example.com/{}", random.name(2), random.word()),
            _ => "true".to_owned(),
        };
        text.push_str(&format!("{indent}{key}: {value}\n"));
    }
    text
}

fn service(name: &str, workload: &Workload, random: &mut Random) -> Value {
    let ports: Vec<Value> = (0..random.within(1, 3))
        .map(|i| json!({"name": format!("{}-{i}", random.word()), "port": 8000 + i, "targetPort": random.within(1000, 9999)}))
        .collect();
    // Without an address of its own: the range of a test cluster is small.
    json!({
        "metadata": {"name": format!("s-{}", &name[name.len() - 40.min(name.len())..].trim_start_matches('-')), "labels": workload.labels()},
        "spec": {"clusterIP": "None", "selector": workload.labels(), "ports": ports},
    })
}

fn event(workload: &Workload, number: usize, random: &mut Random) -> Value {
    let pod = workload.pod(number).name;
    let image = workload.containers.first().and_then(|container| container["image"].as_str()).unwrap_or_default();
    let (reason, kind, message) = match random.within(0, 4) {
        0 => (
            "Scheduled",
            "Normal",
            format!("Successfully assigned {}/{pod} to {}", workload.namespace, node_name(random.within(0, 299))),
        ),
        1 => ("Pulled", "Normal", format!("Container image \"{image}\" already present on machine")),
        2 => ("Started", "Normal", format!("Started container {}", random.name(2))),
        3 => (
            "Unhealthy",
            "Warning",
            format!("Readiness probe failed: Get \"http://{}:8080/healthz\": context deadline exceeded", random.ip()),
        ),
        _ => ("BackOff", "Warning", format!("Back-off restarting failed container {} in pod {pod}", random.name(2))),
    };
    let time = random.time();
    json!({
        "metadata": {"name": format!("{pod}.{}", random.hex(16))},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": workload.namespace, "name": pod, "uid": random.uuid(), "resourceVersion": random.within(1_000_000, 999_999_999).to_string()},
        "reason": reason,
        "message": message,
        "type": kind,
        "count": random.within(1, 400),
        "firstTimestamp": time,
        "lastTimestamp": time,
        "source": {"component": "kubelet", "host": node_name(random.within(0, 299))},
    })
}

fn node(number: usize, random: &mut Random) -> Value {
    const CONDITIONS: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
    let (name, ip) = (node_name(number), random.ip());
    let images: Vec<Value> = (0..random.within(10, 50))
        .map(|_| {
            let name = random.name(2);
            let image = random.image(&name);
            let repository = image.split(':').next().unwrap_or_default();
            let digest = format!("{repository}@sha256:{}", random.hex(64));
            json!({"names": [digest, image], "sizeBytes": random.within(1_000_000, 900_000_000)})
        })
        .collect();
    let conditions: Vec<Value> = CONDITIONS
        .iter()
        .map(|kind| {
            let status = if *kind == "Ready" { "True" } else { "False" };
            json!({"type": kind, "status": status, "lastHeartbeatTime": random.time(), "lastTransitionTime": random.time(), "reason": format!("Kubelet{kind}"), "message": format!("kubelet reports {kind}")})
        })
        .collect();
    let zone = format!("eu-central-1{}", random.pick(&["a", "b", "c"]));
    let resources = json!({"cpu": random.within(4, 96).to_string(), "memory": format!("{}Ki", random.within(8_000_000, 400_000_000)), "pods": "110", "ephemeral-storage": format!("{}Ki", random.within(50_000_000, 900_000_000))});
    json!({
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": zone, "node.kubernetes.io/instance-type": format!("m{}.{}xlarge", random.within(5, 7), random.within(1, 24))},
            "annotations": {"csi.volume.kubernetes.io/nodeid": format!("{{\"ebs.csi.aws.com\":\"i-{}\"}}", random.hex(17)), "volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"providerID": format!("aws:///{zone}/i-{}", random.hex(17))},
        "status": {
            "addresses": [{"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": name}],
            "capacity": resources,
            "allocatable": resources,
            "conditions": conditions,
            "images": images,
            "nodeInfo": {"machineID": random.hex(32), "systemUUID": random.uuid(), "bootID": random.uuid(), "kernelVersion": "6.12.40", "osImage": "Linux 2026", "containerRuntimeVersion": "containerd://2.1.4", "kubeletVersion": "v1.36.1", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"},
        },
    })
}

fn lease(name: &str, random: &mut Random) -> Value {
    let (time, micros) = (random.time(), random.within(0, 999_999));
    json!({
        "metadata": {"name": name},
        "spec": {"holderIdentity": format!("{name}_{}", random.uuid()), "leaseDurationSeconds": 40, "leaseTransitions": random.within(0, 20), "renewTime": time.replace('Z', &format!(".{micros:06}Z"))},
    })
}
