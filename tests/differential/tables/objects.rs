//! Objects whose rows tell times, from some seconds to centuries ago.

use serde_json::{Value, json};

/// What has columns of its own: of dates, of text that looks like a time and is none, and of other types.
pub(super) fn timers() -> Value {
    let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    let mut wide = column("When", "date", ".spec.when");
    wide["priority"] = json!(1);
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "metadata": {"name": "timers.differential.example.com"},
        "spec": {
            "group": "differential.example.com",
            "names": {"kind": "Timer", "plural": "timers", "singular": "timer", "listKind": "TimerList"},
            "scope": "Namespaced",
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema, "additionalPrinterColumns": [
                    column("Interval", "string", ".spec.interval"),
                    wide,
                    column("Ready", "date", r#".spec.conditions[?(@.type=="Ready")].at"#),
                    column("Number", "integer", ".spec.number"),
                    column("Enabled", "boolean", ".spec.enabled"),
                    column("Share", "number", ".spec.share"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                ]},
                {"name": "v2", "served": true, "storage": false, "schema": schema},
            ],
        },
    })
}

/// Collections and what is in them.
pub(super) fn all() -> Vec<(&'static str, Value)> {
    let containers = json!([{"name": "c", "image": "i"}]);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": containers}});
    let labeled = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let job = |name: &str, status: Value| json!({"metadata": {"name": name}, "spec": {"template": template}, "status": status});
    let cron = |name: &str, status: Value| json!({"metadata": {"name": name}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}, "status": status});
    let event = |name: &str, more: Value| {
        let mut event = json!({"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "diff-a"}, "message": "5m", "reason": "10s", "type": "Normal"});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    let timer = |name: &str, spec: Value| json!({"apiVersion": "differential.example.com/v1", "kind": "Timer", "metadata": {"name": name, "labels": {"app": "x"}}, "spec": spec});
    let mut all = pods(&containers);
    all.extend([
        ("/api/v1/nodes", json!({"metadata": {"name": "table-node"}})),
        ("/api/v1/namespaces/diff-a/services", json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}})),
        ("/api/v1/namespaces/diff-a/configmaps", json!({"metadata": {"name": "5m"}})),
        ("/api/v1/namespaces/diff-a/persistentvolumeclaims", json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})),
        ("/api/v1/namespaces/diff-a/resourcequotas", json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "500"}}})),
        ("/api/v1/namespaces/diff-a/events", event("old", json!({"firstTimestamp": "2003-01-01T00:00:00Z", "lastTimestamp": "2021-06-01T00:00:00Z", "count": 3}))),
        ("/api/v1/namespaces/diff-a/events", event("never", json!({}))),
        ("/apis/events.k8s.io/v1/namespaces/diff-a/events", json!({"metadata": {"name": "series"}, "regarding": {"kind": "Pod", "name": "p", "namespace": "diff-a"}, "eventTime": "2024-10-22T01:02:03.123456Z", "series": {"count": 3, "lastObservedTime": "2025-11-21T01:02:03.500000Z"}, "reportingController": "x/y", "reportingInstance": "z", "action": "A", "reason": "R", "type": "Normal"})),
        ("/apis/batch/v1/namespaces/diff-a/jobs", job("fresh", Value::Null)),
        ("/apis/batch/v1/namespaces/diff-a/jobs", job("running", json!({"startTime": "2024-01-01T00:00:00Z"}))),
        ("/apis/batch/v1/namespaces/diff-a/jobs", job("done", json!({"startTime": "2024-01-01T00:00:00Z", "completionTime": "2024-01-01T00:17:03Z", "succeeded": 1, "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]}))),
        ("/apis/batch/v1/namespaces/diff-a/cronjobs", cron("ran", json!({"lastScheduleTime": "2026-01-01T00:00:00Z"}))),
        ("/apis/batch/v1/namespaces/diff-a/cronjobs", cron("waits", Value::Null)),
        ("/apis/apps/v1/namespaces/diff-a/deployments", json!({"metadata": {"name": "d", "annotations": {"deprecated.deployment.rollback.revision": "3", "kept": "x"}}, "spec": {"selector": selector, "template": labeled}})),
        ("/apis/apps/v1/namespaces/diff-a/daemonsets", json!({"metadata": {"name": "d"}, "spec": {"selector": selector, "template": labeled}})),
        ("/apis/apps/v1/namespaces/diff-a/statefulsets", json!({"metadata": {"name": "s"}, "spec": {"selector": selector, "serviceName": "s", "template": labeled}})),
        ("/apis/autoscaling/v2/namespaces/diff-a/horizontalpodautoscalers", json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}, "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 3}}}]}})),
        ("/apis/policy/v1/namespaces/diff-a/poddisruptionbudgets", json!({"metadata": {"name": "p"}, "spec": {"maxUnavailable": 1, "selector": selector}})),
        ("/apis/coordination.k8s.io/v1/namespaces/diff-a/leases", json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "5m"}})),
        ("/apis/certificates.k8s.io/v1/certificatesigningrequests", json!({"metadata": {"name": "c"}, "spec": {"signerName": "example.com/x", "expirationSeconds": 86_400, "usages": ["client auth"], "request": signing_request()}})),
        ("/apis/differential.example.com/v1/namespaces/diff-a/timers", timer("years", json!({"interval": "5m", "when": "2001-01-01T00:00:00Z", "number": 3, "enabled": true, "share": 1.5}))),
        ("/apis/differential.example.com/v1/namespaces/diff-a/timers", timer("bad", json!({"interval": "3 (5m ago)", "when": "bad"}))),
        ("/apis/differential.example.com/v1/namespaces/diff-a/timers", timer("empty", json!({"when": "", "share": 3}))),
        ("/apis/differential.example.com/v1/namespaces/diff-a/timers", timer("future", json!({"when": "2099-01-01T00:00:00+02:00"}))),
        ("/apis/differential.example.com/v1/namespaces/diff-a/timers", timer("centuries", json!({"when": "1500-01-01T00:00:00.5Z"}))),
        ("/apis/differential.example.com/v1/namespaces/diff-a/timers", timer("ready", json!({"conditions": [{"type": "Other", "at": "2020-01-01T00:00:00Z"}, {"type": "Ready", "at": "2024-11-20T00:00:00Z"}]}))),
    ]);
    all
}

fn pods(containers: &Value) -> Vec<(&'static str, Value)> {
    let init = json!([{"name": "side", "image": "i", "restartPolicy": "Always"}, {"name": "once", "image": "i"}]);
    let pod = |name: &str, init: &Value, status: Value| {
        let spec = json!({"containers": containers, "initContainers": init});
        (
            "/api/v1/namespaces/diff-a/pods",
            json!({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": spec, "status": status}),
        )
    };
    let ended = |name: &str, restarts: u8, state: Value, at: &str| {
        json!({"name": name, "started": true, "restartCount": restarts, "ready": true, "image": "", "imageID": "", "state": state,
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": at}}})
    };
    let running = json!({"running": {}});
    let side = ended("side", 2, running.clone(), "2025-11-01T00:00:00Z");
    let initialized = json!([{"type": "Initialized", "status": "True"}]);
    vec![
        pod(
            "table-restarted",
            &json!([]),
            json!({"phase": "Running", "containerStatuses": [ended("c", 3, running.clone(), "2024-11-22T01:00:00Z")]}),
        ),
        pod(
            "table-side",
            &init,
            json!({"phase": "Running", "conditions": initialized, "initContainerStatuses": [side], "containerStatuses": [ended("c", 1, running, "2024-11-22T01:00:00Z")]}),
        ),
        pod(
            "table-waits",
            &init,
            json!({"phase": "Pending", "initContainerStatuses": [side, ended("once", 4, json!({"waiting": {"reason": "X"}}), "2026-01-01T00:00:00Z")]}),
        ),
        pod("table-done", &json!([]), json!({"phase": "Succeeded"})),
        pod("table-failed", &json!([]), json!({"phase": "Failed", "reason": "5m"})),
    ]
}

fn signing_request() -> String {
    use base64::Engine as _;
    let key = rcgen::KeyPair::generate().expect("a key");
    let request = rcgen::CertificateParams::new(vec!["x".to_owned()]).expect("parameters").serialize_request(&key);
    base64::engine::general_purpose::STANDARD.encode(request.expect("a request").pem().expect("PEM"))
}
