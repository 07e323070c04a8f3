//! The admin pages: a pure function of the path and of the daemon's state.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode, Uri, header};
use http_body_util::Full;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::past::Past;
use super::status::Status;
use super::{Introspect, assets, explain, health};
use crate::lifecycle::readiness::Registry;
use crate::telemetry::{CONTENT_TYPE, Metrics};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// For so long, the metrics need not be encoded again.
const FRESH: Duration = Duration::from_secs(1);

const INDEX: &str = "\
informerd

/livez          200 while the process runs
/readyz         200 when ready; else 503 and what is pending; with ?verbose every check, as /livez has it
/metrics        counters for Prometheus
/status         what it does, for a browser; `informerd status` says it in a terminal
/status.json    the same as JSON
/debug/caches   every informer, as JSON
/explain/PATH   what would become of a request for PATH with these headers, as JSON; `informerd explain` says it in a terminal
";

const PATHS: &[&str] = &["/", "/livez", "/readyz", "/metrics", "/debug/caches", "/status.json"];

const PROBES_INDEX: &str = "\
informerd

/livez          200 while the process runs
/readyz         200 when ready; else 503 and what is pending; with ?verbose every check, as /livez has it
/metrics        counters for Prometheus
";

/// The data of the pages. Clones share it.
#[derive(Clone)]
pub(super) struct Pages {
    pub(super) readiness: Registry,
    pub(super) metrics: Metrics,
    pub(super) caches: Arc<dyn Introspect>,
    pub(super) past: Past,
    pub(super) scraped: Scraped,
}

/// The metrics for the network, and when they were encoded. The thread that answers the kubelet does it, so whoever asks for
/// them again and again gets the same ones.
pub(super) type Scraped = Arc<Mutex<Option<(Instant, Bytes)>>>;

// === impl Pages ===

impl Pages {
    pub(super) fn answer(&self, method: &Method, uri: &Uri) -> Response<Full<Bytes>> {
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let found = assets::find(path);
        if (PATHS.contains(&path) || found.is_some()) && method != Method::GET && method != Method::HEAD {
            let mut response = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only get is supported\n".to_owned());
            response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if let Some((content_type, text)) = found {
            return asset(content_type, text);
        }
        match path {
            "/" => page(StatusCode::OK, TEXT, INDEX.to_owned()),
            "/livez" => verdict(health::live(health::is_verbose(query))),
            "/readyz" => verdict(health::ready(&self.readiness, &self.caches.apiserver(), health::is_verbose(query))),
            "/metrics" => page(StatusCode::OK, CONTENT_TYPE, self.metrics.encode()),
            "/debug/caches" => self.caches(),
            "/status.json" => self.status(query),
            _ => page(StatusCode::NOT_FOUND, TEXT, format!("no such page\n\n{INDEX}")),
        }
    }

    pub(super) async fn explain(&self, request: Parts) -> Response<Full<Bytes>> {
        let Some(asked) = explain::asked(request) else {
            return page(StatusCode::NOT_FOUND, TEXT, format!("no path to be explained\n\n{INDEX}"));
        };
        match self.caches.explain(asked).await {
            Some(explanation) => json(serde_json::to_string(&explanation)),
            None => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, "too many questions at once, or the end\n".to_owned()),
        }
    }

    /// The pages for the network: numbers, and the names of cached types, namespaces and selectors. They contain no
    /// objects. Of clients they contain only the names of their work queues, and of the users that own these.
    pub(super) fn answer_network(&self, method: &Method, uri: &Uri) -> Response<Full<Bytes>> {
        match uri.path() {
            "/metrics" if matches!(*method, Method::GET | Method::HEAD) => {
                page(StatusCode::OK, CONTENT_TYPE, self.scraped())
            }
            "/livez" | "/readyz" | "/metrics" => self.answer(method, uri),
            _ => page(StatusCode::NOT_FOUND, TEXT, PROBES_INDEX.to_owned()),
        }
    }

    /// The metrics of this second.
    fn scraped(&self) -> Bytes {
        let mut scraped = self.scraped.lock();
        if let Some((_, text)) = scraped.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return text.clone();
        }
        let text = Bytes::from(self.metrics.encode());
        *scraped = Some((Instant::now(), text.clone()));
        text
    }

    /// With `?since=SECONDS`, only the later points of the history: the page has the others.
    fn status(&self, query: &str) -> Response<Full<Bytes>> {
        let since = query.split('&').find_map(|pair| pair.strip_prefix("since=")?.parse().ok()).unwrap_or(0);
        json(serde_json::to_string(&Status::now(&self.readiness, &*self.caches, &self.past, since)))
    }

    fn caches(&self) -> Response<Full<Bytes>> {
        let caches = super::caches::sorted(self.caches.lists().caches);
        json(serde_json::to_string_pretty(&serde_json::json!({ "caches": caches })))
    }
}

/// A file of the status page. Nothing that it shows may run as a script, whatever the name of an object is, and nothing
/// is loaded from other origins.
fn asset(content_type: &'static str, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = page(StatusCode::OK, content_type, text.to_owned());
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                  base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, header::HeaderValue::from_static(policy));
    response
}

fn verdict(health::Verdict { good, text }: health::Verdict) -> Response<Full<Bytes>> {
    page(if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, TEXT, text)
}

fn json(text: serde_json::Result<String>) -> Response<Full<Bytes>> {
    match text {
        Ok(text) => page(StatusCode::OK, JSON, text + "\n"),
        Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
    }
}

fn page(status: StatusCode, content_type: &'static str, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}
