//! What is recorded of one request, for the table of clients, the histogram of latencies, and the access log.

use std::sync::{Arc, OnceLock};

use http::{HeaderValue, Request, Response};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::access_log::{AccessLog, Line, logged};
use super::body::Body;
use super::clients::ClientStats;
use super::explain::Plan;
use super::metrics::HttpMetrics;
use super::server::Connection;

/// One request, from its beginning to the end of its answer.
#[derive(Debug)]
pub struct RequestRecord {
    stats: Arc<ClientStats>,
    metrics: Arc<HttpMetrics>,
    began: Instant,
    plan: OnceLock<Plan>,
    log: AccessLog,
    /// `None` where there is no access log, and once the line is written.
    line: Mutex<Option<Line>>,
}

// === impl RequestRecord ===

impl RequestRecord {
    pub(super) fn begin<B>(
        request: &Request<B>,
        connection: &Connection,
        grpc: bool,
        metrics: &Arc<HttpMetrics>,
        log: &AccessLog,
    ) -> Arc<Self> {
        Arc::new(Self {
            stats: metrics.clients.of(connection, request.headers(), request.version(), grpc),
            metrics: Arc::clone(metrics),
            began: Instant::now(),
            plan: OnceLock::new(),
            log: log.clone(),
            line: Mutex::new(log.begin(request, connection, grpc)),
        })
    }

    /// Names the user whose request this is.
    pub fn is(&self, user: &str) {
        self.stats.is(user);
        if let Some(line) = &mut *self.line.lock() {
            user.clone_into(&mut line.user);
        }
    }

    /// How it is answered. What is said first counts.
    pub(super) fn planned(&self, plan: Plan) {
        if self.plan.set(plan).is_ok()
            && let Plan::Forwarded(Some(reason)) = plan
        {
            self.stats.forwarded(reason);
        }
    }

    /// What was answered. A call or a refusal of which nothing else is known is told by its status.
    pub(super) fn answered(self: &Arc<Self>, response: Response<Body>) -> Response<Body> {
        let (plan, reason) = self.words(&response);
        self.metrics.latencies.observe(plan, self.began.elapsed());
        let is_logged = match &mut *self.line.lock() {
            Some(line) => {
                (line.status, line.code) = (response.status().as_u16(), code(grpc_status(&response)));
                (line.plan, line.reason) = (in_log(plan), reason);
                true
            }
            None => false,
        };
        let response = Arc::clone(&self.stats).count(response);
        if is_logged { logged(response, Arc::clone(self)) } else { response }
    }

    /// So many bytes of the answer, or how a call ended.
    pub(super) fn sent(&self, bytes: usize, status: Option<&HeaderValue>) {
        if let Some(line) = &mut *self.line.lock() {
            line.bytes += bytes as u64;
            line.code = code(status).or(line.code);
        }
    }

    /// The answer has ended, or was given up.
    pub(super) fn ended(&self) {
        if let Some(mut line) = self.line.lock().take() {
            line.duration_ms = self.began.elapsed().as_micros() as f64 / 1e3;
            self.log.write(&line);
        }
    }

    fn words<B>(&self, response: &Response<B>) -> (&'static str, &'static str) {
        if let Some(plan) = self.plan.get() {
            return plan.words();
        }
        let call_failed = grpc_status(response).is_some_and(|code| code != "0");
        let failed = call_failed || response.status().is_client_error() || response.status().is_server_error();
        (if failed { "refuse" } else { "serve" }, "")
    }
}

impl Drop for RequestRecord {
    /// A client that leaves before its answer begins is told of as well.
    fn drop(&mut self) {
        self.ended();
    }
}

fn grpc_status<B>(response: &Response<B>) -> Option<&HeaderValue> {
    response.headers().get(tonic::Status::GRPC_STATUS)
}

fn code(status: Option<&HeaderValue>) -> Option<u16> {
    status?.to_str().ok()?.parse().ok()
}

/// The words of the header that explains an answer.
fn in_log(plan: &'static str) -> &'static str {
    match plan {
        "serve" | "old" => "served",
        "wait" => "waited",
        "forward" => "forwarded",
        _ => "refused",
    }
}
