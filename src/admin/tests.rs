use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use informerd_status::{Apiserver, Cache, Explanation, Lists, Queue};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;

use super::past::Past;
use super::routes::{Pages, Scraped};
use super::server::{Access, MAX_CONNECTIONS, NETWORK_TIMEOUT, SEND_BUFFER, bind, connection};
use super::*;
use crate::lifecycle::Fatal;
use crate::lifecycle::readiness::Registry;
use crate::lifecycle::slots::Slots;
use crate::telemetry::Metrics;

struct Two;

impl Introspect for Two {
    fn lists(&self) -> Lists {
        let cache = |resource: &str, ready, silent| Cache {
            resource: resource.into(),
            objects: 7,
            ready,
            silent_seconds: Some(silent),
            ..Cache::default()
        };
        Lists {
            caches: vec![cache("services", true, 9), cache("pods", true, 3), cache("secrets", false, 100)],
            queues: vec![Queue { name: "a-queue".into(), depth: 3, ..Queue::default() }],
            ..Lists::default()
        }
    }

    fn totals(&self) -> Totals {
        Totals { server: "https://10.0.0.1".into(), served: 5, ..Default::default() }
    }

    fn apiserver(&self) -> Apiserver {
        Apiserver { last_error: "no route".into(), since_seconds: 80, silent_seconds: Some(83), ..Default::default() }
    }

    fn explain(&self, request: http::request::Parts) -> Explaining {
        let plan = format!("{} {}", request.method, request.uri);
        Box::pin(std::future::ready(Some(Explanation { plan, ..Explanation::default() })))
    }
}

/// Counts how often it is encoded.
#[derive(Debug)]
struct Encoded(Arc<AtomicUsize>);

impl Collector for Encoded {
    fn encode(&self, _: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Pages whose metrics are larger than what any kernel keeps, and how often they were encoded.
fn large_pages() -> (Pages, Arc<AtomicUsize>) {
    let (metrics, encoded) = (Metrics::default(), Arc::<AtomicUsize>::default());
    metrics.register(Encoded(Arc::clone(&encoded)));
    metrics.register_with(|registry| registry.register("large", "x".repeat(32 << 20), <Counter>::default()));
    let (readiness, caches) = (Registry::default(), Arc::new(Two));
    (Pages { readiness, metrics, caches, past: Past::default(), scraped: Scraped::default() }, encoded)
}

fn start(readiness: &Registry, fatal: &Fatal) -> Admin {
    let config = Config { listen: ([127, 0, 0, 1], 0).into(), probes: Some(([127, 0, 0, 1], 0).into()) };
    Admin::start(&config, readiness.clone(), Metrics::default(), Arc::new(Two), fatal).unwrap()
}

/// The complete answer as text. The connection is closed after it.
fn ask(address: SocketAddr, method: &str, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn get(admin: &Admin, path: &str) -> (u16, String) {
    let text = ask(admin.address, "GET", path, "localhost");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn ready_only_when_nothing_is_pending() {
    let (readiness, fatal) = (Registry::default(), Fatal::new());
    let (pods, listeners) = (readiness.latch("informer pods"), readiness.latch("listeners"));
    let admin = start(&readiness, &fatal);
    assert_eq!(get(&admin, "/livez"), (200, "ok\n".to_owned()));
    assert_eq!(get(&admin, "/readyz"), (503, "not ready\ninformer pods: pending\nlisteners: pending\n".to_owned()));
    listeners.release();
    drop(pods);
    assert_eq!(get(&admin, "/readyz"), (503, "not ready\ninformer pods: failed\n".to_owned()));
    let readiness = Registry::default();
    let admin = start(&readiness, &fatal);
    assert_eq!(get(&admin, "/readyz"), (200, "ok\n".to_owned()));
    for address in [admin.address, admin.probes.unwrap()] {
        let answer = ask(address, "GET", "/readyz?verbose", "localhost");
        assert!(answer.contains("\nreadyz check passed\n"), "{address}: {answer}");
    }
    assert_eq!(get(&admin, "/livez?verbose"), (200, "[+]ping ok\nlivez check passed\n".to_owned()));
    readiness.withdraw("draining");
    assert_eq!(get(&admin, "/readyz"), (503, "not ready\ndraining: withdrawn\n".to_owned()));
}

#[test]
fn serves_the_status_and_its_page() {
    let admin = start(&Registry::default(), &Fatal::new());
    let (status, text) = get(&admin, "/status.json");
    assert_eq!(status, 200);
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&status["ready"], &status["served"]), (&true.into(), &5.into()), "{text}");
    let upstream =
        serde_json::json!({"reachable": false, "sinceSeconds": 80, "lastError": "no route", "silentSeconds": 83});
    assert_eq!((&status["upstream"], &status["servedAgeSeconds"]), (&upstream, &9.into()), "{text}");
    let from = status["now"].as_u64().unwrap() - 80;
    assert_eq!(status["outages"], serde_json::json!([{"from": from, "until": null}]));
    let caches: serde_json::Value = serde_json::from_str(&get(&admin, "/debug/caches").1).unwrap();
    assert_eq!((&status["caches"], &status["caches"][0]["objects"]), (&caches["caches"], &7.into()), "{text}");
    let names = [0_usize, 1, 2].map(|at| status["caches"][at]["resource"].as_str());
    assert_eq!(names, ["pods", "secrets", "services"].map(Some), "sorted");
    assert_eq!((&status["queues"][0]["name"], &status["queues"][0]["depth"]), (&"a-queue".into(), &3.into()), "{text}");
    for path in ["/status", "/status.js", "/status.css", "/status/uplot.js"] {
        let answer = ask(admin.address, "GET", path, "localhost");
        assert!(answer.contains("\r\ncontent-security-policy: default-src 'none'; "), "{answer}");
    }

    for path in ["/livez", "/readyz", "/metrics", "/debug/caches", "/status", "/status.json"] {
        assert!(get(&admin, "/").1.contains(path), "the index names {path}");
    }
}

#[test]
fn refuses_what_it_does_not_know() {
    let admin = start(&Registry::default(), &Fatal::new());
    assert_eq!(get(&admin, "/nothing").0, 404);
    assert!(ask(admin.address, "POST", "/livez", "localhost").starts_with("HTTP/1.1 405 "));
    for host in ["localhost:8002", "127.0.0.1", "[::1]:8002", "LOCALHOST"] {
        assert!(ask(admin.address, "GET", "/livez", host).starts_with("HTTP/1.1 200 "), "{host}");
    }
    for host in ["rebound.example.com", "rebound.example.com:8002", "localhost.example.com"] {
        assert!(ask(admin.address, "GET", "/livez", host).starts_with("HTTP/1.1 403 "), "{host}");
    }
}

#[test]
fn the_network_sees_health_and_metrics_only() {
    let (readiness, fatal) = (Registry::default(), Fatal::new());
    let admin = start(&readiness, &fatal);
    let probes = admin.probes.unwrap();
    for path in ["/livez", "/readyz", "/metrics"] {
        // The kubelet uses the pod's address as host, others use a DNS name.
        for host in ["10.1.2.3:8003", "informerd.informerd.svc:8003"] {
            assert!(ask(probes, "GET", path, host).starts_with("HTTP/1.1 200 "), "{path} at {host}");
        }
    }
    for path in ["/debug/caches", "/", "/nothing"] {
        assert!(ask(probes, "GET", path, "10.1.2.3:8003").starts_with("HTTP/1.1 404 "), "{path}");
    }
    let held = readiness.latch("apiserver");
    assert!(ask(probes, "GET", "/readyz", "10.1.2.3").starts_with("HTTP/1.1 503 "));
    held.release();
    let own = admin.address;
    drop(admin);
    assert!([own, probes].iter().all(|address| TcpStream::connect(address).is_err()), "nothing listens any more");
    assert_eq!(fatal.wait().now_or_never(), None);
}

#[test]
fn whoever_keeps_connections_keeps_no_others_out() {
    let admin = start(&Registry::default(), &Fatal::new());
    let closed = || -> usize {
        let metrics = get(&admin, "/metrics").1;
        let closed = metrics.lines().find_map(|line| line.strip_prefix("informerd_admin_connections_closed_total "));
        closed.unwrap().parse().unwrap()
    };
    let room: Vec<_> = (1..MAX_CONNECTIONS).map(|_| TcpStream::connect(admin.address).unwrap()).collect();
    assert_eq!(closed(), 0, "there is room for one more");
    drop(room);
    for address in [admin.probes.unwrap(), admin.address] {
        for said in ["", "GET /livez HTTP/1.1\r\nHost: x", "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
            let open = || {
                let mut stream = TcpStream::connect(address).unwrap();
                // One that was closed for another may break.
                stream.write_all(said.as_bytes()).ok();
                stream
            };
            let _held: Vec<_> = (0..3 * MAX_CONNECTIONS).map(|_| open()).collect();
            assert!(ask(address, "GET", "/livez", "localhost").starts_with("HTTP/1.1 200 "), "{said}");
        }
    }
    // They lost their places to newer ones, none of which waited until they had timed out.
    assert!(closed() > 400, "{}", closed());
}

#[tokio::test(start_paused = true)]
async fn all_scrapes_of_a_second_have_the_same_bytes() {
    let (pages, encoded) = large_pages();
    let scrape = async || {
        let answer = pages.answer_network(&http::Method::GET, &"/metrics".parse().unwrap());
        answer.into_body().collect().await.unwrap().to_bytes()
    };
    let first = scrape().await;
    for _ in 0..100 {
        assert_eq!(scrape().await.as_ptr(), first.as_ptr());
    }
    assert_eq!(encoded.load(Ordering::Relaxed), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_ne!(scrape().await.as_ptr(), first.as_ptr());
    assert_eq!(encoded.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn what_the_network_does_not_read_is_kept_for_a_short_time() {
    let (listener, address) = bind(([127, 0, 0, 1], 0).into()).unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let (stream, peer) = listener.accept().await.unwrap();
    // Linux doubles the size, for its own bookkeeping.
    let buffer = socket2::SockRef::from(&stream).send_buffer_size().unwrap();
    assert!((SEND_BUFFER..=2 * SEND_BUFFER).contains(&buffer), "{buffer}");
    let slot = Slots::new(MAX_CONNECTIONS, Counter::default()).take(peer.ip());
    let started = tokio::time::Instant::now();
    connection(stream, large_pages().0, Access::Network, slot).await;
    assert_eq!(started.elapsed(), NETWORK_TIMEOUT);
}
