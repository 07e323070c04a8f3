//! An apiserver of the objects of `judge vectors`: nothing changes, watch-lists are refused, and watches say nothing after a
//! bookmark.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use informerd::apiserver::client::ConfigSource;
use informerd::apiserver::testing::{Body, FakeServer, answer, endless};
use informerd::codec::Shape;
use informerd::meta::{Encoding, Status};

use super::frames::Frames;
use crate::vectors::{Answers, JSON, PROTOBUF, Type, accept, media, vectors};

pub(super) struct Server {
    fake: FakeServer,
    refuses_lists: Arc<AtomicBool>,
}

/// What it has.
struct Vectors {
    /// By the path of their collections.
    types: BTreeMap<&'static str, &'static Type>,
    general: &'static Answers,
    refuses_lists: Arc<AtomicBool>,
}

/// The cluster's identity: the namespace `kube-system`, and the version.
const CLUSTER: &str = r#"{"metadata":{"name":"kube-system","uid":"u"},"gitVersion":"v1.36.0"}"#;

impl Server {
    pub(super) async fn start() -> Self {
        let (types, general) = vectors().await;
        let types = types.iter().map(|of| (&*of.collection, of)).collect();
        let refuses_lists = Arc::<AtomicBool>::default();
        let vectors = Vectors { types, general, refuses_lists: Arc::clone(&refuses_lists) };
        let fake = FakeServer::tls(&["h2"], 250, move |request, _| std::future::ready(vectors.answer(&request)));
        Self { fake: fake.await, refuses_lists }
    }

    pub(super) fn source(&self) -> ConfigSource {
        ConfigSource::Fixed(Box::new(self.fake.config()))
    }

    /// From now on. Lists of one object show the revision, and are answered.
    pub(super) fn refuse_lists(&self) {
        self.refuses_lists.store(true, Ordering::Relaxed);
    }
}

impl Vectors {
    fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        if matches!(path, "/api" | "/apis") {
            let aggregated = format!("{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
            return answer(200, self.general[&(path.to_owned(), aggregated)][0].clone());
        }
        if matches!(path, "/version" | "/api/v1/namespaces/kube-system") {
            return answer(200, CLUSTER);
        }
        // Revisions are asked for by a list of a namespace that selects nothing.
        let collection = path.replace("/namespaces/default/", "/");
        let Some(of) = self.types.get(&*collection) else { return answer(404, "") };
        let accepted = request.headers().get(ACCEPT).and_then(|accepted| accepted.to_str().ok()).unwrap_or(JSON);
        let first = accepted.split(',').next().unwrap_or_default();
        let encoding = if first.starts_with(PROTOBUF) { Encoding::Protobuf } else { Encoding::Json };
        let is_partial = first.contains("as=PartialObjectMetadata");
        let shape = if is_partial { Shape::PartialObjectMetadata } else { Shape::Full };
        let mut response = if query.contains("sendInitialEvents=true") {
            return answer(422, Status::failure(422, "Invalid", "there are no watch-lists").to_json());
        } else if query.contains("watch=true") {
            endless(vec![Frames::of(of, encoding, shape).bookmark])
        } else if self.refuses_lists.load(Ordering::Relaxed) && query.split('&').all(|one| one != "limit=1") {
            return answer(403, Status::failure(403, "Forbidden", "lists are refused").to_json());
        } else {
            let path = if collection == path { collection } else { of.in_namespace("nobody") };
            answer(200, of.answer(&path, &accept(encoding, shape, "List")).clone())
        };
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media(encoding)));
        response
    }
}
