use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::metadata::Metadata;
use crate::testing::{Body, FakeServer, answer, padded, silence};
use informerd_meta::{Origin, PrinterColumn};

const AGGREGATED_API: &str = r#"{"kind":"APIGroupDiscoveryList","items":[{"versions":[{"version":"v1","resources":[{"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["get","list","watch"]}]}]}]}"#;
const AGGREGATED_APIS: &str = r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"example.com"},"versions":[{"version":"v1","resources":[{"resource":"widgets","responseKind":{"kind":"Widget"},"scope":"Namespaced","verbs":["get","list","watch"]}]}]},{"metadata":{"name":"metrics.k8s.io"},"versions":[{"version":"v1","resources":[{"resource":"nodes","responseKind":{"kind":"NodeMetrics"},"scope":"Cluster","verbs":["get","list"]}]}]}]}"#;
const CRD: &str = r#"{"spec":{"versions":[{"name":"v1","selectableFields":[{"jsonPath":".spec.color"},{"jsonPath":".spec.size"}],"additionalPrinterColumns":[{"name":"When","type":"date","jsonPath":".spec.when","priority":1}]},{"name":"v2"}]}}"#;

/// Of a server from before the aggregated form.
const OLD_API: &str = r#"{"kind":"APIVersions","versions":["v1"]}"#;

async fn discovery(server: &FakeServer, config: DiscoveryConfig) -> Discovery {
    Discovery::with_config(Upstream::from_config(server.config()).await.unwrap(), config)
}

async fn serve(answers: impl Fn(&str) -> http::Response<Body> + Send + Sync + 'static) -> FakeServer {
    FakeServer::plain(move |request, _| std::future::ready(answers(request.uri().path()))).await
}

async fn aggregated(definition: (u16, &'static str)) -> FakeServer {
    with_groups(AGGREGATED_APIS, definition).await
}

async fn with_groups(apis: &'static str, definition: (u16, &'static str)) -> FakeServer {
    serve(move |path| match path {
        "/api" => answer(200, AGGREGATED_API),
        "/apis" => answer(200, apis),
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com" => {
            answer(definition.0, definition.1)
        }
        _ => answer(404, ""),
    })
    .await
}

#[tokio::test]
async fn tells_who_serves_a_resource() {
    let server = aggregated((200, CRD)).await;
    let discovery = discovery(&server, DiscoveryConfig::default()).await;
    let pods = discovery.resolve("", "v1", "pods").await.unwrap().unwrap();
    assert_eq!((&*pods.kind, pods.namespaced, &pods.origin), ("Pod", true, &Origin::BuiltIn));
    let widgets = discovery.resolve("example.com", "v1", "widgets").await.unwrap().unwrap();
    let Origin::Custom { selectable, columns, .. } = &widgets.origin else { panic!("{:?}", widgets.origin) };
    let column = PrinterColumn { name: "When".into(), kind: "date".into(), json_path: ".spec.when".into() };
    assert_eq!(**columns, [column]);
    assert_eq!(selectable.iter().map(|field| &**field).collect::<Vec<_>>(), ["spec.color", "spec.size"]);
    let nodes = discovery.resolve("metrics.k8s.io", "v1", "nodes").await.unwrap().unwrap();
    assert_eq!((&nodes.origin, nodes.verbs.watch), (&Origin::Unknown, false));
    // Everything is read once.
    discovery.resolve("example.com", "v1", "widgets").await.unwrap().unwrap();
    assert_eq!(server.requests().len(), 4);
    assert!(server.requests()[0].headers["accept"].to_str().unwrap().contains("as=APIGroupDiscoveryList"));
}

#[tokio::test]
async fn only_what_discovery_names_may_exist() {
    let server = aggregated((200, CRD)).await;
    let discovery = discovery(&server, DiscoveryConfig::default()).await;
    assert!(discovery.may_exist("g1", "r1"), "nothing is known yet");
    discovery.resources().await.unwrap();
    let asked = server.requests().len();
    for (group, resource, may_exist) in [
        ("", "pods", true),
        ("example.com", "widgets", true),
        ("g1", "r1", false),
        ("example.com", "r1", false),
        ("", "widgets", false),
    ] {
        assert_eq!(discovery.may_exist(group, resource), may_exist, "{group} {resource}");
    }
    assert_eq!(server.requests().len(), asked);
}

#[tokio::test]
async fn a_read_that_its_caller_gives_up_is_made_again() {
    let server = aggregated((200, CRD)).await;
    let discovery = discovery(&server, DiscoveryConfig::default()).await;
    discovery.resolve("example.com", "v1", "widgets").await.unwrap().unwrap();
    let before = server.requests().len();
    discovery.mark(&Subject::All);
    let given_up = async {
        tokio::select! {
            biased;
            read = discovery.refresh() => read.unwrap(),
            () = async { while server.requests().len() == before { tokio::task::yield_now().await } } => {}
        }
    };
    given_up.await;
    discovery.resolve("example.com", "v1", "widgets").await.unwrap().unwrap();
    let read = server.requests()[before..].iter().filter(|request| request.uri == "/apis").count();
    assert_eq!(read, 1, "the one that was given up came as far as /api");
}

#[tokio::test]
async fn what_is_known_is_not_waited_for_long_when_the_server_says_nothing() {
    let silent = Arc::new(AtomicBool::new(false));
    let hangs = Arc::clone(&silent);
    let server = FakeServer::plain(move |request, _| {
        let hangs = Arc::clone(&hangs);
        async move {
            if hangs.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            match request.uri().path() {
                "/api" => answer(200, AGGREGATED_API),
                "/apis" => answer(200, AGGREGATED_APIS),
                _ => answer(200, CRD),
            }
        }
    })
    .await;
    let discovery = discovery(&server, DiscoveryConfig::default()).await;
    let ask = async || {
        let pods = discovery.resolve_or_last(&Gvr::new("", "v1", "pods")).await.unwrap().unwrap();
        let widgets = discovery.resolve_or_last(&Gvr::new("example.com", "v1", "widgets")).await.unwrap().unwrap();
        assert_eq!((&*pods.kind, &*widgets.kind), ("Pod", "Widget"));
        assert!(matches!(&widgets.origin, Origin::Custom { selectable, .. } if selectable.len() == 2));
    };
    ask().await;
    silent.store(true, Ordering::Relaxed);
    discovery.mark(&Subject::All);
    // From here on the clock moves only while everybody waits for it.
    tokio::time::pause();
    let started = Instant::now();
    ask().await;
    assert!(started.elapsed() < 8 * PATIENCE, "{:?}", started.elapsed());
    let started = Instant::now();
    for _ in 0..10 {
        ask().await;
    }
    assert!(started.elapsed() < 5 * PATIENCE, "the first has waited for all: {:?}", started.elapsed());
}

#[tokio::test]
async fn a_definition_that_says_nothing_is_unknown_and_a_failing_one_an_error() {
    const OTHERS: &str = r#"{"spec":{"versions":[{"name":"v1","served":false},{"name":"v2","served":true}]}}"#;
    // One may not be read, one does not serve the version, and one fails.
    let unknown = || Ok(Origin::Unknown);
    for (definition, origin) in [((403, ""), unknown()), ((200, OTHERS), unknown()), ((500, ""), Err(500))] {
        let server = aggregated(definition).await;
        let discovery = discovery(&server, DiscoveryConfig::default()).await;
        let widgets = discovery.resolve("example.com", "v1", "widgets").await;
        let found = widgets.map(|found| found.unwrap().origin.clone()).map_err(|error| error.code().unwrap());
        assert_eq!(found, origin, "{definition:?}");
    }
}

#[tokio::test]
async fn what_was_found_last_is_remembered_until_it_is_gone() {
    let asked = AtomicUsize::new(0);
    let server = serve(move |path| match path {
        "/api" => answer(200, AGGREGATED_API),
        "/apis" if asked.load(Ordering::Relaxed) < 3 => answer(200, AGGREGATED_APIS),
        "/apis" => answer(200, r#"{"kind":"APIGroupDiscoveryList","items":[]}"#),
        "/apis/example.com" => answer(404, ""),
        _ if asked.fetch_add(1, Ordering::Relaxed) == 0 => answer(200, CRD),
        _ => answer(500, ""),
    })
    .await;
    let config = DiscoveryConfig { min_refresh: Duration::from_millis(10), ..DiscoveryConfig::default() };
    let discovery = discovery(&server, config).await;
    let widgets = Gvr::new("example.com", "v1", "widgets");
    assert_eq!(discovery.last_known(&widgets), None);
    let found = discovery.resolve("example.com", "v1", "widgets").await.unwrap();
    for _ in 0..2 {
        discovery.mark(&Subject::All);
        assert!(discovery.resolve("example.com", "v1", "widgets").await.is_err(), "asked anew");
        assert_eq!(discovery.last_known(&widgets), found);
    }
    discovery.mark(&Subject::All);
    assert_eq!(discovery.resolve("example.com", "v1", "widgets").await.unwrap(), None);
    assert_eq!(discovery.last_known(&widgets), None);
}

#[tokio::test]
async fn unknown_names_are_looked_for_once_in_a_while() {
    let server = aggregated((200, CRD)).await;
    let config = DiscoveryConfig { min_refresh: Duration::from_millis(300), ..DiscoveryConfig::default() };
    let discovery = discovery(&server, config).await;
    let ask = || discovery.resolve("example.com", "v1", "gadgets");
    for result in futures_util::future::join_all((0..20).map(|_| ask())).await {
        assert_eq!(result.unwrap(), None);
    }
    assert_eq!(server.requests().len(), 2, "{:?}", server.uris());
    tokio::time::sleep(Duration::from_millis(350)).await;
    assert_eq!(ask().await.unwrap(), None);
    assert_eq!(ask().await.unwrap(), None);
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn finds_the_preferred_version() {
    const APIS: &str = r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"autoscaling"},"versions":[
        {"version":"v2","resources":[{"resource":"hpas","responseKind":{"kind":"H"},"scope":"Namespaced","verbs":[]}]},
        {"version":"v1","resources":[{"resource":"hpas","responseKind":{"kind":"H"},"scope":"Namespaced","verbs":[]},
            {"resource":"old","responseKind":{"kind":"O"},"scope":"Namespaced","verbs":[]}]}]}]}"#;
    let server = with_groups(APIS, (404, "")).await;
    let discovery = discovery(&server, DiscoveryConfig::default()).await;
    assert_eq!(&*discovery.find("autoscaling", "hpas").await.unwrap().unwrap().gvr.version, "v2");
    assert_eq!(&*discovery.find("autoscaling", "old").await.unwrap().unwrap().gvr.version, "v1");
    assert!(discovery.find("autoscaling", "new").await.unwrap().is_none());
}

/// Until there was any answer, callers do not wait for one attempt after the other.
#[tokio::test(start_paused = true)]
async fn an_apiserver_that_has_never_answered_is_not_waited_for_long() {
    let server = FakeServer::plain(|_, _| silence()).await;
    let discovery = discovery(&server, DiscoveryConfig::default()).await;
    let pods = Gvr::new("", "v1", "pods");
    let began = Instant::now();
    for _ in 0..10 {
        let asks = (0..10).map(|_| discovery.resolve_or_last(&pods));
        let answers = futures_util::future::join_all(asks).await;
        assert!(answers.into_iter().all(|answer| answer.is_err_and(|error| error.is_unreachable())));
    }
    assert!(began.elapsed() <= PATIENCE, "{:?}", began.elapsed());
}

#[tokio::test]
async fn what_a_server_has_not_said_may_exist() {
    const APIS: &str = r#"{"kind":"APIGroupDiscoveryList","items":[
        {"metadata":{"name":"down.io"},"versions":[{"version":"v1","freshness":"Stale"},{"version":"v2","freshness":"Current"}]},
        {"metadata":{"name":"old.io"},"versions":[{"version":"v1","freshness":"Stale","resources":[{"resource":"things","responseKind":{"kind":"Thing"}}]}]},
        {"metadata":{"name":"up.io"},"versions":[{"version":"v1","freshness":"Current"}]}]}"#;
    let server = with_groups(APIS, (404, "")).await;
    let discovery = discovery(&server, DiscoveryConfig::default()).await;
    assert!(discovery.may_lack("up.io", None), "nothing is known yet");
    discovery.resources().await.unwrap();
    let new = Metadata { name: "v1.new.io".into(), has_service: Some(true), ..Metadata::default() };
    discovery.servers().listed([&new]);
    for (group, version, may_lack) in [
        ("down.io", Some("v1"), true),
        ("down.io", Some("v2"), false),
        ("down.io", Some("v3"), false),
        ("down.io", None, true),
        ("old.io", Some("v1"), true),
        ("up.io", Some("v1"), false),
        ("up.io", None, false),
        // Discovery does not name it yet.
        ("new.io", Some("v1"), true),
        ("new.io", Some("v2"), false),
        ("new.io", None, true),
        ("none.io", Some("v1"), false),
        ("", Some("v1"), false),
    ] {
        assert_eq!(discovery.may_lack(group, version), may_lack, "{group} {version:?}");
    }
}

/// Without a document nothing is known, and the daemon does not become ready. What is known by then stays, and more may exist.
#[tokio::test]
async fn a_document_has_a_bound() {
    let document = bytes::Bytes::from(padded(AGGREGATED_APIS, MAX_DOCUMENT + 1));
    let size = Arc::new(AtomicUsize::new(MAX_DOCUMENT + 1));
    let sent = Arc::clone(&size);
    let server = serve(move |path| match path {
        "/api" => answer(200, AGGREGATED_API),
        "/apis" => answer(200, document.slice(..sent.load(Ordering::Relaxed))),
        _ => answer(404, ""),
    })
    .await;
    let config = DiscoveryConfig { min_refresh: Duration::ZERO, ..DiscoveryConfig::default() };
    let discovery = discovery(&server, config).await;
    // The daemon says it in its log.
    let error = discovery.resources().await.unwrap_err().to_string();
    assert!(error.contains(&format!("larger than {MAX_DOCUMENT} bytes")), "{error}");
    assert!(discovery.may_lack("example.com", None));

    size.store(MAX_DOCUMENT, Ordering::Relaxed);
    let known = discovery.resources().await.unwrap();
    assert_eq!((known.len(), discovery.may_lack("example.com", None)), (3, false));

    size.store(MAX_DOCUMENT + 1, Ordering::Relaxed);
    discovery.mark(&Subject::All);
    assert_eq!(discovery.resources().await.unwrap(), known);
    assert!(discovery.resolve("", "v1", "pods").await.unwrap().is_some());
    assert!(discovery.resolve("example.com", "v1", "gadgets").await.is_err(), "nobody can tell");
    assert!(discovery.may_lack("example.com", None));
}

/// One server of many must not hide the resources of the others, whether it says too much or nothing. Older apiservers are
/// read one group version at a time.
#[tokio::test]
async fn a_document_that_is_too_large_costs_its_own_group_version() {
    const GROUPS: &str = r#"{"kind":"APIGroupList","groups":[{"versions":[{"groupVersion":"apps/v1"}]},{"versions":[{"groupVersion":"large/v1"}]},{"versions":[{"groupVersion":"down/v1"}]}]}"#;
    const THINGS: &str = r#"{"resources":[{"name":"things","namespaced":true,"kind":"Thing","verbs":["list"]}]}"#;
    let document = bytes::Bytes::from(padded(THINGS, MAX_DOCUMENT + 1));
    let size = Arc::new(AtomicUsize::new(0));
    let sent = Arc::clone(&size);
    let server = serve(move |path| match path {
        "/api" => answer(200, OLD_API),
        "/apis" => answer(200, GROUPS),
        "/apis/large/v1" => answer(200, document.slice(..sent.load(Ordering::Relaxed))),
        "/api/v1" | "/apis/apps/v1" => answer(200, THINGS),
        _ => answer(503, ""),
    })
    .await;
    let config = DiscoveryConfig { min_refresh: Duration::ZERO, ..DiscoveryConfig::default() };
    let discovery = discovery(&server, config).await;
    let all = ["v1/things", "apps/v1/things", "large/v1/things"];
    // What was known of it stays.
    for (bytes, known) in [(MAX_DOCUMENT + 1, &all[..2]), (MAX_DOCUMENT, &all[..]), (MAX_DOCUMENT + 1, &all[..])] {
        size.store(bytes, Ordering::Relaxed);
        discovery.refresh().await.unwrap();
        let names: Vec<_> = discovery.resources().await.unwrap().iter().map(|found| found.gvr.to_string()).collect();
        assert_eq!(names, known, "{bytes}");
        let may_lack = ["apps", "large", "down"].map(|group| discovery.may_lack(group, None));
        assert_eq!(may_lack, [false, bytes > MAX_DOCUMENT, true], "{bytes}");
    }
}

#[tokio::test]
async fn so_many_documents_are_read_at_once() {
    // With `v1`, three times as many.
    let groups = (1..3 * PARALLEL).map(|n| format!(r#"{{"versions":[{{"groupVersion":"g{n}/v1"}}]}}"#));
    let groups = format!(r#"{{"kind":"APIGroupList","groups":[{}]}}"#, groups.collect::<Vec<_>>().join(","));
    // They are answered together, once others have had the time to come.
    let together = Arc::new(tokio::sync::Barrier::new(PARALLEL));
    let [now, most] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let at_most = Arc::clone(&most);
    let server = FakeServer::plain(move |request, _| {
        let (groups, together) = (groups.clone(), Arc::clone(&together));
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            match request.uri().path() {
                "/api" => answer(200, OLD_API),
                "/apis" => answer(200, groups),
                _ => {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    together.wait().await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    now.fetch_sub(1, Ordering::SeqCst);
                    answer(200, r#"{"resources":[]}"#)
                }
            }
        }
    })
    .await;
    let discovery = discovery(&server, DiscoveryConfig::default()).await;
    let read = timeout(Duration::from_secs(60), discovery.resources()).await;
    read.expect("they are read together").unwrap();
    assert_eq!(at_most.load(Ordering::SeqCst), PARALLEL);
}
