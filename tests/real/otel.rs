//! Traces and metrics by OTLP: the binary, and a collector that keeps what it is sent.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

mod collector;
mod lines;
mod real;
mod receiver;

use futures_util::future::join_all;
use http::Method;
use informerd_sim::Server;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use serde_json::json;

use crate::daemon::fixtures::{config_map, syncs_late};
use crate::support::binary::{Binary, informerd};
use crate::support::client::Client;
use crate::support::{eventually, until};
use collector::{Attributes, Collector, attributes};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const CONFIG_MAPS: &str = "/api/v1/namespaces/a/configmaps";
const CYCLE: &str = "reflector list configmaps";
/// Soon, so that no test waits for long.
const SOON: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "50");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn of(span: &Span) -> Attributes {
    attributes(&span.attributes)
}

async fn some() -> Server {
    Server::builder().object(config_map("a", "one")).object(config_map("a", "two")).start().await.unwrap()
}

/// The binary before an apiserver, told of its collector by its environment.
async fn daemon(server: &Server, env: &[(&str, &str)]) -> Binary {
    daemon_before(&informerd_sim::kubeconfig("sim", &server.url()), &[], env).await
}

/// The same, which soon sends what there is by gRPC.
async fn exporting(server: &Server, collector: &Collector, more: &[(&str, &str)]) -> Binary {
    let to = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.url), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), SOON];
    daemon(server, &[&to[..], more].concat()).await
}

async fn daemon_before(kubeconfig: &str, flags: &[&str], env: &[(&str, &str)]) -> Binary {
    let mut command = informerd("run --listen http://127.0.0.1:0 --lend-identity all --log-level debug");
    command.envs(env.iter().copied());
    Binary::run(command, kubeconfig, flags).await
}

/// Sends a request as a part of the trace, and returns the answer's status.
async fn traced(client: &Client, method: Method, path: &str) -> u16 {
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let id = "7".repeat(1000);
    let headers = [("traceparent", &*parent), ("tracestate", "vendor=1"), ("baggage", "user=anna"), ("audit-id", &*id)];
    client.request(method, path, &headers, "").await.status.as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_from_the_client_to_the_apiserver() {
    let (server, collector) = (some().await, Collector::start().await);
    syncs_late(&server, "configmaps", 1);
    let environment = ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test");
    let daemon = exporting(&server, &collector, &[environment]).await;
    let client = daemon.client();
    // A list from the cache, a read that is forwarded, and a write.
    assert_eq!(traced(&client, Method::GET, &format!("{CONFIG_MAPS}?resourceVersion=0")).await, 200);
    assert_eq!(traced(&client, Method::GET, "/api/v1/namespaces/a/configmaps/one?export=1").await, 200);
    assert_eq!(traced(&client, Method::DELETE, "/api/v1/namespaces/a/configmaps/two").await, 200);

    let within =
        || -> Vec<Span> { collector.spans().into_iter().filter(|span| hex(&span.trace_id) == TRACE).collect() };
    eventually("all spans of the trace", || {
        within().iter().filter(|span| span.kind == SpanKind::Server as i32).count() == 3
    })
    .await;
    let named = |name: &str| {
        let found: Vec<_> = within().into_iter().filter(|span| span.name == name).collect();
        assert!(!found.is_empty(), "no {name} in {:?}", within().iter().map(|span| &span.name).collect::<Vec<_>>());
        found[0].clone()
    };
    let route = "/api/v1/namespaces/{namespace}/configmaps";
    let served = named(&format!("GET {route}"));
    assert_eq!((hex(&served.parent_span_id).as_str(), served.trace_state.as_str()), (PARENT, "vendor=1"));
    let told = of(&served);
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.route", route),
        ("http.response.status_code", "200"),
        ("url.path", CONFIG_MAPS),
        ("url.scheme", "http"),
        ("server.address", "127.0.0.1"),
        ("client.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("k8s.namespace.name", "a"),
        ("informerd.verb", "list"),
        ("informerd.resource", "configmaps"),
        ("informerd.plan", "wait"),
        ("informerd.reason", "not_synced"),
    ] {
        assert_eq!(told.get(key).map(String::as_str), Some(value), "{key} of {told:?}");
    }
    assert_eq!((told["audit_id"].len(), told.contains_key("server.port")), (64, true), "{told:?}");
    let read = named("list configmaps");
    assert_eq!(read.parent_span_id, served.span_id);
    assert_eq!((of(&read)["informerd.plan"].as_str(), of(&read)["informerd.reason"].as_str()), ("wait", "not_synced"));
    assert!(of(&read)["informerd.informer"].contains("configmaps"), "{read:?}");
    assert!(of(&read)["informerd.resource_version"].parse::<u64>().unwrap() > 0);

    // What is forwarded is a child of the request, and the apiserver's parent is that child.
    let forwarded = named("GET /api/v1/namespaces/{namespace}/configmaps/{name}");
    assert_eq!(of(&forwarded)["informerd.plan"], "forward");
    assert_eq!(of(&forwarded)["informerd.reason"], "unsupported");
    for (method, parent) in
        [("GET", &forwarded), ("DELETE", &named("DELETE /api/v1/namespaces/{namespace}/configmaps/{name}"))]
    {
        let upstream = named(&format!("{method} configmaps"));
        assert_eq!((upstream.kind, &upstream.parent_span_id), (SpanKind::Client as i32, &parent.span_id));
        assert_eq!(of(&upstream)["http.response.status_code"], "200");
        assert_eq!(of(&upstream)["informerd.verb"], "forward");
        let requests = server.requests();
        let seen = requests
            .iter()
            .find(|request| request.method == method && request.target.contains("/configmaps/"))
            .unwrap();
        let header = |name: &str| seen.headers[name].to_str().unwrap();
        assert_eq!(header("traceparent"), format!("00-{TRACE}-{}-01", hex(&upstream.span_id)));
        assert_eq!((header("tracestate"), header("baggage")), ("vendor=1", "user=anna"));
    }

    // What informerd does by itself is a trace of its own.
    eventually("its steps", || collector.spans().iter().any(|span| span.name == CYCLE)).await;
    let spans = collector.spans();
    let cycle = spans.iter().find(|span| span.name == CYCLE).expect("a cycle");
    assert!(cycle.parent_span_id.is_empty() && hex(&cycle.trace_id) != TRACE);
    assert!(of(cycle)["informerd.outcome"].starts_with("Synced"), "{cycle:?}");
    let list = spans.iter().find(|span| span.parent_span_id == cycle.span_id);
    assert_eq!(of(list.expect("its request"))["informerd.verb"], "list");

    let resource = collector.resource();
    assert_eq!(
        (resource["service.name"].as_str(), resource["deployment.environment.name"].as_str()),
        ("informerd", "test")
    );
    assert!(resource.contains_key("service.version") && resource.contains_key("service.instance.id"), "{resource:?}");

    // Lines that are written within a span name it.
    let line = daemon.line("took a whole state").unwrap();
    assert_eq!(
        (line["trace_id"].as_str().unwrap(), line["span_id"].as_str().unwrap()),
        (hex(&cycle.trace_id).as_str(), hex(&cycle.span_id).as_str())
    );
    assert!(daemon.lines().iter().all(|line| line["message"] != "starting" || line.get("trace_id").is_none()));
    assert!(daemon.stop().await.success());
    // Long before the first reading of the metrics is due, the last one is sent.
    assert!(collector.look(|kept| !kept.metrics.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_calls_are_a_part_of_their_clients_trace() {
    let (server, collector) = (some().await, Collector::start().await);
    let env = [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.url.as_str()),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        SOON,
    ];
    let daemon = daemon(&server, &env).await;
    let parent = format!("00-{TRACE}-{PARENT}-01");
    // An empty message: which resource is not said, so the call is refused.
    let client = Client::http2(&daemon.url);
    let headers = [("content-type", "application/grpc"), ("te", "trailers"), ("traceparent", parent.as_str())];
    for method in ["informerd.v1.Objects/List", "informerd.v1.Objects/NoSuch"] {
        client.request(Method::POST, &format!("/{method}"), &headers, "\0\0\0\0\0").await;
        let found = || collector.spans().into_iter().find(|span| span.name == method);
        eventually("its span", || found().is_some()).await;
        let span = found().unwrap();
        assert_eq!((hex(&span.trace_id).as_str(), hex(&span.parent_span_id).as_str()), (TRACE, PARENT));
        let told = of(&span);
        assert_eq!((told["rpc.system"].as_str(), told["rpc.service"].as_str()), ("grpc", "informerd.v1.Objects"));
        assert!(told.contains_key("rpc.grpc.status_code"), "{told:?}");
        assert_eq!(span.status.unwrap().code == 2, method.ends_with("NoSuch"), "{told:?}");
    }
    assert_eq!(collector.look(|kept| kept.metrics.len()), 0, "metrics were not asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_leaves_with_a_span() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "a", "name": "hush-name"}, "data": {"k": "aHVzaA=="}});
    let (server, collector) = (Server::builder().object(secret).start().await.unwrap(), Collector::start().await);
    let daemon = exporting(&server, &collector, &[("OTEL_EXPORTER_OTLP_HEADERS", "x-hush=hush-header")]).await;
    let client = daemon.client();
    let headers = [("authorization", "Bearer hush-token"), ("cookie", "hush=cookie"), ("x-hush", "hush")];
    for path in [
        "/api/v1/namespaces/a/secrets/hush-name",
        "/api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3Dhush&resourceVersion=0",
        "/api/v1/namespaces/a/services/s:443/proxy/hush/path?token=hush",
        "/version?token=hush",
    ] {
        client.request(Method::GET, path, &headers, "").await;
    }
    let all = |collector: &Collector| {
        collector.spans().iter().filter(|span| span.kind == SpanKind::Server as i32).count() == 4
    };
    eventually("the spans", || all(&collector)).await;
    let text = |spans: &[Span]| {
        spans.iter().map(|span| String::from_utf8_lossy(&span.encode_to_vec()).into_owned()).collect::<String>()
    };
    let spans = text(&collector.spans());
    assert!(
        spans.contains("/api/v1/namespaces/{namespace}/services/{name}/proxy") && spans.contains("/version"),
        "{spans}"
    );
    let at = spans.find("hush").map(|at| spans[at.saturating_sub(80)..].chars().take(160).collect::<String>());
    assert_eq!(at, None);
    // The collector gets what is meant for it, and no log says it.
    assert!(collector.look(|kept| kept.headers.iter().all(|headers| headers["x-hush"] == "hush-header")));
    assert!(
        !daemon
            .lines()
            .iter()
            .any(|line| line.to_string().contains("hush-header") || line.to_string().contains("hush-token"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn goes_compressed_and_is_repeated() {
    let (server, collector) = (some().await, Collector::start().await);
    for protocol in ["http/protobuf", "grpc"] {
        collector.refuse(1);
        let env = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b"),
            ("OTEL_METRICS_EXPORTER", "none"),
        ];
        let daemon = exporting(&server, &collector, &env).await;
        let path = format!("{CONFIG_MAPS}?resourceVersion=0");
        assert_eq!(traced(&daemon.client(), Method::GET, &path).await, 200);
        let ours = || collector.spans().iter().filter(|span| hex(&span.parent_span_id) == PARENT).count();
        let expected = if protocol == "grpc" { 2 } else { 1 };
        eventually("the span, once", || ours() == expected).await;
        assert_eq!(collector.refusals_left(), 0, "the first attempt was refused");
        let compressed = if protocol == "grpc" { "grpc-encoding" } else { "content-encoding" };
        let headers = collector.look(|kept| kept.headers.last().unwrap().clone());
        assert_eq!((headers[compressed].as_bytes(), headers["x-tenant"].as_bytes()), (&b"gzip"[..], &b"a b"[..]));
        assert_eq!(daemon.metric("informerd_otel_spans_failed_total").await, 0.0);
        assert!(daemon.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_sampled_against_the_parents_will() {
    let (server, collector) = (some().await, Collector::start().await);
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_TRACES_SAMPLER", "parentbased_always_off"),
        SOON,
    ];
    let daemon = daemon(&server, &env).await;
    let client = daemon.client();
    let path = "/api/v1/namespaces/a/configmaps/one?export=1";
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    assert_eq!(client.request(Method::GET, path, &[("traceparent", &unsampled)], "").await.status, 200);
    assert_eq!(traced(&client, Method::GET, path).await, 200);
    let found = || collector.spans();
    eventually("the sampled one", || found().iter().any(|span| span.kind == SpanKind::Server as i32)).await;
    assert!(found().iter().all(|span| hex(&span.trace_id) == TRACE), "{:?}", found());
    assert_eq!(found().iter().filter(|span| span.kind == SpanKind::Server as i32).count(), 1);
    // The decision goes on upstream.
    let seen: Vec<_> = server
        .requests()
        .iter()
        .filter(|request| request.target.contains("export"))
        .map(|request| request.headers["traceparent"].to_str().unwrap().to_owned())
        .collect();
    assert_eq!(seen.iter().map(|parent| parent.ends_with("-01")).collect::<Vec<_>>(), [false, true], "{seen:?}");
    assert!(seen.iter().all(|parent| parent.contains(TRACE)));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_export_headers_are_left_as_they_are() {
    let server = some().await;
    let daemon = daemon(&server, &[]).await;
    let path = "/api/v1/namespaces/a/configmaps/one?export=1";
    assert_eq!(traced(&daemon.client(), Method::GET, path).await, 200);
    let requests = server.requests();
    let seen = requests.iter().find(|request| request.target.contains("export")).unwrap();
    assert_eq!(seen.headers["traceparent"], format!("00-{TRACE}-{PARENT}-01"));
    assert_eq!(seen.headers["tracestate"], "vendor=1");
    assert!(
        requests
            .iter()
            .all(|request| request.target.contains("export") || !request.headers.contains_key("traceparent"))
    );
    assert!(daemon.lines().iter().all(|line| line.get("trace_id").is_none()));
}

/// A collector that takes connections, and nothing more; or none at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_does_not_answer_costs_nothing() {
    let server = &some().await;
    // The end of each takes seconds.
    let all = [(true, "grpc"), (true, "http/protobuf"), (false, "grpc")].map(|(hanging, protocol)| async move {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", silent.local_addr().unwrap());
        let held = tokio::spawn(async move {
            let mut held = Vec::new();
            loop {
                held.push(silent.accept().await.unwrap());
            }
        });
        if !hanging {
            held.abort();
            held.await.unwrap_err();
        }
        let env = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "8"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4"),
            // Far longer than the test: what is said below is so while the first message is on its way.
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000"),
            ("OTEL_BSP_EXPORT_TIMEOUT", "3600000"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "50"),
            SOON,
        ];
        let daemon = daemon(server, &env).await;
        let client = daemon.client();
        let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
        assert!(watch.next().await.unwrap().is_some());
        for _ in 0..50 {
            assert_eq!(client.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.status, 200);
        }
        // 50 reads have two spans each. All that found no room are counted, and no more than the room waits.
        assert!(daemon.metric("informerd_otel_spans_dropped_total").await >= 80.0, "{protocol}");
        assert!(daemon.metric("informerd_otel_spans_waiting").await <= 8.0, "{protocol}");
        assert_eq!(daemon.metric("informerd_otel_spans_sent_total").await, 0.0);
        drop(watch);
        // It ends, although the message still waits for its answer.
        assert!(daemon.stop().await.success());
    });
    join_all(all).await;
}

/// The time for all attempts is over while the first one still waits for its answer.
#[tokio::test(flavor = "multi_thread")]
async fn spans_whose_time_is_over_count_as_failed() {
    let server = some().await;
    // Connections are established, and nobody accepts them.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let env = [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint.as_str()),
        ("OTEL_BSP_EXPORT_TIMEOUT", "200"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000"),
        SOON,
    ];
    let daemon = daemon(&server, &env).await;
    assert_eq!(daemon.client().get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.status, 200);
    until("a span counts as failed", async || daemon.metric("informerd_otel_spans_failed_total").await > 0.0).await;
    assert_eq!(daemon.metric("informerd_otel_spans_dropped_total").await, 0.0);
    assert!(daemon.stop().await.success());
}
