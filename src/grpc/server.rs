//! Routes requests to the services and handles deadlines, compression and the drain.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tonic::codec::CompressionEncoding;
use tonic::server::NamedService;
use tonic_health::pb::health_server::HealthServer;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use super::cache::{Cache, Introspect};
use super::call::{
    Body, Caller, Error, Intake, Lasting, Opening, Retiring, access, answer, deadline, intake, quotable,
};
use super::health::Health;
use super::messages::{Elsewhere, SharedEvents};
use super::metrics::GrpcMetrics;
use super::objects::{Cluster, Objects, Parts};
use super::pb;
use super::pb::v1::cache_server::CacheServer;
use super::pb::v1::objects_server::ObjectsServer;
use super::pb::v1::queue_server::QueueServer;
use super::queue::{Groups, Queue};
use crate::lifecycle::drain::DrainWatch;
use crate::lifecycle::multiplexer::IsWatch;
use crate::lifecycle::readiness::Registry;
use crate::memory::{Ledger, StallGuards};
use crate::reads::Reads;

/// A type-erased service. A future that names all service types would not be `Send` for every lifetime.
type Routed = BoxCloneSyncService<Request<tonic::body::Body>, Response<tonic::body::Body>, Infallible>;

/// The dependencies of the gRPC server.
pub struct GrpcParts {
    pub reads: Reads,
    pub cluster: Arc<dyn Cluster>,
    pub groups: Groups,
    pub informers: Arc<dyn Introspect>,
    pub readiness: Registry,
    pub drain: DrainWatch,
    /// The period over which the ends of open watches are spread when a drain starts.
    pub drain_spread: Duration,
    pub ledger: Ledger,
    /// Drops the responses that clients do not read.
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
    lasting: Lasting,
    metrics: Arc<GrpcMetrics>,
}

// === impl Grpc ===

impl Grpc {
    pub fn new(parts: GrpcParts) -> Self {
        let GrpcParts { reads, drain, ledger, stall_guards, metrics, .. } = parts;
        let objects = Objects::new(Parts {
            reads: reads.clone(),
            cluster: parts.cluster,
            drain: drain.clone(),
            drain_spread: parts.drain_spread,
            ledger: ledger.clone(),
            shared: SharedEvents::default(),
            metrics: Arc::clone(&metrics),
        });
        let objects = ObjectsServer::new(objects)
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip);
        let queue = QueueServer::new(Queue { groups: parts.groups, ledger: ledger.clone() })
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip);
        let cache = CacheServer::new(Cache { informers: parts.informers, drain: drain.clone() })
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip);
        let mut routes = vec![
            (name(&objects), BoxCloneSyncService::new(objects)),
            (name(&queue), BoxCloneSyncService::new(queue)),
            (name(&cache), BoxCloneSyncService::new(cache)),
        ];
        let services = routes.iter().map(|(name, _)| *name).collect();
        let health = Health { reads, readiness: parts.readiness, drain: drain.clone(), services };
        // Unauthenticated clients can call it, so its requests are small and not accounted for.
        let health = HealthServer::new(health).max_decoding_message_size(intake::SMALL_REQUEST);
        routes.push((name(&health), BoxCloneSyncService::new(health)));
        routes.extend(reflection());
        let lasting = Lasting::new(&ledger, Arc::clone(&metrics));
        Self { routes: routes.into(), drain, ledger, stall_guards, lasting, metrics }
    }

    /// Serves one call. A failure is returned as a response, too.
    pub async fn call(&self, mut request: Request<tonic::body::Body>) -> Response<Body> {
        self.metrics.calls.inc();
        let headers = request.headers_mut();
        // A client that accepts gzip does not always want it. As with other servers, it asks for gzip by sending
        // gzip.
        if headers.get("grpc-encoding").is_none_or(|encoding| encoding != "gzip") {
            headers.remove("grpc-accept-encoding");
        }
        let deadline = deadline::deadline(headers);
        let call = self.route(request);
        let response = match deadline {
            None => call.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, call).await {
                Ok(response) => response.map(|response| response.map(|body| deadline::limit(body, deadline))),
                Err(_) => Err(deadline::exceeded()),
            },
        };
        let response = explained(response.unwrap_or_else(tonic::Status::into_http));
        // A response with only an error has its status in the headers.
        self.metrics.calls_failed.inc_by(u64::from(response.headers().contains_key(tonic::Status::GRPC_STATUS)));
        response
    }

    async fn route(&self, request: Request<tonic::body::Body>) -> Result<Response<Body>, tonic::Status> {
        let path = request.uri().path();
        let service = path.strip_prefix('/').and_then(|path| path.split_once('/')).map(|(service, _)| service);
        let Some((_, routed)) = self.routes.iter().find(|(name, _)| Some(*name) == service) else {
            return Err(Error::unimplemented(format!("no method {}", quotable(path))).into());
        };
        if access::needs_authentication(path) {
            if self.drain.is_draining() {
                return Err(Error::draining().into());
            }
            // Do this before the service runs, which would read messages and keep state for an unauthenticated
            // caller.
            let caller = access::caller(request.extensions())?;
            caller.enter(&self.metrics).await?;
            return self.accounted(caller, routed.clone(), request).await;
        }
        let place = self.lasting.take(&access::caller(request.extensions())?.client(), path)?;
        let answer = tokio::time::timeout(intake::PATIENCE, answered(routed.clone(), request)).await;
        // Only the request can be missing: these services wait for nothing else.
        let response = answer.map_err(|_elapsed| deadline::exceeded())?;
        Ok(answer::leashed(response, place, &self.stall_guards))
    }

    /// Serves a call. Its requests are accounted for, and so are responses that wait for the client to read them.
    async fn accounted(
        &self,
        caller: Caller,
        routed: Routed,
        request: Request<tonic::body::Body>,
    ) -> Result<Response<Body>, tonic::Status> {
        let is_packed = request.headers().contains_key("grpc-encoding");
        let intake = Intake::new(&self.ledger, Some(caller), request.uri().path(), is_packed)?;
        let retired = Retiring::of(request.extensions()).wait();
        let opening = Opening { drain: self.drain.signal(), retired, silent: self.metrics.calls_silent.clone() };
        let request = request.map(|body| intake.count(body, opening));
        let mut response = intake.during(answered(routed, request)).await;
        let gzip = response.headers().get("grpc-encoding").is_some_and(|encoding| encoding == "gzip");
        if let Some(body) = response.extensions_mut().remove::<Elsewhere>().and_then(|it| it.into_body(gzip)) {
            response.extensions_mut().insert(IsWatch);
            return Ok(response.map(|_| body));
        }
        Ok(answer::leashed(response, None, &self.stall_guards))
    }
}

async fn answered(routed: Routed, request: Request<tonic::body::Body>) -> Response<tonic::body::Body> {
    match routed.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Adds details to errors of the library itself, such as an unknown method or a message that it rejects. For an
/// unsupported compression, the library already states which ones it supports.
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

/// Registers both versions: some current tools still use the older one.
fn reflection() -> Vec<(&'static str, Routed)> {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(pb::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // Tools decode the details of errors by these.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let mut routes = Vec::new();
    // The descriptors are generated with the API, so they can be decoded.
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
