//! Connects the gRPC side to the listeners and to the apiserver.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, TE, USER_AGENT};
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::auth::Access;
use crate::auth::audit::Audit;
use crate::grpc::{CallInfo, Caller, Cluster, Grpc, Known, Retiring};
use crate::http::body::Body;
use crate::http::patient::Patient;
use crate::http::{AUDIT_ID, BoxFuture, Connection, Handler, RequestRecord, audit_id};
use crate::upstream::client::Upstream;
use crate::upstream::identity::cluster_uid;

/// Handles the gRPC calls that arrive on the listeners.
pub(super) struct Calls {
    pub(super) grpc: Grpc,
    pub(super) access: Access,
    pub(super) audit: Audit,
}

/// Identifies a cluster by the UID of its namespace `kube-system`, as is customary.
pub(super) struct KubeSystem {
    upstream: Upstream,
    known: Mutex<Uid>,
}

#[derive(Default)]
struct Uid {
    uid: Option<Arc<str>>,
    /// After a failed read, the time before which it must not be tried again.
    again: Option<Instant>,
}

/// The methods that read a stream of messages.
const STREAMS: [&str; 2] = ["/informerd.v1.Objects/Sync", "/informerd.v1.Queue/Work"];

/// The most headers that are kept of one call. A call needs far fewer.
const MAX_HEADERS: usize = 64;

const TIMEOUT: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_secs(60);

/// The record of the request that the listener keeps.
#[derive(Debug)]
struct Shown(Arc<RequestRecord>);

// === impl Shown ===

impl Known for Shown {
    fn is(&self, user: &str) {
        self.0.is(user);
    }
}

// === impl Calls ===

impl Handler for Calls {
    fn handle(&self, mut request: Request<Incoming>, connection: &Arc<Connection>) -> BoxFuture<Response<Body>> {
        let headers = needed(request.headers());
        *request.headers_mut() = headers;
        let grpc = self.grpc.clone();
        let retiring = Retiring(connection.age.long_call());
        let audit_id = audit_id(request.headers());
        let told = CallInfo {
            audit: self.audit.clone(),
            audit_id: String::from_utf8_lossy(audit_id.as_bytes()).into_owned(),
            uri: request.uri().path().to_owned(),
            source: connection.peer.map(|peer| peer.ip()),
            known: request.extensions().get().map(|of| Arc::new(Shown(Arc::clone(of))) as Arc<dyn Known>),
        };
        let caller = Caller::new(self.access.clone(), told, &connection.caller(request.headers()));
        Box::pin(async move {
            // A client's stream may be idle. A single message must arrive in time.
            let is_stream = STREAMS.contains(&request.uri().path());
            let mut request = request.map(|body| match is_stream {
                true => tonic::body::Body::new(body),
                false => tonic::body::Body::new(Patient::bounded(body)),
            });
            request.extensions_mut().insert(caller);
            request.extensions_mut().insert(retiring);
            let mut response = grpc.call(request).await;
            response.headers_mut().insert(AUDIT_ID, audit_id);
            response.map(Body::from)
        })
    }
}

/// The headers that the call needs: its credentials and those of gRPC. All others are dropped before anything is
/// awaited.
fn needed(headers: &HeaderMap) -> HeaderMap {
    const NAMES: [HeaderName; 5] = [AUTHORIZATION, USER_AGENT, CONTENT_TYPE, TE, AUDIT_ID];
    let is_needed = |name: &HeaderName| {
        NAMES.contains(name) || ["grpc-", "impersonate-"].iter().any(|prefix| name.as_str().starts_with(prefix))
    };
    let needed = headers.iter().filter(|(name, _)| is_needed(name)).take(MAX_HEADERS);
    needed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

// === impl KubeSystem ===

impl KubeSystem {
    pub(super) fn new(upstream: Upstream) -> Self {
        Self { upstream, known: Mutex::default() }
    }
}

impl Cluster for KubeSystem {
    fn id(&self) -> Pin<Box<dyn Future<Output = Arc<str>> + Send + '_>> {
        Box::pin(async move {
            let mut known = self.known.lock().await;
            let now = Instant::now();
            // A list from the cache must not wait for an apiserver that does not answer. Before the first request, that
            // is unknown.
            let is_away = self.upstream.health().error.is_some();
            let asks = !is_away && known.again.is_none_or(|again| again <= now);
            if known.uid.is_none() && asks {
                let uid = timeout(2 * TIMEOUT, cluster_uid(&self.upstream, TIMEOUT)).await;
                known.uid = uid.ok().and_then(Result::ok).filter(|uid| !uid.is_empty()).map(Into::into);
                known.again = Some(now + RETRY);
            }
            known.uid.clone().unwrap_or_default()
        })
    }
}
