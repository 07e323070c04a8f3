//! The admin pages: a pure function of the path and of what the daemon says of itself.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use http_body_util::Full;

use super::Introspect;
use crate::lifecycle::readiness::{PendingState, Registry};
use crate::telemetry::{CONTENT_TYPE, Metrics};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

const INDEX: &str = "\
informerd

/livez          200 while the process runs
/readyz         200 when ready; else 503 and what is pending
/metrics        counters for Prometheus
/debug/caches   every informer, as JSON
";

/// What the pages show. Cloning shares it.
#[derive(Clone)]
pub(super) struct Pages {
    pub(super) readiness: Registry,
    pub(super) metrics: Metrics,
    pub(super) caches: Arc<dyn Introspect>,
}

// === impl Pages ===

impl Pages {
    pub(super) fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let known = matches!(path, "/" | "/livez" | "/readyz" | "/metrics" | "/debug/caches");
        if known && method != Method::GET && method != Method::HEAD {
            let mut response = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only get is supported\n".to_owned());
            response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match path {
            "/" => page(StatusCode::OK, TEXT, INDEX.to_owned()),
            "/livez" => page(StatusCode::OK, TEXT, "ok\n".to_owned()),
            "/readyz" => self.readyz(),
            "/metrics" => page(StatusCode::OK, CONTENT_TYPE, self.metrics.encode()),
            "/debug/caches" => self.caches(),
            _ => page(StatusCode::NOT_FOUND, TEXT, format!("no such page\n\n{INDEX}")),
        }
    }

    fn readyz(&self) -> Response<Full<Bytes>> {
        let pending = self.readiness.pending();
        if pending.is_empty() {
            return page(StatusCode::OK, TEXT, "ok\n".to_owned());
        }
        let mut text = String::from("not ready\n");
        for entry in pending {
            let state = match entry.state {
                PendingState::Waiting => "pending",
                PendingState::Failed => "failed",
                PendingState::Withdrawn => "withdrawn",
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}: {state}", entry.name);
        }
        page(StatusCode::SERVICE_UNAVAILABLE, TEXT, text)
    }

    fn caches(&self) -> Response<Full<Bytes>> {
        let mut caches = self.caches.caches();
        caches.sort_by(|a, b| {
            let key = |info: &super::CacheInfo| (info.resource.clone(), info.namespace.clone(), info.encoding.clone());
            key(a).cmp(&key(b))
        });
        match serde_json::to_string_pretty(&serde_json::json!({ "caches": caches })) {
            Ok(text) => page(StatusCode::OK, JSON, text + "\n"),
            Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
        }
    }
}

fn page(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}
