//! Reads of a custom resource whose group version a service may take over, in front of a simulated apiserver.

use std::time::Duration;

use informerd_sim::{Effect, Fault, Server};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::apiserver::client::Upstream;
use crate::apiserver::discovery::Discovery;
use crate::codec::{Format, Shape};
use crate::informer::Factory;
use crate::lifecycle::drain::DrainWatch;
use crate::lifecycle::spawn;
use crate::meta::{Encoding, Gvr, ListOptions, Verb};
use crate::reads::plan::{At, Freshness};
use crate::reads::{
    ConsistentReads, Fate, Filter, Outcome, ReadRequest, ReadsConfig, Refusal, Selection, WantedEncoding, WatchAnswer,
    WatchFrom, WatchTerms,
};

const SOON: Duration = Duration::from_secs(60);
const GROUP: &str = "demo.informerd.io";
const FORBIDDEN: Effect = Effect::Answer { code: 403, retry_after: None };

struct World {
    server: Server,
    reads: Reads,
    factory: Factory,
}

/// How a read was answered: `served`, `refused`, or why it is forwarded.
type Answered = &'static str;

fn widget(name: &str) -> Value {
    json!({"apiVersion": "demo.informerd.io/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "a"}})
}

fn api_service(service: Option<&str>) -> Value {
    let service = service.map(|name| json!({"name": name, "namespace": "a", "port": 443}));
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{GROUP}")},
        "spec": {"group": GROUP, "version": "v1", "service": service}})
}

async fn world(server: Server, shared: &[&str]) -> World {
    let upstream = Upstream::from_config(kube::Config::new(server.url().parse().unwrap())).await.unwrap();
    let discovery = Discovery::new(upstream.clone());
    let factory = Factory::simple(SOON, upstream, discovery.clone());
    let mut config = ReadsConfig::simple(ConsistentReads::Cache, SOON);
    config.modes.while_away = true;
    config.shared_groups = shared.iter().map(ToString::to_string).collect();
    spawn("definitions", discovery.watch_definitions(DrainWatch::never()));
    spawn("informers", factory.clone().tend());
    World { server, reads: Reads::new(config, factory.clone()), factory }
}

async fn start(service: Option<&str>, shared: &[&str]) -> World {
    let server = Server::builder().object(api_service(service)).start().await.unwrap();
    server.create(widget("w")).unwrap();
    world(server, shared).await
}

fn request(verb: Verb) -> ReadRequest {
    let options = ListOptions { watch: verb == Verb::Watch, ..ListOptions::default() };
    ReadRequest::simple(Gvr::new(GROUP, "v1", "widgets"), (verb == Verb::Get).then_some(["a", "w"]), options)
}

fn selection(identified: bool) -> Selection {
    Selection {
        gvr: Gvr::new(GROUP, "v1", "widgets"),
        filters: vec![Filter::default()],
        shape: Shape::Full,
        encoding: WantedEncoding::Any,
        identified,
    }
}

fn of<T>(outcome: &Outcome<T>) -> Answered {
    match outcome {
        Outcome::Serve(_) => "served",
        Outcome::Forward(reason) => reason.as_str(),
        Outcome::Refuse(_) => "refused",
    }
}

impl World {
    fn reads(&self, identified: bool) -> Reads {
        if identified { self.reads.clone() } else { self.reads.for_trusted() }
    }

    async fn read(&self, verb: Verb, identified: bool, request: &ReadRequest) -> Answered {
        let reads = self.reads(identified);
        let read = async {
            match verb {
                Verb::Get => of(&reads.get(request).await),
                Verb::Watch => of(&reads.watch(request).await),
                _ => of(&reads.list(request).await),
            }
        };
        timeout(SOON, read).await.expect("an answer")
    }

    /// How every kind of read by HTTP and gRPC is answered. All must be answered in the same way.
    async fn all(&self, identified: bool) -> Answered {
        let mut answers = Vec::new();
        for verb in [Verb::Get, Verb::List, Verb::Watch] {
            for revision in ["", "0"] {
                for (limit, encoding) in [(0, Encoding::Json), (1, Encoding::Json), (0, Encoding::Protobuf)] {
                    for shape in [Shape::Full, Shape::PartialObjectMetadata] {
                        for stale in [false, true] {
                            let mut request = request(verb);
                            request.options.resource_version = revision.into();
                            request.options.limit = if verb == Verb::List { limit } else { 0 };
                            request.format = Format { encoding, shape, json_fallback: Some(shape) };
                            request.stale = stale;
                            let answer = self.read(verb, identified, &request).await;
                            // What is read while the apiserver is away was forwarded before.
                            answers.push(if stale && answer == "not_fresh" { "aggregated" } else { answer });
                        }
                    }
                }
            }
            let fate = self.reads(identified).explain(&request(verb), verb).await.fate;
            answers.push(match fate {
                Fate::Forwarded(reason) => reason.as_str(),
                Fate::Served | Fate::NotFound | Fate::Waits(_) => "served",
            });
        }
        let of = |refusal: Refusal| match refusal {
            Refusal::NotServed(reason) => reason.as_str(),
            other => panic!("{other:?}"),
        };
        let at = At::Latest(Freshness::Any);
        answers.push(self.reads.state_of(&selection(identified), at, None).await.map_or_else(of, |_| "served"));
        answers.push(self.open(identified).await.map_or_else(of, |_| "served"));
        answers.dedup();
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers[0]
    }

    async fn open(&self, identified: bool) -> Result<crate::reads::OpenWatch, Refusal> {
        let deadline = tokio::time::Instant::now() + SOON;
        let from = WatchFrom::State(Freshness::Any);
        let terms = WatchTerms { from, max_staleness: None, bookmark_interval: SOON, deadline };
        self.reads.open_watch(&selection(identified), terms).await
    }

    async fn watch(&self, identified: bool) -> WatchAnswer {
        match self.reads(identified).watch(&request(Verb::Watch)).await {
            Outcome::Serve(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// Until reads of clients with an identity are answered like this.
    async fn becomes(&self, expected: Answered) {
        let becomes = async {
            while self.read(Verb::List, true, &request(Verb::List)).await != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(SOON, becomes).await.unwrap_or_else(|_| panic!("never {expected}"));
    }
}

async fn over(proof: Option<Shareable>) -> Unshareable {
    timeout(SOON, proof.expect("a proof").over()).await.expect("its end")
}

#[tokio::test]
async fn what_a_service_serves_is_not_shared_by_clients_with_identities() {
    let world = start(Some("s"), &[]).await;
    assert_eq!(world.all(true).await, "aggregated");
    assert!(world.factory.informers().is_empty(), "nothing was read for it");
    assert_eq!(world.all(false).await, "served");
    assert_eq!(world.all(true).await, "aggregated", "although an informer runs");
    assert!(world.watch(false).await.proof.is_none());
}

#[tokio::test]
async fn what_the_configuration_names_is_shared() {
    let world = start(Some("s"), &["other.org", GROUP]).await;
    assert_eq!(world.all(true).await, "served");
    assert!(world.watch(true).await.proof.is_none(), "and needs no proof");
}

#[tokio::test]
async fn custom_resources_are_shared_whoever_may_read_their_definitions() {
    for forbidden in [false, true] {
        let server = Server::builder().object(api_service(None)).start().await.unwrap();
        if forbidden {
            server.faults().add(Fault::always(FORBIDDEN).on("customresourcedefinitions.apiextensions.k8s.io"));
        }
        server.create(widget("w")).unwrap();
        let world = world(server, &[]).await;
        assert_eq!(world.all(true).await, "served", "{forbidden}");
    }
}

#[tokio::test]
async fn without_the_right_to_read_apiservices_no_group_is_shared_but_those_that_are_built_in() {
    let server = Server::builder().object(api_service(None)).start().await.unwrap();
    server.faults().add(Fault::always(FORBIDDEN).on("apiservices.apiregistration.k8s.io"));
    let world = world(server, &[]).await;
    assert_eq!(world.all(true).await, "aggregated");
    let pods = ReadRequest { gvr: Gvr::new("", "v1", "pods"), ..request(Verb::List) };
    assert_eq!(world.read(Verb::List, true, &pods).await, "served");
}

#[tokio::test]
async fn what_was_read_before_a_service_took_over_and_while_it_served_is_not_used() {
    let world = start(None, &[]).await;
    let (watch, typed) = (world.watch(true).await, world.open(true).await.unwrap());
    let before = world.factory.informers();
    world.server.update(api_service(Some("s"))).unwrap();
    assert_eq!(over(watch.proof).await, Unshareable::Aggregated);
    assert_eq!(over(typed.proof).await, Unshareable::Aggregated);
    world.becomes("aggregated").await;
    assert_eq!(world.all(true).await, "aggregated");
    // A client of a trusted listener reads what the service serves.
    assert_eq!(world.all(false).await, "served");
    let meanwhile = world.factory.informers();
    assert!(before.iter().all(|informer| !world.factory.runs(informer)), "they have ended");
    world.server.update(api_service(None)).unwrap();
    world.becomes("served").await;
    assert!(meanwhile.iter().all(|informer| !world.factory.runs(informer)), "and those as well");
    assert_eq!(world.all(true).await, "served");
}

#[tokio::test]
async fn a_version_that_a_service_serves_has_revisions_of_its_own() {
    let world = start(Some("s"), &[]).await;
    let [v1, v2] = ["v1", "v2"].map(|version| Gvr::new(GROUP, version, "widgets"));
    let has_informer = |gvr| !world.factory.of_history(gvr).is_empty();
    assert_eq!((world.all(true).await, world.all(false).await), ("aggregated", "served"));
    let floors = [&v1, &v2].map(|gvr| world.factory.floor(gvr).get().is_zero());
    assert_eq!((floors, [&v1, &v2].map(has_informer)), ([false, true], [true, false]));
    world.server.update(api_service(None)).unwrap();
    world.becomes("served").await;
    assert!(std::sync::Arc::ptr_eq(&world.factory.floor(&v1), &world.factory.floor(&v2)));
    assert!([&v1, &v2].into_iter().all(has_informer), "one store has both");
}
