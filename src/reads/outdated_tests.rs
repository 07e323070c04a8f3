//! A definition that changes while a read waits for the informer of its resource.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::*;
use crate::apiserver::client::Upstream;
use crate::apiserver::discovery::Discovery;
use crate::apiserver::testing::{Body, FakeServer, answer, streamed, until};
use crate::informer::Factory;
use crate::lifecycle::spawn;
use crate::meta::{Gvr, ListOptions, Status};
use crate::reads::{ConsistentReads, Outcome, ReadRequest, ReadsConfig};

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_secs(60);
const CORE: &str = r#"{"kind":"APIGroupDiscoveryList","items":[]}"#;
const GROUPS: &str = r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"example.com"},"versions":[{"version":"v1","resources":[{"resource":"widgets","responseKind":{"kind":"Widget"},"scope":"Namespaced","verbs":["get","list","watch"]}]}]}]}"#;
const GROUP: &str = r#"{"kind":"APIGroup","versions":[{"groupVersion":"example.com/v1"}]}"#;
const VERSION: &str = r#"{"kind":"APIResourceList","resources":[{"name":"widgets","kind":"Widget","namespaced":true,"verbs":["get","list","watch"]}]}"#;
const WITHOUT: &str = r#"{"spec":{"versions":[{"name":"v1"}]}}"#;
const SELECTABLE: &str = r#"{"spec":{"versions":[{"name":"v1","selectableFields":[{"jsonPath":".spec.color"}]}]}}"#;
const WIDGETS: &str = r#"{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"9"},"items":[{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"5"},"spec":{"color":"red"}}]}"#;

/// Where the lists of the resource wait, and whether its definition has changed or is gone.
#[derive(Default)]
struct Script {
    waiting: AtomicBool,
    has_changed: AtomicBool,
    is_gone: AtomicBool,
    open: parking_lot::Mutex<Vec<tokio::sync::mpsc::Sender<bytes::Bytes>>>,
}

async fn serve(script: Arc<Script>, gate: Arc<Semaphore>) -> FakeServer {
    FakeServer::plain(move |request, _| {
        let (script, gate) = (Arc::clone(&script), Arc::clone(&gate));
        async move {
            let query = request.uri().query().unwrap_or_default();
            match request.uri().path() {
                "/api" => answer(200, CORE),
                "/apis" => answer(200, GROUPS),
                path if path != "/apis/example.com/v1/widgets" && script.is_gone.load(Ordering::SeqCst) => {
                    answer(404, Status::failure(404, "NotFound", "no").to_json())
                }
                "/apis/example.com" => answer(200, GROUP),
                "/apis/example.com/v1" => answer(200, VERSION),
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com" => {
                    answer(200, if script.has_changed.load(Ordering::SeqCst) { SELECTABLE } else { WITHOUT })
                }
                "/apis/example.com/v1/widgets" => widgets(&script, &gate, query).await,
                _ => answer(404, Status::failure(404, "NotFound", "no").to_json()),
            }
        }
    })
    .await
}

async fn widgets(script: &Script, gate: &Semaphore, query: &str) -> http::Response<Body> {
    if query.contains("sendInitialEvents") {
        return answer(422, Status::failure(422, "Invalid", "no").to_json());
    }
    if query.contains("watch=") {
        let (sender, response) = streamed();
        script.open.lock().push(sender);
        return response;
    }
    script.waiting.store(true, Ordering::SeqCst);
    let _passes = gate.acquire().await;
    answer(200, WIDGETS)
}

fn reads(upstream: Upstream, discovery: Discovery) -> Reads {
    let factory = Factory::simple(HOUR, upstream, discovery);
    Reads::new(ReadsConfig::simple(ConsistentReads::Cache, HOUR), factory).for_trusted()
}

fn list(field_selector: &str) -> ReadRequest {
    let options =
        ListOptions { resource_version: "0".into(), field_selector: field_selector.into(), ..ListOptions::default() };
    ReadRequest::simple(Gvr::new("example.com", "v1", "widgets"), None, options)
}

/// The number of objects in the answer.
async fn count(reads: &Reads, request: &ReadRequest) -> usize {
    match timeout(SOON, reads.list(request)).await.expect("it is answered") {
        Outcome::Serve(mut answer) => {
            let mut objects = Vec::new();
            while answer.items.next(10, &mut objects) {}
            objects.len()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_read_that_waited_does_not_bring_an_outdated_definition_back() {
    let (script, gate) = (Arc::new(Script::default()), Arc::new(Semaphore::new(0)));
    let server = serve(Arc::clone(&script), Arc::clone(&gate)).await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let discovery = Discovery::new(upstream.clone());
    let reads = reads(upstream, discovery.clone());
    let waiting = reads.clone();
    let waiting = spawn("waiting", async move { count(&waiting, &list("")).await });
    until(|| script.waiting.load(Ordering::SeqCst)).await;
    // The change is seen, and what ran on the old definition is stopped.
    script.has_changed.store(true, Ordering::SeqCst);
    discovery.suspect(&list("").gvr);
    reads.factory.resource(&list("").gvr).await.unwrap().unwrap();
    reads.factory.stop();
    gate.add_permits(100);
    assert_eq!(timeout(SOON, waiting).await.expect("it ends").unwrap(), 1);
    // The informer has the fields of the new definition.
    assert_eq!(count(&reads, &list("spec.color=red")).await, 1);
    assert_eq!(count(&reads, &list("spec.color=blue")).await, 0);
    assert_eq!(reads.factory.informers().len(), 1);
}

/// The informer runs on the old definition, and nobody has told it yet.
#[tokio::test]
async fn a_read_by_the_new_definition_does_not_use_an_informer_of_the_old_one() {
    let (script, gate) = (Arc::new(Script::default()), Arc::new(Semaphore::new(100)));
    let server = serve(Arc::clone(&script), gate).await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let discovery = Discovery::new(upstream.clone());
    let reads = reads(upstream, discovery.clone());
    assert_eq!(count(&reads, &list("")).await, 1);
    script.has_changed.store(true, Ordering::SeqCst);
    discovery.suspect(&list("").gvr);
    assert_eq!(count(&reads, &list("spec.color=red")).await, 1);
    assert_eq!(count(&reads, &list("spec.color=blue")).await, 0);
}

#[tokio::test]
async fn a_read_that_waited_does_not_start_informers_of_a_definition_that_is_gone() {
    let (script, gate) = (Arc::new(Script::default()), Arc::new(Semaphore::new(0)));
    let server = serve(Arc::clone(&script), gate).await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let discovery = Discovery::new(upstream.clone());
    let reads = reads(upstream, discovery.clone());
    let waiting = reads.clone();
    let waiting = spawn("waiting", async move { waiting.list(&list("")).await });
    until(|| script.waiting.load(Ordering::SeqCst)).await;
    script.is_gone.store(true, Ordering::SeqCst);
    discovery.suspect(&list("").gvr);
    assert!(reads.factory.resource(&list("").gvr).await.unwrap().is_none());
    reads.factory.stop();
    let outcome = timeout(SOON, waiting).await.expect("it ends").unwrap();
    assert!(matches!(outcome, Outcome::Forward(ForwardReason::NotReadable)), "{outcome:?}");
    assert_eq!(reads.factory.informers().len(), 0);
}
