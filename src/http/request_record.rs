//! The record of one request, for the table of clients, the latency histogram and the access log.

use std::sync::{Arc, OnceLock};

use http::{HeaderValue, Request, Response};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::access_log::{AccessLog, Line, logged};
use super::body::Body;
use super::clients::ClientStats;
use super::connection::Connection;
use super::explain::Plan;
use super::metrics::HttpMetrics;

/// One request, from its beginning to the end of its answer.
#[derive(Debug)]
pub struct RequestRecord {
    stats: Arc<ClientStats>,
    metrics: Arc<HttpMetrics>,
    began: Instant,
    plan: OnceLock<Plan>,
    log: AccessLog,
    /// `None` if there is no access log, and after the line is written.
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

    /// Sets the user of this request.
    pub fn is(&self, user: &str) {
        self.stats.is(user);
        if let Some(line) = &mut *self.line.lock() {
            user.clone_into(&mut line.user);
        }
    }

    /// Records how the request is answered. Only the first call counts.
    pub(super) fn planned(&self, plan: Plan) {
        if self.plan.set(plan).is_ok()
            && let Plan::Forwarded(Some(reason)) = plan
        {
            self.stats.forwarded(reason);
        }
    }

    /// Records the answer. If no plan was recorded, as for gRPC calls and refusals, the status decides.
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

    /// Records bytes that were sent, or the status with which a call ended.
    pub(super) fn sent(&self, bytes: usize, status: Option<&HeaderValue>) {
        if let Some(line) = &mut *self.line.lock() {
            line.bytes += bytes as u64;
            line.code = code(status).or(line.code);
        }
    }

    /// Records that the answer has ended or was abandoned.
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
    /// Requests whose client disconnects before the answer begins are logged too.
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

/// The plan as named by the header that explains an answer.
fn in_log(plan: &'static str) -> &'static str {
    match plan {
        "serve" | "old" => "served",
        "wait" => "waited",
        "forward" => "forwarded",
        _ => "refused",
    }
}
