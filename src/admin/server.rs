//! The thread that serves the admin pages.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::metrics::counter::Counter;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::past::Past;
use super::routes::{Pages, Scraped};
use super::{Config, Introspect, explain};
use crate::lifecycle::readiness::Registry;
use crate::lifecycle::slots::{Slot, Slots};
use crate::lifecycle::{self, Fatal};
use crate::telemetry::Metrics;

/// Enough for a few scrapers and probes. The kubelet restarts a container whose probes are not answered, so a new
/// connection is always accepted, and another one is closed.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// How long a connection may be without a request, or take for the head of one.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for clients that the network admits. The kubelet and scrapers ask at once.
const NETWORK_HEADER_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection is closed after this time, idle or not. A scraper connects again.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
/// The same for clients that the network admits. Prometheus gives up as early by default. What they do not read stays in
/// memory: no more than the metrics of so many seconds.
pub(super) const NETWORK_TIMEOUT: Duration = Duration::from_secs(10);
/// What the kernel keeps for a connection whose client does not read.
pub(super) const SEND_BUFFER: usize = 64 << 10;
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// The clients that can reach a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Programs on this machine. They see everything, so web pages in a browser must be kept out.
    Machine,
    /// Every client that the network admits. These see only health and metrics.
    Network,
}

/// The running admin side. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Admin {
    /// The address it actually listens on, with the port that was assigned.
    pub(crate) address: SocketAddr,
    /// The address for the kubelet and Prometheus, if there is one.
    pub(crate) probes: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    #[error("admin: listening on {address}: {error}")]
    Listen { address: SocketAddr, error: io::Error },
    #[error("admin: starting its thread: {0}")]
    Thread(io::Error),
}

// === impl Admin ===

impl Admin {
    /// Binds the address and starts the thread. If the thread's server fails, `fatal` is notified.
    ///
    /// # Errors
    /// The address cannot be bound, or the thread cannot be created.
    pub(crate) fn start(
        config: &Config,
        readiness: Registry,
        metrics: Metrics,
        caches: Arc<dyn Introspect>,
        fatal: &Fatal,
    ) -> Result<Self, AdminError> {
        let (listener, address) = bind(config.listen)?;
        let probes = config.probes.map(bind).transpose()?;
        let (probes, probes_address) = probes.map_or((None, None), |(listener, at)| (Some(listener), Some(at)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(AdminError::Thread)?;
        let closed = Counter::default();
        let help = "Connections to admin and probes closed for newer ones";
        metrics.register_with(|registry| registry.register("informerd_admin_connections_closed", help, closed.clone()));
        let pages = Pages { readiness, metrics, caches, past: Past::default(), scraped: Scraped::default() };
        let fatal = fatal.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let body = move || {
            runtime.block_on(async {
                let past = pages.past.clone().keep(Arc::clone(&pages.caches));
                let mut servers = vec![lifecycle::spawn_critical("admin history", past, &fatal)];
                if let Some(probes) = probes {
                    let served =
                        serve(probes, pages.clone(), Access::Network, Slots::new(MAX_CONNECTIONS, closed.clone()));
                    servers.push(lifecycle::spawn_critical("probes", served, &fatal));
                }
                let served = serve(listener, pages, Access::Machine, Slots::new(MAX_CONNECTIONS, closed));
                servers.push(lifecycle::spawn_critical("admin", served, &fatal));
                // Also ends when the sender is dropped.
                let _ = stopped.await;
                servers.iter().for_each(tokio::task::JoinHandle::abort);
            });
            // Requests in flight are dropped. What blocks a thread is not waited for.
            runtime.shutdown_timeout(Duration::from_secs(1));
        };
        let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(body).map_err(AdminError::Thread)?;
        Ok(Self { address, probes: probes_address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the admin thread panicked");
        }
    }
}

pub(super) fn bind(address: SocketAddr) -> Result<(StdListener, SocketAddr), AdminError> {
    let failed = |error| AdminError::Listen { address, error };
    let listener = StdListener::bind(address).map_err(failed)?;
    // Accepted connections inherit it.
    socket2::SockRef::from(&listener).set_send_buffer_size(SEND_BUFFER).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

async fn serve(listener: StdListener, pages: Pages, access: Access, slots: Arc<Slots>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "admin: the listener cannot be used"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let slot = slots.take(peer.ip());
                lifecycle::spawn("admin connection", connection(stream, pages.clone(), access, slot));
            }
            Err(error) => {
                tracing::warn!(%error, "admin: accept failed");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

pub(super) async fn connection(stream: TcpStream, pages: Pages, access: Access, slot: Slot) {
    let service = service_fn(|request| {
        slot.used();
        let pages = pages.clone();
        async move { Ok::<_, Infallible>(respond(&pages, request, access).await) }
    });
    // A page in a browser asks again and again. The network's clients get one answer for each connection.
    let (head, most, keep_alive) = match access {
        Access::Machine => (HEADER_TIMEOUT, CONNECTION_TIMEOUT, true),
        Access::Network => (NETWORK_HEADER_TIMEOUT, NETWORK_TIMEOUT, false),
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .keep_alive(keep_alive)
        .serve_connection(TokioIo::new(stream), service);
    let ended = tokio::select! {
        ended = tokio::time::timeout(most, connection) => ended,
        () = slot.lost() => return,
    };
    if let Ok(Err(error)) = ended {
        tracing::debug!(%error, "admin: connection ended");
    }
}

async fn respond(pages: &Pages, request: Request<Incoming>, access: Access) -> Response<Full<Bytes>> {
    if access == Access::Network {
        return pages.answer_network(request.method(), request.uri());
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if host.is_some_and(|host| !is_direct(host)) {
        let mut response = Response::new(Full::new(Bytes::from_static(b"this host name is not served here\n")));
        *response.status_mut() = StatusCode::FORBIDDEN;
        return response;
    }
    if request.uri().path().starts_with(explain::PREFIX) {
        return pages.explain(request.into_parts().0).await;
    }
    pages.answer(request.method(), request.uri())
}

/// Whether a `Host` header names localhost or an IP address. A web page whose own DNS name was made to resolve to this
/// machine (DNS rebinding) would send that name.
fn is_direct(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost") || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}
