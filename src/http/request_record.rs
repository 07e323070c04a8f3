//! The record of one request, for the table of clients, the latency histogram and the access log.

use std::sync::{Arc, OnceLock, Weak};

use http::{HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::access_log::{AccessLog, Line};
use super::answer::Body;
use super::door::Connection;
use super::record::{ClientStats, HttpMetrics, Plan, in_header};
use crate::auth::Grant;
use crate::codec::Slices;
use crate::lifecycle::multiplexer::IsWatch;

/// One request, from its beginning to the end of its answer.
#[derive(Debug)]
pub struct RequestRecord {
    stats: Arc<ClientStats>,
    metrics: Arc<HttpMetrics>,
    began: Instant,
    plan: OnceLock<Plan>,
    /// It ends with its own tasks, whoever keeps the record.
    connection: Weak<Connection>,
    log: AccessLog,
    /// `None` if there is no access log, and after the line is written.
    line: Mutex<Option<Line>>,
}

/// Records the end of an answer when it is dropped with the body.
struct Logged(Arc<RequestRecord>);

// === impl RequestRecord ===

impl RequestRecord {
    pub(super) fn begin<B>(
        request: &Request<B>,
        connection: &Arc<Connection>,
        grpc: bool,
        metrics: &Arc<HttpMetrics>,
        log: &AccessLog,
    ) -> Arc<Self> {
        Arc::new(Self {
            stats: metrics.clients.find(&connection.last, connection.peer, request.headers(), request.version(), grpc),
            metrics: Arc::clone(metrics),
            began: Instant::now(),
            plan: OnceLock::new(),
            connection: Arc::downgrade(connection),
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

    /// Records that the request was allowed by a decision that was kept because the apiserver is away.
    pub fn is_kept(&self) {
        if let Some(line) = &mut *self.line.lock() {
            line.kept = Some(true);
        }
    }

    /// Records who may have the answer.
    pub(super) fn allowed_by(&self, grant: &Grant) {
        self.is(grant.user().map_or("", |user| user.username.as_str()));
        if grant.is_kept() {
            self.is_kept();
        }
    }

    /// Has the connection end once its other requests have ended: the client is better served elsewhere.
    pub fn leave(&self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.close();
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
                (line.plan, line.reason) = (in_header(plan), reason);
                true
            }
            None => false,
        };
        let response = Arc::clone(&self.stats).count(response);
        if !is_logged {
            return response;
        }
        let logged = Logged(Arc::clone(self));
        response.map(|body| Body::new(body.inspect_frame(move |frame| logged.sent(frame))))
    }

    /// Records that the answer has ended or was abandoned.
    fn ended(&self) {
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

// === impl ClientStats ===

impl ClientStats {
    /// Counts the bytes sent for a response.
    pub(super) fn count(self: Arc<Self>, mut response: Response<Body>) -> Response<Body> {
        let is_watch = response.extensions().get::<IsWatch>().is_some();
        let rent = response.extensions_mut().remove();
        response.map(|body| body.counted(self.counting(is_watch, rent)))
    }
}

// === impl Logged ===

impl Logged {
    /// Records bytes that were sent, or the status with which a call ended.
    fn sent(&self, frame: &Frame<Slices>) {
        if let Some(line) = &mut *self.0.line.lock() {
            line.bytes += frame.data_ref().map_or(0, Slices::len) as u64;
            let status = frame.trailers_ref().and_then(|trailers| trailers.get(tonic::Status::GRPC_STATUS));
            line.code = code(status).or(line.code);
        }
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        self.0.ended();
    }
}

fn grpc_status<B>(response: &Response<B>) -> Option<&HeaderValue> {
    response.headers().get(tonic::Status::GRPC_STATUS)
}

fn code(status: Option<&HeaderValue>) -> Option<u16> {
    status?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::lifecycle::Fatal;
    use crate::lifecycle::signals::Hangups;
    use crate::telemetry::lines::{LineCounts, LinesTo};

    #[tokio::test]
    async fn the_line_of_a_request_says_whether_its_decision_was_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let (counts, to) = (Arc::<LineCounts>::default(), LinesTo::File(path.clone()));
        let log = AccessLog::start(&to, Arc::clone(&counts), &Hangups::default(), &Fatal::new()).unwrap();
        let connection = Arc::new(Connection::new("http://127.0.0.1:0".parse().unwrap(), None));
        let begin = || RequestRecord::begin(&Request::new(()), &connection, false, &Arc::default(), &log);
        drop(begin());
        let kept = begin();
        kept.is_kept();
        assert!(connection.closing.notified().now_or_never().is_none());
        kept.leave();
        assert!(connection.closing.notified().now_or_never().is_some());
        drop(kept);
        while counts.written.get() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let lines = std::fs::read_to_string(path).unwrap();
        let kept = |line| serde_json::from_str::<serde_json::Value>(line).unwrap().get("kept").cloned();
        assert_eq!(lines.lines().map(kept).collect::<Vec<_>>(), [None, Some(true.into())]);
    }
}
