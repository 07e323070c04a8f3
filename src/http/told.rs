//! What is told of one request: to the table of clients, and to the histogram of latencies.

use std::sync::{Arc, OnceLock};

use http::{Request, Response};
use tokio::time::Instant;

use super::body::Body;
use super::clients::Row;
use super::explain::Plan;
use super::metrics::HttpMetrics;
use super::server::Connection;

/// One request, from its beginning to the end of its answer.
#[derive(Debug)]
pub struct Told {
    row: Arc<Row>,
    metrics: Arc<HttpMetrics>,
    began: Instant,
    plan: OnceLock<Plan>,
}

// === impl Told ===

impl Told {
    pub(super) fn begin<B>(
        request: &Request<B>,
        connection: &Connection,
        grpc: bool,
        metrics: &Arc<HttpMetrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            row: metrics.clients.of(connection, request.headers(), request.version(), grpc),
            metrics: Arc::clone(metrics),
            began: Instant::now(),
            plan: OnceLock::new(),
        })
    }

    /// Whose it is.
    pub fn is(&self, user: &str) {
        self.row.is(user);
    }

    /// How it is answered. What is said first counts.
    pub(super) fn planned(&self, plan: Plan) {
        if self.plan.set(plan).is_ok()
            && let Plan::Forwarded(Some(reason)) = plan
        {
            self.row.forwarded(reason);
        }
    }

    /// What was answered. A call or a refusal of which nothing else is known is told by its status.
    pub(super) fn answered(self: &Arc<Self>, response: Response<Body>) -> Response<Body> {
        let (plan, _) = self.words(&response);
        self.metrics.latencies.observe(plan, self.began.elapsed());
        Arc::clone(&self.row).count(response)
    }

    fn words<B>(&self, response: &Response<B>) -> (&'static str, &'static str) {
        if let Some(plan) = self.plan.get() {
            return plan.words();
        }
        let grpc = response.headers().get(tonic::Status::GRPC_STATUS).is_some_and(|code| code != "0");
        let failed = grpc || response.status().is_client_error() || response.status().is_server_error();
        (if failed { "refuse" } else { "serve" }, "")
    }
}
