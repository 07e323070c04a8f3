//! From a request to its service: routes, deadlines, compression, the drain.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::server::NamedService;
use tonic_health::pb::health_server::HealthServer;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use super::access;
use super::answer::{self, Taken};
use super::cache::{Cache, Introspect};
use super::deadline;
use super::health::Health;
use super::intake::{self, Intake};
use super::message_body::Elsewhere;
use super::metrics::GrpcMetrics;
use super::objects::{Cluster, Objects};
use super::pb;
use super::pb::v1::cache_server::CacheServer;
use super::pb::v1::objects_server::ObjectsServer;
use super::pb::v1::queue_server::QueueServer;
use super::queue::{Groups, Queue};
use super::shared_events::SharedEvents;
use super::status::Error;
use crate::lifecycle::drain::DrainWatch;
use crate::lifecycle::readiness::Registry;
use crate::memory::{Ledger, StallGuards};
use crate::reads::Reads;

/// Any service, whatever its type: a future that names all of them would not be `Send` for every lifetime.
type Routed = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// What the gRPC side is made of.
pub struct GrpcParts {
    pub reads: Reads,
    pub cluster: Arc<dyn Cluster>,
    pub groups: Groups,
    pub informers: Arc<dyn Introspect>,
    pub readiness: Registry,
    pub drain: DrainWatch,
    /// Over how long the ends of open watches are spread when a drain starts.
    pub drain_spread: Duration,
    pub ledger: Ledger,
    /// Gives up the answers that nobody takes.
    pub stall_guards: StallGuards,
    pub metrics: Arc<GrpcMetrics>,
}

/// The services. Cloning shares them.
#[derive(Clone)]
pub struct Grpc {
    routes: Arc<[(&'static str, Routed)]>,
    drain: DrainWatch,
    ledger: Ledger,
    stall_guards: StallGuards,
    metrics: Arc<GrpcMetrics>,
}

// === impl Grpc ===

impl Grpc {
    pub fn new(parts: GrpcParts) -> Self {
        let GrpcParts {
            reads,
            cluster,
            groups,
            informers,
            readiness,
            drain,
            drain_spread,
            ledger,
            stall_guards,
            metrics,
        } = parts;
        let objects = ObjectsServer::new(Objects {
            reads: reads.clone(),
            cluster,
            drain: drain.clone(),
            drain_spread,
            ledger: ledger.clone(),
            shared: SharedEvents::default(),
            metrics: Arc::clone(&metrics),
        })
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
        let queue = QueueServer::new(Queue { groups, ledger: ledger.clone() })
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip);
        let cache = CacheServer::new(Cache { informers, drain: drain.clone() })
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip);
        let mut routes = vec![
            (name(&objects), BoxCloneSyncService::new(objects)),
            (name(&queue), BoxCloneSyncService::new(queue)),
            (name(&cache), BoxCloneSyncService::new(cache)),
        ];
        let services = routes.iter().map(|(name, _)| *name).collect();
        let health = HealthServer::new(Health { reads, readiness, drain: drain.clone(), services });
        // Open to all, so nothing is accounted for.
        let health = health.max_decoding_message_size(intake::SMALL_REQUEST);
        routes.push((name(&health), BoxCloneSyncService::new(health)));
        routes.extend(reflection());
        Self { routes: routes.into(), drain, ledger, stall_guards, metrics }
    }

    /// Answers one call. A failure is an answer too.
    pub async fn call(&self, mut request: Request<Body>) -> Response<Body> {
        self.metrics.calls.inc();
        let headers = request.headers_mut();
        // A client that can read gzip need not want it: it says so by sending it, as with other servers.
        if headers.get("grpc-encoding").is_none_or(|encoding| encoding != "gzip") {
            headers.remove("grpc-accept-encoding");
        }
        let deadline = deadline::deadline(headers);
        let call = self.route(request);
        let response = match deadline {
            None => call.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, call).await {
                Ok(response) => response.map(|body| deadline::limit(body, deadline)),
                Err(_) => deadline::exceeded().into_http(),
            },
        };
        let response = explained(response);
        // With an error and nothing else, the status stands in the headers.
        self.metrics.calls_failed.inc_by(u64::from(response.headers().contains_key(tonic::Status::GRPC_STATUS)));
        response
    }

    async fn route(&self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path();
        let service = path.strip_prefix('/').and_then(|path| path.split_once('/')).map(|(service, _)| service);
        let Some((_, routed)) = self.routes.iter().find(|(name, _)| Some(*name) == service) else {
            return tonic::Status::from(Error::unimplemented(format!("no method {path}"))).into_http();
        };
        if service.is_some_and(|service| service.starts_with("informerd.")) {
            if self.drain.is_draining() {
                return tonic::Status::from(Error::draining()).into_http();
            }
            // Before the service runs: it would read messages and keep state for an unauthenticated caller.
            let entered = match access::caller(request.extensions().get()) {
                Ok(caller) => caller.enter().await,
                Err(status) => Err(status),
            };
            if let Err(status) = entered {
                return status.into_http();
            }
            return self.accounted(routed.clone(), request).await;
        }
        answered(routed.clone(), request).await
    }

    /// Answers a call whose requests and, where they wait to be taken, answers are accounted for.
    async fn accounted(&self, routed: Routed, request: Request<Body>) -> Response<Body> {
        let is_packed = request.headers().contains_key("grpc-encoding");
        let intake = match Intake::new(&self.ledger, request.uri().path(), is_packed) {
            Ok(intake) => intake,
            Err(error) => return tonic::Status::from(error).into_http(),
        };
        let request = request.map(|body| intake.count(body));
        let mut response = intake.during(answered(routed, request)).await;
        let gzip = response.headers().get("grpc-encoding").is_some_and(|encoding| encoding == "gzip");
        if let Some(body) = response.extensions_mut().remove::<Elsewhere>().and_then(|it| it.into_body(gzip)) {
            return response.map(|_| body);
        }
        match response.extensions_mut().remove::<Taken>() {
            Some(taken) => response.map(|body| answer::leashed(body, taken, &self.stall_guards)),
            None => response,
        }
    }
}

async fn answered(routed: Routed, request: Request<Body>) -> Response<Body> {
    match routed.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// What the library refuses by itself, an unknown method or a message that it cannot take, gets details like all else. It
/// says itself which compression it would take.
fn explained(response: Response<Body>) -> Response<Body> {
    let headers = response.headers();
    if headers.contains_key("grpc-status-details-bin") || headers.contains_key("grpc-accept-encoding") {
        return response;
    }
    let error = tonic::Status::from_header_map(headers).and_then(|status| Error::of_library(&status));
    error.map_or(response, |error| tonic::Status::from(error).into_http())
}

fn name<S: NamedService>(_: &S) -> &'static str {
    S::NAME
}

/// Both versions: tools of today still ask for the older one.
fn reflection() -> Vec<(&'static str, Routed)> {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(pb::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let mut routes = Vec::new();
    // Descriptors that were just compiled can be read.
    if let Ok(service) = builder().build_v1().map(|service| service.max_decoding_message_size(intake::SMALL_REQUEST)) {
        routes.push((name(&service), BoxCloneSyncService::new(service)));
    }
    if let Ok(service) =
        builder().build_v1alpha().map(|service| service.max_decoding_message_size(intake::SMALL_REQUEST))
    {
        routes.push((name(&service), BoxCloneSyncService::new(service)));
    }
    routes
}
