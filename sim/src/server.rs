//! The server itself: the listener, the connections, and the handle for tests.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::counts::{Counters, Counts, RequestRecord};
use super::fault::Faults;
use super::handler;
use super::net::{Order, Socket};
use super::registry::widgets_definition;
use super::store::{Store, View};
use crate::types::{ObjectKey, Status};

/// Configures a server. Defaults: any port, revision 1000, 10,000 changes of history per resource, a bookmark every
/// 60 s, 100 HTTP/2 streams per connection.
#[derive(Clone, Debug)]
pub struct Builder {
    port: u16,
    revision: u64,
    history: usize,
    pub(super) bookmark_every: Duration,
    progress_every: Option<Duration>,
    max_streams: u32,
    pub(super) protobuf: bool,
    objects: Vec<Value>,
}

/// The status that a review gets: from the path and the question.
pub type Reviews = Arc<dyn Fn(&str, &Value) -> Option<Value> + Send + Sync>;

/// A running server. Clones share it. It stops when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Server {
    shared: Arc<Shared>,
    /// The listener. It owns the connections.
    tasks: Arc<Mutex<JoinSet<()>>>,
    /// Tasks that continue while the listener is down.
    background: Arc<Mutex<JoinSet<()>>>,
}

pub(super) struct Shared {
    pub view: View,
    pub faults: Faults,
    pub counters: Arc<Counters>,
    pub settings: Builder,
    address: SocketAddr,
    serial: AtomicU64,
    pub reviews: RwLock<Option<Reviews>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("address", &self.address).finish_non_exhaustive()
    }
}

// === impl Builder ===

impl Builder {
    /// 0 selects any free port of 127.0.0.1.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The revision before the first object.
    #[must_use]
    pub fn revision(mut self, revision: u64) -> Self {
        self.revision = revision;
        self
    }

    /// The number of changes to keep per resource.
    #[must_use]
    pub fn history(mut self, changes: usize) -> Self {
        self.history = changes;
        self
    }

    #[must_use]
    pub fn bookmark_every(mut self, every: Duration) -> Self {
        self.bookmark_every = every;
        self
    }

    /// Periodically updates the bookmarks of all resources to the revision of the store, like etcd's progress
    /// notifications. Off by default: then only changes and consistent reads of a resource advance its bookmarks.
    #[must_use]
    pub fn progress_every(mut self, every: Duration) -> Self {
        self.progress_every = Some(every);
        self
    }

    /// The most HTTP/2 streams per connection.
    #[must_use]
    pub fn max_streams(mut self, streams: u32) -> Self {
        self.max_streams = streams;
        self
    }

    /// Serves config maps and secrets in protobuf, too. Its Statuses are in JSON, but for those in watches.
    #[must_use]
    pub fn protobuf(mut self) -> Self {
        self.protobuf = true;
        self
    }

    /// Adds an object that exists from the start. It is listed but is not in the history.
    #[must_use]
    pub fn object(mut self, object: Value) -> Self {
        self.objects.push(object);
        self
    }

    /// Binds the port and starts to serve. Fails if a given object cannot be stored or the port cannot be bound.
    pub async fn start(mut self) -> io::Result<Server> {
        let store = Arc::new(Store::new(self.revision, self.history));
        for object in std::iter::once(widgets_definition()).chain(self.objects.drain(..)) {
            store.create(object).map_err(|status| io::Error::other(status.message))?;
        }
        store.compact();
        let progress_every = self.progress_every;
        let server = Server::serve(self, View { store: store.clone(), delay: Duration::ZERO }, None).await?;
        if let Some(every) = progress_every {
            server.background.lock().spawn(async move {
                loop {
                    tokio::time::sleep(every).await;
                    store.notify_progress();
                }
            });
        }
        Ok(server)
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            port: 0,
            revision: 1000,
            history: 10_000,
            bookmark_every: Duration::from_secs(60),
            progress_every: None,
            max_streams: 100,
            protobuf: false,
            objects: Vec::new(),
        }
    }
}

// === impl Server ===

impl Server {
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a second server on its own port with the same store. It sees every write after `delay`, like another
    /// apiserver of the same cluster. It has its own faults and counters.
    pub async fn replica(&self, delay: Duration) -> io::Result<Self> {
        let settings = Builder { port: 0, ..self.shared.settings.clone() };
        let reviews = self.shared.reviews.read().clone();
        Self::serve(settings, View { store: self.store().clone(), delay }, reviews).await
    }

    async fn serve(settings: Builder, view: View, reviews: Option<Reviews>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", settings.port)).await?;
        let shared = Arc::new(Shared {
            faults: Faults::new(view.store.clone()),
            view,
            counters: Arc::default(),
            settings,
            address: listener.local_addr()?,
            serial: AtomicU64::new(0),
            reviews: RwLock::new(reviews),
        });
        let server = Self { shared: shared.clone(), tasks: Arc::default(), background: Arc::default() };
        server.tasks.lock().spawn(accept(shared, listener));
        Ok(server)
    }

    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// `http://127.0.0.1:port`
    pub fn url(&self) -> String {
        format!("http://{}", self.shared.address)
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.shared.view.store
    }

    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    pub fn counts(&self) -> Counts {
        self.shared.counters.snapshot()
    }

    /// The most recent requests, oldest first.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.shared.counters.records()
    }

    /// Creates an object and returns its resourceVersion.
    pub fn create(&self, object: Value) -> Result<u64, Box<Status>> {
        self.store().create(object).map(|stored| stored.rv)
    }

    /// Replaces an object. Without a resourceVersion the update is unconditional.
    pub fn update(&self, object: Value) -> Result<u64, Box<Status>> {
        self.store().update(object).map(|stored| stored.rv)
    }

    /// Deletes an object immediately and returns the revision of the deletion. `namespace` is empty for cluster
    /// scope.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<u64, Box<Status>> {
        self.store().delete(resource, &ObjectKey::new(namespace, name)).map(|stored| stored.rv)
    }

    /// The current keys and resourceVersions of a resource.
    pub fn state(&self, resource: &str) -> BTreeMap<String, u64> {
        self.store().state(resource)
    }

    /// The store's current revision.
    pub fn revision(&self) -> u64 {
        self.store().revision()
    }

    /// Answers POST requests that no resource gets, such as reviews of tokens and of access.
    pub fn set_reviews(&self, reviews: impl Fn(&str, &Value) -> Option<Value> + Send + Sync + 'static) {
        *self.shared.reviews.write() = Some(Arc::new(reviews));
    }

    /// Adds to `/apis` what an aggregated API server sends for its group, whatever that is.
    pub fn set_foreign_group(&self, group: Option<Value>) {
        self.store().inner.write().foreign = group;
    }

    /// Closes the listener, drops every connection, and listens again on the same port after `down`. With
    /// `compacted`, the earlier history is lost.
    pub async fn restart(&self, down: Duration, compacted: bool) -> io::Result<()> {
        self.tasks.lock().abort_all();
        self.shared.faults.shared.connections.order(Order::Fin);
        tokio::time::sleep(down).await;
        if compacted {
            self.store().compact();
        }
        let listener = bind_again(self.shared.address).await?;
        let mut tasks = self.tasks.lock();
        tasks.spawn(accept(self.shared.clone(), listener));
        Ok(())
    }
}

/// Retries, because the old listener may take a moment to close.
async fn bind_again(address: SocketAddr) -> io::Result<TcpListener> {
    for _ in 0..100 {
        if let Ok(listener) = TcpListener::bind(address).await {
            return Ok(listener);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    TcpListener::bind(address).await
}

// === impl Shared ===

impl Shared {
    pub(super) fn serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(shared.clone(), stream));
                }
                // No file descriptors are left: wait until some connections end.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(shared: Arc<Shared>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let connection = shared.faults.shared.connections.add();
    let mut orders = connection.orders();
    let io = TokioIo::new(Socket::new(stream, connection.clone()));
    let service = service_fn(|request| {
        let (shared, connection) = (shared.clone(), connection.clone());
        async move {
            let response = handler::handle(&shared, &connection, request).await;
            let counters = shared.counters.clone();
            let counted = response.map(|body| {
                body.inspect_frame(move |frame| counters.sent(frame.data_ref().map_or(0, bytes::Bytes::len)))
            });
            Ok::<_, std::convert::Infallible>(counted)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(shared.settings.max_streams);
    let serving = builder.serve_connection(io, service);
    let mut serving = std::pin::pin!(serving);
    loop {
        tokio::select! {
            _ = serving.as_mut() => return,
            changed = orders.changed() => match (*orders.borrow_and_update(), changed) {
                (Order::GoAway, Ok(())) => serving.as_mut().graceful_shutdown(),
                (Order::Serve, Ok(())) => {}
                // Dropping the connection closes it, or resets it if that was the order.
                _ => return,
            },
        }
    }
}
