//! A daemon that starts while the apiserver is away: it serves what the last one knew, marked as old, and confirms it when
//! the apiserver is back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::life::{JSON, Kept, Life, PROTOBUF, assert_own, direct, sent};
use crate::cluster::Cluster;
use crate::grpc::fixtures::filtered;
use crate::grpc::real::churn_while;
use crate::recovery::Real;
use crate::support::client::{Answer, Client, rv};
use crate::support::eventually;
use crate::support::relay::Loss;
use http::Method;
use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use informerd::http::ListenAddr;
use informerd::lifecycle;
use informerd::upstream::client::ConfigSource;
use serde_json::json;
use tonic::transport::Endpoint;

const SERVE: &str = r#"
listen: ["http://127.0.0.1:0", "delegated+https://127.0.0.1:0"]
whileAway: serve
"#;
const RESOURCES: &str = "[{resource: configmaps, pin: true}]";
const ALL: &str = "/api/v1/configmaps";
const IN_A: &str = "/api/v1/namespaces/a/configmaps";

/// An old state, as it was sent. Returns its revision.
fn old(what: &str, answer: &Answer) -> u64 {
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    let warnings: Vec<_> = answer.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(warnings.len(), 2, "{what}: {warnings:?}");
    for (warning, code) in warnings.iter().zip(["110", "299"]) {
        let begin = format!("{code} - \"informerd: the kube-apiserver does not answer, this is what it said ");
        let age = warning.strip_prefix(&begin).and_then(|rest| rest.strip_suffix(" s ago\""));
        assert!(age.unwrap().parse::<u64>().unwrap() < 900, "{what}: {warning}");
    }
    let plan = answer.headers["x-informerd-plan"].to_str().unwrap();
    let revision = plan.strip_prefix("served; reason=away; revision=").and_then(|rest| rest.split(';').next());
    revision.unwrap_or_else(|| panic!("{what}: {plan}")).parse().unwrap()
}

fn assert_unanswered(what: &str, answer: &Answer) {
    assert!([503, 504].contains(&answer.status.as_u16()), "{what}: {} {}", answer.status, answer.text());
    assert!(!answer.headers.contains_key("warning"), "{what}");
}

/// Runs a daemon under changes, until it is killed in their midst.
async fn kept_under_churn(cluster: &Cluster, kept: &Kept, yaml: &str) {
    let direct = direct(cluster);
    let life = Life::start(cluster, yaml).await;
    life.through.ready().await;
    life.own(&format!("{ALL}?resourceVersion=0"), PROTOBUF).await;
    let (over, steps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writes = lifecycle::spawn("writes", {
        let (over, steps) = (over.clone(), steps.clone());
        async move {
            let wanted = |step| {
                steps.store(step, Ordering::Relaxed);
                !over.load(Ordering::Relaxed)
            };
            churn_while(&direct, wanted).await;
        }
    });
    let before = kept.written(2).await;
    kept.appended(&before).await;
    eventually("writes go on", || steps.load(Ordering::Relaxed) > 60).await;
    life.kill().await;
    over.store(true, Ordering::Relaxed);
    writes.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_the_last_daemon_is_served_while_the_apiserver_is_away() {
    let cluster = Cluster::start().await;
    for namespace in ["a", "b"] {
        cluster.namespace(namespace).await;
    }
    let anything = json!({"metadata": {"name": "always", "labels": {"app": "x"}}, "data": {"text": "kept"}});
    direct(&cluster).write(Method::POST, IN_A, &anything).await;
    let kept = Kept::new();
    let strict = kept.yaml(RESOURCES);
    let yaml = format!("{SERVE}{strict}");
    kept_under_churn(&cluster, &kept, &yaml).await;
    cluster.kill_apiserver().await;

    let life = Life::start(&cluster, &yaml).await;
    let get = async |path: &str, accept: &str| life.client.request(Method::GET, path, &[("accept", accept)], "").await;
    let mut served = Vec::new();
    for path in
        [ALL, IN_A, &format!("{IN_A}?labelSelector=app%3Dx"), &format!("{IN_A}?fieldSelector=metadata.name%3Dn3")]
    {
        for accept in [JSON, PROTOBUF] {
            let answer = get(path, accept).await;
            let revision = old(path, &answer);
            served.push((path.to_owned(), accept, revision, answer.body));
        }
    }
    let one = get(&format!("{IN_A}/always"), JSON).await;
    old("one object", &one);
    let raw = cluster.kubectl(cluster.admin(), ["get", "--server", &life.through.url, "--raw", ALL]).await;
    assert!(raw.status.success() && raw.stdout == served[0].3, "{raw:?}");
    assert!(
        String::from_utf8_lossy(&raw.stderr).contains("Warning: informerd: the kube-apiserver does not"),
        "{raw:?}"
    );

    for query in ["watch=1", "watch=1&resourceVersion=0", "watch=1&resourceVersion=1"] {
        assert_unanswered(query, &get(&format!("{ALL}?{query}"), JSON).await);
    }
    assert_unanswered("secrets", &get("/api/v1/secrets", JSON).await);
    // Nobody has said yet what this user may read.
    let ListenAddr::Delegated(address) = &life.through.daemon.listen[1] else { panic!("delegated") };
    let ca_file = life.through.daemon.ca_file.clone().unwrap();
    assert_unanswered("delegated", &Client::tls(&format!("https://{address}"), &ca_file, "admin-token").get(ALL).await);
    let channel = Endpoint::from_shared(life.through.url.clone()).unwrap().connect().await.unwrap();
    let consistency = Some(v1::Consistency {
        bound: Some(v1::consistency::Bound::Any(true)),
        max_staleness: Some(prost_types::Duration { seconds: 86400, nanos: 0 }),
    });
    let request = v1::ListRequest { selection: Some(filtered("configmaps", vec![])), consistency };
    let refused = ObjectsClient::new(channel).list(request).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
    assert!(!life.through.context.readiness.is_ready());
    // Another daemon with the same files, which may not serve them.
    let other = Life::start(&cluster, &strict).await;
    assert_unanswered("without the setting", &other.client.get(ALL).await);
    other.kill().await;

    cluster.start_apiserver().await;
    life.through.ready().await;
    let direct = direct(&cluster);
    // Byte for byte, it was the state at that revision.
    for (path, accept, revision, body) in served {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}resourceVersion={revision}&resourceVersionMatch=Exact");
        let theirs = direct.request(Method::GET, &path, &[("accept", accept)], "").await;
        assert_eq!(theirs.status, 200, "{}", theirs.text());
        assert!(theirs.body == body, "{path} {accept}");
        assert!(rv(&direct.json(IN_A).await) > revision, "something has changed since");
    }
    for (path, accept) in [(ALL, JSON), (IN_A, JSON)] {
        let ours = get(path, accept).await;
        assert_own(path, &ours.headers);
        assert!(!ours.headers.contains_key("warning"), "{path}");
        assert_eq!(sent(&ours), sent(&direct.get(path).await), "{path}");
    }
    direct.write(Method::DELETE, &format!("{IN_A}/always"), &json!({})).await;
    assert_eq!(life.sent(IN_A).await, sent(&direct.get(IN_A).await));
    life.kill().await;
}

/// The apiserver that is back still has the events since then, unlike one that has started again.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_loss_of_the_network_nothing_is_listed() {
    let real = Real::start().await;
    let source = || ConfigSource::kubeconfig(&real.kubeconfig);
    let moving = "/api/v1/namespaces/default/configmaps";
    for (n, loss) in [(1, Loss::Closed), (2, Loss::Both)] {
        let kept = Kept::new();
        let yaml = format!("whileAway: serve\n{}", kept.yaml(RESOURCES));
        let first = Life::of(source(), &yaml).await;
        first.through.ready().await;
        kept.written(1).await;
        first.kill().await;
        let before = sent(&real.direct.get(moving).await);
        real.relay.lose(loss);
        let life = Life::of(source(), &yaml).await;
        real.change(n).await;
        let answer = life.client.get(moving).await;
        old(&format!("{loss:?}"), &answer);
        assert_eq!(sent(&answer), before);
        real.relay.lose(Loss::None);
        life.through.ready().await;
        assert_eq!(life.sent(moving).await, sent(&real.direct.get(moving).await));
        assert!(!life.listed("configmaps").await);
        // It was read to be served, and again to be confirmed.
        assert_eq!(life.snapshots().await, (2, 0));
        life.kill().await;
    }
}
