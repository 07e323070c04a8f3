//! The binary, a real OTLP receiver, and a real kube-apiserver that sends its own spans there.

use std::path::PathBuf;

use http::Method;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::otel::receiver::{Receiver, Seen};
use crate::otel::{CONFIG_MAPS, PARENT, SOON, TRACE, daemon, daemon_before, some, traced};
use crate::support::client::Client;
use crate::support::{eventually, file, until};

/// A certificate for the receiver, and its key.
fn certificate(directory: &std::path::Path) -> [PathBuf; 2] {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    [("tls.crt", made.cert.pem()), ("tls.key", made.signing_key.serialize_pem())]
        .map(|(name, pem)| file(directory, name, pem))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_collectors_own_receiver_takes_all_of_it() {
    let (server, directory) = (some().await, tempfile::tempdir().unwrap());
    let [cert, key] = certificate(directory.path());
    let ca = cert.display().to_string();
    for (protocol, kind, tls, compression) in [
        ("grpc", "grpc", false, "none"),
        ("grpc", "grpc", true, "gzip"),
        ("http/protobuf", "http", false, "gzip"),
        ("http/protobuf", "http", true, "none"),
    ] {
        let receiver = Receiver::start(tls.then_some([cert.as_path(), key.as_path()])).await;
        let (scheme, port) = (if tls { "https" } else { "http" }, receiver.addresses[kind].rsplit(':').next().unwrap());
        let endpoint = format!("{scheme}://localhost:{port}");
        let env = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", compression),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_str()),
            ("OTEL_SERVICE_NAME", "cache"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "200"),
            SOON,
        ];
        let daemon = daemon(&server, &env).await;
        for _ in 0..3 {
            let path = format!("{CONFIG_MAPS}?resourceVersion=0");
            assert_eq!(traced(&daemon.client(), Method::GET, &path).await, 200);
        }
        let of_clients = |span: &Seen| span.parent == PARENT && span.trace == TRACE && span.service == "cache";
        eventually("the spans", || receiver.spans().into_iter().filter(of_clients).count() == 3).await;
        let read = receiver.span("a read's span", |span| span.name == "list configmaps").await;
        assert_eq!(read.trace, TRACE, "{protocol}");
        assert_eq!(read.attributes["informerd.resource"], "configmaps");

        let served = || receiver.metric("informerd_http_requests_served_total");
        let number = |point: &Value| point["asDouble"].as_f64().or_else(|| point["asInt"].as_str()?.parse().ok());
        let is = |point: &Value, value: f64| number(point) == Some(value);
        eventually("the metrics", || served().is_some_and(|(_, points)| is(&points[0], 3.0))).await;
        assert_eq!(served().unwrap().0, "sum");
        let (kind, objects) = receiver.metric("informerd_cache_objects").unwrap();
        assert!(kind == "gauge" && objects.len() == 1 && is(&objects[0], 2.0), "{objects:?}");
        for failed in ["spans_failed", "spans_dropped", "metrics_failed"] {
            let said = || {
                daemon
                    .lines()
                    .into_iter()
                    .filter(|line| line["target"].as_str().is_some_and(|target| target.contains("otel")))
                    .collect::<Vec<_>>()
            };
            let count = daemon.metric(&format!("informerd_otel_{failed}_total")).await;
            assert_eq!(count, 0.0, "{protocol}: {failed}: {:?}", said());
        }
        assert!(daemon.stop().await.success());
    }
}

/// One trace from the client over informerd into the kube-apiserver, as far as that lets others take part in its
/// traces: what `system:masters` and `system:monitoring` ask becomes a child, what others ask begins a trace of its own,
/// with a link.
#[tokio::test(flavor = "multi_thread")]
async fn a_kube_apiservers_own_spans_join() {
    let (receiver, directory) = (Receiver::start(None).await, tempfile::tempdir().unwrap());
    let endpoint = &receiver.addresses["grpc"];
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: {endpoint}\nsamplingRatePerMillion: 1000000\n"
    );
    let tracing = file(directory.path(), "tracing.yaml", text);
    let flag = format!("--apiserver-flag=tracing-config-file={}", tracing.display());
    let cluster = Cluster::start_with(&[&flag]).await;
    cluster.namespace("a").await;
    cluster.kubectl_ok(["create", "configmap", "one", "-n", "a"]).await;
    cluster.kubectl_ok(["create", "secret", "generic", "one", "-n", "a"]).await;
    let url = format!("http://{endpoint}");
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_METRICS_EXPORTER", "none"),
        SOON,
    ];
    let kubeconfig = std::fs::read_to_string(cluster.admin()).unwrap();
    let flags = ["--listen=delegated+https://127.0.0.1:0", "--consistent-reads=probe"];
    let daemon = daemon_before(&kubeconfig, &flags, &env).await;
    let by = |service: &'static str, name: &'static str, parent: String| {
        move |span: &Seen| span.service == service && span.name == name && span.parent == parent
    };

    // Forwarded, because Secrets are not cached. Without credentials it is as informerd, who is of system:masters.
    let path = "/api/v1/namespaces/a/secrets/one";
    let route = "/api/v1/namespaces/{namespace}/secrets/{name}";
    let theirs = "GET /api/v1/namespaces/{:namespace}/secrets/{:name}";
    assert_eq!(traced(&daemon.client(), Method::GET, path).await, 200);
    let request = receiver.span("the request", |span| span.name == format!("GET {route}")).await;
    assert_eq!((request.trace.as_str(), request.parent.as_str()), (TRACE, PARENT));
    let forwarded = receiver.span("what is forwarded", by("informerd", "GET secrets", request.id.clone())).await;
    let answered = receiver.span("the apiserver's", by("apiserver", theirs, forwarded.id.clone())).await;
    assert_eq!(answered.trace, TRACE);
    assert_eq!(answered.attributes["audit-id"], request.attributes["audit_id"], "one request, one id");

    // As somebody else: the apiserver's span has no parent, and links to ours.
    let addresses = daemon.addresses();
    let delegated = addresses.iter().find_map(|address| address.strip_prefix("delegated+")).unwrap();
    let reader = Client::tls(delegated, &daemon.ca(), "reader-token");
    assert_eq!(traced(&reader, Method::DELETE, path).await, 403);
    let second = receiver.span("the second request", |span| span.name == format!("DELETE {route}")).await;
    let forwarded = receiver.span("what is forwarded", by("informerd", "DELETE secrets", second.id.clone())).await;
    let theirs = theirs.replace("GET", "DELETE");
    let link = (TRACE.to_owned(), forwarded.id.clone());
    let linked = receiver.span("the one with a link", |span| span.links.contains(&link)).await;
    assert_eq!(
        (linked.service.as_str(), linked.name.as_str(), linked.parent.as_str()),
        ("apiserver", theirs.as_str(), "")
    );
    assert_ne!(linked.trace, TRACE);

    // A read that is decided and proved here: the reviews and the probe belong to it, and the apiserver's to those.
    cluster.kubectl_ok(["create", "clusterrole", "reads", "--verb=get,list", "--resource=configmaps"]).await;
    cluster.kubectl_ok(["create", "clusterrolebinding", "reader", "--clusterrole=reads", "--user=reader"]).await;
    let cached = format!("{CONFIG_MAPS}?resourceVersion=0");
    until("the right is known to both", async || traced(&reader, Method::GET, &cached).await == 200).await;
    cluster.kubectl_ok(["create", "serviceaccount", "moves-the-revision", "-n", "a"]).await;
    assert_eq!(traced(&reader, Method::GET, CONFIG_MAPS).await, 200);
    let probe = receiver.span("a probe", |span| span.name == "probe configmaps" && span.trace == TRACE).await;
    let read = receiver.span("its read", |span| span.id == probe.parent).await;
    let request = receiver.span("its request", |span| span.id == read.parent).await;
    assert_eq!((read.name.as_str(), request.parent.as_str()), ("list configmaps", PARENT));
    let asked = receiver.span("what that asks", by("informerd", "GET configmaps", probe.id.clone())).await;
    assert_eq!(asked.attributes["informerd.verb"], "probe");
    receiver.span("its proof", by("informerd", "prove configmaps", read.id.clone())).await;
    // The list of one name.
    let theirs = "GET /api/v1/namespaces/{:namespace}/configmaps/{:name}";
    receiver.span("the apiserver's list", by("apiserver", theirs, asked.id.clone())).await;
    for kind in ["tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io"] {
        let review = receiver.span(kind, |span| span.service == "informerd" && span.name == kind).await;
        let parent = receiver.span("whose it is", |span| span.id == review.parent).await;
        // The write that comes before is judged by its token, too.
        let is_request =
            ["GET /api/v1/namespaces/", "DELETE /api/v1/namespaces/"].iter().any(|name| parent.name.starts_with(name));
        assert!(parent.trace == TRACE && is_request, "{kind}: {parent:?}");
        let post = format!("POST {kind}");
        let posted = receiver.span("its request", |span| span.name == post && span.parent == review.id).await;
        assert_eq!(posted.attributes["informerd.verb"], "review");
        receiver.span("the apiserver's", |span| span.service == "apiserver" && span.parent == posted.id).await;
    }
    assert!(daemon.stop().await.success());
}
