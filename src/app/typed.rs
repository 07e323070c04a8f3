//! Connects the gRPC side to the listeners and to the apiserver.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, TE};
use http::{Request, Response};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tonic::Status;

use crate::apiserver::client::Upstream;
use crate::auth::Access;
use crate::auth::audit::{self, Audit};
use crate::grpc::{CallInfo, Caller, Cluster, Grpc, Retiring, UserObserver};
use crate::http::{AUDIT_ID, Body, BoxFuture, Connection, Handler, Patient, RequestBody, RequestRecord, audit_id};
use crate::memory::Ledger;
use crate::upstream::identity::cluster_uid;

/// Handles the gRPC calls that arrive on the listeners.
pub(super) struct Calls {
    pub(super) grpc: Grpc,
    pub(super) access: Access,
    pub(super) audit: Audit,
    pub(super) ledger: Ledger,
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

/// The headers of gRPC itself. Who asks is decided by the whole head, see [`Caller::new`].
const NEEDED: [HeaderName; 5] = [
    CONTENT_TYPE,
    TE,
    HeaderName::from_static("grpc-timeout"),
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-accept-encoding"),
];

const TIMEOUT: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_secs(60);

/// The record of the request that the listener keeps.
impl UserObserver for RequestRecord {
    fn is(&self, user: &str) {
        RequestRecord::is(self, user);
    }

    fn is_kept(&self) {
        RequestRecord::is_kept(self);
    }

    fn leave(&self) {
        RequestRecord::leave(self);
    }
}

// === impl Calls ===

impl Handler for Calls {
    fn handle(&self, request: Request<RequestBody>, connection: &Arc<Connection>) -> BoxFuture<Response<Body>> {
        let grpc = self.grpc.clone();
        let retiring = Retiring(connection.age.long_call());
        let (caller, audit_id) = caller(&self.access, &self.audit, &self.ledger, &request, connection);
        // A client's stream may be idle. A single message must arrive in time.
        let is_stream = STREAMS.contains(&request.uri().path());
        // The rest of the head is dropped before anything is awaited.
        let mut request = needed(request).map(|body| match is_stream {
            true => tonic::body::Body::new(body),
            false => tonic::body::Body::new(Patient::bounded(body)),
        });
        request.extensions_mut().insert(retiring);
        Box::pin(async move {
            let mut response = match caller {
                Ok(caller) => {
                    request.extensions_mut().insert(caller);
                    grpc.call(request).await
                }
                Err(status) => status.into_http(),
            };
            response.headers_mut().insert(AUDIT_ID, audit_id);
            response.map(Body::from)
        })
    }
}

/// The caller, which the whole head decides, and the id that the answer names.
fn caller<B>(
    access: &Access,
    audit: &Audit,
    ledger: &Ledger,
    request: &Request<B>,
    connection: &Connection,
) -> (Result<Caller, Status>, HeaderValue) {
    let audit_id = audit_id(request.headers());
    let told = CallInfo {
        audit: audit.clone(),
        // Each part of a selection has an entry with it.
        audit_id: audit::cut(audit_id.as_bytes()),
        uri: request.uri().path().to_owned(),
        connection: connection.id,
        source: connection.peer.map(|peer| peer.ip()),
        known: request.extensions().get::<Arc<RequestRecord>>().map(|of| Arc::clone(of) as Arc<dyn UserObserver>),
    };
    // Over HTTP, the apiserver echoes an id of any length. A long one is cut here as in the audit log.
    let audit_id = match audit_id.len() > told.audit_id.len() {
        true => HeaderValue::from_bytes(told.audit_id.as_bytes()).unwrap_or(audit_id),
        false => audit_id,
    };
    (Caller::new(access.clone(), told, &connection.caller(request.headers()), ledger), audit_id)
}

/// The call with what gRPC needs of its head, in buffers of its own: a header and a path are slices of the buffer that the
/// whole head was read into. Of several lines of one name, the first counts, as for the library.
fn needed<B>(request: Request<B>) -> Request<B> {
    let (head, body) = request.into_parts();
    let mut request = Request::new(body);
    *request.method_mut() = head.method;
    *request.version_mut() = head.version;
    // A path that was parsed before is parsed again.
    *request.uri_mut() = head.uri.path().to_owned().try_into().unwrap_or_default();
    for name in NEEDED {
        if let Some(copy) = head.headers.get(&name).and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok()) {
            request.headers_mut().insert(name, copy);
        }
    }
    request
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    proptest::proptest! {
        /// Behind a proxy that impersonates, its user chooses the other headers. What the credentials of a head are is tested
        /// with them.
        #[test]
        fn who_is_impersonated_is_found_behind_any_number_of_other_headers(
            fillers in 0..400_usize, asks in proptest::sample::subsequence(
                vec![("impersonate-user", "jane"), ("authorization", "Bearer t"), ("authorization", "Bearer u")], 0..=3,
            ),
        ) {
            let connection = Connection::new("http://127.0.0.1:1".parse().unwrap(), None);
            let mut request = Request::post("/informerd.v1.Objects/List").body(()).unwrap();
            let fillers = (0..fillers).map(|n| (["grpc-filler", "cookie"][n % 2], "x"));
            for (name, value) in fillers.chain(asks) {
                request.headers_mut().append(name, HeaderValue::from_static(value));
            }
            let (access, ledger) = (Access::trusting(), Ledger::default());
            let (caller, _) = caller(&access, &Audit::off(), &ledger, &request, &connection);
            let (kept, whole) = (format!("{:?}", caller.unwrap()), crate::auth::credentials(request.headers(), false));
            proptest::prop_assert!(kept.contains(&format!("{whole:?}")), "{kept}, not {whole:?}");
        }
    }

    #[test]
    fn what_grpc_needs_is_found_in_any_head_and_keeps_nothing_else() {
        for fillers in [0, 1, 62, 63, 64, 65, 5000] {
            let head = Bytes::from(vec![b'x'; 1 << 20]);
            let mut request = Request::new(());
            *request.uri_mut() = http::Uri::from_maybe_shared(Bytes::from_static(b"/a.B/C").slice(..)).unwrap();
            let slice = |range| HeaderValue::from_maybe_shared(head.slice(range)).unwrap();
            for _ in 0..fillers {
                request.headers_mut().append("grpc-filler", slice(0..200));
            }
            for name in NEEDED {
                request.headers_mut().append(name, slice(0..3));
            }
            request.headers_mut().append("authorization", slice(0..700_000));
            let request = needed(request);
            assert_eq!((request.headers().len(), request.uri().path()), (NEEDED.len(), "/a.B/C"), "{fillers}");
            assert!(NEEDED.iter().all(|name| request.headers()[name] == "xxx"), "{fillers}");
            assert!(head.is_unique(), "nothing else holds the head");
        }
    }
}
