//! `grpc.health.v1`. The service name "" stands for the daemon, any other name for a service, and
//! `informerd.v1.Objects/RESOURCE[.GROUP]` for the cache of one resource.

use std::time::Duration;

use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health as HealthService;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::Streamed;
use super::call::{Retiring, quotable};
use crate::lifecycle::drain::DrainWatch;
use crate::lifecycle::readiness::Registry;
use crate::reads::Reads;

/// How often a health watch checks the status.
const PERIOD: Duration = Duration::from_secs(1);
/// The prefix of the name of a resource.
const RESOURCES: &str = "informerd.v1.Objects/";

#[derive(Clone)]
pub(super) struct Health {
    pub(super) reads: Reads,
    pub(super) readiness: Registry,
    pub(super) drain: DrainWatch,
    /// The names of the known services.
    pub(super) services: Vec<&'static str>,
}

// === impl Health ===

impl Health {
    /// Returns `None` for an unknown service.
    fn status(&self, service: &str) -> Option<ServingStatus> {
        let serving = match service.strip_prefix(RESOURCES) {
            Some(resource) => self.reads.is_synced(resource)?,
            None if service.is_empty() || self.services.contains(&service) => self.readiness.is_ready(),
            None => return None,
        };
        Some(if serving && !self.drain.is_draining() { ServingStatus::Serving } else { ServingStatus::NotServing })
    }
}

#[tonic::async_trait]
impl HealthService for Health {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = &request.get_ref().service;
        let status = self.status(service);
        let status = status.ok_or_else(|| Status::not_found(format!("no service {:?}", quotable(service))))?;
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    type WatchStream = Streamed<HealthCheckResponse>;

    /// Reports SERVICE_UNKNOWN for a service until it is known. The stream ends when the daemon drains or when its
    /// connection must end.
    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let retiring = Retiring::of(request.extensions());
        let state = (self.clone(), request.into_inner().service, retiring, None);
        let changes = futures_util::stream::unfold(state, |(health, service, retiring, mut last)| async move {
            loop {
                let now = health.status(&service).unwrap_or(ServingStatus::ServiceUnknown);
                if last.replace(now) != Some(now) {
                    let response = HealthCheckResponse { status: now.into() };
                    return Some((Ok(response), (health, service, retiring, last)));
                }
                if health.drain.is_draining() || retiring.0.is_draining() {
                    return None;
                }
                tokio::select! {
                    () = tokio::time::sleep(PERIOD) => {}
                    () = health.drain.draining() => {}
                    () = retiring.wait() => {}
                }
            }
        });
        Ok(Response::new(Box::pin(changes)))
    }
}
