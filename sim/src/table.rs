//! Tables, so that `kubectl get` prints the same columns as for a real cluster.

use std::fmt::Write;

use serde_json::{Value, json};

use super::encode::{RowObject, Shape, shaped};
use super::registry::Kind;
use super::stored::Stored;

/// The columns of each resource: names separated by commas. The columns of `-o wide` follow after the bar.
const COLUMNS: &[(&str, &str)] = &[
    ("pods", "Name,Ready,Status,Restarts,Age|IP,Node,Nominated Node,Readiness Gates"),
    ("nodes", "Name,Status,Roles,Age,Version|Internal-IP,External-IP,OS-Image,Kernel-Version,Container-Runtime"),
    ("namespaces", "Name,Status,Age"),
    ("services", "Name,Type,Cluster-IP,External-IP,Port(s),Age|Selector"),
    ("events", "Last Seen,Type,Reason,Object,Message|Subobject,Source,First Seen,Count,Name"),
    ("configmaps", "Name,Data,Age"),
    ("secrets", "Name,Type,Data,Age"),
    ("deployments.apps", "Name,Ready,Up-to-date,Available,Age|Containers,Images,Selector"),
    ("replicasets.apps", "Name,Desired,Current,Ready,Age|Containers,Images,Selector"),
    ("endpointslices.discovery.k8s.io", "Name,AddressType,Ports,Endpoints,Age"),
    ("leases.coordination.k8s.io", "Name,Holder,Age"),
    ("customresourcedefinitions.apiextensions.k8s.io", "Name,Created At"),
];

/// `columnDefinitions` of a resource.
pub(super) fn columns(kind: &Kind) -> Value {
    let column = |name: &str, kind: &str, priority: u8| {
        let format = if name == "Name" { "name" } else { "" };
        json!({"name": name, "type": kind, "format": format, "description": "", "priority": priority})
    };
    if !kind.columns.is_empty() {
        let custom = kind.columns.iter().map(|(name, of, _)| column(name, of, 0));
        return std::iter::once(column("Name", "string", 0)).chain(custom).collect();
    }
    let names = COLUMNS.iter().find(|(id, _)| *id == &*kind.id).map_or("Name,Age", |(_, names)| names);
    let (narrow, wide) = names.split_once('|').unwrap_or((names, ""));
    let narrow = narrow.split(',').map(|name| column(name, "string", 0));
    narrow.chain(wide.split_terminator(',').map(|name| column(name, "string", 1))).collect()
}

/// One row.
pub(super) fn row(kind: &Kind, stored: &Stored, objects: RowObject) -> Vec<u8> {
    let object = match objects {
        RowObject::None => b"null".to_vec(),
        RowObject::Metadata => shaped(Shape::Partial, stored).to_vec(),
        RowObject::Object => stored.json.to_vec(),
    };
    let cells = Value::from(cells(kind, &stored.value()));
    let mut row = format!("{{\"cells\":{cells},\"object\":").into_bytes();
    row.extend_from_slice(&object);
    row.push(b'}');
    row
}

/// A table with one row, as in a watch. Only the first table of a stream has column definitions.
pub(super) fn table(kind: &Kind, rv: u64, row: &[u8], first: bool) -> Vec<u8> {
    let columns = if first { columns(kind) } else { Value::Null };
    let mut table = format!(
        r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{rv}"}},"columnDefinitions":{columns},"rows":["#
    )
    .into_bytes();
    table.extend_from_slice(row);
    table.extend_from_slice(b"]}");
    table
}

fn cells(kind: &Kind, object: &Value) -> Vec<Value> {
    let (name, age) = (text(object, "/metadata/name"), age(object, "/metadata/creationTimestamp"));
    let (spec, status) = (&object["spec"], &object["status"]);
    if !kind.columns.is_empty() {
        let custom = kind.columns.iter().map(|(_, of, path)| {
            let pointer = format!("/{}", path.replace('.', "/"));
            match (of.as_str(), object.pointer(&pointer)) {
                ("date", _) => json!(self::age(object, &pointer)),
                (_, Some(value)) => value.clone(),
                (_, None) => json!(""),
            }
        });
        return std::iter::once(json!(name)).chain(custom).collect();
    }
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let size = |value: &Value| value.as_object().map_or(0, serde_json::Map::len).to_string();
    let template = |path: &str| {
        let containers = spec["template"]["spec"]["containers"].as_array().map_or(&[][..], Vec::as_slice);
        containers.iter().filter_map(|container| container[path].as_str()).collect::<Vec<_>>().join(",")
    };
    let selector = |labels: &Value| {
        let labels = labels.as_object().into_iter().flatten();
        none(
            labels
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                .collect::<Vec<_>>()
                .join(","),
        )
    };
    let cells: Vec<String> = match &*kind.id {
        "pods" => pod(object, name, age),
        "nodes" => node(object, name, age),
        "namespaces" => vec![name, text(object, "/status/phase"), age],
        "services" => {
            let port = |port: &Value| {
                let node = port["nodePort"].as_u64().map_or(String::new(), |node| format!(":{node}"));
                format!("{}{node}/{}", port["port"], port["protocol"].as_str().unwrap_or("TCP"))
            };
            let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
            let ports = none(ports.iter().map(port).collect::<Vec<_>>().join(","));
            let kind = spec["type"].as_str().unwrap_or("ClusterIP").to_owned();
            vec![
                name,
                kind,
                none(text(object, "/spec/clusterIP")),
                "<none>".into(),
                ports,
                age,
                selector(&spec["selector"]),
            ]
        }
        "events" => {
            let involved = &object["involvedObject"];
            let of = involved["kind"].as_str().unwrap_or_default().to_lowercase();
            vec![
                self::age(object, "/lastTimestamp"),
                text(object, "/type"),
                text(object, "/reason"),
                format!("{of}/{}", involved["name"].as_str().unwrap_or_default()),
                text(object, "/message"),
                text(involved, "/fieldPath"),
                text(object, "/source/component"),
                self::age(object, "/firstTimestamp"),
                number(&object["count"]).to_string(),
                name,
            ]
        }
        "configmaps" => vec![name, size(&object["data"]), age],
        "secrets" => vec![name, text(object, "/type"), size(&object["data"]), age],
        "deployments.apps" => vec![
            name,
            format!("{}/{}", number(&status["readyReplicas"]), number(&spec["replicas"])),
            number(&status["updatedReplicas"]).to_string(),
            number(&status["availableReplicas"]).to_string(),
            age,
            template("name"),
            template("image"),
            selector(&spec["selector"]["matchLabels"]),
        ],
        "replicasets.apps" => vec![
            name,
            number(&spec["replicas"]).to_string(),
            number(&status["replicas"]).to_string(),
            number(&status["readyReplicas"]).to_string(),
            age,
            template("name"),
            template("image"),
            selector(&spec["selector"]["matchLabels"]),
        ],
        "endpointslices.discovery.k8s.io" => {
            let list = |value: &Value, of: fn(&Value) -> String| {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let shown = items.iter().take(3).map(of).collect::<Vec<_>>().join(",");
                let more = items.len().saturating_sub(3);
                if more > 0 { format!("{shown} + {more} more...") } else { none(shown) }
            };
            let ports = list(&object["ports"], |port| port["port"].to_string());
            let endpoints = list(&object["endpoints"], |endpoint| text(endpoint, "/addresses/0"));
            vec![name, text(object, "/addressType"), ports, endpoints, age]
        }
        "leases.coordination.k8s.io" => vec![name, text(object, "/spec/holderIdentity"), age],
        "customresourcedefinitions.apiextensions.k8s.io" => vec![name, text(object, "/metadata/creationTimestamp")],
        _ => vec![name, age],
    };
    cells.into_iter().map(Value::String).collect()
}

fn pod(object: &Value, name: String, age: String) -> Vec<String> {
    let statuses = object["status"]["containerStatuses"].as_array().map_or(&[][..], Vec::as_slice);
    let containers = object["spec"]["containers"].as_array().map_or(0, Vec::len);
    let ready = statuses.iter().filter(|container| container["ready"] == true).count();
    let restarts: u64 = statuses.iter().filter_map(|container| container["restartCount"].as_u64()).sum();
    let last = statuses.iter().map(|c| self::age(c, "/lastState/terminated/finishedAt")).find(|age| age != UNKNOWN);
    let waiting = statuses.iter().find_map(|container| container["state"]["waiting"]["reason"].as_str());
    let terminated = statuses.iter().find_map(|container| container["state"]["terminated"]["reason"].as_str());
    let phase = text(object, "/status/phase");
    let state = if object["metadata"]["deletionTimestamp"].is_null() {
        waiting.or(terminated).map_or(phase, ToOwned::to_owned)
    } else {
        "Terminating".into()
    };
    let restarts = match last {
        Some(last) if restarts > 0 => format!("{restarts} ({last} ago)"),
        _ => restarts.to_string(),
    };
    let (ip, node) = (none(text(object, "/status/podIP")), none(text(object, "/spec/nodeName")));
    vec![name, format!("{ready}/{containers}"), state, restarts, age, ip, node, "<none>".into(), "<none>".into()]
}

fn node(object: &Value, name: String, age: String) -> Vec<String> {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let ready = conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let mut status = if ready { "Ready" } else { "NotReady" }.to_owned();
    if object["spec"]["unschedulable"] == true {
        status += ",SchedulingDisabled";
    }
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let roles =
        labels.filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/")).collect::<Vec<_>>().join(",");
    let info = |of: &str| text(object, &format!("/status/nodeInfo/{of}"));
    vec![
        name,
        status,
        none(roles),
        age,
        info("kubeletVersion"),
        none(text(object, "/status/addresses/0/address")),
        "<none>".into(),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn none(text: String) -> String {
    if text.is_empty() { "<none>".into() } else { text }
}

const UNKNOWN: &str = "<unknown>";

/// The age of a time, in kubectl's format.
fn age(object: &Value, pointer: &str) -> String {
    let then = object.pointer(pointer).and_then(Value::as_str).and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let Some(then) = then else { return UNKNOWN.into() };
    human(u64::try_from(jiff::Timestamp::now().as_second() - then.as_second()).unwrap_or(0))
}

/// Two units while the larger one is small, otherwise one unit.
fn human(seconds: u64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const YEAR: u64 = 365 * DAY;
    let units = [
        (2 * MINUTE, 1, "s", 0, ""),
        (10 * MINUTE, MINUTE, "m", 1, "s"),
        (3 * HOUR, MINUTE, "m", 0, ""),
        (8 * HOUR, HOUR, "h", MINUTE, "m"),
        (2 * DAY, HOUR, "h", 0, ""),
        (8 * DAY, DAY, "d", HOUR, "h"),
        (2 * YEAR, DAY, "d", 0, ""),
        (8 * YEAR, YEAR, "y", DAY, "d"),
        (u64::MAX, YEAR, "y", 0, ""),
    ];
    let found = units.into_iter().find(|(below, ..)| seconds < *below);
    let (_, large, name, small, small_name) = found.unwrap_or((0, 1, "s", 0, ""));
    let mut out = format!("{}{name}", seconds / large);
    if small > 0 && seconds % large / small > 0 {
        let _ = write!(out, "{}{small_name}", seconds % large / small);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_shows_them() {
        let shown = [0, 119, 120, 125, 3600, 4 * 3600 + 120, 50 * 3600, 10 * 86400].map(human);
        assert_eq!(shown, ["0s", "119s", "2m", "2m5s", "60m", "4h2m", "2d2h", "10d"]);
    }

    #[test]
    fn rows_fit_their_columns() {
        let mut kinds = Kind::built_in();
        kinds.extend(Kind::from_definition(&super::super::registry::widgets_definition()));
        for kind in kinds {
            let columns = columns(&kind).as_array().unwrap().len();
            assert_eq!(cells(&kind, &json!({"metadata": {"name": "x"}})).len(), columns, "{}", kind.id);
        }
    }
}
