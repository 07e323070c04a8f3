//! The objects of the demo cluster in full: with as many members as real ones, and as large.

use serde_json::{Value, json};

use super::super::write::{mix, uid};

/// The data that differs between pods.
pub(super) struct Pod<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub app: &'a str,
    /// The owning ReplicaSet.
    pub owner: &'a str,
    pub owner_uid: &'a str,
    pub hash: &'a str,
    pub image: &'a str,
    pub created: &'a str,
    /// Its node and start time; `None` while it waits to be scheduled.
    pub placed: Option<Placed<'a>>,
    pub seed: u64,
}

pub(super) struct Placed<'a> {
    pub node: &'a str,
    pub node_ip: &'a str,
    pub ip: &'a str,
    pub started: &'a str,
    pub restarts: u64,
}

/// The bytes of a pod in the apiserver's format, about 5 kB.
pub(super) fn pod(pod: &Pod<'_>, rv: u64) -> String {
    let Pod { namespace, name, app, owner, owner_uid, hash, image, created, seed, .. } = pod;
    let base = name.rsplit_once('-').map_or(*name, |n| n.0);
    let uid = uid(*seed);
    let token = format!("kube-api-access-{:05x}", mix(*seed) & 0xf_ffff);
    let node = pod.placed.as_ref().map_or(String::new(), |placed| format!(r#""nodeName":"{}","#, placed.node));
    let status = status(pod);
    let kubelet = pod.placed.as_ref().map_or(String::new(), |placed| {
        format!(
            r#",{{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"{}","fieldsType":"FieldsV1","fieldsV1":{STATUS_FIELDS},"subresource":"status"}}"#,
            placed.started
        )
    });
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","generateName":"{base}-","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{rv}","generation":1,"creationTimestamp":"{created}","labels":{{"app":"{app}","app.kubernetes.io/instance":"{app}-{namespace}","app.kubernetes.io/managed-by":"demo","pod-template-hash":"{hash}"}},"annotations":{{"kubectl.kubernetes.io/default-container":"{app}","prometheus.io/port":"8080","prometheus.io/scrape":"true"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"{owner}","uid":"{owner_uid}","controller":true,"blockOwnerDeletion":true}}],"managedFields":[{{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"{created}","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:annotations":{{".":{{}},"f:kubectl.kubernetes.io/default-container":{{}},"f:prometheus.io/port":{{}},"f:prometheus.io/scrape":{{}}}},"f:generateName":{{}},"f:labels":{{".":{{}},"f:app":{{}},"f:app.kubernetes.io/instance":{{}},"f:app.kubernetes.io/managed-by":{{}},"f:pod-template-hash":{{}}}},"f:ownerReferences":{{".":{{}},"k:{{\"uid\":\"{owner_uid}\"}}":{{}}}}}},"f:spec":{{"f:containers":{{"k:{{\"name\":\"{app}\"}}":{CONTAINER_FIELDS}}},"f:dnsPolicy":{{}},"f:enableServiceLinks":{{}},"f:restartPolicy":{{}},"f:schedulerName":{{}},"f:securityContext":{{}},"f:serviceAccount":{{}},"f:serviceAccountName":{{}},"f:terminationGracePeriodSeconds":{{}}}}}}}}{kubelet}]}},"spec":{{"volumes":[{{"name":"config","configMap":{{"name":"{app}-config","defaultMode":420}}}},{{"name":"{token}","projected":{{"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"name":"kube-root-ca.crt","items":[{{"key":"ca.crt","path":"ca.crt"}}]}}}},{{"downwardAPI":{{"items":[{{"path":"namespace","fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.namespace"}}}}]}}}}],"defaultMode":420}}}}],"containers":[{{"name":"{app}","image":"{image}","args":["--listen=:8080","--log-level=info"],"ports":[{{"name":"http","containerPort":8080,"protocol":"TCP"}},{{"name":"metrics","containerPort":9090,"protocol":"TCP"}}],"env":[{{"name":"POD_NAME","valueFrom":{{"fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.name"}}}}}},{{"name":"POD_NAMESPACE","valueFrom":{{"fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.namespace"}}}}}},{{"name":"LOG_FORMAT","value":"json"}},{{"name":"UPSTREAM","value":"http://backend.{namespace}.svc.cluster.local:8080"}}],"resources":{{"limits":{{"cpu":"500m","memory":"512Mi"}},"requests":{{"cpu":"100m","memory":"128Mi"}}}},"volumeMounts":[{{"name":"config","mountPath":"/etc/{app}"}},{{"name":"{token}","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}],"livenessProbe":{{"httpGet":{{"path":"/healthz","port":"http","scheme":"HTTP"}},"initialDelaySeconds":10,"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}},"readinessProbe":{{"httpGet":{{"path":"/readyz","port":"http","scheme":"HTTP"}},"timeoutSeconds":1,"periodSeconds":5,"successThreshold":1,"failureThreshold":3}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","securityContext":{{"capabilities":{{"drop":["ALL"]}},"runAsNonRoot":true,"readOnlyRootFilesystem":true,"allowPrivilegeEscalation":false}}}}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default",{node}"securityContext":{{}},"schedulerName":"default-scheduler","tolerations":[{{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}},{{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}},"status":{status}}}"#
    )
}

const CONTAINER_FIELDS: &str = r#"{".":{},"f:args":{},"f:env":{".":{},"k:{\"name\":\"LOG_FORMAT\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"POD_NAME\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:fieldRef":{}}}},"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{}},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:securityContext":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{},"f:volumeMounts":{}}"#;

const STATUS_FIELDS: &str = r#"{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Initialized\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:hostIPs":{},"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"10.0.0.0\"}":{".":{},"f:ip":{}}},"f:startTime":{}}}"#;

fn status(pod: &Pod<'_>) -> String {
    let Some(placed) = &pod.placed else { return r#"{"phase":"Pending","qosClass":"Burstable"}"#.into() };
    let Placed { node_ip, ip, started, restarts, .. } = placed;
    let (app, image) = (pod.app, pod.image);
    let id =
        format!("{:016x}{:016x}{:016x}{:016x}", mix(pod.seed), mix(pod.seed + 1), mix(pod.seed + 2), mix(pod.seed + 3));
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"].map(|of| {
        format!(r#"{{"type":"{of}","observedGeneration":1,"status":"True","lastProbeTime":null,"lastTransitionTime":"{started}"}}"#)
    });
    let last = if *restarts == 0 {
        "{}".to_owned()
    } else {
        format!(
            r#"{{"terminated":{{"exitCode":137,"reason":"OOMKilled","startedAt":"{}","finishedAt":"{started}","containerID":"containerd://{id}"}}}}"#,
            pod.created
        )
    };
    format!(
        r#"{{"observedGeneration":1,"phase":"Running","conditions":[{}],"hostIP":"{node_ip}","hostIPs":[{{"ip":"{node_ip}"}}],"podIP":"{ip}","podIPs":[{{"ip":"{ip}"}}],"startTime":"{started}","containerStatuses":[{{"name":"{app}","state":{{"running":{{"startedAt":"{started}"}}}},"lastState":{last},"ready":true,"restartCount":{restarts},"image":"{image}","imageID":"{}@sha256:{id}","containerID":"containerd://{id}","started":true}}],"qosClass":"Burstable"}}"#,
        conditions.join(","),
        image.split_once(':').map_or(image, |parts| parts.0)
    )
}

pub(super) fn node(index: usize, created: &str) -> Value {
    let (name, ip) = (node_name(index), node_ip(index));
    let role = if index == 0 { "control-plane" } else { "worker" };
    let condition = |of: &str, status: &str, reason: &str, message: &str| {
        json!({"type": of, "status": status, "lastHeartbeatTime": created, "lastTransitionTime": created,
            "reason": reason, "message": message})
    };
    let image = |i: u64| {
        json!({"names": [format!("registry.demo/{}@sha256:{:016x}{:016x}", APPS[(i % 16) as usize], mix(i), mix(i + 9)),
            format!("registry.demo/{}:1.{i}", APPS[(i % 16) as usize])], "sizeBytes": 20_000_000 + mix(i) % 200_000_000})
    };
    let resources = json!({"cpu": "8", "ephemeral-storage": "102625208Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
        "memory": "32777196Ki", "pods": "110"});
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {
            "name": name, "creationTimestamp": created,
            "labels": {"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                format!("node-role.kubernetes.io/{role}"): "", "topology.kubernetes.io/zone": format!("zone-{}", index % 3)},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"podCIDR": format!("10.{}.{}.0/24", 64 + index / 256, index % 256),
            "podCIDRs": [format!("10.{}.{}.0/24", 64 + index / 256, index % 256)],
            "providerID": format!("demo://{name}")},
        "status": {
            "addresses": [{"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": name}],
            "allocatable": resources, "capacity": resources,
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": (0..24).map(image).collect::<Vec<_>>(),
            "nodeInfo": {"machineID": uid(index as u64), "systemUUID": uid(index as u64 + 7), "bootID": uid(index as u64 + 13),
                "kernelVersion": "6.12.0-demo", "osImage": "Demo Linux 1", "containerRuntimeVersion": "containerd://2.1.0",
                "kubeletVersion": "v1.36.0-sim", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"},
        },
    })
}

pub(super) fn lease(namespace: &str, name: &str, holder: &str, seconds: u64, at: &str) -> Value {
    json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": name, "namespace": namespace},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds, "acquireTime": at, "renewTime": at}})
}

pub(super) fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {
            "containers": [{"name": app, "image": image, "imagePullPolicy": "IfNotPresent",
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "securityContext": {}, "terminationGracePeriodSeconds": 30,
        },
    })
}

pub(super) fn deployment(namespace: &str, app: &str, image: &str, replicas: usize, created: &str) -> Value {
    json!({
        "kind": "Deployment", "apiVersion": "apps/v1",
        "metadata": {"name": app, "namespace": namespace, "creationTimestamp": created, "labels": {"app": app},
            "annotations": {"deployment.kubernetes.io/revision": "1"}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": template(app, image),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
        "status": deployment_status(1, replicas, replicas, replicas, created),
    })
}

pub(super) fn deployment_status(generation: u64, replicas: usize, updated: usize, ready: usize, at: &str) -> Value {
    let condition = |of: &str, reason: &str, message: &str| {
        json!({"type": of, "status": "True", "lastUpdateTime": at, "lastTransitionTime": at, "reason": reason,
            "message": message})
    };
    json!({
        "observedGeneration": generation, "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready,
        "availableReplicas": ready,
        "conditions": [
            condition("Available", "MinimumReplicasAvailable", "Deployment has minimum availability."),
            condition("Progressing", "NewReplicaSetAvailable", "ReplicaSet has successfully progressed."),
        ],
    })
}

/// `deployment` is the owner in its stored form.
pub(super) fn replica_set(deployment: &Value, name: &str, hash: &str, replicas: usize) -> Value {
    let metadata = &deployment["metadata"];
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"]["pod-template-hash"] = json!(hash);
    let labels = template["metadata"]["labels"].clone();
    json!({
        "kind": "ReplicaSet", "apiVersion": "apps/v1",
        "metadata": {"name": name, "namespace": metadata["namespace"], "creationTimestamp": metadata["creationTimestamp"],
            "labels": labels, "annotations": {"deployment.kubernetes.io/revision": "1"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": metadata["name"],
                "uid": metadata["uid"], "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        "status": {"replicas": replicas, "fullyLabeledReplicas": replicas, "readyReplicas": replicas,
            "availableReplicas": replicas, "observedGeneration": 1},
    })
}

pub(super) fn service(namespace: &str, app: &str, number: u64, created: &str) -> Value {
    let ip = format!("10.96.{}.{}", number / 250 % 250, 1 + number % 250);
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"name": app, "namespace": namespace, "creationTimestamp": created, "labels": {"app": app}},
        "spec": {"clusterIP": ip, "clusterIPs": [ip], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}],
            "selector": {"app": app}, "sessionAffinity": "None", "type": "ClusterIP"},
        "status": {"loadBalancer": {}},
    })
}

pub(super) fn endpoint_slice(namespace: &str, app: &str, service_uid: &str, created: &str) -> Value {
    json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"name": format!("{app}-slice"), "namespace": namespace, "creationTimestamp": created,
            "labels": {"app": app, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "kubernetes.io/service-name": app},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": app, "uid": service_uid,
                "controller": true, "blockOwnerDeletion": true}]},
        "addressType": "IPv4", "endpoints": [],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
}

pub(super) fn endpoint(pod: &str, uid: &str, ip: &str, node: &str, ready: bool) -> Value {
    json!({"addresses": [ip], "conditions": {"ready": ready, "serving": ready, "terminating": false}, "nodeName": node,
        "targetRef": {"kind": "Pod", "name": pod, "uid": uid}})
}

/// `object` is the object of the event, as (apiVersion, kind, namespace, name, uid).
pub(super) fn event(
    object: (&str, &str, &str, &str, &str),
    reason: &str,
    message: &str,
    source: &str,
    seed: u64,
    at: &str,
) -> Value {
    let (version, kind, namespace, name, uid) = object;
    let kind_of = if matches!(reason, "BackOff" | "Unhealthy" | "FailedScheduling") { "Warning" } else { "Normal" };
    json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {"name": format!("{name}.{:016x}", mix(seed)), "namespace": if namespace.is_empty() { "default" } else { namespace }},
        "involvedObject": {"kind": kind, "namespace": namespace, "name": name, "uid": uid, "apiVersion": version},
        "reason": reason, "message": message, "source": {"component": source}, "firstTimestamp": at, "lastTimestamp": at,
        "count": 1, "type": kind_of, "eventTime": null, "reportingComponent": source, "reportingInstance": "",
    })
}

pub(super) fn widget(namespace: &str, index: u64, created: &str) -> Value {
    let color = COLORS[(index % 5) as usize];
    json!({"apiVersion": "demo.informerd.io/v1", "kind": "Widget",
        "metadata": {"name": format!("widget-{index}"), "namespace": namespace, "creationTimestamp": created,
            "labels": {"color": color}},
        "spec": {"color": color, "size": 1 + index % 9}, "status": {"ready": !index.is_multiple_of(7), "turns": 0}})
}

pub(super) const COLORS: [&str; 5] = ["red", "green", "blue", "amber", "violet"];

pub(super) const APPS: [&str; 16] = [
    "web",
    "api",
    "checkout",
    "search",
    "catalog",
    "billing",
    "mailer",
    "gateway",
    "ledger",
    "inventory",
    "payments",
    "recommender",
    "sessions",
    "thumbnails",
    "reports",
    "scheduler",
];

pub(super) fn node_name(index: usize) -> String {
    format!("node-{:04}", index + 1)
}

pub(super) fn node_ip(index: usize) -> String {
    format!("192.168.{}.{}", index / 250, 2 + index % 250)
}

/// The IP address of the `index`th pod of the cluster.
pub(super) fn pod_ip(index: u64) -> String {
    format!("10.{}.{}.{}", 64 + index / 62_500 % 64, index / 250 % 250, 2 + index % 250)
}
