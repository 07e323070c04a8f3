//! Every selectable field of every built-in type that is served by default, by each of its values, in JSON and in protobuf.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use informerd::codec::ListDecoder;
use informerd::meta::{Encoding, FieldTable, FieldValue, Gvr, Origin, Resource, Verbs};
use informerd::selector::{field_table, types_with_fields};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::{Answer, PROTOBUF, World, certificate_request, world};
use crate::support::client::rv;

const JSON: &str = "application/json";
const YAML: &str = "resources: [{resource: secrets}]\n";

/// Behind feature gates. Their numbers are compared with the definitions of the messages.
const NOT_SERVED: [(&str, &str); 2] =
    [("certificates.k8s.io", "clustertrustbundles"), ("certificates.k8s.io", "podcertificaterequests")];

/// Objects that differ from the others in what can be selected.
fn more() -> Vec<(&'static str, Value)> {
    let template =
        json!({"metadata": {"labels": {"app": "rc"}}, "spec": {"containers": [{"name": "m", "image": "i"}]}});
    let job = json!({"restartPolicy": "Never", "containers": [{"name": "m", "image": "i"}]});
    vec![
        ("/api/v1/namespaces", json!({"metadata": {"name": "leaving"}})),
        ("/api/v1/namespaces/a/secrets", json!({"metadata": {"name": "plain"}})),
        ("/api/v1/namespaces/a/secrets", json!({"metadata": {"name": "other"}, "type": "example.com/other"})),
        (
            "/api/v1/namespaces/a/replicationcontrollers",
            json!({"metadata": {"name": "two"}, "spec": {"replicas": 0, "selector": {"app": "rc"}, "template": template}}),
        ),
        ("/apis/batch/v1/namespaces/a/jobs", json!({"metadata": {"name": "two"}, "spec": {"template": {"spec": job}}})),
        (
            "/api/v1/namespaces/a/events",
            json!({"metadata": {"name": "three"}, "reason": "Other", "type": "Normal", "reportingComponent": "example.com/r",
            "reportingInstance": "i", "source": {"component": "c"}, "involvedObject": {
                "kind": "Node", "namespace": "a", "name": "n", "uid": "u", "apiVersion": "v2", "resourceVersion": "7",
                "fieldPath": "f",
            }}),
        ),
        (
            "/apis/events.k8s.io/v1/namespaces/a/events",
            json!({"metadata": {"name": "four"}, "eventTime": "2026-01-02T03:04:05.678901Z", "action": "A", "reason": "Series",
                "type": "Warning", "reportingController": "example.com/s", "reportingInstance": "i",
                "regarding": {"kind": "Pod", "namespace": "a", "name": "one"},
                "series": {"count": 3, "lastObservedTime": "2026-01-02T03:04:06.000000Z"}}),
        ),
        (
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            json!({"metadata": {"name": "two"}, "spec": {"signerName": "example.com/two", "usages": ["client auth"],
                "request": certificate_request()}}),
        ),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            json!({"metadata": {"name": "two"}, "spec": {"driver": "two.example.com", "nodeName": "node-y",
                "pool": {"name": "node-y", "generation": 1, "resourceSliceCount": 1}}}),
        ),
    ]
}

/// The value in an object of JSON.
fn value(object: &Value, field: &FieldValue) -> String {
    let at = |path: &[std::sync::Arc<str>]| {
        let found = path.iter().try_fold(object, |value, name| match value {
            Value::Array(elements) => elements.get(name.parse::<usize>().ok()?),
            value => value.get(&**name),
        });
        found.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let first = at(&field.path).filter(|text| !text.is_empty());
    first.or_else(|| at(field.fallback.as_ref()?)).unwrap_or_else(|| field.missing.to_owned())
}

fn keys(answer: &Answer, encoding: Encoding) -> BTreeSet<String> {
    let mut decoder = ListDecoder::new(encoding, 16 << 20, FieldTable::default());
    decoder.push(answer.body.clone());
    let mut keys = BTreeSet::new();
    while let Some((object, _)) = decoder.next().unwrap() {
        keys.insert(object.key.to_string());
    }
    keys
}

impl World {
    async fn selected(&self, path: &str, encoding: Encoding) -> BTreeSet<String> {
        let headers = [("accept", if encoding == Encoding::Json { JSON } else { PROTOBUF })];
        let direct = self.direct.request(Method::GET, path, &headers, "").await;
        let through = self.through.request(Method::GET, path, &headers, "").await;
        assert_eq!((direct.status.as_u16(), through.status.as_u16()), (200, 200), "{path}: {}", direct.text());
        let (direct, through) = (keys(&direct, encoding), keys(&through, encoding));
        assert_eq!(direct, through, "{path} {encoding:?}");
        through
    }

    async fn add(&self) {
        for (collection, object) in more() {
            self.write(Method::POST, collection, &object).await;
        }
        // Nobody finalizes it.
        self.write(Method::DELETE, "/api/v1/namespaces/leaving", &Value::Null).await;
        let status = json!({"status": {"nominatedNodeName": "node-z"}});
        self.write(Method::PATCH, "/api/v1/namespaces/a/pods/two/status", &status).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_selectable_field_selects_by_each_of_its_values() {
    let world = world(YAML).await;
    world.add().await;
    let mut missing: BTreeSet<_> = types_with_fields().collect();
    for (group, name) in types_with_fields().filter(|of| !NOT_SERVED.contains(of)) {
        let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
        let versions = if group.is_empty() {
            vec!["v1".to_owned()]
        } else {
            let group = world.direct.json(&root).await;
            let versions = group["versions"].as_array().unwrap().iter();
            versions.map(|version| version["version"].as_str().unwrap().to_owned()).collect()
        };
        for version in versions {
            let collection = format!("{root}/{version}/{name}");
            if world.direct.get(&collection).await.status == 404 {
                continue;
            }
            missing.remove(&(group, name));
            let now = world.settled(&collection).await;
            let whole = format!("{collection}?resourceVersion={now}");
            let list = world.through.json(&whole).await;
            let objects = list["items"].as_array().unwrap().clone();
            assert!(rv(&list) >= now && !objects.is_empty(), "{collection}");
            let table = field_table(&Resource {
                gvr: Gvr::new(group, &version, name),
                kind: "".into(),
                namespaced: true,
                verbs: Verbs::default(),
                origin: Origin::BuiltIn,
            });
            let served = world.served();
            let mut asked = 0;
            for field in table.labels.iter() {
                let mut by_value: BTreeMap<String, usize> = BTreeMap::new();
                objects.iter().for_each(|object| *by_value.entry(value(object, &field.value)).or_default() += 1);
                assert!(by_value.len() >= 2, "{collection}: {} does not differ: {by_value:?}", field.label);
                for (value, count) in by_value {
                    let value = utf8_percent_encode(&value, NON_ALPHANUMERIC).to_string();
                    for encoding in [Encoding::Json, Encoding::Protobuf] {
                        let of = |operator| format!("{whole}&fieldSelector={}{operator}{value}", field.label);
                        let (equal, other) = (of("%3D"), of("!%3D"));
                        let selected = world.selected(&equal, encoding).await.len();
                        assert_eq!(selected, count, "{equal} {encoding:?}");
                        assert_eq!(world.selected(&other, encoding).await.len(), objects.len() - count, "{other}");
                        asked += 2;
                    }
                }
            }
            // Reads of one informer and of the other.
            assert_eq!(world.served() - served, asked, "{collection}: served from the caches");
        }
    }
    assert_eq!(missing.into_iter().collect::<Vec<_>>(), NOT_SERVED, "types that no version of is served");
}
